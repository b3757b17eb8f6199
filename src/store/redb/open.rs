use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process,
    sync::Arc,
};

use redb::{Builder, Database, ReadableTable, TableHandle, backends::FileBackend};

use super::{
    blobs::{Blobs, make_folder, sync_folder},
    disk::Disk,
    fault::Fault,
    migrate,
    room::Room,
    tables::{META, Tables},
};

const FILE: &str = "hermod.redb";
const OWNER: &str = "owner";
const BLOBS: &str = "blobs";
/// What this program writes. It reads no newer one.
const SCHEMA: u64 = 2;
const SCHEMA_VERSION: &str = "schema_version";
const EPOCH: &str = "epoch";
/// An upper bound that fills as pages are read; nothing is allocated before.
const CACHE: usize = 256 << 20;

/// Bytes of the mark at the beginning of the engine's file.
const MARK: usize = 9;
/// Bytes of its first page.
const PAGE: usize = 4096;
/// A file into which nothing was ever written has at most so many bytes.
const LARGEST_NEW: u64 = 4 << 20;

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
pub(super) struct Store {
    pub(super) dir: PathBuf,
    pub(super) db: Database,
    pub(super) epoch: u64,
    /// The last place taken in the log.
    pub(super) places: u64,
    pub(super) blobs: Blobs,
    pub(super) room: Arc<Room>,
}

pub(super) fn open(dir: &Path) -> Result<Store, OpenError> {
    let path = dir.join(FILE);
    let explain = |fault| explain(dir, &path, fault);
    make_folder(dir).map_err(explain)?;
    let file = own(&path, OpenOptions::new().read(true)).map_err(Fault::at(&path)).map_err(explain)?;
    let room = Arc::new(Room::default());
    let db = database(file, &path, &room).map_err(explain)?;
    name_owner(&dir.join(OWNER)).map_err(explain)?;
    let (epoch, places) = begin(&path, &db, explain)?;
    let blobs = dir.join(BLOBS);
    make_folder(&blobs).map_err(explain)?;
    // redb syncs its file, but not the entry that makes it findable; who made it may have been killed before it did.
    sync_folder(dir).map_err(explain)?;
    let above = fs::canonicalize(dir).map_err(Fault::at(dir)).map_err(explain)?;
    above.parent().map_or(Ok(()), sync_folder).map_err(explain)?;
    Ok(Store { dir: dir.to_owned(), db, epoch, places, blobs: Blobs::new(blobs), room })
}

fn database(file: File, path: &Path, room: &Arc<Room>) -> Result<Database, Fault> {
    let same = file.try_clone().map_err(Fault::at(path))?;
    // From here on no other process has it.
    let backend = FileBackend::new(file)?;
    if is_unfinished(&same).map_err(Fault::at(path))? {
        same.set_len(0).map_err(Fault::at(path))?;
    }
    let disk = Disk::new(backend, (Some(same), path.to_owned()), Arc::clone(room));
    Ok(Builder::new().set_cache_size(CACHE).create_with_backend(disk)?)
}

/// Whether a process was killed while it made the file. The engine marks it last of all; until then there is nothing behind
/// its first page.
fn is_unfinished(file: &File) -> io::Result<bool> {
    let mut bytes = Vec::new();
    let read = file.take(LARGEST_NEW + 1).read_to_end(&mut bytes)? as u64;
    let is_empty = |part: &[u8]| part.iter().all(|byte| *byte == 0);
    let mark = &bytes[..bytes.len().min(MARK)];
    Ok((1..=LARGEST_NEW).contains(&read) && is_empty(mark) && is_empty(bytes.get(PAGE..).unwrap_or_default()))
}

/// Checks what the store is, brings it up to date, and begins the next epoch in it: the epoch, and the last place in the log.
fn begin(path: &Path, db: &Database, explain: impl Fn(Fault) -> OpenError) -> Result<(u64, u64), OpenError> {
    let begun = || -> Result<Result<(u64, u64), OpenError>, Fault> {
        let mut txn = db.begin_write()?;
        txn.set_quick_repair(true);
        let tables: Vec<_> = txn.list_tables()?.map(|table| table.name().to_owned()).collect();
        if !tables.is_empty() && tables.iter().all(|table| table != META.name()) {
            let reason = format!("it belongs to another program (tables: {})", tables.join(", "));
            return Ok(Err(OpenError::Corrupt { path: path.to_owned(), reason }));
        }
        let mut meta = txn.open_table(META)?;
        let found = meta.get(SCHEMA_VERSION)?.map_or(SCHEMA, |version| version.value());
        if found > SCHEMA {
            return Ok(Err(OpenError::Newer { path: path.to_owned(), found, known: SCHEMA }));
        }
        let epoch = meta.get(EPOCH)?.map_or(0, |epoch| epoch.value()).saturating_add(1);
        meta.insert(SCHEMA_VERSION, SCHEMA)?;
        meta.insert(EPOCH, epoch)?;
        drop(meta);
        if found == 1 {
            migrate::from_1(&txn)?;
        }
        let places = Tables::of(&txn).create()?;
        txn.commit()?;
        Ok(Ok((epoch, places)))
    };
    begun().map_err(explain)?
}

/// Opens a file for writing, or makes one that only its owner may read.
fn own(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    options.write(true).create(true).mode(0o600).open(path)
}

fn name_owner(path: &Path) -> Result<(), Fault> {
    own(path, OpenOptions::new().truncate(true))
        .and_then(|mut file| file.write_all(format!("{}\n", process::id()).as_bytes()))
        .map_err(Fault::at(path))
}

fn explain(dir: &Path, path: &Path, fault: Fault) -> OpenError {
    let path = path.to_owned();
    let error = match fault {
        Fault::File { path, source } => return OpenError::Io { path, source },
        Fault::Engine(error) => error,
    };
    if matches!(error, redb::Error::DatabaseAlreadyOpen) {
        let named = fs::read_to_string(dir.join(OWNER)).ok();
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
        fs::write(dir.path().join(FILE), bytes).unwrap();
        open(dir.path()).is_ok()
    }

    /// The bytes of a new store.
    fn made() -> Vec<u8> {
        let dir = tempfile::tempdir().unwrap();
        drop(open(dir.path()).unwrap());
        fs::read(dir.path().join(FILE)).unwrap()
    }

    #[test]
    fn a_file_that_was_being_made_when_its_process_was_killed_is_made_anew() {
        let first_page = &made()[MARK..320];
        let unmarked = [&[0; MARK], first_page, &vec![0; 1_056_768 - 320]].concat();
        for bytes in [&[][..], &[0], &[0; 320], &vec![0; 1_056_768], &unmarked] {
            assert!(opens(bytes), "{} bytes", bytes.len());
        }
    }

    #[test]
    fn a_file_with_something_in_it_is_not() {
        let mut unmarked = made();
        assert!(opens(&unmarked));
        unmarked[..MARK].fill(0);
        assert!(!opens(&unmarked));
        assert!(!opens(b"a letter"));
        assert!(!opens(&vec![0; 5 << 20]));
    }
}
