//! Operations on files: making folders and files that only this user may read, syncing, removing trees, and reading
//! regular files within a size limit. Also errors that name their path.
//!
//! Data that is not synced may be lost in a power failure: the bytes of an unsynced file, and the names in an unsynced
//! folder.

use std::{
    ffi::CStr,
    fs::{self, DirBuilder, File, FileType, Metadata, OpenOptions, TryLockError},
    io::{self, Read, Write as _},
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::fs::{DirBuilderExt, FileTypeExt as _, MetadataExt as _, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    thread::sleep,
    time::Duration,
};

use rustix::{
    fs::{AtFlags, Dir, Mode, OFlags},
    io::Errno,
};
use tokio::task::spawn_blocking;

/// Size limit for files that Hermod wrote itself; none comes near it. Reading more would only fill the memory.
const MAX_OWN_BYTES: u64 = 1 << 30;

/// A file system error, and the file or folder.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", path.display())]
pub struct PathError {
    /// The file or folder.
    pub path: PathBuf,
    /// The system's error.
    pub source: io::Error,
}

/// Additions to results of file system operations.
pub(crate) trait IoResult<T> {
    /// Adds the path to the error.
    fn at(self, path: impl AsRef<Path>) -> Result<T, PathError>;

    /// `None` if the file or folder is missing.
    fn if_exists(self) -> io::Result<Option<T>>;
}

impl<T> IoResult<T> for io::Result<T> {
    fn at(self, path: impl AsRef<Path>) -> Result<T, PathError> {
        self.map_err(|source| PathError { path: path.as_ref().to_owned(), source })
    }

    fn if_exists(self) -> io::Result<Option<T>> {
        match self {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            found => found.map(Some),
        }
    }
}

/// Does file work on a thread that may block.
pub(crate) async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    spawn_blocking(work).await?
}

/// The paths of a folder's entries; none if the folder is missing.
pub(crate) fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).if_exists()?;
    entries.into_iter().flatten().map(|entry| Ok(entry?.path())).collect()
}

/// The paths of a folder's entries with this extension; none if the folder is missing.
pub(crate) fn entries_with_extension(folder: &Path, extension: &str) -> io::Result<Vec<PathBuf>> {
    let mut paths = entries(folder)?;
    paths.retain(|path| path.extension().is_some_and(|found| found == extension));
    Ok(paths)
}

/// Creates a folder and its missing parents; existing ones are no error.
pub(crate) fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Creates a file; fails if it exists.
pub(crate) fn make(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
}

/// Creates a file with these bytes and syncs it; fails if it exists. The folder is not synced.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = make(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Replaces a file in `path`'s folder durably: a reader sees the old bytes or the new ones. `part` is the new file until it
/// is renamed; a left-over one is removed first, because it could have other permissions.
pub(crate) fn replace(path: &Path, part: &Path, bytes: &[u8]) -> io::Result<()> {
    remove(part)?;
    write(part, bytes)?;
    fs::rename(part, path)?;
    path.parent().map_or(Ok(()), sync_folder)
}

/// Removes a file; a missing file is no error.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    fs::remove_file(path).if_exists().map(drop)
}

/// Removes a folder and everything in it; a missing folder is no error. Symlinks are removed, not followed.
///
/// The depth of the tree costs neither stack nor open files. A command can create a tree deeper than the longest
/// path, and the standard library's removal recurses.
pub(crate) fn remove_tree(path: &Path) -> io::Result<()> {
    match open_directory(rustix::fs::CWD, path) {
        Ok(root) => FolderRemoval { root, move_count: 0 }.run()?,
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(error.into()),
    }
    fs::remove_dir(path).if_exists().map(drop)
}

/// Removes what a folder contains. Folders inside a subfolder move up to the top, so that each subfolder becomes
/// empty.
struct FolderRemoval {
    root: OwnedFd,
    /// Number of folders moved up so far; each gets the next number as its name.
    move_count: u64,
}

impl FolderRemoval {
    fn run(mut self) -> io::Result<()> {
        loop {
            let mut was_empty = true;
            for entry in Dir::read_from(&self.root)? {
                let entry = entry?;
                if !is_dot(entry.file_name()) {
                    was_empty = false;
                    self.remove_entry(entry.file_name())?;
                }
            }
            if was_empty {
                return Ok(());
            }
        }
    }

    /// Removes one entry of the top folder.
    fn remove_entry(&mut self, name: &CStr) -> rustix::io::Result<()> {
        if unlink(&self.root, name)? {
            return Ok(());
        }
        let folder = match open_directory(&self.root, name) {
            Err(Errno::NOENT) => return Ok(()),
            folder => folder?,
        };
        for entry in Dir::read_from(&folder)? {
            let entry = entry?;
            if !is_dot(entry.file_name()) && !unlink(&folder, entry.file_name())? {
                self.move_up(&folder, entry.file_name())?;
            }
        }
        // Entries added to the folder meanwhile are removed in the next pass.
        unlink(&self.root, name).map(|_| ())
    }

    fn move_up(&mut self, folder: &OwnedFd, name: &CStr) -> rustix::io::Result<()> {
        loop {
            let number = self.move_count.to_string();
            self.move_count += 1;
            match rustix::fs::renameat(folder, name, &self.root, number) {
                // Another entry has this number as its name.
                Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
                Err(Errno::NOENT) | Ok(()) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

fn is_dot(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}

fn open_directory(at: impl std::os::fd::AsFd, path: impl rustix::path::Arg) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(at, path, flags, Mode::empty())
}

/// Removes a file or an empty folder; returns `false` for a folder that is not empty.
fn unlink(folder: &OwnedFd, name: &CStr) -> rustix::io::Result<bool> {
    let folder = folder.as_fd();
    match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(true),
        // For a folder, Linux reports the first error and POSIX specifies the second.
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(error) => return Err(error),
    }
    match rustix::fs::unlinkat(folder, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Syncs a folder, so that the names in it are durable.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Opens a file that serves as a lock; creates it if it is missing.
pub(crate) fn open_lock(path: &Path) -> io::Result<File> {
    open_regular_with(OpenOptions::new().write(true).create(true).truncate(false).mode(0o600), path)
}

/// Locks a file that other processes lock too, in at most `tries` tries while `goes_on` returns true; false if none of
/// them got the lock.
pub(crate) fn lock_within(
    file: &File,
    (tries, delay): (u32, Duration),
    goes_on: impl Fn() -> bool,
) -> io::Result<bool> {
    for _ in 0..tries {
        if !goes_on() {
            return Ok(false);
        }
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::WouldBlock) => sleep(delay),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Ok(false)
}

/// Locks the file of a lock that other processes lock too; creates it if it is missing. Fails if none of the tries got the
/// lock, which lasts until the returned file is dropped.
pub(crate) fn lock(path: &Path, tries: (u32, Duration)) -> io::Result<File> {
    let lock = open_lock(path)?;
    if lock_within(&lock, tries, || true)? {
        return Ok(lock);
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, "another process has held the lock for too long"))
}

/// What changes with every write or replacement of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileVersion {
    inode: u64,
    length: u64,
    /// mtime and ctime, each in seconds and nanoseconds.
    times: [i64; 4],
}

impl From<&Metadata> for FileVersion {
    fn from(file: &Metadata) -> Self {
        let times = [file.mtime(), file.mtime_nsec(), file.ctime(), file.ctime_nsec()];
        Self { inode: file.ino(), length: file.len(), times }
    }
}

/// What was made of a file's content. It is made again when the file has changed, also by another process.
#[derive(Debug)]
pub(crate) struct FileCache<T>(Option<(FileVersion, T)>);

impl<T> Default for FileCache<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Clone> FileCache<T> {
    /// The cached value, or what `parse` makes of the file if it has changed since; `None` if it is missing. Costs one
    /// `stat` if nothing has changed. An error is not cached, because its cause may pass.
    pub(crate) fn get(
        &mut self,
        path: &Path,
        max_bytes: u64,
        parse: impl FnOnce(&[u8]) -> T,
    ) -> io::Result<Option<T>> {
        // If the file changes between the two, the version is older than the content, and it is read once more.
        let Some(metadata) = fs::metadata(path).if_exists()? else { return Ok(None) };
        let version = FileVersion::from(&metadata);
        if let Some((_, value)) = self.0.as_ref().filter(|(cached, _)| *cached == version) {
            return Ok(Some(value.clone()));
        }
        let Some(bytes) = read_regular(path, max_bytes).if_exists()? else { return Ok(None) };
        let value = parse(&bytes);
        self.0 = Some((version, value.clone()));
        Ok(Some(value))
    }
}

/// Opens a regular file for reading, following symlinks.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    open_regular_with(OpenOptions::new().read(true), path)
}

/// Opens a regular file, following symlinks, and refuses everything else: opening a pipe may block for ever, and a
/// device may have no end. A command run by a model can put one in the place of any file.
pub(crate) fn open_regular_with(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    // The options may allow the file's creation.
    if let Some(found) = fs::metadata(path).if_exists()? {
        expect_regular(found.file_type())?;
    }
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = options.custom_flags(flags.bits().cast_signed()).open(path)?;
    // The file may have been replaced since the first check.
    expect_regular(file.metadata()?.file_type())?;
    Ok(file)
}

/// Reads a regular file; fails if it has more than `max_bytes` bytes.
pub(crate) fn read_regular(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    let file = open_regular(path)?;
    match file.metadata()?.len() {
        length if length > max_bytes => Err(too_large(&length.to_string(), max_bytes)),
        // Some files grow while they are read, and files of the kernel report a length of 0.
        _ => read_limited(file, max_bytes),
    }
}

/// Reads a source to its end; fails if it has more than `max_bytes` bytes.
pub(crate) fn read_limited(source: impl Read, max_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(max_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > max_bytes {
        true => Err(too_large(&format!("more than {max_bytes}"), max_bytes)),
        false => Ok(bytes),
    }
}

/// Reads a regular file that Hermod wrote itself, up to `MAX_OWN_BYTES`.
pub(crate) fn read_own(path: &Path) -> io::Result<Vec<u8>> {
    read_regular(path, MAX_OWN_BYTES)
}

fn too_large(bytes: &str, max_bytes: u64) -> io::Error {
    let text = format!("it has {bytes} bytes, and at most {max_bytes} are read");
    io::Error::new(io::ErrorKind::FileTooLarge, text)
}

/// Reads a regular file as UTF-8 text; fails if it has more than `max_bytes` bytes.
pub(crate) fn read_regular_text(path: &Path, max_bytes: u64) -> io::Result<String> {
    text(read_regular(path, max_bytes)?)
}

/// Bytes as UTF-8 text; the error names the first invalid byte.
pub(crate) fn text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        io::Error::new(io::ErrorKind::InvalidData, format!("it is not text in UTF-8, from byte {at} on"))
    })
}

fn expect_regular(kind: FileType) -> io::Result<()> {
    if kind.is_file() {
        return Ok(());
    }
    let (error, kind) = match kind {
        kind if kind.is_dir() => (io::ErrorKind::IsADirectory, "a folder"),
        kind if kind.is_fifo() => (io::ErrorKind::InvalidInput, "a pipe"),
        kind if kind.is_socket() => (io::ErrorKind::InvalidInput, "a socket"),
        kind if kind.is_char_device() || kind.is_block_device() => (io::ErrorKind::InvalidInput, "a device"),
        _ => (io::ErrorKind::InvalidInput, "something else"),
    };
    Err(io::Error::new(error, format!("it is {kind}, and only regular files are read")))
}

#[cfg(test)]
mod tests {
    use std::os::unix::{fs::PermissionsExt, net::UnixListener};

    use super::*;

    #[test]
    fn removing_a_missing_file_is_no_failure() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.part");
        fs::write(&path, "x").unwrap();
        remove(&path).unwrap();
        remove(&path).unwrap();
        assert!(remove(dir.path()).is_err());
    }

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

    /// Makes the deepest tree that a command can make; its path is longer than the system accepts.
    fn make_deep(root: &Path, depth: usize) {
        fs::create_dir(root).unwrap();
        let mut folder = open_directory(rustix::fs::CWD, root).unwrap();
        for _ in 0..depth {
            rustix::fs::mkdirat(&folder, "0", Mode::RWXU).unwrap();
            folder = open_directory(&folder, "0").unwrap();
        }
    }

    #[test]
    fn a_tree_is_removed_whatever_its_shape() {
        let dir = tempfile::tempdir().unwrap();
        let (root, outside) = (dir.path().join("top"), dir.path().join("outside"));
        remove_tree(&root).unwrap();
        fs::write(&outside, "stays").unwrap();
        make_deep(&root, 0);
        for wide in 0..50 {
            // Numeric names, as the removal itself uses them.
            fs::create_dir_all(root.join(format!("{wide}/a/{wide}/b"))).unwrap();
            fs::write(root.join(format!("{wide}/a/file")), "").unwrap();
            fs::write(root.join(format!("{}", wide + 50)), "").unwrap();
        }
        std::os::unix::fs::symlink(dir.path(), root.join("link")).unwrap();
        std::os::unix::fs::symlink(dir.path(), root.join("7/a/link")).unwrap();
        remove_tree(&root).unwrap();
        assert!(!root.exists());
        // A recursive removal of this depth would need more stack than this thread has.
        make_deep(&root, 3_000);
        let (deep, thread) = (root.clone(), std::thread::Builder::new().stack_size(128 << 10));
        thread.spawn(move || remove_tree(&deep)).unwrap().join().unwrap().unwrap();
        assert!(!root.exists());
        assert_eq!(fs::read(&outside).unwrap(), b"stays");
        assert_eq!(remove_tree(&outside).unwrap_err().kind(), io::ErrorKind::NotADirectory);
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path(), &link).unwrap();
        assert!(remove_tree(&link).is_err(), "a symlink is not followed");
        assert!(outside.exists());
    }

    #[test]
    fn a_file_is_parsed_again_when_it_has_changed() {
        let dir = tempfile::tempdir().unwrap();
        let (path, part) = (dir.path().join("file"), dir.path().join("part"));
        let (mut cache, parses) = (FileCache::default(), std::cell::Cell::new(0));
        let mut check = |expect: Option<&str>, times: usize| {
            let parse = |bytes: &[u8]| {
                parses.set(parses.get() + 1);
                String::from_utf8(bytes.to_vec()).unwrap()
            };
            let found = cache.get(&path, 4, parse);
            assert_eq!((found.ok().flatten().as_deref(), parses.get()), (expect, times));
        };
        check(None, 0);
        fs::write(&part, "left over").unwrap();
        replace(&path, &part, b"one").unwrap();
        check(Some("one"), 1);
        check(Some("one"), 1);
        replace(&path, &part, b"two").unwrap();
        check(Some("two"), 2);
        replace(&path, &part, b"longer").unwrap();
        check(None, 2);
        replace(&path, &part, b"last").unwrap();
        check(Some("last"), 3);
        remove(&path).unwrap();
        check(None, 3);
        assert_eq!(entries(dir.path()).unwrap(), [""; 0].map(PathBuf::from));
    }

    #[test]
    fn only_regular_files_within_a_limit_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        rustix::fs::mkfifoat(rustix::fs::CWD, path("pipe"), rustix::fs::Mode::RWXU).unwrap();
        let _socket = UnixListener::bind(path("socket")).unwrap();
        std::os::unix::fs::symlink(path("loop"), path("loop")).unwrap();
        std::os::unix::fs::symlink(path("text"), path("link")).unwrap();
        File::create(path("huge")).unwrap().set_len(1 << 40).unwrap();
        fs::write(path("text"), "text").unwrap();
        fs::write(path("long"), "text and more").unwrap();
        fs::write(path("binary"), [b'a', 0xff]).unwrap();
        let check = |name: &str, expect: Result<&str, &str>| match (read_regular_text(&path(name), 4), expect)
        {
            (Ok(text), Ok(expect)) => assert_eq!(text, expect, "{name}"),
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{name}: {error}"),
            (found, expect) => panic!("{name}: {found:?} is not {expect:?}"),
        };
        check("text", Ok("text"));
        check("link", Ok("text"));
        check("long", Err("it has 13 bytes, and at most 4 are read"));
        check("huge", Err("it has 1099511627776 bytes, and at most 4 are read"));
        check("binary", Err("it is not text in UTF-8, from byte 1 on"));
        check("pipe", Err("it is a pipe, and only regular files are read"));
        check("socket", Err("it is a socket, and only"));
        check(".", Err("it is a folder, and only"));
        check("/dev/zero", Err("it is a device, and only"));
        check("/proc/self/status", Err("it has more than 4 bytes, and at most 4 are read"));
        check("loop", Err("symbolic link"));
        check("absent", Err("No such file"));
    }
}
