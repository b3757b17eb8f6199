//! Opens a store for work: lock, check of the previous epoch, migration, and the start of the new epoch. Also opens one
//! for inspection or repair, without a new epoch. Here is [`OpenError`], into which `explain` turns errors of the
//! store.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process,
    sync::Arc,
};

use hermod_actors::port::Clock as _;
use redb::{Database, StorageBackend, backends::FileBackend};
use sha2::{Digest, Sha256};

use super::{
    backup,
    blobs::{Blobs, Spiller},
    disk_full_wait::DiskFullWait,
    engine::{Engine, EngineFile},
    error::{Result, StoreError},
    files::{FileSystem, OsFileSystem},
    log::migrate_from_1,
    preallocated_file::PreallocatedFile,
    previous_epoch::{self, BOOT, EPOCH, PreviousEpoch, SCHEMA_VERSION, ShutdownKind},
    quick_check::{QuickCheck, quick_check},
    tables::{META, Tables},
    vacuum::{COUNTED_AT, MIN_VACUUM_BYTES, vacuum},
};
use crate::{
    clock::{self, SystemClock},
    files::{self, IoResult as _, PathError},
};

/// Size limit of the `owner` file.
const MAX_OWNER_BYTES: u64 = 64;

pub(super) const STORE_FILE: &str = "hermod.redb";

/// Whether a state directory has a store.
pub fn is_in(state: &Path) -> bool {
    state.join(STORE_FILE).exists()
}

const OWNER: &str = "owner";
const BLOBS: &str = "blobs";
/// The schema version that this program writes; it opens this version and older ones.
///
/// - 2 has records in rows of appends.
/// - 3 has schedules with their occurrences and pauses. A program that knows 2 would neither carry them out nor read their
///   messages, so it must not open the store.
pub(super) const SCHEMA: u64 = 3;
/// Maximum bytes of the page cache; it grows as pages are read.
pub(super) const CACHE_BYTES: usize = 256 << 20;

/// Bytes of the magic number at the start of the engine's file.
const MAGIC_BYTES: usize = 9;
/// Bytes of the file's first page.
const PAGE_BYTES: u64 = 4096;
/// Maximum bytes of a new file, to which nothing was ever written.
const MAX_NEW_FILE_BYTES: u64 = 4 << 20;

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it open.
    #[error("the store in {} is in use by {}; stop it, or use another state directory", dir.display(), owner_text(*pid))]
    Busy {
        /// The store's folder.
        dir: PathBuf,
        /// The other process; `None` if it has not written its pid yet.
        pid: Option<u32>,
    },
    /// A newer version of Hermod wrote it.
    #[error("{} has schema version {found}, and this program knows {known}: use the newer hermod that wrote it", path.display())]
    Newer {
        /// The store's file.
        path: PathBuf,
        /// The file's schema version.
        found: u64,
        /// The newest version that this program reads.
        known: u64,
    },
    /// An older version wrote it, and this operation must not migrate it.
    #[error("{} has schema version {found}, and only {known} can be checked: open it once, as `hermod runs list` does, and it is brought up to date", path.display())]
    Older {
        /// The store's file.
        path: PathBuf,
        /// The file's schema version.
        found: u64,
        /// The version that can be checked.
        known: u64,
    },
    /// The file is no store, or a damaged one.
    #[error("{} cannot be used as a store: {reason}; restore the folder from a backup, or move it away to begin anew", path.display())]
    Corrupt {
        /// The store's file.
        path: PathBuf,
        /// The problem.
        reason: String,
    },
    /// A file system error.
    #[error("{0}; the state directory must be on a local disk with free space, and belong to this user")]
    Io(#[from] PathError),
}

fn owner_text(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

/// A store that this process has open.
pub(super) struct OpenStore {
    pub(super) dir: PathBuf,
    pub(super) db: Engine,
    pub(super) epoch: u64,
    /// The last position taken in the log.
    pub(super) last_position: u64,
    pub(super) spiller: Spiller,
    pub(super) disk_wait: Arc<DiskFullWait>,
}

/// The environment of a store beside its own file; tests replace it.
pub(super) struct StoreEnvironment {
    pub(super) files: Box<dyn FileSystem>,
    /// Identifies the boot of the machine.
    pub(super) boot: u64,
    pub(super) disk_wait: Arc<DiskFullWait>,
}

impl StoreEnvironment {
    /// The environment of this machine.
    pub(super) fn system() -> Self {
        let boot = Sha256::digest(clock::boot());
        let mut first = [0; 8];
        first.copy_from_slice(&boot[..8]);
        Self { files: Box::new(OsFileSystem), boot: u64::from_le_bytes(first), disk_wait: Arc::default() }
    }
}

pub(super) fn open(dir: &Path) -> Result<OpenStore, OpenError> {
    let environment = StoreEnvironment::system();
    let disk_wait = Arc::clone(&environment.disk_wait);
    open_over(dir, environment, |path| {
        let file = backup::open_locked(dir)?;
        let handle = file.try_clone().at(path)?;
        Ok(PreallocatedFile::new(FileBackend::new(file)?, Some(handle), path, disk_wait))
    })
}

/// Opens the store in `dir`; `backend` makes the storage of the file at the given path, and must exclude other
/// processes from it.
pub(super) fn open_over<B: StorageBackend>(
    dir: &Path,
    StoreEnvironment { mut files, boot, disk_wait }: StoreEnvironment,
    backend: impl FnOnce(&Path) -> Result<B>,
) -> Result<OpenStore, OpenError> {
    let path = &dir.join(STORE_FILE);
    let open = || -> Result<OpenStore> {
        files.make_folder(dir).at(dir)?;
        // A store whose file was moved away starts empty; an existing file without content is damaged.
        let existed = path.exists();
        let file = backend(path)?;
        if existed {
            refuse_emptied(&file, path)?;
        }
        let (mut db, bytes) = open_database(file, path)?;
        write_owner(dir)?;
        let file = db.file.clone();
        let previous = file.run(|| previous_epoch::read(&db, path, boot))?;
        let last_position = file.run(|| {
            if previous.shutdown == ShutdownKind::OtherBoot {
                previous_epoch::check_file(&mut db, bytes)?;
            }
            let deleted_rows = match previous.schema {
                SCHEMA => vacuum(&mut db, bytes, MIN_VACUUM_BYTES)?,
                _ => None,
            };
            start_epoch(&db, &previous, boot, deleted_rows)
        })?;
        let blobs = dir.join(BLOBS);
        files.make_folder(&blobs).at(&blobs)?;
        // redb syncs its file, but not the folder's entry. Done at every opening: an earlier process may have been
        // killed before it.
        files.sync_folder(dir).at(dir)?;
        if let Some(parent) = fs::canonicalize(dir).at(dir)?.parent() {
            files.sync_folder(parent).at(parent)?;
        }
        let spiller = Spiller::new(Blobs::new(blobs), files, Arc::clone(&disk_wait));
        if previous.shutdown != ShutdownKind::Clean {
            file.run(|| check_unfinished_runs(&db, &spiller))?;
        }
        Ok(OpenStore { dir: dir.to_owned(), db, epoch: previous.next, last_position, spiller, disk_wait })
    };
    open().map_err(|error| explain(path, error))
}

/// A store that is open for inspection or repair: starts no epoch.
pub(super) struct LockedStore {
    pub(super) db: Engine,
    pub(super) blobs: Blobs,
    /// Bytes of the store's file.
    pub(super) bytes: u64,
}

/// Runs `work` on the store in `dir`, which must exist, and which no other process may have open.
pub(super) fn with_locked_store<T>(
    dir: &Path,
    work: impl FnOnce(&mut LockedStore) -> Result<T>,
) -> Result<T, OpenError> {
    let path = dir.join(STORE_FILE);
    let locked = || {
        let mut store = lock_store(dir, &path)?;
        let file = store.db.file.clone();
        file.run(|| work(&mut store))
    };
    locked().map_err(|error| explain(&path, error))
}

fn lock_store(dir: &Path, path: &Path) -> Result<LockedStore> {
    fs::metadata(path).at(path)?;
    let file = FileBackend::new(backup::open_locked(dir)?)?;
    refuse_emptied(&file, path)?;
    let (db, bytes) = open_database(file, path)?;
    write_owner(dir)?;
    let previous = db.file.run(|| previous_epoch::read(&db, path, 0))?;
    if previous.schema != SCHEMA {
        return Err(OpenError::Older { path: path.to_owned(), found: previous.schema, known: SCHEMA }.into());
    }
    Ok(LockedStore { db, blobs: Blobs::new(dir.join(BLOBS)), bytes })
}

/// Refuses a file that has lost all its bytes: the engine would create a new store in it. The folder of blobs exists
/// only beside a store that was on disk.
fn refuse_emptied(backend: &impl StorageBackend, path: &Path) -> Result<()> {
    if backend.len().at(path)? == 0 && path.with_file_name(BLOBS).is_dir() {
        let what =
            format!("it is empty, and the folder `{BLOBS}` beside it is that of a store which was in use");
        return Err(StoreError::Damaged { path: path.to_owned(), what });
    }
    Ok(())
}

/// The database, and the bytes of its file.
fn open_database(backend: impl StorageBackend, path: &Path) -> Result<(Engine, u64)> {
    if is_unfinished(&backend).at(path)? {
        backend.set_len(0).at(path)?;
    }
    let bytes = backend.len().at(path)?;
    Ok((EngineFile::new(path).open(backend, CACHE_BYTES)?, bytes))
}

/// Whether a process was killed while it created the file. The engine writes the magic number last; until then there is
/// nothing after the first page.
fn is_unfinished(file: &impl StorageBackend) -> io::Result<bool> {
    let length = file.len()?;
    let is_empty = |part: &[u8]| part.iter().all(|byte| *byte == 0);
    let mut magic = [0; MAGIC_BYTES];
    let available = magic.len().min(usize::try_from(length).unwrap_or(MAGIC_BYTES));
    file.read(0, &mut magic[..available])?;
    if !(1..=MAX_NEW_FILE_BYTES).contains(&length) || !is_empty(&magic) {
        return Ok(false);
    }
    let mut rest = vec![0; usize::try_from(length.saturating_sub(PAGE_BYTES)).unwrap_or_default()];
    if !rest.is_empty() {
        file.read(PAGE_BYTES, &mut rest)?;
    }
    Ok(is_empty(&rest))
}

/// Migrates a store of an older schema, on any storage backend.
pub(super) fn upgrade_schema(path: &Path, db: &Engine) -> Result<(), OpenError> {
    let upgrade = || start_epoch(db, &previous_epoch::read(db, path, 0)?, 0, None);
    db.file.run(upgrade).map(drop).map_err(|error| explain(path, error))
}

/// Migrates the store and starts the epoch after `previous`; returns the last position in the log. `deleted_rows` is
/// the number to record if free pages were counted.
fn start_epoch(db: &Database, previous: &PreviousEpoch, boot: u64, deleted_rows: Option<u64>) -> Result<u64> {
    let mut txn = db.begin_write()?;
    txn.set_quick_repair(true);
    let mut meta = txn.open_table(META)?;
    meta.insert(SCHEMA_VERSION, SCHEMA)?;
    meta.insert(EPOCH, previous.next)?;
    meta.insert(BOOT, boot)?;
    if let Some(deleted_rows) = deleted_rows {
        meta.insert(COUNTED_AT, deleted_rows)?;
    }
    drop(meta);
    if previous.schema == 1 {
        migrate_from_1(&txn)?;
    }
    let last_position = Tables::of(&txn).create()?;
    txn.commit()?;
    Ok(last_position)
}

/// Checks the unfinished runs after an unclean shutdown. Damage of a session or run is logged and affects it alone:
/// reading it reports the damage.
fn check_unfinished_runs(db: &Database, spiller: &Spiller) -> Result<()> {
    let clock = SystemClock::default();
    let QuickCheck { runs, damages } = quick_check(db, &spiller.blobs)?;
    tracing::debug!(
        runs,
        ms = clock.monotonic_ms(),
        "the store did not end in order; its unfinished runs were looked at"
    );
    for damage in &damages {
        let what = if damage.session.is_some() { "session" } else { "run" };
        tracing::error!(%damage, "a {what} is damaged; `hermod store check` looks at all of them");
    }
    Ok(())
}

/// Writes the pid of this process beside the store.
fn write_owner(dir: &Path) -> Result<()> {
    let path = dir.join(OWNER);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = files::open_regular_with(&mut options, &path).at(&path)?;
    Ok(writeln!(file, "{}", process::id()).at(path)?)
}

/// The error for the caller that wanted to open the store's file at `path`.
pub(super) fn explain(path: &Path, error: StoreError) -> OpenError {
    let path = path.to_owned();
    match error {
        StoreError::Unusable(error) => error,
        StoreError::File(error) => OpenError::Io(error),
        StoreError::Damaged { path, what } => OpenError::Corrupt { path, reason: what },
        StoreError::Engine(redb::Error::DatabaseAlreadyOpen) => {
            let dir = path.parent().unwrap_or(&path).to_owned();
            let pid = files::read_regular_text(&dir.join(OWNER), MAX_OWNER_BYTES).ok();
            OpenError::Busy { dir, pid: pid.and_then(|pid| pid.trim().parse().ok()) }
        }
        StoreError::Engine(redb::Error::Io(source)) if source.kind() != io::ErrorKind::InvalidData => {
            OpenError::Io(PathError { path, source })
        }
        StoreError::Engine(error) => OpenError::Corrupt { path, reason: error.to_string() },
        error @ (StoreError::Busy | StoreError::UnknownTable(_) | StoreError::Stopped(_)) => {
            OpenError::Io(PathError { path, source: io::Error::other(error) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a store opens whose file has these bytes.
    fn opens(bytes: &[u8]) -> bool {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(STORE_FILE), bytes).unwrap();
        open(dir.path()).is_ok()
    }

    /// The bytes of a new store.
    fn made() -> Vec<u8> {
        let dir = tempfile::tempdir().unwrap();
        drop(open(dir.path()).unwrap());
        fs::read(dir.path().join(STORE_FILE)).unwrap()
    }

    #[test]
    fn a_file_that_was_being_made_when_its_process_was_killed_is_made_anew() {
        let first_page = &made()[MAGIC_BYTES..320];
        let unmarked = [&[0; MAGIC_BYTES], first_page, &vec![0; 1_056_768 - 320]].concat();
        for bytes in [&[][..], &[0], &[0; 320], &vec![0; 1_056_768], &unmarked] {
            assert!(opens(bytes), "{} bytes", bytes.len());
        }
    }

    #[test]
    fn a_file_with_something_in_it_is_not() {
        let mut unmarked = made();
        assert!(opens(&unmarked));
        unmarked[..MAGIC_BYTES].fill(0);
        assert!(!opens(&unmarked));
        assert!(!opens(b"a letter"));
        assert!(!opens(&vec![0; 5 << 20]));
    }
}
