//! Opening a store: lock, check of the previous epoch, migration, and the start of the new epoch.

use std::{
    fs::{self, File, OpenOptions},
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
    error::StoreError,
    files::{FileSystem, OsFileSystem},
    migrate,
    preallocated_file::PreallocatedFile,
    previous_epoch::{self, BOOT, EPOCH, SCHEMA_VERSION, ShutdownKind},
    quick_check::{QuickCheck, quick_check},
    tables::{META, Tables},
    vacuum::{FreePageCount, vacuum},
};
use crate::{
    clock::{self, SystemClock},
    files,
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
pub(super) const SCHEMA: u64 = 2;
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
    #[error("the store in {} is in use by {}; stop it, or use another state directory", dir.display(), owner(*pid))]
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
    #[error("{}: {source}; the state directory must be on a local disk with free space, and belong to this user", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

fn owner(pid: Option<u32>) -> String {
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
    let ground = StoreEnvironment::system();
    let room = Arc::clone(&ground.disk_wait);
    open_over(dir, ground, |path| {
        let file = lock_file(path)?;
        let same = file.try_clone().map_err(StoreError::at(path))?;
        Ok(PreallocatedFile::new(FileBackend::new(file)?, (Some(same), path.to_owned()), room))
    })
}

/// Opens the store in `dir`; `backend` makes the storage of the file at the given path, and must exclude other
/// processes from it.
pub(super) fn open_over<B: StorageBackend>(
    dir: &Path,
    StoreEnvironment { mut files, boot, disk_wait: room }: StoreEnvironment,
    backend: impl FnOnce(&Path) -> Result<B, StoreError>,
) -> Result<OpenStore, OpenError> {
    let path = dir.join(STORE_FILE);
    let explain = |fault| explain(dir, &path, fault);
    files.make_folder(dir).map_err(StoreError::at(dir)).map_err(explain)?;
    // A store whose file was moved away starts empty; an existing file without content is damaged.
    let was_there = path.exists();
    let file = backend(&path).map_err(explain)?;
    if was_there {
        refuse_emptied(&file, &path).map_err(explain)?;
    }
    let (mut db, bytes) = database(file, &path).map_err(explain)?;
    write_owner(&dir.join(OWNER)).map_err(explain)?;
    let file = db.file().clone();
    let past = file.run(|| previous_epoch::read(&db, boot)).map_err(explain)?.accept(&path)?;
    if past.shutdown == ShutdownKind::OtherBoot {
        file.run(|| previous_epoch::check_file(&mut db, bytes)).map_err(explain)?;
    }
    let compacted = past.is_current().then(|| file.run(|| vacuum(&mut db, bytes)));
    let counted = compacted.transpose().map_err(explain)?.flatten();
    let begin = EpochStart { epoch: past.epoch.saturating_add(1), boot, schema: past.schema, counted };
    let places = file.run(|| begin.commit(&db)).map_err(explain)?;
    let blobs = dir.join(BLOBS);
    files.make_folder(&blobs).map_err(StoreError::at(&blobs)).map_err(explain)?;
    // redb syncs its file, but not the folder's entry. Done at every opening: an earlier process may have been killed
    // before it.
    files.sync_folder(dir).map_err(StoreError::at(dir)).map_err(explain)?;
    let above = fs::canonicalize(dir).map_err(StoreError::at(dir)).map_err(explain)?;
    if let Some(above) = above.parent() {
        files.sync_folder(above).map_err(StoreError::at(above)).map_err(explain)?;
    }
    let spiller = Spiller::new(Blobs::new(blobs), files, Arc::clone(&room));
    if past.shutdown != ShutdownKind::Clean {
        file.run(|| check_unfinished_runs(&db, &spiller)).map_err(explain)?;
    }
    Ok(OpenStore {
        dir: dir.to_owned(),
        db,
        epoch: begin.epoch,
        last_position: places,
        spiller,
        disk_wait: room,
    })
}

/// A store that is open for inspection or repair: starts no epoch.
pub(super) struct LockedStore {
    dir: PathBuf,
    path: PathBuf,
    pub(super) db: Engine,
    pub(super) blobs: Blobs,
    /// Bytes of the store's file.
    pub(super) bytes: u64,
}

impl LockedStore {
    /// The error for the caller.
    pub(super) fn explain(&self, fault: StoreError) -> OpenError {
        explain(&self.dir, &self.path, fault)
    }
}

/// Locks the store in `dir`, which must exist.
pub(super) fn lock_store(dir: &Path) -> Result<LockedStore, OpenError> {
    let path = dir.join(STORE_FILE);
    let explain = |fault| explain(dir, &path, fault);
    fs::metadata(&path).map_err(StoreError::at(&path)).map_err(explain)?;
    let file = lock_file(&path).and_then(|file| Ok(FileBackend::new(file)?));
    let file = file.map_err(explain)?;
    refuse_emptied(&file, &path).map_err(explain)?;
    let (db, bytes) = database(file, &path).map_err(explain)?;
    write_owner(&dir.join(OWNER)).map_err(explain)?;
    let past = db.file().run(|| previous_epoch::read(&db, 0)).map_err(explain)?.accept(&path)?;
    if !past.is_current() {
        return Err(OpenError::Older { path, found: past.schema, known: SCHEMA });
    }
    Ok(LockedStore { dir: dir.to_owned(), path, db, blobs: Blobs::new(dir.join(BLOBS)), bytes })
}

/// Opens and locks the store's file. The engine takes the same lock only when it reads the file. That is too late,
/// because an unfinished file is truncated before.
fn lock_file(path: &Path) -> Result<File, StoreError> {
    backup::open_locked(path.parent().unwrap_or(path))
}

/// Refuses a file that has lost all its bytes: the engine would create a new store in it. The folder of blobs exists
/// only beside a store that was on disk.
fn refuse_emptied(backend: &impl StorageBackend, path: &Path) -> Result<(), StoreError> {
    if backend.len().map_err(StoreError::at(path))? == 0 && path.with_file_name(BLOBS).is_dir() {
        let what =
            format!("it is empty, and the folder `{BLOBS}` beside it is that of a store which was in use");
        return Err(StoreError::Damaged { path: path.to_owned(), what });
    }
    Ok(())
}

/// The database, and the bytes of its file.
fn database(backend: impl StorageBackend, path: &Path) -> Result<(Engine, u64), StoreError> {
    if is_unfinished(&backend).map_err(StoreError::at(path))? {
        backend.set_len(0).map_err(StoreError::at(path))?;
    }
    let bytes = backend.len().map_err(StoreError::at(path))?;
    Ok((EngineFile::new(path).open(backend, CACHE_BYTES)?, bytes))
}

/// Whether a process was killed while it created the file. The engine writes the magic number last; until then there is
/// nothing after the first page.
fn is_unfinished(file: &impl StorageBackend) -> io::Result<bool> {
    let length = file.len()?;
    let is_empty = |part: &[u8]| part.iter().all(|byte| *byte == 0);
    let mut mark = [0; MAGIC_BYTES];
    let marked = mark.len().min(usize::try_from(length).unwrap_or(MAGIC_BYTES));
    file.read(0, &mut mark[..marked])?;
    if !(1..=MAX_NEW_FILE_BYTES).contains(&length) || !is_empty(&mark) {
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
    let explain = |fault| explain(path.parent().unwrap_or(path), path, fault);
    let past = db.file().run(|| previous_epoch::read(db, 0)).map_err(explain)?.accept(path)?;
    let begin =
        EpochStart { epoch: past.epoch.saturating_add(1), boot: 0, schema: past.schema, counted: None };
    db.file().run(|| begin.commit(db)).map(drop).map_err(explain)
}

/// The start of an epoch.
struct EpochStart {
    epoch: u64,
    boot: u64,
    /// The schema version before the epoch.
    schema: u64,
    counted: Option<FreePageCount>,
}

impl EpochStart {
    /// Migrates the store and starts the epoch; returns the last position in the log.
    fn commit(&self, db: &Database) -> Result<u64, StoreError> {
        let mut txn = db.begin_write()?;
        txn.set_quick_repair(true);
        let mut meta = txn.open_table(META)?;
        meta.insert(SCHEMA_VERSION, SCHEMA)?;
        meta.insert(EPOCH, self.epoch)?;
        meta.insert(BOOT, self.boot)?;
        drop(meta);
        if let Some(counted) = &self.counted {
            counted.record(&txn)?;
        }
        if self.schema == 1 {
            migrate::from_1(&txn)?;
        }
        let places = Tables::of(&txn).create()?;
        txn.commit()?;
        Ok(places)
    }
}

/// Checks the unfinished runs after an unclean shutdown. Damage of a session or run is logged and affects it alone:
/// reading it reports the damage.
fn check_unfinished_runs(db: &Database, spiller: &Spiller) -> Result<(), StoreError> {
    let clock = SystemClock::default();
    let QuickCheck { runs, damages } = quick_check(db, spiller.blobs())?;
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

/// Opens a file for writing, or creates a private one.
fn open_private(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    files::open_regular_with(options.write(true).create(true).mode(0o600), path)
}

fn write_owner(path: &Path) -> Result<(), StoreError> {
    open_private(path, OpenOptions::new().truncate(true))
        .and_then(|mut file| file.write_all(format!("{}\n", process::id()).as_bytes()))
        .map_err(StoreError::at(path))
}

pub(super) fn explain(dir: &Path, path: &Path, fault: StoreError) -> OpenError {
    let path = path.to_owned();
    let error = match fault {
        StoreError::File { path, source } => return OpenError::Io { path, source },
        StoreError::Damaged { path, what } => return OpenError::Corrupt { path, reason: what },
        StoreError::Stopped(stopped) => {
            let source = io::Error::new(io::ErrorKind::Interrupted, stopped);
            return OpenError::Io { path, source };
        }
        StoreError::Engine(error) => error,
    };
    if matches!(error, redb::Error::DatabaseAlreadyOpen) {
        let named = files::read_regular_text(&dir.join(OWNER), MAX_OWNER_BYTES).ok();
        return OpenError::Busy { dir: dir.to_owned(), pid: named.and_then(|pid| pid.trim().parse().ok()) };
    }
    let reason = error.to_string();
    if let redb::Error::Io(source) = error
        && source.kind() != io::ErrorKind::InvalidData
    {
        return OpenError::Io { path, source };
    }
    OpenError::Corrupt { path, reason }
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
