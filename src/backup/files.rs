//! Hashes and copies the files of a backup within the space that the disk has to spare, and syncs its folders. Also the
//! locked folder of a backup under way, which is renamed when it is complete.

use std::{
    fs::{self, DirBuilder, File, TryLockError},
    io::{self, Read, Write},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use hermod_actors::model::ContentHasher;
use rustix::{
    fs::{CWD, RenameFlags, renameat_with},
    io::Errno,
};

use super::{
    error::{BackupError, StopFn},
    manifest::{CHECKSUM_FILE, FileEntry, MANIFEST_FILE, STORE_FILE},
};
use crate::{
    disk_space,
    files::{self, IoResult as _, PathError, open_regular},
};

/// Bytes per read.
const CHUNK_BYTES: usize = 1 << 20;
/// The names that the folder of a backup may contain.
const BACKUP_ENTRIES: [&str; 7] =
    [STORE_FILE, "blobs", "artifacts", "scripts", "memories", MANIFEST_FILE, CHECKSUM_FILE];

/// Fails if writing `bytes` at this path would use the disk space that is reserved for records.
pub(super) fn check_disk_space(path: &Path, bytes: u64) -> Result<(), PathError> {
    let missing_bytes = File::open(path).and_then(|file| disk_space::missing_bytes(file, bytes)).at(path)?;
    if missing_bytes == 0 {
        return Ok(());
    }
    let text = format!("{missing_bytes} bytes are missing on its disk, with those that are left for records");
    Err(io::Error::new(io::ErrorKind::StorageFull, text)).at(path)
}

/// Hashes a file.
pub(super) fn hash_file(path: &Path, stop: &mut StopFn) -> Result<FileEntry, BackupError> {
    let file = open_regular(path).at(path)?;
    hash_through(file, path, path, None, stop)
}

/// Copies a file to a path that must not exist, and hashes what is copied.
pub(super) fn copy_and_hash(from: &Path, to: &Path, stop: &mut StopFn) -> Result<FileEntry, BackupError> {
    let source = open_regular(from).at(from)?;
    if let Some(folder) = to.parent() {
        files::make_folder(folder).at(folder)?;
    }
    let mut target = files::make(to).at(to)?;
    let listed = hash_through(source, from, to, Some(&mut target), stop)?;
    target.sync_all().at(to)?;
    Ok(listed)
}

fn hash_through(
    mut source: File,
    from: &Path,
    to: &Path,
    mut target: Option<&mut File>,
    stop: &mut StopFn,
) -> Result<FileEntry, BackupError> {
    let (mut hash, mut bytes, mut chunk) = (ContentHasher::default(), 0, vec![0; CHUNK_BYTES]);
    loop {
        let read = source.read(&mut chunk).at(from)?;
        if read == 0 {
            return Ok(FileEntry { bytes, sha256: hash.finish().to_string() });
        }
        hash.update(&chunk[..read]);
        if let Some(target) = &mut target {
            check_disk_space(to, read as u64)?;
            target.write_all(&chunk[..read]).at(to)?;
        }
        bytes += read as u64;
        stop(read)?;
    }
}

/// Syncs a folder and all folders below it.
pub(super) fn sync_folders(folder: &Path) -> Result<(), PathError> {
    for entry in files::entries(folder).at(folder)? {
        if entry.symlink_metadata().is_ok_and(|entry| entry.is_dir()) {
            sync_folders(&entry)?;
        }
    }
    files::sync_folder(folder).at(folder)
}

/// The folder of a backup under way, locked by this process. Dropped before `publish`, it is removed.
#[derive(Debug)]
pub(super) struct PartialBackup {
    path: PathBuf,
    is_published: bool,
    /// Holds the lock until it is closed.
    _folder: File,
}

impl PartialBackup {
    /// Creates and locks `DIR.part`; removes what a killed process left there first.
    pub(super) fn of(dir: &Path) -> Result<Self, BackupError> {
        let Some(name) = dir.file_name() else {
            let reason = "its last part is no name; give a folder that does not exist".to_owned();
            return Err(BackupError::BadTarget { path: dir.to_owned(), reason });
        };
        let mut name = name.to_owned();
        name.push(".part");
        let path = dir.with_file_name(name);
        loop {
            let is_new = match DirBuilder::new().mode(0o700).create(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
                creation => creation.map(|()| true).at(&path)?,
            };
            // The process that made the folder may have removed it between the two calls.
            let Some(folder) = File::open(&path).if_exists().at(&path)? else { continue };
            match folder.try_lock() {
                Ok(()) if is_new => return Ok(Self { path, is_published: false, _folder: folder }),
                Ok(()) if !is_of_backup(&path).at(&path)? => {
                    let reason = "this would be the name of the backup in the making, and it is none; move it away, or \
                                  give another folder"
                        .to_owned();
                    return Err(BackupError::BadTarget { path, reason });
                }
                Ok(()) => remove_partial(&path).at(&path)?,
                Err(TryLockError::WouldBlock) => return Err(BackupError::BeingMade(path)),
                Err(TryLockError::Error(error)) => return Ok(Err(error).at(path)?),
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Renames the folder, whose content must be synced, to `dir`; fails if `dir` exists.
    pub(super) fn publish(mut self, dir: &Path) -> Result<(), BackupError> {
        let no_replace = |from: &Path, to: &Path| renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE);
        match rename(&self.path, dir, no_replace) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(BackupError::Exists(dir.to_owned()));
            }
            renamed => renamed.at(dir)?,
        }
        self.is_published = true;
        Ok(dir.parent().map_or(Ok(()), |parent| files::sync_folder(parent).at(parent))?)
    }
}

/// Renames without replacing. File systems without such a rename are checked first, which is not atomic.
fn rename(from: &Path, to: &Path, no_replace: impl Fn(&Path, &Path) -> Result<(), Errno>) -> io::Result<()> {
    match no_replace(from, to) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => match fs::symlink_metadata(to).if_exists()? {
            Some(_) => Err(io::ErrorKind::AlreadyExists.into()),
            None => fs::rename(from, to),
        },
        renamed => Ok(renamed?),
    }
}

/// Whether a folder is a partial backup: the store's file is created first in it and removed last.
fn is_of_backup(folder: &Path) -> io::Result<bool> {
    if !fs::symlink_metadata(folder)?.is_dir() {
        return Ok(false);
    }
    let entries = files::entries(folder)?;
    let has_name = |path: &PathBuf, name: &str| path.file_name().is_some_and(|file_name| file_name == name);
    let is_known = |path: &PathBuf| BACKUP_ENTRIES.iter().any(|name| has_name(path, name));
    let has_store = entries.iter().any(|path| has_name(path, STORE_FILE));
    Ok(entries.iter().all(is_known) && (entries.is_empty() || has_store))
}

/// Removes a partial backup, if it is there.
fn remove_partial(part: &Path) -> io::Result<()> {
    for name in BACKUP_ENTRIES.iter().filter(|name| **name != STORE_FILE) {
        let path = part.join(name);
        match fs::symlink_metadata(&path).if_exists()? {
            Some(metadata) if metadata.is_dir() => files::remove_tree(&path)?,
            Some(_) => files::remove(&path)?,
            None => {}
        }
    }
    files::remove(&part.join(STORE_FILE))?;
    fs::remove_dir(part).if_exists().map(drop)
}

impl Drop for PartialBackup {
    fn drop(&mut self) {
        if !self.is_published
            && let Err(error) = remove_partial(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "an unfinished backup stays until the next of its name");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::write;

    #[test]
    fn a_part_has_one_maker_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("b");
        let part = PartialBackup::of(&dir).unwrap();
        assert!(matches!(PartialBackup::of(&dir), Err(BackupError::BeingMade(_))));
        drop(part);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        // A partial backup of a killed process.
        fs::create_dir_all(folder.path().join("b.part/blobs/ab")).unwrap();
        write(&folder.path().join("b.part/blobs/ab/x"), b"x").unwrap();
        write(&folder.path().join("b.part").join(STORE_FILE), b"x").unwrap();
        let part = PartialBackup::of(&dir).unwrap();
        assert_eq!(fs::read_dir(part.path()).unwrap().count(), 0);
        part.publish(&dir).unwrap();
        assert!(dir.is_dir());
        assert!(matches!(PartialBackup::of(&dir).unwrap().publish(&dir), Err(BackupError::Exists(_))));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_is_no_part_stays() {
        let folder = tempfile::tempdir().unwrap();
        let (dir, part) = (folder.path().join("b"), folder.path().join("b.part"));
        let check = |what: &str| {
            let refused = PartialBackup::of(&dir).unwrap_err();
            assert!(
                matches!(&refused, BackupError::BadTarget { path, .. } if *path == part),
                "{what}: {refused}"
            );
            assert!(part.symlink_metadata().is_ok(), "{what} has gone");
        };
        fs::create_dir_all(part.join("scripts")).unwrap();
        check("a folder of scripts");
        write(&part.join(STORE_FILE), b"x").unwrap();
        write(&part.join("thesis"), b"x").unwrap();
        check("a folder with something else in it");
        fs::rename(&part, folder.path().join("away")).unwrap();
        write(&part, b"x").unwrap();
        check("a file");
        fs::remove_file(&part).unwrap();
        fs::remove_file(folder.path().join("away/thesis")).unwrap();
        std::os::unix::fs::symlink(folder.path().join("away"), &part).unwrap();
        check("a link");
        assert!(folder.path().join("away").join(STORE_FILE).exists());
    }

    #[test]
    fn a_name_may_end_with_a_slash_and_must_be_one() {
        let folder = tempfile::tempdir().unwrap();
        let part = PartialBackup::of(&folder.path().join("b/")).unwrap();
        assert_eq!(part.path(), folder.path().join("b.part"));
        part.publish(&folder.path().join("b/")).unwrap();
        assert!(folder.path().join("b").is_dir());
        assert!(matches!(PartialBackup::of(&folder.path().join("..")), Err(BackupError::BadTarget { .. })));
    }

    #[test]
    fn a_file_system_that_cannot_rename_so_is_asked_before() {
        let folder = tempfile::tempdir().unwrap();
        let [from, to] = ["from", "to"].map(|name| folder.path().join(name));
        for cannot in [Errno::INVAL, Errno::NOSYS, Errno::OPNOTSUPP] {
            fs::create_dir(&from).unwrap();
            fs::create_dir(&to).unwrap();
            let refused = rename(&from, &to, |_, _| Err(cannot)).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists, "{cannot}");
            fs::remove_dir(&to).unwrap();
            rename(&from, &to, |_, _| Err(cannot)).unwrap();
            fs::remove_dir(&to).unwrap();
        }
        assert_eq!(rename(&from, &to, |_, _| Err(Errno::IO)).unwrap_err().raw_os_error(), Some(5));
    }

    #[test]
    fn what_does_not_fit_on_the_disk_is_refused_with_what_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        check_disk_space(folder.path(), 1).unwrap();
        let refused = check_disk_space(folder.path(), u64::MAX / 2).unwrap_err();
        let refused = BackupError::from(refused).to_string();
        let missing_bytes =
            refused.split_once(": ").unwrap().1.split(' ').next().unwrap().parse::<u64>().unwrap();
        assert!(missing_bytes > u64::MAX / 4, "{refused}");
        assert!(refused.contains("must have room"), "{refused}");
    }
}
