//! The memory files on disk, in the folder `memories` of the state directory: their limits, lock, reading, and atomic
//! durable writing.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use hermod_actors::model::AgentName;
use rustix::fs::OFlags;

use super::{MemoryEntries, Target};
use crate::files::{self, IoResult as _, PathError};

/// The folder's name in the state directory.
pub const FOLDER: &str = "memories";
/// The folder in it with the folders of agents other than `default`.
const AGENTS_FOLDER: &str = "agents";
const LOCK: &str = ".lock";
/// Maximum number of tries to take the lock, `RETRY_DELAY` apart.
const MAX_TRIES: u32 = 500;
const RETRY_DELAY: Duration = Duration::from_millis(10);
/// Size limit of a file; files edited by hand stay far below.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The folder with the memory of an agent.
pub fn folder_of(state: &Path, agent: &AgentName) -> PathBuf {
    let folder = state.join(FOLDER);
    if agent.is_default() { folder } else { folder.join(AGENTS_FOLDER).join(agent.as_str()) }
}

/// The memory files and their limits in characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryFiles {
    folder: PathBuf,
    memory: usize,
    user: usize,
}

/// Why a file cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// Another process or task held the lock for 5 s.
    #[error("the lock {} has been held by another process for 5 s", .0.display())]
    LockHeld(PathBuf),
    /// The caller's cancellation check ended the wait.
    #[error("it was stopped")]
    Stopped,
    /// The file is not a memory file.
    #[error("{} {what}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why not.
        what: &'static str,
    },
    /// An I/O error.
    #[error(transparent)]
    Io(#[from] PathError),
}

/// Exclusive access to the memory files, held until this value is dropped.
#[derive(Debug)]
pub struct LockedMemory {
    folder: PathBuf,
    _lock: File,
}

impl MemoryFiles {
    /// `state` is the state directory; `memory` and `user` are limits in characters.
    pub fn new(state: &Path, memory: usize, user: usize) -> Self {
        Self { folder: state.join(FOLDER), memory, user }
    }

    /// The files of an agent, in a folder of its own unless it is `default`.
    pub fn of_agent(state: &Path, agent: &AgentName, memory: usize, user: usize) -> Self {
        Self { folder: folder_of(state, agent), memory, user }
    }

    /// Maximum characters of the file.
    pub const fn limit(&self, target: Target) -> usize {
        match target {
            Target::Memory => self.memory,
            Target::User => self.user,
        }
    }

    /// The file's path; the file may be missing.
    pub fn path(&self, target: Target) -> PathBuf {
        self.folder.join(target.file())
    }

    /// Waits for the exclusive lock while `goes_on` returns true, at most 5 s.
    /// Creates the folder if it is missing, and removes partial files of killed processes.
    pub fn lock(&self, goes_on: impl Fn() -> bool) -> Result<LockedMemory, MemoryError> {
        let folder = self.folder.clone();
        make_folder(&folder).at(&folder)?;
        let path = folder.join(LOCK);
        let lock = files::open_lock(&path).at(&path)?;
        if !files::lock_within(&lock, (MAX_TRIES, RETRY_DELAY), &goes_on).at(&path)? {
            return Err(if goes_on() { MemoryError::LockHeld(path) } else { MemoryError::Stopped });
        }
        let locked = LockedMemory { folder, _lock: lock };
        locked.remove_partials()?;
        Ok(locked)
    }
}

impl LockedMemory {
    /// The entries of a file; empty if the file is missing.
    pub fn read(&self, target: Target) -> Result<MemoryEntries, MemoryError> {
        let path = self.folder.join(target.file());
        let unreadable = |what| MemoryError::Unreadable { path: path.clone(), what };
        let mut options = OpenOptions::new();
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        options.read(true).custom_flags(flags.bits().cast_signed());
        let Some(file) = options.open(&path).if_exists().at(&path)? else {
            return Ok(MemoryEntries::default());
        };
        if !file.metadata().at(&path)?.is_file() {
            return Err(unreadable("is no regular file"));
        }
        let mut bytes = Vec::new();
        file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).at(&path)?;
        if bytes.len() as u64 > MAX_FILE_BYTES {
            return Err(unreadable("has more than 1 MiB"));
        }
        let text = String::from_utf8(bytes).map_err(|_| unreadable("is not text in UTF-8"))?;
        Ok(MemoryEntries::parse(&text))
    }

    /// Replaces the entries of a file atomically and durably: a reader sees the old ones or the new ones.
    pub fn write(&self, target: Target, entries: &MemoryEntries) -> Result<(), MemoryError> {
        let (path, part) = (self.folder.join(target.file()), self.partial_path(target));
        let written = files::write(&part, entries.text().as_bytes())
            .and_then(|()| fs::rename(&part, &path))
            .and_then(|()| files::sync_folder(&self.folder));
        // The next `lock` removes a partial file that remains.
        Ok(written.inspect_err(|_| drop(files::remove(&part))).at(path)?)
    }

    /// The path of the new content until it is renamed to the file.
    fn partial_path(&self, target: Target) -> PathBuf {
        self.folder.join(format!(".{}.part", target.file()))
    }

    fn remove_partials(&self) -> Result<(), MemoryError> {
        for part in Target::ALL.map(|target| self.partial_path(target)) {
            files::remove(&part).at(part)?;
        }
        Ok(())
    }
}

/// Creates the folder with mode 0700, and corrects the mode of an existing one.
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
