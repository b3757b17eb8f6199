//! `hermod backup restore`: makes a backup the store of the state directory.

use std::path::PathBuf;

use super::{off_thread, report::format_backup};
use crate::{
    backup::{self, ExistingStore, RestoredBackupView},
    cli::{
        exit::{CliError, Exit},
        output::{print, print_json, print_note},
    },
};

pub(super) async fn execute(
    dir: PathBuf,
    state: PathBuf,
    existing: ExistingStore,
    json: bool,
) -> Result<Exit, CliError> {
    let restored = off_thread(move || backup::restore(&state, &dir, existing, &mut |_| Ok(()))).await?;
    if json {
        print_json(&restored)?;
        return Ok(Exit::Ok);
    }
    let RestoredBackupView { backup, state, ended, replaced } = restored;
    if ended > 0 {
        print_note(format!("ended     {ended} commands of the store that was there"));
    }
    if let Some(replaced) = replaced {
        print_note(format!("replaced  the store that was there lies in {replaced}"));
    }
    print(&format!("restored  {state} of {}: {}", backup.info.created_at, format_backup(&backup)))?;
    if backup.info.counts.open_runs > 0 {
        print_note(
            "unfinished runs go on with `hermod runs resume --all --wait`; what their commands were at is in doubt",
        );
    }
    Ok(Exit::Ok)
}
