//! Lists the files that belong to a store beside its rows: blobs and artifacts with their recorded sizes and hashes,
//! tombstones of artifacts, and memories. Also tells how a file differs from its record. `create.rs` lists the scripts
//! of rehearsals.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use hermod_actors::{
    model::Artifact,
    port::{ArtifactName, Presence},
};

use super::manifest::FileEntry;
use crate::{
    artifacts::FileArtifacts,
    files::{IoResult as _, PathError},
    memory::{FOLDER, Target},
    store::redb::CheckReport,
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

/// In a state directory or a backup: the files that a checked store refers to, except the expired artifacts.
pub(super) fn recorded_files(
    root: &Path,
    checked: &CheckReport,
) -> Result<Vec<(String, RecordedFile)>, PathError> {
    let artifacts = FileArtifacts::at(root);
    let blob = |(path, bytes): (&String, &u64)| {
        (format!("blobs/{path}"), RecordedFile { bytes: *bytes, sha256: None })
    };
    let mut recorded: Vec<_> = checked.blobs.iter().map(blob).collect();
    for (name, artifact) in &checked.artifacts {
        match artifacts.presence(name.session, &name.handle()).at(root)? {
            Presence::Removed(_) => {}
            Presence::Present(_) | Presence::Altered | Presence::Missing => {
                let sha256 = artifact.sha256.as_ref().map(ToString::to_string);
                recorded.push((format!("artifacts/{name}"), RecordedFile { bytes: artifact.bytes, sha256 }));
            }
        }
    }
    Ok(recorded)
}

/// The paths of the tombstone files of the sessions of these artifacts.
pub(super) fn tombstone_files(
    root: &Path,
    named: &BTreeMap<ArtifactName, Artifact>,
) -> Result<Vec<String>, PathError> {
    let artifacts = FileArtifacts::at(root);
    let sessions: BTreeSet<_> = named.keys().map(|name| name.session).collect();
    let paths = sessions.into_iter().map(|session| artifacts.tombstones_path(session).at(root));
    let paths = paths.filter_map(Result::transpose);
    paths.map(|path| Ok(format!("artifacts/{}", path?))).collect()
}

/// The paths of the memory files of a state directory. They are replaced atomically, so a copy of one is always
/// complete.
pub(super) fn memory_files(state: &Path) -> impl Iterator<Item = String> {
    let paths = Target::ALL.map(|target| format!("{FOLDER}/{}", target.file()));
    let state = state.to_owned();
    paths.into_iter().filter(move |path| state.join(path).is_file())
}
