use std::path::PathBuf;

use serde_json::json;

use super::{
    off_thread,
    report::{OutputFormat, line, object},
};
use crate::{
    backup::{self, VerifyReport},
    cli::{
        exit::{CliError, Exit},
        output::{print, print_json, print_note},
    },
};

pub(super) async fn execute(dir: PathBuf, form: OutputFormat) -> Result<Exit, CliError> {
    let at = dir.clone();
    let VerifyReport { manifest, damage } = off_thread(move || backup::verify(&at, &mut |_| Ok(()))).await?;
    for damage in &damage {
        print_note(format!("damaged   {damage}"));
    }
    for damage in &manifest.damage {
        print_note(format!("damaged   in the store itself, when this was made: {damage}"));
    }
    match form {
        OutputFormat::Json => {
            let mut object = object(&dir, &manifest);
            object["ok"] = damage.is_empty().into();
            object["damage"] = json!(damage);
            print_json(&object)?;
        }
        OutputFormat::Text => {
            let word = if damage.is_empty() { "whole    " } else { "damaged  " };
            print(&format!("{word} {} of {}: {}", dir.display(), manifest.created_at, line(&manifest)))?;
        }
    }
    Ok(if damage.is_empty() { Exit::Ok } else { Exit::Store })
}
