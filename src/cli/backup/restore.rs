//! `hermod backup restore`: makes a backup the store of the state directory.

use std::path::PathBuf;

use super::{
    off_thread,
    report::{OutputFormat, line, object},
};
use crate::{
    backup::{self, ExistingStore, RestoreReport},
    cli::{
        exit::{CliError, Exit},
        output::{print, print_json, print_note},
    },
};

impl From<bool> for ExistingStore {
    fn from(replace: bool) -> Self {
        if replace { Self::Replace } else { Self::Keep }
    }
}

pub(super) async fn execute(
    (dir, state): (PathBuf, PathBuf),
    present: ExistingStore,
    form: OutputFormat,
) -> Result<Exit, CliError> {
    let (from, to) = (dir.clone(), state.clone());
    let restored = off_thread(move || backup::restore(&to, &from, present, &mut |_| Ok(()))).await?;
    let RestoreReport { manifest, epoch, restore_generation: lineage, ended, replaced } = restored;
    if let OutputFormat::Json = form {
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
        print_note(format!("ended     {ended} commands of the store that was there"));
    }
    if let Some(replaced) = replaced {
        print_note(format!("replaced  the store that was there lies in {}", replaced.display()));
    }
    print(&format!("restored  {} of {}: {}", state.display(), manifest.created_at, line(&manifest)))?;
    if manifest.counts.open_runs > 0 {
        print_note(
            "unfinished runs go on with `hermod runs resume --all --wait`; what their commands were at is in doubt",
        );
    }
    Ok(Exit::Ok)
}
