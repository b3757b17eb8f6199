//! Reads the journals of runs between two processes of the test. It reads a copy of the store: the recovery of the
//! store after a kill belongs to the next process. Also the session keys of the runs.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::Arc,
};

use hermod_actors::model::{Record, Seq};

use crate::{
    cli::exit::{CliError, Exit},
    control::StoreReader,
    files::remove_tree,
    host,
    store::redb::Durability,
};

/// The journals of runs, by run number.
pub(super) type RunJournals = BTreeMap<usize, Vec<(Seq, Record)>>;

/// The session key of the run with this number.
pub(super) fn session_key(number: usize) -> String {
    format!("chaos-{number}")
}

/// The journals of these runs on disk; a missing one is empty.
pub(super) async fn read_journals(
    state: &Path,
    copy: &Path,
    numbers: impl Iterator<Item = usize>,
) -> Result<RunJournals, CliError> {
    copy_state(state, copy).map_err(|(path, error)| unusable(&path, &error))?;
    let reader = StoreReader::new(host::open(copy, Durability::Strict)?);
    let mut journals = RunJournals::new();
    for number in numbers {
        let mut records = Vec::new();
        let key = session_key(number);
        if let Some(session) = reader.read(|rows| rows.session_of_key(&key)).await? {
            let collect = |seq, record| records.push((seq, Arc::unwrap_or_clone(record)));
            reader.records(session.id, 1, collect).await?;
        }
        journals.insert(number, records);
    }
    Ok(journals)
}

/// The error for a file or folder that cannot be used.
pub(super) fn unusable(path: &Path, error: &dyn std::fmt::Display) -> CliError {
    CliError { exit: Exit::Store, text: format!("{}: {error}", path.display()) }
}

/// Copies the files of a state directory and links its folders: a read needs only the blobs there, and no blob changes.
fn copy_state(state: &Path, copy: &Path) -> Result<(), (PathBuf, io::Error)> {
    let error_at = |path: &Path| {
        let path = path.to_owned();
        move |error| (path, error)
    };
    remove_tree(copy).and_then(|()| fs::create_dir(copy)).map_err(error_at(copy))?;
    let entries = match fs::read_dir(state) {
        // The process was killed before it created the folder.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(error_at(state))?,
    };
    for entry in entries {
        let entry = entry.map_err(error_at(state))?;
        let (from, to) = (entry.path(), copy.join(entry.file_name()));
        let kind = entry.file_type().map_err(error_at(&from))?;
        if kind.is_dir() {
            symlink(&from, &to).map_err(error_at(&from))?;
        } else if kind.is_file() {
            fs::copy(&from, &to).map_err(error_at(&from))?;
        }
    }
    Ok(())
}
