//! Files that are written once, hashed and brought to disk.

use std::{
    fmt::Write as _,
    fs::{self, DirBuilder, File, TryLockError},
    io::{self, Read, Write},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use super::{
    error::{BackupError, Stop},
    manifest::Listed,
};
use crate::files;

/// Bytes read at once.
const CHUNK: usize = 1 << 20;

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a String takes all text");
        text
    })
}

/// Writes a file that was not there.
pub(super) fn write(path: &Path, bytes: &[u8]) -> Result<(), BackupError> {
    files::write(path, bytes).map_err(BackupError::at(path))
}

/// Hashes a file.
pub(super) fn hashed(path: &Path, stop: &mut Stop) -> Result<Listed, BackupError> {
    let file = File::open(path).map_err(BackupError::at(path))?;
    through(file, (path, path), None, stop)
}

/// Copies a file to where none is, and hashes what is copied.
pub(super) fn copied(from: &Path, to: &Path, stop: &mut Stop) -> Result<Listed, BackupError> {
    let source = File::open(from).map_err(BackupError::at(from))?;
    if let Some(folder) = to.parent() {
        files::make_folder(folder).map_err(BackupError::at(folder))?;
    }
    let mut target = files::make(to).map_err(BackupError::at(to))?;
    let listed = through(source, (from, to), Some(&mut target), stop)?;
    target.sync_all().map_err(BackupError::at(to))?;
    Ok(listed)
}

fn through(
    mut source: File,
    (from, to): (&Path, &Path),
    mut target: Option<&mut File>,
    stop: &mut Stop,
) -> Result<Listed, BackupError> {
    let (mut hash, mut bytes, mut chunk) = (Sha256::new(), 0, vec![0; CHUNK]);
    loop {
        let read = source.read(&mut chunk).map_err(BackupError::at(from))?;
        if read == 0 {
            return Ok(Listed { bytes, sha256: hex(&hash.finalize()) });
        }
        hash.update(&chunk[..read]);
        if let Some(target) = &mut target {
            target.write_all(&chunk[..read]).map_err(BackupError::at(to))?;
        }
        bytes += read as u64;
        stop(read)?;
    }
}

/// Brings the entries of a folder and of all below it to disk.
pub(super) fn sync_folders(folder: &Path) -> Result<(), BackupError> {
    let entries = fs::read_dir(folder).map_err(BackupError::at(folder))?;
    for entry in entries {
        let entry = entry.map_err(BackupError::at(folder))?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            sync_folders(&entry.path())?;
        }
    }
    sync_folder(folder)
}

fn sync_folder(folder: &Path) -> Result<(), BackupError> {
    files::sync_folder(folder).map_err(BackupError::at(folder))
}

/// A folder in the making, which this process alone has. Dropped before it has its name, it is removed.
#[derive(Debug)]
pub(super) struct Part {
    path: PathBuf,
    whole: bool,
    /// Locked as long as it is open.
    _folder: File,
}

impl Part {
    /// `DIR.part`; what a process that was killed has left of it is removed.
    pub(super) fn of(dir: &Path) -> Result<Self, BackupError> {
        let mut path = dir.to_owned().into_os_string();
        path.push(".part");
        let path = PathBuf::from(path);
        let at = BackupError::at(&path);
        loop {
            match DirBuilder::new().mode(0o700).create(&path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(at(error)),
                made => {
                    let folder = match File::open(&path) {
                        // Its maker was just removing it.
                        Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                        folder => folder.map_err(&at)?,
                    };
                    match folder.try_lock() {
                        Ok(()) if made.is_ok() => return Ok(Self { path, whole: false, _folder: folder }),
                        Ok(()) => match fs::remove_dir_all(&path) {
                            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at(error)),
                            Ok(()) | Err(_) => {}
                        },
                        Err(TryLockError::WouldBlock) => return Err(BackupError::BeingMade(path)),
                        Err(TryLockError::Error(error)) => return Err(at(error)),
                    }
                }
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// All of it is on disk: it gets its name, unless there is something of that name.
    pub(super) fn name(mut self, dir: &Path) -> Result<(), BackupError> {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        match renameat_with(CWD, &self.path, CWD, dir, RenameFlags::NOREPLACE) {
            Err(rustix::io::Errno::EXIST) => return Err(BackupError::Exists(dir.to_owned())),
            renamed => renamed.map_err(|error| BackupError::at(dir)(error.into()))?,
        }
        self.whole = true;
        dir.parent().map_or(Ok(()), sync_folder)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.whole
            && let Err(error) = fs::remove_dir_all(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "an unfinished backup stays until the next of its name");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_has_one_maker_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("b");
        let part = Part::of(&dir).unwrap();
        assert!(matches!(Part::of(&dir), Err(BackupError::BeingMade(_))));
        drop(part);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        // As one that was killed has left it.
        fs::create_dir(folder.path().join("b.part")).unwrap();
        write(&folder.path().join("b.part/rest"), b"x").unwrap();
        let part = Part::of(&dir).unwrap();
        assert_eq!(fs::read_dir(part.path()).unwrap().count(), 0);
        part.name(&dir).unwrap();
        assert!(dir.is_dir());
        assert!(matches!(Part::of(&dir).unwrap().name(&dir), Err(BackupError::Exists(_))));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
