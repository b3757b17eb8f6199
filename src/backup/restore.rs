//! Restore: makes a verified backup the store of a state directory.

use std::path::{Path, PathBuf};

use hermod_actors::port::Clock;
use serde::Serialize;
use tokio::runtime::Handle;

use super::{
    error::{BackupError, StopFn},
    files,
    manifest::{FIRST_FORMAT_WITH_MEMORIES, MANIFEST_FILE, Manifest, STORE_FILE},
    referenced_files,
    verify::{VerifyReport, verify},
};
use crate::{
    clock::{SystemClock, rfc3339},
    process::runner::Runner,
    store::redb::{Damage, LockedStateDir, stamp_restored},
};

/// Whether a restore may replace an existing store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExistingStore {
    /// Refuse to restore.
    Keep,
    /// Move the existing store aside.
    Replace,
}

/// The outcome of a restore.
#[derive(Debug, Serialize)]
pub struct RestoreReport {
    /// The manifest of the backup.
    #[serde(skip)]
    pub manifest: Manifest,
    /// The last epoch before the restored store's own epochs.
    pub epoch: u64,
    /// How often the store was restored, this time included.
    #[serde(rename = "lineage")]
    pub restore_generation: u64,
    /// Number of running commands of the replaced store that were ended.
    pub ended: usize,
    /// The folder of the replaced store.
    pub replaced: Option<PathBuf>,
}

/// Makes a backup the store of this state directory. Blocks; must run on a blocking thread of a tokio runtime.
/// Running commands of a replaced store are ended, and their spool folders move with it.
pub fn restore(
    state: &Path,
    dir: &Path,
    present: ExistingStore,
    stop: &mut StopFn,
) -> Result<RestoreReport, BackupError> {
    let VerifyReport { manifest, damage } = verify(dir, stop)?;
    if !damage.is_empty() {
        return Err(BackupError::Damaged { dir: dir.to_owned(), damage });
    }
    let at = BackupError::at(state);
    let place = LockedStateDir::lock(state)?;
    let has_store = place.has_store().map_err(&at)?;
    if has_store && present == ExistingStore::Keep {
        return Err(BackupError::HasStore(state.to_owned()));
    }
    let runner = Runner::new("", state);
    if present == ExistingStore::Keep {
        check_none_running(&runner, state)?;
    }
    let past = next_epoch(place.epoch_and_generation().map_err(&at)?, dir, &manifest)?;
    let name = format!("replaced-{}", rfc3339(SystemClock::default().at()).replace(':', ""));
    let part = place.create_part().map_err(&at)?;
    let restored = fill(&manifest, (dir, state, &part), past, stop).and_then(|()| {
        let ended = runner.running_commands().map_err(&at)?.len();
        if present == ExistingStore::Replace {
            Handle::current().block_on(runner.end_all()).map_err(&at)?;
        }
        check_none_running(&runner, state)?;
        replace_store(&place, state, &name)?;
        Ok(ended)
    });
    if !matches!(restored, Ok(_) | Err(BackupError::RestoreIncomplete { .. }))
        && let Err(error) = place.discard()
    {
        tracing::warn!(path = %part.display(), %error, "an unfinished restore stays until the next one");
    }
    let ((epoch, lineage), ended) = (past, restored?);
    let replaced = Some(state.join(name)).filter(|replaced| replaced.exists());
    Ok(RestoreReport { manifest, epoch, restore_generation: lineage, ended, replaced })
}

/// The epoch of the restored store (the larger of both) and its restore generation (one above the larger of both).
fn next_epoch(
    (epoch, lineage): (u64, u64),
    dir: &Path,
    manifest: &Manifest,
) -> Result<(u64, u64), BackupError> {
    let reason = || "it was restored more often than can be counted: use another backup".to_owned();
    let no_backup = || BackupError::NotABackup { path: dir.join(MANIFEST_FILE), reason: reason() };
    let lineage = lineage.max(manifest.restore_generation).checked_add(1).ok_or_else(no_backup)?;
    Ok((epoch.max(manifest.epoch), lineage))
}

fn check_none_running(runner: &Runner, state: &Path) -> Result<(), BackupError> {
    let commands = runner.running_commands().map_err(BackupError::at(state))?;
    if commands.is_empty() {
        Ok(())
    } else {
        Err(BackupError::CommandsRunning { dir: state.to_owned(), commands })
    }
}

fn replace_store(place: &LockedStateDir, state: &Path, replaced: &str) -> Result<(), BackupError> {
    place.commit_replacement(replaced).map_err(BackupError::at(state))?;
    place.finish().map_err(|source| BackupError::RestoreIncomplete { dir: state.to_owned(), source })
}

fn fill(
    manifest: &Manifest,
    (dir, state, part): (&Path, &Path, &Path),
    past: (u64, u64),
    stop: &mut StopFn,
) -> Result<(), BackupError> {
    files::check_disk_space(part, manifest.files.values().map(|file| file.bytes).sum())?;
    for (path, listed) in &manifest.files {
        if files::copy_and_hash(&dir.join(path), &part.join(path), stop)? != *listed {
            let damage = vec![Damage::file(path, "its content was changed while it was copied")];
            return Err(BackupError::Damaged { dir: dir.to_owned(), damage });
        }
    }
    let store = part.join(STORE_FILE);
    let (epoch, restore_generation) = past;
    stamp_restored(&store, epoch, restore_generation).map_err(BackupError::at(&store))?;
    // A backup in an older format has no memories: the existing ones stay.
    if manifest.format < FIRST_FORMAT_WITH_MEMORIES {
        for path in referenced_files::memory_files(state) {
            files::copy_and_hash(&state.join(&path), &part.join(&path), stop)?;
        }
    }
    files::sync_folders(part)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use hermod_actors::port::Journal;

    use super::*;
    use crate::store::redb::{Durability, RedbJournal};

    #[test]
    fn what_is_decided_says_so_and_is_done_by_the_next_opening() {
        let state = tempfile::tempdir().unwrap();
        drop(RedbJournal::open(state.path(), Durability::Strict).unwrap());
        let place = LockedStateDir::lock(state.path()).unwrap();
        let part = place.create_part().unwrap();
        fs::copy(state.path().join(STORE_FILE), part.join(STORE_FILE)).unwrap();
        stamp_restored(&part.join(STORE_FILE), 9, 7).unwrap();
        // A file in the place of the folder makes the move fail.
        fs::write(state.path().join("old"), "in the way").unwrap();
        let error = replace_store(&place, state.path(), "old").unwrap_err();
        assert!(matches!(error, BackupError::RestoreIncomplete { .. }), "{error}");
        assert!(error.to_string().contains("the backup is restored"), "{error}");
        drop(place);
        fs::remove_file(state.path().join("old")).unwrap();
        assert_eq!(RedbJournal::open(state.path(), Durability::Strict).unwrap().restore_generation(), 7);
    }
}
