//! Restore: verifies a backup, and makes it the store of a state directory. A store that is there is refused, or moved
//! aside after its commands have been ended.

use std::path::Path;

use tokio::runtime::Handle;

use super::{
    error::{BackupError, StopFn},
    files,
    manifest::{BackupInfo, FIRST_FORMAT_WITH_MEMORIES, MANIFEST_FILE, Manifest, STORE_FILE},
    referenced_files,
    verify::{VerifyReport, verify},
    view::{BackupView, RestoredBackupView},
};
use crate::{
    clock::{self, rfc3339},
    files::IoResult as _,
    process::runner::Runner,
    store::redb::{Damage, LockedStateDir, StoreError, stamp_restored},
};

/// Whether a restore may replace an existing store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExistingStore {
    /// Refuse to restore.
    Keep,
    /// Move the existing store aside.
    Replace,
}

/// Makes a backup the store of this state directory. Blocks; must run on a blocking thread of a tokio runtime.
/// Running commands of a replaced store are ended, and their spool folders move with it.
pub fn restore(
    state: &Path,
    dir: &Path,
    existing: ExistingStore,
    stop: &mut StopFn,
) -> Result<RestoredBackupView, BackupError> {
    let VerifyReport { mut manifest, damage } = verify(dir, stop)?;
    if !damage.is_empty() {
        return Err(BackupError::Damaged { dir: dir.to_owned(), damage });
    }
    let state_dir = LockedStateDir::lock(state).map_err(StoreError::from)?;
    if existing == ExistingStore::Keep && state_dir.has_store().at(state)? {
        return Err(BackupError::HasStore(state.to_owned()));
    }
    let runner = Runner::new("", state);
    if existing == ExistingStore::Keep {
        check_none_running(&runner, state)?;
    }
    let (epoch, restore_generation) = state_dir.epoch_and_generation().at(state)?;
    manifest.info.count_restore(epoch, restore_generation).ok_or_else(|| BackupError::NotABackup {
        path: dir.join(MANIFEST_FILE),
        reason: "it was restored more often than can be counted: use another backup".to_owned(),
    })?;
    let name = format!("replaced-{}", rfc3339(clock::now()).replace(':', ""));
    let part = state_dir.create_part().at(state)?;
    let mut replace = || -> Result<usize, BackupError> {
        fill(&manifest, dir, state, &part, stop)?;
        let ended = runner.running_commands().at(state)?.len();
        if existing == ExistingStore::Replace {
            Handle::current().block_on(runner.end_all()).at(state)?;
        }
        check_none_running(&runner, state)?;
        replace_store(&state_dir, state, &name)?;
        Ok(ended)
    };
    let ended = replace();
    if !matches!(ended, Ok(_) | Err(BackupError::RestoreIncomplete { .. }))
        && let Err(error) = state_dir.discard()
    {
        tracing::warn!(path = %part.display(), %error, "an unfinished restore stays until the next one");
    }
    let replaced = state.join(name);
    Ok(RestoredBackupView {
        ended: ended?,
        backup: BackupView::new(dir, manifest),
        state: state.display().to_string(),
        replaced: replaced.exists().then(|| replaced.display().to_string()),
    })
}

impl BackupInfo {
    /// Sets the epoch and the restore generation of the restored store: the larger epoch of both stores, and one above
    /// the larger generation. `None` if there is no such generation.
    fn count_restore(&mut self, epoch: u64, restore_generation: u64) -> Option<()> {
        self.epoch = self.epoch.max(epoch);
        self.restore_generation = self.restore_generation.max(restore_generation).checked_add(1)?;
        Some(())
    }
}

fn check_none_running(runner: &Runner, state: &Path) -> Result<(), BackupError> {
    let commands = runner.running_commands().at(state)?;
    if commands.is_empty() {
        Ok(())
    } else {
        Err(BackupError::CommandsRunning { dir: state.to_owned(), commands })
    }
}

fn replace_store(state_dir: &LockedStateDir, state: &Path, replaced: &str) -> Result<(), BackupError> {
    state_dir.commit_replacement(replaced).at(state)?;
    state_dir.finish().map_err(|source| BackupError::RestoreIncomplete { dir: state.to_owned(), source })
}

fn fill(
    manifest: &Manifest,
    dir: &Path,
    state: &Path,
    part: &Path,
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
    stamp_restored(&store, manifest.info.epoch, manifest.info.restore_generation).at(&store)?;
    // A backup in an older format has no memories: the existing ones stay.
    if manifest.info.format < FIRST_FORMAT_WITH_MEMORIES {
        for path in referenced_files::memory_files(state) {
            files::copy_and_hash(&state.join(&path), &part.join(&path), stop)?;
        }
    }
    Ok(files::sync_folders(part)?)
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
        let state_dir = LockedStateDir::lock(state.path()).unwrap();
        let part = state_dir.create_part().unwrap();
        fs::copy(state.path().join(STORE_FILE), part.join(STORE_FILE)).unwrap();
        stamp_restored(&part.join(STORE_FILE), 9, 7).unwrap();
        // A file in the place of the folder makes the move fail.
        fs::write(state.path().join("old"), "in the way").unwrap();
        let error = replace_store(&state_dir, state.path(), "old").unwrap_err();
        assert!(matches!(error, BackupError::RestoreIncomplete { .. }), "{error}");
        assert!(error.to_string().contains("the backup is restored"), "{error}");
        drop(state_dir);
        fs::remove_file(state.path().join("old")).unwrap();
        assert_eq!(RedbJournal::open(state.path(), Durability::Strict).unwrap().restore_generation(), 7);
    }
}
