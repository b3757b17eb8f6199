use std::path::PathBuf;

use super::{
    off_thread,
    told::{Form, line, object},
};
use crate::{
    backup::{self, Present, Restored},
    cli::{
        exit::{Exit, Failure},
        output::{print, print_json, say},
    },
};

impl From<bool> for Present {
    fn from(replace: bool) -> Self {
        if replace { Self::Replace } else { Self::Keep }
    }
}

pub(super) async fn execute(
    (dir, state): (PathBuf, PathBuf),
    present: Present,
    form: Form,
) -> Result<Exit, Failure> {
    let (from, to) = (dir.clone(), state.clone());
    let restored = off_thread(move || backup::restore(&to, &from, present, &mut |_| Ok(()))).await?;
    let Restored { manifest, epoch, lineage, ended, replaced } = restored;
    if let Form::Json = form {
        let mut object = object(&dir, &manifest);
        object["state"] = state.display().to_string().into();
        object["epoch"] = epoch.into();
        object["lineage"] = lineage.into();
        object["ended"] = ended.into();
        object["replaced"] = replaced.map(|replaced| replaced.display().to_string()).into();
        print_json(&object)?;
        return Ok(Exit::Ok);
    }
    if ended > 0 {
        say(format!("ended     {ended} commands of the store that was there"));
    }
    if let Some(replaced) = replaced {
        say(format!("replaced  the store that was there lies in {}", replaced.display()));
    }
    print(&format!("restored  {} of {}: {}", state.display(), manifest.created_at, line(&manifest)))?;
    if manifest.counts.open_runs > 0 {
        say(
            "unfinished runs go on with `hermod runs resume --all --wait`; what their commands were at is in doubt",
        );
    }
    Ok(Exit::Ok)
}
