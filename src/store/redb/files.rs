//! The file system beside the engine's file: a trait with the system's implementation, which tests replace.

use std::{fmt::Debug, fs, io, path::Path};

use crate::files;

/// File operations of the store beside the engine's file. Unsynced data may be lost on a power loss: the bytes of a
/// file until it is synced, its name until its folder is synced.
pub(super) trait FileSystem: Debug + Send {
    /// Makes a private folder and its parents, unless they exist.
    fn make_folder(&mut self, path: &Path) -> io::Result<()> {
        files::make_folder(path)
    }

    /// Writes and syncs a private file, replacing an older one. On failure nothing remains of it, so that it takes no
    /// disk space.
    fn write(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        // A new file: an older one may have bytes of a failed attempt, or a sync error.
        files::remove(path)?;
        files::write(path, bytes).inspect_err(|_| drop(files::remove(path)))
    }

    /// Renames a file, replacing an existing one.
    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    /// Syncs the names in a folder.
    fn sync_folder(&mut self, path: &Path) -> io::Result<()> {
        files::sync_folder(path)
    }
}

/// The files of the operating system.
#[derive(Debug)]
pub(super) struct OsFileSystem;

impl FileSystem for OsFileSystem {}
