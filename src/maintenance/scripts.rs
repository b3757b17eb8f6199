//! Rehearsal scripts. Storing a script takes the folder's lock shared and touches the file; removal takes it
//! exclusively.
//! Thus gc never removes a script that a run is about to name.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use hermod_actors::model::Timestamp;
use rustix::fs::{AtFlags, CWD, FlockOperation, Timespec, Timestamps, UTIME_NOW, flock, utimensat};

use super::{MaintenanceError, gc::GcCutoffs};
use crate::{
    artifacts::size_and_modified,
    store::redb::{GcMode, GcPass, RemovedSet, Tally, why},
};

/// The folder of rehearsal scripts in the state directory.
pub(crate) const SCRIPTS: &str = "scripts";

/// Takes the folder's lock until the returned file is closed.
pub(crate) fn lock_folder(folder: &Path, how: FlockOperation) -> io::Result<File> {
    let folder = File::open(folder)?;
    flock(&folder, how)?;
    Ok(folder)
}

/// Sets the file's times to now, so that gc takes it for new.
pub(crate) fn touch(path: &Path) -> io::Result<()> {
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let times = Timestamps { last_access: now, last_modification: now };
    Ok(utimensat(CWD, path, &times, AtFlags::empty())?)
}

/// Removes the scripts that no run names.
pub(super) fn sweep(
    state: &Path,
    caring: &GcPass,
    gone: &RemovedSet,
    times: GcCutoffs,
) -> Result<Tally, MaintenanceError> {
    let folder = state.join(SCRIPTS);
    let mut tally = Tally::default();
    let scripts = files(&folder, "json").map_err(MaintenanceError::at(&folder))?;
    if scripts.is_empty() {
        return Ok(tally);
    }
    let Some(named) = caring.lookup()?.scripts(gone)? else {
        tally.retain(why::UNKNOWN, scripts.len() as u64);
        return Ok(tally);
    };
    let _nobody_keeps_one =
        lock_folder(&folder, FlockOperation::LockExclusive).map_err(MaintenanceError::at(&folder))?;
    for path in scripts {
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        let (bytes, modified) = size_and_modified(&path).map_err(MaintenanceError::at(&path))?;
        if named.contains(name) {
            tally.retain(why::REFERRED, 1);
        } else if modified > times.orphans_before {
            tally.retain(why::YOUNG, 1);
        } else {
            match caring.mode() {
                GcMode::DryRun => {}
                GcMode::Remove => fs::remove_file(&path).map_err(MaintenanceError::at(&path))?,
            }
            tally.remove(bytes);
        }
    }
    Ok(tally)
}

/// Partial scripts: path, bytes, and time of the last write.
pub(super) fn parts(folder: &Path) -> io::Result<Vec<(PathBuf, u64, Timestamp)>> {
    let mut parts = Vec::new();
    for path in files(folder, "part")? {
        match size_and_modified(&path) {
            Ok((bytes, modified)) => parts.push((path, bytes, modified)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(parts)
}

fn files(folder: &Path, extension: &str) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|found| found == extension) {
            files.push(path);
        }
    }
    Ok(files)
}
