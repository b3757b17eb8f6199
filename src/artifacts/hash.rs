//! Hashes of artifact files, and a cache of the files that have matched theirs.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, Read},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use hermod_actors::{
    model::{ContentHash, ContentHasher},
    port::ArtifactName,
};

use crate::files::{FileVersion, open_regular};

/// Bytes per read.
const CHUNK_BYTES: usize = 1 << 18;
/// Maximum entries of the cache; a full cache is cleared.
const MAX_CACHED_HASHES: usize = 10_000;

/// The hash of a file's content.
pub(super) fn of_file(path: &Path) -> io::Result<ContentHash> {
    hash_open_file(&mut open_regular(path)?)
}

fn hash_open_file(file: &mut File) -> io::Result<ContentHash> {
    let (mut hasher, mut chunk) = (ContentHasher::default(), vec![0; CHUNK_BYTES]);
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(hasher.finish()),
            read => hasher.update(&chunk[..read]),
        }
    }
}

/// Cache of files whose content matched its hash, so that paging through a long artifact hashes it only once.
#[derive(Debug, Clone, Default)]
pub(super) struct VerifiedHashes(Arc<Mutex<HashMap<ArtifactName, (ContentHash, FileVersion)>>>);

impl VerifiedHashes {
    /// Whether the artifact's file has this hash.
    pub(super) fn verify(&self, name: ArtifactName, path: &Path, sha256: ContentHash) -> io::Result<bool> {
        let mut file = open_regular(path)?;
        let entry = (sha256, FileVersion::from(&file.metadata()?));
        if self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&name) == Some(&entry) {
            return Ok(true);
        }
        let is_same = hash_open_file(&mut file)? == sha256;
        let mut verified = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if verified.len() >= MAX_CACHED_HASHES {
            verified.clear();
        }
        if is_same {
            verified.insert(name, entry);
        } else {
            verified.remove(&name);
        }
        Ok(is_same)
    }
}
