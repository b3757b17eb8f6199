//! Long values in files of their own, named by their hash; the row keeps a reference. [`Blobs`] reads them, [`Spiller`]
//! writes and removes them.

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashSet},
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use data_encoding::HEXLOWER;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};

use super::{disk_full_wait::DiskFullWait, error::Result, files::FileSystem};
use crate::files::{self, IoResult as _};

/// Longer values are spilled to files: the engine's pages are powers of two, and a long value would waste half of them.
const MAX_INLINE_BYTES: usize = 16 * 1024;
/// First byte of a reference. Values that begin with it are always spilled, so that none is taken for a reference.
const REFERENCE_TAG: u8 = 0;
/// The tag, the SHA-256, and the length (u64, little-endian).
const REFERENCE_BYTES: usize = 1 + 32 + 8;

/// A blob's name: the SHA-256 of its content.
pub(super) type BlobHash = [u8; 32];

/// Why a stored value cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BlobError {
    /// The value is lost.
    Lost(String),
    /// The file system failed; the value may still be there.
    System(String),
}

impl BlobError {
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
        stored.first() == Some(&REFERENCE_TAG)
    }

    /// Hash and bytes of the value that `stored` refers to; `None` if `stored` is no reference.
    pub(super) fn parse_reference(stored: &[u8]) -> Option<(BlobHash, u64)> {
        let (tag, rest) = stored.split_first()?;
        let (hash, bytes) = rest.split_first_chunk()?;
        let bytes = u64::from_le_bytes(bytes.try_into().ok()?);
        (*tag == REFERENCE_TAG).then_some((*hash, bytes))
    }

    /// Path within the folder of blobs, and bytes, of the value that `stored` refers to; `None` if `stored` is no
    /// reference.
    pub(super) fn path_and_bytes(stored: &[u8]) -> Option<(String, u64)> {
        let (hash, bytes) = Self::parse_reference(stored)?;
        Some((Self::new(PathBuf::new()).path(&hash).to_str()?.to_owned(), bytes))
    }

    /// The value itself: `stored`, or the content of the file that it refers to.
    pub(super) fn resolve<'v>(&self, stored: &'v [u8]) -> Result<Cow<'v, [u8]>, BlobError> {
        if !Self::is_spilled(stored) {
            return Ok(Cow::Borrowed(stored));
        }
        let Some((hash, bytes)) = Self::parse_reference(stored) else {
            let length = stored.len();
            return Err(BlobError::Lost(format!(
                "a reference to a file has {length} bytes, not {REFERENCE_BYTES}"
            )));
        };
        let path = self.path(&hash);
        let value = files::read_regular(&path, u64::MAX).at(&path).map_err(|error| {
            let is_missing = error.source.kind() == io::ErrorKind::NotFound;
            if is_missing { BlobError::Lost(error.to_string()) } else { BlobError::System(error.to_string()) }
        })?;
        if value.len() as u64 != bytes || Sha256::digest(&value)[..] != hash {
            return Err(BlobError::Lost(format!("{}: its content was changed", path.display())));
        }
        Ok(Cow::Owned(value))
    }

    /// Resolves a stored value and parses it as JSON.
    pub(super) fn json<T: DeserializeOwned>(&self, stored: &[u8]) -> Result<T, BlobError> {
        serde_json::from_slice(&self.resolve(stored)?).map_err(|error| BlobError::Lost(error.to_string()))
    }

    /// The hash of the blob that `stored` refers to, if it is a reference.
    pub(super) fn referenced_hash(stored: &[u8]) -> Option<BlobHash> {
        Self::parse_reference(stored).map(|(hash, _)| hash)
    }

    /// All blobs; skips files that are no blobs.
    pub(super) fn all(&self) -> io::Result<Vec<BlobHash>> {
        let mut all = Vec::new();
        for first in 0..=u8::MAX {
            let paths = files::entries(&self.folder(first))?;
            let hashes = paths.iter().filter_map(|path| parse_hash(path.file_name()?.to_str()?));
            all.extend(hashes.filter(|hash| hash[0] == first));
        }
        Ok(all)
    }

    fn folder(&self, first: u8) -> PathBuf {
        self.root.join(format!("{first:02x}"))
    }

    fn path(&self, hash: &BlobHash) -> PathBuf {
        let name = HEXLOWER.encode(hash);
        self.root.join(&name[..2]).join(name)
    }
}

/// Parses 64 hexadecimal digits in lower case.
fn parse_hash(name: &str) -> Option<BlobHash> {
    HEXLOWER.decode(name.as_bytes()).ok()?.try_into().ok()
}

/// Writes blobs. There is one, on the committer's thread.
#[derive(Debug)]
pub(super) struct Spiller {
    pub(super) blobs: Blobs,
    files: Box<dyn FileSystem>,
    disk_wait: Arc<DiskFullWait>,
    /// Folders that may have unsynced entries.
    unsynced: BTreeSet<u8>,
    /// Folders whose own entry in the parent is synced, as far as this process knows.
    synced: BTreeSet<u8>,
    /// Blobs that were stored, or found present, since a gc pass began; `None` without a pass.
    pub(super) tracked: Option<HashSet<BlobHash>>,
}

impl Spiller {
    pub(super) fn new(blobs: Blobs, files: Box<dyn FileSystem>, disk_wait: Arc<DiskFullWait>) -> Self {
        Self { blobs, files, disk_wait, unsynced: BTreeSet::new(), synced: BTreeSet::new(), tracked: None }
    }

    /// The stored form of `value`: the value itself, or a reference to the file that was written.
    pub(super) fn store<'v>(&mut self, value: impl Into<Cow<'v, [u8]>>) -> Result<Cow<'v, [u8]>> {
        let value = value.into();
        if value.len() <= MAX_INLINE_BYTES && !Blobs::is_spilled(&value) {
            return Ok(value);
        }
        let hash = BlobHash::from(Sha256::digest(&value));
        if let Some(tracked) = &mut self.tracked {
            tracked.insert(hash);
        }
        self.write(&self.blobs.path(&hash), &value)?;
        self.unsynced.insert(hash[0]);
        Ok(Cow::Owned([&[REFERENCE_TAG], &hash[..], &(value.len() as u64).to_le_bytes()].concat()))
    }

    /// Whether gc may remove this blob: a pass is under way, and the blob was not stored since its start.
    pub(super) fn is_removable(&self, blob: &BlobHash) -> bool {
        self.tracked.as_ref().is_some_and(|tracked| !tracked.contains(blob))
    }

    /// Removes a blob's file; returns its size in bytes.
    pub(super) fn unlink(&self, blob: &BlobHash) -> io::Result<u64> {
        let bytes = self.length(blob)?;
        fs::remove_file(self.blobs.path(blob)).map(|()| bytes)
    }

    /// The size of a blob's file in bytes.
    pub(super) fn length(&self, blob: &BlobHash) -> io::Result<u64> {
        fs::metadata(self.blobs.path(blob)).map(|file| file.len())
    }

    /// Syncs the folders of new blobs. Must return before the commit of rows that refer to them.
    pub(super) fn sync(&mut self) -> Result<()> {
        for first in std::mem::take(&mut self.unsynced) {
            self.sync_folder(&self.blobs.folder(first))?;
            if self.synced.insert(first) {
                self.sync_folder(&self.blobs.root.clone())?;
            }
        }
        Ok(())
    }

    fn sync_folder(&mut self, path: &Path) -> Result<()> {
        Ok(self.files.sync_folder(path).at(path)?)
    }

    fn write(&mut self, path: &Path, value: &[u8]) -> Result<()> {
        // Only a synced file gets its final name; the length reveals a file that a bad disk truncated.
        if fs::metadata(path).is_ok_and(|found| found.len() == value.len() as u64) {
            return Ok(());
        }
        let new = self.blobs.root.join("new");
        let (files, mut at) = (&mut self.files, new.as_path());
        let written = self.disk_wait.retry_until_space(path, value.len(), || {
            at = &new;
            files.write(&new, value)?;
            if let Some(folder) = path.parent() {
                at = folder;
                files.make_folder(folder)?;
            }
            at = path;
            files.rename(&new, path)
        });
        Ok(written.at(at)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redb::files::OsFileSystem;

    fn check(value: &[u8], spilled: bool) {
        let dir = tempfile::tempdir().unwrap();
        let mut spiller =
            Spiller::new(Blobs::new(dir.path().to_owned()), Box::new(OsFileSystem), Arc::default());
        let stored = spiller.store(value).unwrap().into_owned();
        assert_eq!(Blobs::is_spilled(&stored), spilled);
        assert_eq!(spiller.store(value).unwrap(), stored, "a value has one name");
        spiller.sync().unwrap();
        assert_eq!(spiller.blobs.resolve(&stored).unwrap(), value);
    }

    #[test]
    fn only_long_values_are_spilled() {
        check(b"{}", false);
        check(b"", false);
        check(&vec![7; MAX_INLINE_BYTES], false);
        check(&vec![7; MAX_INLINE_BYTES + 1], true);
        check(&[0], true);
        check(&[&[REFERENCE_TAG], &[7; 40][..]].concat(), true);
    }

    #[test]
    fn a_lost_value_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let mut spiller =
            Spiller::new(Blobs::new(dir.path().to_owned()), Box::new(OsFileSystem), Arc::default());
        let stored = spiller.store(vec![7; 20_000]).unwrap().into_owned();
        let lost = |stored: &[u8], why: &str| match spiller.blobs.resolve(stored) {
            Err(BlobError::Lost(text)) => assert!(text.contains(why), "{text}"),
            other => panic!("{other:?}"),
        };
        let path = spiller.blobs.path(&Blobs::referenced_hash(&stored).unwrap());
        fs::write(&path, vec![8; 20_000]).unwrap();
        lost(&stored, "its content was changed");
        fs::remove_file(&path).unwrap();
        lost(&stored, "No such file");
        lost(&stored[..9], "9 bytes");
    }
}
