//! Folders and files that nobody but their owner may enter or read. What is not synced may be gone after a power loss: the
//! bytes of a file until the file is, its name until its folder is.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::Path,
};

/// Makes a folder, and those above it, unless they are there.
pub(crate) fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Makes a file that is not there.
pub(crate) fn make(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Writes a file that is not there, and brings its bytes to disk.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = make(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Removes a file, if it is there.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Brings the names in a folder to disk.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn nobody_else_may_read_them() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("a/b");
        let file = folder.join("file");
        make_folder(&folder).unwrap();
        make_folder(&folder).unwrap();
        write(&file, b"text").unwrap();
        sync_folder(&folder).unwrap();
        for (path, mode) in [(&dir.path().join("a"), 0o700), (&folder, 0o700), (&file, 0o600)] {
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, mode, "{}", path.display());
        }
        assert_eq!(write(&file, b"more").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&file).unwrap(), b"text");
        remove(&file).unwrap();
        remove(&file).unwrap();
        assert!(!file.exists());
    }
}
