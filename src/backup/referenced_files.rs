//! Files that belong to a store beside its rows: the artifacts that records name, their tombstones, and the memories.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use hermod_actors::{
    model::Artifact,
    port::{ArtifactName, Presence},
};

use super::{error::BackupError, manifest::FileEntry};
use crate::{
    artifacts::FileArtifacts,
    memory::{FOLDER, Target},
};

/// Size and hash of a file as recorded: bytes, and SHA-256 in hexadecimal digits, if that was recorded.
pub(super) struct RecordedFile {
    pub(super) bytes: u64,
    pub(super) sha256: Option<String>,
}

impl RecordedFile {
    /// How a file differs from its record; `None` if it does not.
    pub(super) fn difference(&self, file: &FileEntry) -> Option<String> {
        if file.bytes != self.bytes {
            return Some(format!("it has {} bytes, and a record says {}", file.bytes, self.bytes));
        }
        let is_same = self.sha256.as_ref().is_none_or(|sha256| *sha256 == file.sha256);
        (!is_same)
            .then(|| "it was altered: its content is not the one of which a record has the hash".to_owned())
    }
}

/// In a state directory or a backup: the paths of these artifacts, except the expired ones.
pub(super) fn artifact_files(
    root: &Path,
    named: &BTreeMap<ArtifactName, Artifact>,
) -> Result<Vec<(String, RecordedFile)>, BackupError> {
    let (artifacts, at) = (FileArtifacts::at(root), BackupError::at(root));
    let mut kept = Vec::new();
    for (name, artifact) in named {
        match artifacts.presence(name.session, &name.handle()).map_err(&at)? {
            Presence::Removed(_) => {}
            Presence::Present(_) | Presence::Altered | Presence::Missing => {
                let sha256 = artifact.sha256.as_ref().map(ToString::to_string);
                kept.push((format!("artifacts/{name}"), RecordedFile { bytes: artifact.bytes, sha256 }));
            }
        }
    }
    Ok(kept)
}

/// The paths of the tombstone files of the sessions of these artifacts.
pub(super) fn tombstone_files(
    root: &Path,
    named: &BTreeMap<ArtifactName, Artifact>,
) -> Result<Vec<String>, BackupError> {
    let (artifacts, at) = (FileArtifacts::at(root), BackupError::at(root));
    let sessions: BTreeSet<_> = named.keys().map(|name| name.session).collect();
    let mut notes = Vec::new();
    for session in sessions {
        notes
            .extend(artifacts.tombstones_path(session).map_err(&at)?.map(|path| format!("artifacts/{path}")));
    }
    Ok(notes)
}

/// The paths of the memory files of a state directory. They are replaced atomically, so a copy of one is always
/// complete.
pub(super) fn memory_files(state: &Path) -> impl Iterator<Item = String> {
    let paths = Target::ALL.map(|target| format!("{FOLDER}/{}", target.file()));
    let state = state.to_owned();
    paths.into_iter().filter(move |path| state.join(path).is_file())
}
