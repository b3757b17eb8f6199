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

/// Bytes of the file that names the owner.
const MAX_OWNER_BYTES: u64 = 64;

pub(super) const STORE_FILE: &str = "hermod.redb";

/// Whether there is a store in a state directory.
pub fn is_in(state: &Path) -> bool {
    state.join(STORE_FILE).exists()
}

const OWNER: &str = "owner";
const BLOBS: &str = "blobs";
/// What this program writes. It reads no newer one.
pub(super) const SCHEMA: u64 = 2;
/// An upper bound that fills as pages are read; nothing is allocated before.
pub(super) const CACHE_BYTES: usize = 256 << 20;

/// Bytes of the mark at the beginning of the engine's file.
const MAGIC_BYTES: usize = 9;
/// Bytes of its first page.
const PAGE_BYTES: u64 = 4096;
/// A file into which nothing was ever written has at most so many bytes.
const MAX_NEW_FILE_BYTES: u64 = 4 << 20;

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it open.
    #[error("the store in {} is in use by {}; stop it, or use another state directory", dir.display(), owner(*pid))]
    Busy {
        /// The store's folder.
        dir: PathBuf,
        /// The other process; `None` in the instant in which it has not said so yet.
        pid: Option<u32>,
    },
    /// A newer version of Hermod has written it.
    #[error("{} has schema version {found}, and this program knows {known}: use the newer hermod that wrote it", path.display())]
    Newer {
        /// The store's file.
        path: PathBuf,
        /// Its version.
        found: u64,
        /// The newest one that can be read.
        known: u64,
    },
    /// An older version has written it, and it is not to be changed now.
    #[error("{} has schema version {found}, and only {known} can be checked: open it once, as `hermod runs list` does, and it is brought up to date", path.display())]
    Older {
        /// The store's file.
        path: PathBuf,
        /// Its version.
        found: u64,
        /// The one that can be checked.
        known: u64,
    },
    /// It is no store, or a damaged one.
    #[error("{} cannot be used as a store: {reason}; restore the folder from a backup, or move it away to begin anew", path.display())]
    Corrupt {
        /// The store's file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The file system refuses.
    #[error("{}: {source}; the state directory must be on a local disk with free space, and belong to this user", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What it says.
        source: io::Error,
    },
}

fn owner(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

/// A store that this process holds.
pub(super) struct OpenStore {
    pub(super) dir: PathBuf,
    pub(super) db: Engine,
    pub(super) epoch: u64,
    /// The last place taken in the log.
    pub(super) last_position: u64,
    pub(super) spiller: Spiller,
    pub(super) disk_wait: Arc<DiskFullWait>,
}

/// What a store stands on, beside its own file.
pub(super) struct StoreEnvironment {
    pub(super) files: Box<dyn FileSystem>,
    /// The boot of the machine.
    pub(super) boot: u64,
    pub(super) disk_wait: Arc<DiskFullWait>,
}

impl StoreEnvironment {
    /// This machine.
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

/// Opens the store in `dir` over whatever keeps the bytes of the file whose path `backend` is given. It may belong to no
/// other process from then on.
pub(super) fn open_over<B: StorageBackend>(
    dir: &Path,
    StoreEnvironment { mut files, boot, disk_wait: room }: StoreEnvironment,
    backend: impl FnOnce(&Path) -> Result<B, StoreError>,
) -> Result<OpenStore, OpenError> {
    let path = dir.join(STORE_FILE);
    let explain = |fault| explain(dir, &path, fault);
    files.make_folder(dir).map_err(StoreError::at(dir)).map_err(explain)?;
    // A store whose file was moved away begins anew; one whose file is there and has nothing in it was damaged.
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
    // redb syncs its file, but not the entry that makes it findable; who made it may have been killed before it did.
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

/// A store that is held to look at it, and not to work in it: no epoch begins.
pub(super) struct LockedStore {
    dir: PathBuf,
    path: PathBuf,
    pub(super) db: Engine,
    pub(super) blobs: Blobs,
    /// The size of its file.
    pub(super) bytes: u64,
}

impl LockedStore {
    /// What a fault in it means.
    pub(super) fn explain(&self, fault: StoreError) -> OpenError {
        explain(&self.dir, &self.path, fault)
    }
}

/// Holds the store in `dir`, which must be there.
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

/// The file of a store, held by this process alone. The engine takes the same lock when it reads the file, which is too late:
/// an unfinished one is cut before.
fn lock_file(path: &Path) -> Result<File, StoreError> {
    backup::open_locked(path.parent().unwrap_or(path))
}

/// Refuses a file that has lost all its bytes: the engine would make a new store of it. The folder of blobs is made when a store
/// is on disk.
fn refuse_emptied(backend: &impl StorageBackend, path: &Path) -> Result<(), StoreError> {
    if backend.len().map_err(StoreError::at(path))? == 0 && path.with_file_name(BLOBS).is_dir() {
        let what =
            format!("it is empty, and the folder `{BLOBS}` beside it is that of a store which was in use");
        return Err(StoreError::Damaged { path: path.to_owned(), what });
    }
    Ok(())
}

/// The database, and the size of its file.
fn database(backend: impl StorageBackend, path: &Path) -> Result<(Engine, u64), StoreError> {
    if is_unfinished(&backend).map_err(StoreError::at(path))? {
        backend.set_len(0).map_err(StoreError::at(path))?;
    }
    let bytes = backend.len().map_err(StoreError::at(path))?;
    Ok((EngineFile::new(path).open(backend, CACHE_BYTES)?, bytes))
}

/// Whether a process was killed while it made the file. The engine marks it last of all; until then there is nothing behind
/// its first page.
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

/// Brings a store that may be of an older schema up to date, wherever its bytes are kept.
pub(super) fn upgrade_schema(path: &Path, db: &Engine) -> Result<(), OpenError> {
    let explain = |fault| explain(path.parent().unwrap_or(path), path, fault);
    let past = db.file().run(|| previous_epoch::read(db, 0)).map_err(explain)?.accept(path)?;
    let begin =
        EpochStart { epoch: past.epoch.saturating_add(1), boot: 0, schema: past.schema, counted: None };
    db.file().run(|| begin.commit(db)).map(drop).map_err(explain)
}

/// The beginning of an epoch.
struct EpochStart {
    epoch: u64,
    boot: u64,
    /// What the store has been until now.
    schema: u64,
    counted: Option<FreePageCount>,
}

impl EpochStart {
    /// Brings the store up to date, and begins the epoch: the last place in the log.
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

/// Looks at what a process has left that did not end in order. What is wrong with a session or a run is told, and concerns
/// it alone: it shows when it is read.
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

/// Opens a file for writing, or makes one that only its owner may read.
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

    /// Opens a store whose file has these bytes; whether that works.
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
