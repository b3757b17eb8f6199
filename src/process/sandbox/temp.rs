//! The folders for temporary files: one for all commands of a run, in the state directory. A run that has ended needs it no
//! longer.

use std::{
    io,
    path::{Path, PathBuf},
};

use hermod_actors::model::RunId;

use crate::files::{entries, remove_tree};

/// The folder with the temporary files of all runs.
pub fn temp_folder(state: &Path) -> PathBuf {
    state.join("tmp")
}

/// Removes the temporary files of runs that are not open. Other entries are not touched.
pub fn remove_temp_folders(state: &Path, is_open: impl Fn(RunId) -> bool) -> io::Result<()> {
    for path in entries(&temp_folder(state))? {
        let run = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse().ok());
        if run.is_some_and(|run| !is_open(run)) {
            remove_tree(&path)?;
        }
    }
    Ok(())
}
