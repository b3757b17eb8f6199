//! Which files belong to a store beside its rows: those of the artifacts that records name, and what agents remember.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use hermod_actors::port::{ArtifactName, Presence};

use super::error::BackupError;
use crate::{
    artifacts::FileArtifacts,
    memory::{FOLDER, Target},
};

/// In a state directory or a backup: the paths of these artifacts with their bytes, but for those whose time was over.
pub(super) fn kept(
    root: &Path,
    named: &BTreeMap<ArtifactName, u64>,
) -> Result<Vec<(String, u64)>, BackupError> {
    let (artifacts, at) = (FileArtifacts::at(root), BackupError::at(root));
    let mut kept = Vec::new();
    for (name, bytes) in named {
        match artifacts.look(name.session, &name.handle()).map_err(&at)? {
            Presence::Removed(_) => {}
            Presence::Present(_) | Presence::Missing => kept.push((format!("artifacts/{name}"), *bytes)),
        }
    }
    Ok(kept)
}

/// The paths of the notes about those whose time was over.
pub(super) fn notes(root: &Path, named: &BTreeMap<ArtifactName, u64>) -> Result<Vec<String>, BackupError> {
    let (artifacts, at) = (FileArtifacts::at(root), BackupError::at(root));
    let sessions: BTreeSet<_> = named.keys().map(|name| name.session).collect();
    let mut notes = Vec::new();
    for session in sessions {
        notes.extend(artifacts.notes(session).map_err(&at)?.map(|path| format!("artifacts/{path}")));
    }
    Ok(notes)
}

/// The paths of what agents remember in a state directory. Each is replaced at once, so that what is read of it is whole.
pub(super) fn memories(state: &Path) -> impl Iterator<Item = String> {
    let paths = Target::ALL.map(|target| format!("{FOLDER}/{}", target.file()));
    let state = state.to_owned();
    paths.into_iter().filter(move |path| state.join(path).is_file())
}
