use std::{
    fmt::Debug,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::Path,
};

/// What the store does to folders and to files beside its own. What is not synced may be gone after a power loss: the
/// bytes of a file until the file is, its name until the folder is.
pub(super) trait Files: Debug + Send {
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
pub(super) struct System;

impl Files for System {
    fn make_folder(&mut self, path: &Path) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)
    }

    fn write(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        // Made anew, so that nothing of an attempt that failed is in it, nor of a sync that did.
        remove(path)?;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(bytes).and_then(|()| file.sync_all()).inspect_err(|_| drop(remove(path)))
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn sync_folder(&mut self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}
