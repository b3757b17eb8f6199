use std::{fmt::Debug, fs, io, path::Path};

use crate::files;

/// What the store does to folders and to files beside its own. What is not synced may be gone after a power loss: the
/// bytes of a file until the file is, its name until the folder is.
pub(super) trait FileSystem: Debug + Send {
    /// Makes a folder that only its owner may enter, and those above it, unless they are there.
    fn make_folder(&mut self, path: &Path) -> io::Result<()>;

    /// Writes a file that only its owner may read, in the place of an older one, and brings its bytes to disk. If that fails
    /// nothing is left of it, so that it takes no room.
    fn write(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()>;

    /// Gives a file another name in the place of whatever has it.
    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()>;

    /// Brings the names in a folder to disk.
    fn sync_folder(&mut self, path: &Path) -> io::Result<()>;
}

/// The files of the operating system.
#[derive(Debug)]
pub(super) struct OsFileSystem;

impl FileSystem for OsFileSystem {
    fn make_folder(&mut self, path: &Path) -> io::Result<()> {
        files::make_folder(path)
    }

    fn write(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        // Made anew, so that nothing of an attempt that failed is in it, nor of a sync that did.
        files::remove(path)?;
        files::write(path, bytes).inspect_err(|_| drop(files::remove(path)))
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn sync_folder(&mut self, path: &Path) -> io::Result<()> {
        files::sync_folder(path)
    }
}
