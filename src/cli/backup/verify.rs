use std::path::PathBuf;

use serde_json::json;

use super::{
    off_thread,
    told::{Form, line, object},
};
use crate::{
    backup::{self, Verified},
    cli::{
        exit::{Exit, Failure},
        output::{print, print_json, say},
    },
};

pub(super) async fn execute(dir: PathBuf, form: Form) -> Result<Exit, Failure> {
    let at = dir.clone();
    let Verified { manifest, damage } = off_thread(move || backup::verify(&at, &mut |_| Ok(()))).await?;
    for damage in &damage {
        say(format!("damaged   {damage}"));
    }
    for damage in &manifest.damage {
        say(format!("damaged   in the store itself, when this was made: {damage}"));
    }
    match form {
        Form::Json => {
            let mut object = object(&dir, &manifest);
            object["ok"] = damage.is_empty().into();
            object["damage"] = json!(damage);
            print_json(&object)?;
        }
        Form::Text => {
            let word = if damage.is_empty() { "whole    " } else { "damaged  " };
            print(&format!("{word} {} of {}: {}", dir.display(), manifest.created_at, line(&manifest)))?;
        }
    }
    Ok(if damage.is_empty() { Exit::Ok } else { Exit::Store })
}
