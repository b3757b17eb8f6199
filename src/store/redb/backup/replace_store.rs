//! Replaces the store by another one, with renames that any later opening completes. Also the lock of the store's file,
//! which every opening takes, and the stamp of a restored copy.
//!
//! The new parts are made in `restore.part`. When all of them are synced, it is renamed to `restore.ready`: that rename
//! commits the replacement.
//! Before it, the old store is untouched; after it, every opening first completes the remaining moves.
//!
//! Each old part moves to the folder that `restore.ready/replaced` names, then the new part moves in.
//! The engine's file comes last, and its name always refers to the old or the new one.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use redb::{ReadableDatabase, ReadableTable, backends::FileBackend};

use super::overlay::CopyOnWriteFile;
use crate::{
    files::{self, IoResult as _, PathError},
    store::redb::{
        engine::EngineFile,
        error::{Result, StoreError},
        open::{self, OpenError, STORE_FILE},
        previous_epoch::EPOCH,
        tables::META,
    },
};

/// The row of `meta` that counts restores.
pub(in crate::store::redb) const RESTORE_GENERATION: &str = "lineage";
/// The folders that belong to a store, beside its file. Includes `spool`: commands of a replaced store do not belong to
/// the new one.
pub const STORE_FOLDERS: &[&str] = &["blobs", "artifacts", "scripts", "memories", "spool"];
/// The crash history of the old store's processes; the new store starts without one.
const CRASH_HISTORY_FILE: &str = "process.json";
const PARTIAL_FOLDER: &str = "restore.part";
const READY_FOLDER: &str = "restore.ready";
/// In `restore.ready`: a file with the name of the folder for the old store.
const REPLACED_FILE: &str = "replaced";
/// Assumed number of openings and restores of a store that cannot be read.
const ASSUMED_OPENINGS: u64 = 1_000_000;

/// Opens or creates the engine's file for writing, and locks it against other processes. Completes an interrupted
/// replacement first. The engine locks the file only when it reads it. That is too late, because an unfinished file is
/// truncated before.
pub(in crate::store::redb) fn open_locked(dir: &Path) -> Result<File> {
    let path = dir.join(STORE_FILE);
    loop {
        let file = lock(&path)?;
        if dir.join(READY_FOLDER).try_exists().at(dir)? {
            finish(dir)?;
        } else if is_at(&file, &path).at(&path)? {
            return Ok(file);
        }
    }
}

fn sync(folder: &Path) -> Result<(), PathError> {
    files::sync_folder(folder).at(folder)
}

/// Bytes of a file that was created only to be locked and is no store yet; a store's file that was truncated has 0.
const LOCK_ONLY_BYTES: u64 = 1;

fn lock(path: &Path) -> Result<File> {
    let is_absent = !path.exists();
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(path).at(path)?;
    match file.try_lock() {
        Ok(()) => {
            if is_absent && file.metadata().at(path)?.len() == 0 {
                file.set_len(LOCK_ONLY_BYTES).at(path)?;
            }
            Ok(file)
        }
        Err(TryLockError::WouldBlock) => Err(StoreError::Engine(redb::Error::DatabaseAlreadyOpen)),
        Err(TryLockError::Error(error)) => Ok(Err(error).at(path)?),
    }
}

/// Whether the path still refers to this file.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let Some(named) = fs::metadata(path).if_exists()? else { return Ok(false) };
    file.metadata().map(|opened| (opened.dev(), opened.ino()) == (named.dev(), named.ino()))
}

/// A state directory with exclusive access to its store, until this value is dropped.
#[derive(Debug)]
pub struct LockedStateDir {
    dir: PathBuf,
    file: File,
}

impl LockedStateDir {
    /// Locks the store; fails if another process has it open.
    pub fn lock(dir: &Path) -> Result<Self, OpenError> {
        let file = open_locked(dir).map_err(|error| open::explain(&dir.join(STORE_FILE), error))?;
        Ok(Self { dir: dir.to_owned(), file })
    }

    /// Whether the directory has a store.
    pub fn has_store(&self) -> io::Result<bool> {
        Ok(self.file.metadata()?.len() > LOCK_ONLY_BYTES)
    }

    /// Creates the empty folder for the new store, and removes what an earlier process left there.
    pub fn create_part(&self) -> io::Result<PathBuf> {
        let part = self.dir.join(PARTIAL_FOLDER);
        self.discard()?;
        DirBuilder::new().mode(0o700).create(&part)?;
        Ok(part)
    }

    /// Removes the folder of [`create_part`](Self::create_part).
    pub fn discard(&self) -> io::Result<()> {
        files::remove_tree(&self.dir.join(PARTIAL_FOLDER))
    }

    /// The epoch and the restore generation of the existing store: zeros without a store, 1,000,000 if they cannot be
    /// read.
    pub fn epoch_and_generation(&self) -> io::Result<(u64, u64)> {
        if !self.has_store()? {
            return Ok((0, 0));
        }
        let engine_file = EngineFile::new(&self.dir.join(STORE_FILE));
        Ok(engine_file
            .catch(|| self.read_epoch(&engine_file))
            .ok()
            .flatten()
            .unwrap_or((ASSUMED_OPENINGS, ASSUMED_OPENINGS)))
    }

    fn read_epoch(&self, engine_file: &EngineFile) -> Option<(u64, u64)> {
        let overlay = CopyOnWriteFile::new(self.file.try_clone().ok()?).ok()?;
        let meta =
            engine_file.open(overlay, open::CACHE_BYTES).ok()?.begin_read().ok()?.open_table(META).ok()?;
        let row = |key| Some(meta.get(key).ok()?.map_or(0, |row| row.value()));
        Some((row(EPOCH)?, row(RESTORE_GENERATION)?))
    }

    /// Commits the replacement of the store by the content of [`create_part`](Self::create_part)'s folder, which must
    /// be synced.
    /// The old store goes to the folder `replaced` of this directory. Atomic: a process killed in here leaves the old
    /// store or the new one.
    pub fn commit_replacement(&self, replaced: &str) -> io::Result<()> {
        let part = self.dir.join(PARTIAL_FOLDER);
        for name in STORE_FOLDERS {
            // A folder without a new part is made empty: otherwise the old one would be taken for the new one.
            files::make_folder(&part.join(name))?;
        }
        files::write(&part.join(REPLACED_FILE), replaced.as_bytes())?;
        files::sync_folder(&part)?;
        fs::rename(&part, self.dir.join(READY_FOLDER))
    }

    /// Moves all parts into place. If that fails, the next opening completes it.
    pub fn finish(&self) -> io::Result<()> {
        files::sync_folder(&self.dir)?;
        finish(&self.dir).map_err(io::Error::other)
    }
}

/// Makes the remaining moves. May be interrupted at any point, and continued by any process.
fn finish(dir: &Path) -> Result<(), PathError> {
    while make_next_move(dir)? {}
    Ok(())
}

/// Makes the first outstanding move; `false` if there is none.
fn make_next_move(dir: &Path) -> Result<bool, PathError> {
    let ready = dir.join(READY_FOLDER);
    let Some(_lock) = lock_ready(&ready).at(&ready)? else { return Ok(false) };
    let Some(name) = fs::read_to_string(ready.join(REPLACED_FILE)).if_exists().at(&ready)? else {
        // All parts have been moved.
        fs::remove_dir(&ready).at(&ready)?;
        sync(dir)?;
        return Ok(false);
    };
    let replaced = dir.join(name);
    for name in [CRASH_HISTORY_FILE].iter().chain(STORE_FOLDERS) {
        if move_part(name, dir, &ready, &replaced).at(dir.join(name))? {
            return Ok(true);
        }
    }
    let (new, current, old) = (ready.join(STORE_FILE), dir.join(STORE_FILE), replaced.join(STORE_FILE));
    if !new.try_exists().at(&new)? {
        fs::remove_file(ready.join(REPLACED_FILE)).at(&ready)?;
        return Ok(true);
    }
    let is_store = fs::metadata(&current).is_ok_and(|file| file.len() > LOCK_ONLY_BYTES);
    if is_store && !old.try_exists().at(&old)? {
        files::make_folder(&replaced).at(&replaced)?;
        fs::hard_link(&current, &old).at(&old)?;
        sync(&replaced)?;
    } else {
        fs::rename(&new, &current).at(&current)?;
        sync(dir)?;
    }
    Ok(true)
}

/// Moves the old part away, or the new one into place; returns whether there was anything to move.
fn move_part(name: &str, dir: &Path, ready: &Path, replaced: &Path) -> io::Result<bool> {
    let (new, current) = (ready.join(name), dir.join(name));
    let is_new = new.try_exists()?;
    // The crash history has no new part: an existing file is old, since no process uses the store before all moves are
    // done.
    let is_old = current.try_exists()? && (is_new || name == CRASH_HISTORY_FILE);
    if is_old {
        files::make_folder(replaced)?;
        fs::rename(&current, replaced.join(name))?;
        files::sync_folder(replaced)?;
    } else if is_new {
        fs::rename(&new, &current)?;
        files::sync_folder(dir)?;
    }
    Ok(is_old || is_new)
}

/// Waits for exclusive access to the moves; `None` if the replacement is complete.
fn lock_ready(ready: &Path) -> io::Result<Option<File>> {
    let Some(folder) = File::open(ready).if_exists()? else { return Ok(None) };
    folder.lock()?;
    Ok(is_at(&folder, ready)?.then_some(folder))
}

/// Stamps a copy as a restored store: its epoch becomes at least `epoch`, its restore generation `generation`.
/// The file is synced and closed on return.
pub fn stamp_restored(file: &Path, epoch: u64, generation: u64) -> io::Result<()> {
    let engine_file = EngineFile::new(file);
    let stamp = || -> Result<()> {
        let store = OpenOptions::new().read(true).write(true).open(file).at(file)?;
        let db = engine_file.open(FileBackend::new(store)?, open::CACHE_BYTES)?;
        let txn = db.begin_write()?;
        {
            let mut meta = txn.open_table(META)?;
            let found = meta.get(EPOCH)?.map_or(0, |row| row.value());
            meta.insert(EPOCH, found.max(epoch))?;
            meta.insert(RESTORE_GENERATION, generation)?;
        }
        txn.commit()?;
        db.close()
    };
    engine_file.run(stamp).map_err(|error| io::Error::other(format!("{}: {error}", file.display())))?;
    File::open(file)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hermod_actors::port::Journal;

    use crate::store::redb::{Durability, OpenError, RedbJournal};

    fn lineage_of(journal: &RedbJournal) -> u64 {
        journal.restore_generation()
    }

    /// Creates a store with a file in each of its folders, whose content is `text`.
    fn store(dir: &Path, text: &str) {
        drop(RedbJournal::open(dir, Durability::Strict).unwrap());
        fill(dir, text);
        fs::write(dir.join(CRASH_HISTORY_FILE), text).unwrap();
    }

    fn fill(dir: &Path, text: &str) {
        for name in STORE_FOLDERS {
            fs::create_dir_all(dir.join(name)).unwrap();
            fs::write(dir.join(name).join("file"), text).unwrap();
        }
    }

    /// The contents of the files in a store's folders.
    fn says(dir: &Path) -> Vec<String> {
        let text = |name: &&str| fs::read_to_string(dir.join(name).join("file")).unwrap_or_default();
        STORE_FOLDERS.iter().map(text).collect()
    }

    /// A directory with a store and the prepared parts of its replacement, which has no `spool` folder.
    fn ready() -> (tempfile::TempDir, LockedStateDir) {
        let dir = tempfile::tempdir().unwrap();
        store(dir.path(), "old");
        let place = LockedStateDir::lock(dir.path()).unwrap();
        assert_eq!((place.has_store().unwrap(), place.epoch_and_generation().unwrap()), (true, (1, 0)));
        let part = place.create_part().unwrap();
        let other = tempfile::tempdir().unwrap();
        drop(RedbJournal::open(other.path(), Durability::Strict).unwrap());
        fs::copy(other.path().join(STORE_FILE), part.join(STORE_FILE)).unwrap();
        stamp_restored(&part.join(STORE_FILE), 40, 7).unwrap();
        fill(&part, "new");
        fs::remove_dir_all(part.join("spool")).unwrap();
        (dir, place)
    }

    #[test]
    fn until_it_is_decided_the_old_store_is_the_store() {
        let (dir, place) = ready();
        assert!(matches!(RedbJournal::open(dir.path(), Durability::Strict), Err(OpenError::Busy { .. })));
        drop(place);
        let journal = RedbJournal::open(dir.path(), Durability::Strict).unwrap();
        assert_eq!(
            (lineage_of(&journal), says(dir.path())),
            (0, vec!["old".to_owned(); STORE_FOLDERS.len()])
        );
    }

    #[test]
    fn killed_between_any_two_moves_the_next_opening_finishes_it() {
        let mut steps = 0;
        loop {
            let (dir, place) = ready();
            place.commit_replacement("replaced-x").unwrap();
            let over = (0..steps).any(|_| !make_next_move(dir.path()).unwrap());
            drop(place);
            let journal = RedbJournal::open(dir.path(), Durability::Strict).unwrap();
            assert_eq!(lineage_of(&journal), 7, "after {steps} steps");
            drop(journal);
            assert_eq!(says(dir.path()), ["new", "new", "new", "new", ""]);
            let replaced = dir.path().join("replaced-x");
            assert_eq!(says(&replaced), vec!["old"; STORE_FOLDERS.len()]);
            assert!(
                !dir.path().join(CRASH_HISTORY_FILE).exists() && replaced.join(CRASH_HISTORY_FILE).exists()
            );
            assert!(!dir.path().join(READY_FOLDER).exists());
            let journal = RedbJournal::open(&replaced, Durability::Strict).unwrap();
            assert_eq!(lineage_of(&journal), 0);
            if over {
                break;
            }
            steps += 1;
        }
        assert_eq!(steps, 15);
    }

    #[test]
    fn a_store_that_was_replaced_while_it_was_opened_is_not_taken() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(STORE_FILE);
        let old = lock(&path).unwrap();
        fs::rename(&path, dir.path().join("aside")).unwrap();
        assert!(!is_at(&old, &path).unwrap());
        assert!(is_at(&open_locked(dir.path()).unwrap(), &path).unwrap());
    }

    #[test]
    fn a_store_that_cannot_tell_its_epoch_is_older_than_any() {
        let dir = tempfile::tempdir().unwrap();
        let place = LockedStateDir::lock(dir.path()).unwrap();
        assert_eq!((place.has_store().unwrap(), place.epoch_and_generation().unwrap()), (false, (0, 0)));
        fs::write(dir.path().join(STORE_FILE), "no store").unwrap();
        assert_eq!(place.epoch_and_generation().unwrap(), (ASSUMED_OPENINGS, ASSUMED_OPENINGS));
    }
}
