//! Which files there must be of the artifacts that records name.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use hermod_actors::port::{ArtifactName, Presence};

use super::error::BackupError;
use crate::artifacts::FileArtifacts;

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
