use std::{
    borrow::Cow,
    collections::BTreeSet,
    fmt::Write as _,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use sha2::{Digest, Sha256};

use super::{fault::Fault, room::Room};

/// What is longer goes into a file of its own: pages of the store are powers of two, and a long value wastes half.
const LONGEST: usize = 16 * 1024;
/// The first byte of a reference. A value that begins with it is spilled whatever its length, so that none is mistaken.
const MARK: u8 = 0;
/// The mark, the SHA-256, and the length (u64, little-endian).
const REFERENCE: usize = 1 + 32 + 8;

/// Why a stored value has no bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// This value is lost.
    Lost(String),
    /// The file system does not answer as it should.
    System(String),
}

impl Unreadable {
    pub(super) fn into_text(self) -> String {
        match self {
            Self::Lost(text) | Self::System(text) => text,
        }
    }
}

/// The folder of spilled values: `ab/<sha256>`.
#[derive(Debug, Clone)]
pub(super) struct Blobs {
    root: PathBuf,
}

impl Blobs {
    pub(super) fn new(root: PathBuf) -> Self {
        Self { root }
    }

    pub(super) fn is_spilled(stored: &[u8]) -> bool {
        stored.first() == Some(&MARK)
    }

    /// The value that `stored` is, or stands for.
    pub(super) fn resolve<'v>(&self, stored: &'v [u8]) -> Result<Cow<'v, [u8]>, Unreadable> {
        if !Self::is_spilled(stored) {
            return Ok(Cow::Borrowed(stored));
        }
        let reference: &[u8; REFERENCE] = stored.try_into().map_err(|_| {
            Unreadable::Lost(format!("a reference to a file has {} bytes, not {REFERENCE}", stored.len()))
        })?;
        let path = self.path(&reference[1..33]);
        let value = fs::read(&path).map_err(|error| {
            let text = format!("{}: {error}", path.display());
            if error.kind() == io::ErrorKind::NotFound {
                Unreadable::Lost(text)
            } else {
                Unreadable::System(text)
            }
        })?;
        if refer(&value) != *reference {
            return Err(Unreadable::Lost(format!("{}: its content was changed", path.display())));
        }
        Ok(Cow::Owned(value))
    }

    fn folder(&self, first: u8) -> PathBuf {
        self.root.join(format!("{first:02x}"))
    }

    fn path(&self, hash: &[u8]) -> PathBuf {
        let name = hash.iter().fold(String::with_capacity(64), |mut name, byte| {
            write!(name, "{byte:02x}").expect("a String takes all text");
            name
        });
        self.root.join(&name[..2]).join(name)
    }
}

fn refer(value: &[u8]) -> [u8; REFERENCE] {
    let mut reference = [MARK; REFERENCE];
    reference[1..33].copy_from_slice(&Sha256::digest(value));
    reference[33..].copy_from_slice(&(value.len() as u64).to_le_bytes());
    reference
}

/// Writes blobs; there is one, on the committer's thread.
#[derive(Debug)]
pub(super) struct Spiller {
    blobs: Blobs,
    room: Arc<Room>,
    /// Folders whose entries are not all on disk.
    dirty: BTreeSet<u8>,
    /// Folders that are themselves on disk, as far as this process knows.
    known: BTreeSet<u8>,
}

impl Spiller {
    pub(super) fn new(blobs: Blobs, room: Arc<Room>) -> Self {
        Self { blobs, room, dirty: BTreeSet::new(), known: BTreeSet::new() }
    }

    pub(super) fn blobs(&self) -> &Blobs {
        &self.blobs
    }

    /// The stored form of `value`: itself, or a reference to the file that holds it now.
    pub(super) fn store<'v>(&mut self, value: impl Into<Cow<'v, [u8]>>) -> Result<Cow<'v, [u8]>, Fault> {
        let value = value.into();
        if value.len() <= LONGEST && !Blobs::is_spilled(&value) {
            return Ok(value);
        }
        let reference = refer(&value);
        self.write(&self.blobs.path(&reference[1..33]), &value)?;
        self.dirty.insert(reference[1]);
        Ok(Cow::Owned(reference.to_vec()))
    }

    /// Must return before the commit of what refers to the blobs.
    pub(super) fn sync(&mut self) -> Result<(), Fault> {
        for first in std::mem::take(&mut self.dirty) {
            sync_folder(&self.blobs.folder(first))?;
            if self.known.insert(first) {
                sync_folder(&self.blobs.root)?;
            }
        }
        Ok(())
    }

    fn write(&self, path: &Path, value: &[u8]) -> Result<(), Fault> {
        // Only a file that was synced has its final name; the length tells one that a bad disk cut.
        if fs::metadata(path).is_ok_and(|found| found.len() == value.len() as u64) {
            return Ok(());
        }
        let new = self.blobs.root.join("new");
        let written = self.room.find((path, value.len()), || {
            write_whole(&new, value).inspect_err(|_| {
                // What it has taken is needed by others while this waits.
                let (Ok(()) | Err(_)) = fs::remove_file(&new);
            })?;
            path.parent().map_or(Ok(()), |folder| private_folder().create(folder))?;
            fs::rename(&new, path)
        });
        written.map_err(Fault::at(path))
    }
}

/// Makes a file anew, so that nothing of an attempt that failed is left in it, nor of a sync that did.
fn write_whole(path: &Path, value: &[u8]) -> io::Result<()> {
    let (Ok(()) | Err(_)) = fs::remove_file(path);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(value)?;
    file.sync_all()
}

fn private_folder() -> DirBuilder {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder
}

/// Makes a folder that only its owner may enter, unless it is there.
pub(super) fn make_folder(path: &Path) -> Result<(), Fault> {
    private_folder().create(path).map_err(Fault::at(path))
}

/// Brings the entries of a folder to disk.
pub(super) fn sync_folder(path: &Path) -> Result<(), Fault> {
    File::open(path).and_then(|folder| folder.sync_all()).map_err(Fault::at(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(value: &[u8], spilled: bool) {
        let dir = tempfile::tempdir().unwrap();
        let mut spiller = Spiller::new(Blobs::new(dir.path().to_owned()), Arc::default());
        let stored = spiller.store(value).unwrap().into_owned();
        assert_eq!(Blobs::is_spilled(&stored), spilled);
        assert_eq!(spiller.store(value).unwrap(), stored, "a value has one name");
        spiller.sync().unwrap();
        assert_eq!(spiller.blobs().resolve(&stored).unwrap(), value);
    }

    #[test]
    fn only_long_values_are_spilled() {
        check(b"{}", false);
        check(b"", false);
        check(&vec![7; LONGEST], false);
        check(&vec![7; LONGEST + 1], true);
        check(&[0], true);
        check(&refer(b"like a reference"), true);
    }

    #[test]
    fn a_lost_value_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let mut spiller = Spiller::new(Blobs::new(dir.path().to_owned()), Arc::default());
        let stored = spiller.store(vec![7; 20_000]).unwrap().into_owned();
        let lost = |stored: &[u8], why: &str| match spiller.blobs().resolve(stored) {
            Err(Unreadable::Lost(text)) => assert!(text.contains(why), "{text}"),
            other => panic!("{other:?}"),
        };
        let path = spiller.blobs().path(&stored[1..33]);
        fs::write(&path, vec![8; 20_000]).unwrap();
        lost(&stored, "its content was changed");
        fs::remove_file(&path).unwrap();
        lost(&stored, "No such file");
        lost(&stored[..9], "9 bytes");
    }
}
