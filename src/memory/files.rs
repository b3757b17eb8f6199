use std::{
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, Read as _},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    thread::sleep,
    time::Duration,
};

use rustix::fs::{FlockOperation, OFlags, flock};

use super::{MemoryEntries, Target};
use crate::files;

/// The folder's name in the state.
pub const FOLDER: &str = "memories";
const LOCK: &str = ".lock";
/// A lock that somebody else holds is asked for so often, after such a pause each.
const MAX_TRIES: u32 = 500;
const RETRY_DELAY: Duration = Duration::from_millis(10);
/// Bytes of a file that are read; no person's hand makes more.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The files, and how long they may become.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryFiles {
    folder: PathBuf,
    memory: usize,
    user: usize,
}

/// Why a file cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// Somebody else has the lock.
    #[error("the lock {} has been held by somebody else for 5 s", .0.display())]
    LockHeld(PathBuf),
    /// Nobody waits any more.
    #[error("it was stopped")]
    Stopped,
    /// The file is none of entries.
    #[error("{} {what}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// The disk.
    #[error("{}: {error}", .path.display())]
    Io {
        /// The file or the folder.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
}

/// The files in the hands of one who changes them: nobody else does while this lives.
#[derive(Debug)]
pub struct LockedMemory {
    folder: PathBuf,
    _lock: File,
}

impl MemoryFiles {
    /// In the folder of a state, with these limits in characters.
    pub fn new(state: &Path, memory: usize, user: usize) -> Self {
        Self { folder: state.join(FOLDER), memory, user }
    }

    /// The characters that a file may have.
    pub const fn limit(&self, target: Target) -> usize {
        match target {
            Target::Memory => self.memory,
            Target::User => self.user,
        }
    }

    /// Where a file is, or would be.
    pub fn path(&self, target: Target) -> PathBuf {
        self.folder.join(target.file())
    }

    /// Waits until nobody else changes the files, as long as `goes_on` says; makes the folder, if it is not there, and removes
    /// what somebody who was killed has left in it.
    pub fn lock(&self, goes_on: impl Fn() -> bool) -> Result<LockedMemory, MemoryError> {
        let folder = self.folder.clone();
        make_folder(&folder).map_err(io_error(&folder))?;
        let path = folder.join(LOCK);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let lock = options.open(&path).map_err(io_error(&path))?;
        for _ in 0..MAX_TRIES {
            if !goes_on() {
                return Err(MemoryError::Stopped);
            }
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {
                    let locked = LockedMemory { folder, _lock: lock };
                    locked.remove_partials()?;
                    return Ok(locked);
                }
                Err(rustix::io::Errno::WOULDBLOCK) => sleep(RETRY_DELAY),
                Err(error) => return Err(io_error(&path)(error.into())),
            }
        }
        Err(MemoryError::LockHeld(path))
    }
}

impl LockedMemory {
    /// The entries of a file; none if it is not there.
    pub fn read(&self, target: Target) -> Result<MemoryEntries, MemoryError> {
        let path = self.folder.join(target.file());
        let unreadable = |what| MemoryError::Unreadable { path: path.clone(), what };
        let mut options = OpenOptions::new();
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        options.read(true).custom_flags(flags.bits().cast_signed());
        let file = match options.open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(MemoryEntries::default()),
            Err(error) => return Err(io_error(&path)(error)),
        };
        if !file.metadata().map_err(io_error(&path))?.is_file() {
            return Err(unreadable("is no regular file"));
        }
        let mut bytes = Vec::new();
        file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(io_error(&path))?;
        if bytes.len() as u64 > MAX_FILE_BYTES {
            return Err(unreadable("has more than 1 MiB"));
        }
        let text = String::from_utf8(bytes).map_err(|_| unreadable("is not text in UTF-8"))?;
        Ok(MemoryEntries::parse(&text))
    }

    /// Makes these the entries of a file, at once and durably: a reader has the old ones or the new.
    pub fn write(&self, target: Target, entries: &MemoryEntries) -> Result<(), MemoryError> {
        let (path, part) = (self.folder.join(target.file()), self.partial_path(target));
        let written = files::write(&part, entries.text().as_bytes())
            .and_then(|()| fs::rename(&part, &path))
            .and_then(|()| files::sync_folder(&self.folder));
        written.map_err(|error| match files::remove(&part) {
            // The first failure says why; what is left now is removed by the next who locks.
            Ok(()) | Err(_) => io_error(&path)(error),
        })
    }

    /// Where the new content of a file is until it is whole.
    fn partial_path(&self, target: Target) -> PathBuf {
        self.folder.join(format!(".{}.part", target.file()))
    }

    fn remove_partials(&self) -> Result<(), MemoryError> {
        Target::ALL.into_iter().try_for_each(|target| {
            let part = self.partial_path(target);
            files::remove(&part).map_err(io_error(&part))
        })
    }
}

/// Makes the folder, for nobody but its owner, also if somebody else has made it otherwise.
fn make_folder(folder: &Path) -> io::Result<()> {
    let is_new = !folder.exists();
    files::make_folder(folder)?;
    if fs::metadata(folder)?.permissions().mode() & 0o077 != 0 {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
    }
    match folder.parent().filter(|_| is_new) {
        Some(parent) => files::sync_folder(parent),
        None => Ok(()),
    }
}

fn io_error(path: &Path) -> impl Fn(io::Error) -> MemoryError {
    let path = path.to_owned();
    move |error| MemoryError::Io { path: path.clone(), error }
}
