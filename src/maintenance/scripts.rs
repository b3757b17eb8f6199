//! The folder of rehearsal scripts: its lock, the marking of a script as new, and gc of scripts that no run names.
//! Storing a script takes the lock shared and touches the file; removal takes the lock exclusively. Thus gc never
//! removes a script that a run is about to name.

use std::{
    fs::{self, File},
    io,
    path::Path,
};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, utimensat};

use super::{MaintenanceError, gc::Sweep};
use crate::{
    artifacts::size_and_modified,
    files::{IoResult as _, entries_with_extension},
    store::redb::{Tally, why},
};

/// The folder of rehearsal scripts in the state directory.
pub(crate) const SCRIPTS: &str = "scripts";

/// Takes the folder's lock, with [`File::lock`] or [`File::lock_shared`], until the returned file is closed.
pub(crate) fn lock_folder(folder: &Path, lock: fn(&File) -> io::Result<()>) -> io::Result<File> {
    let folder = File::open(folder)?;
    lock(&folder)?;
    Ok(folder)
}

/// Sets the file's times to now, so that gc takes it for new.
pub(crate) fn touch(path: &Path) -> io::Result<()> {
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let timestamps = Timestamps { last_access: now, last_modification: now };
    Ok(utimensat(CWD, path, &timestamps, AtFlags::empty())?)
}

impl Sweep<'_> {
    /// Removes the scripts that no run names, if they are untouched for a day.
    pub(super) fn scripts(&self) -> Result<Tally, MaintenanceError> {
        let folder = self.state.join(SCRIPTS);
        let mut tally = Tally::default();
        let scripts = entries_with_extension(&folder, "json").at(&folder)?;
        if scripts.is_empty() {
            return Ok(tally);
        }
        let Some(used) = self.pass.snapshot()?.scripts(&self.removed)? else {
            tally.retain(why::UNKNOWN, scripts.len() as u64);
            return Ok(tally);
        };
        let _no_new_script = lock_folder(&folder, File::lock).at(&folder)?;
        for path in scripts {
            let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
            let (bytes, modified) = size_and_modified(&path).at(&path)?;
            if used.contains(name) {
                tally.retain(why::REFERRED, 1);
            } else if modified > self.orphans_before {
                tally.retain(why::YOUNG, 1);
            } else {
                self.remove(&mut tally, &path, bytes, || fs::remove_file(&path))?;
            }
        }
        Ok(tally)
    }
}
