//! Gc of files beside the store: expired and orphaned artifacts, spool folders of ended commands, and partial files.
//! `scripts.rs` has the scripts.

use std::{collections::BTreeSet, io};

use hermod_actors::{
    model::{RunState, SessionId},
    port::ArtifactName,
};

use super::{MaintenanceError, footprint::size_of, gc::Sweep, scripts::SCRIPTS};
use crate::{
    artifacts::{ArtifactFile, FileArtifacts, existing_files},
    files::{IoResult as _, entries_with_extension, remove, remove_tree},
    process::runner::{OWN_PROGRAM, Runner, SpoolName},
    store::redb::{GcMode, GcSnapshot, Tally, why},
};

/// What gc does with an artifact.
enum ArtifactFate {
    Retained(&'static str),
    /// Its retention time is over.
    Expired,
    /// Its run is not in the store, or this gc removes it.
    Orphan,
}

/// What becomes of an artifact, if a message that waits or is dead may need it.
fn unless_attached(
    fate: ArtifactFate,
    name: ArtifactName,
    attachments: Option<&BTreeSet<ArtifactName>>,
) -> ArtifactFate {
    match attachments {
        None => ArtifactFate::Retained(why::UNKNOWN),
        Some(attachments) if attachments.contains(&name) => ArtifactFate::Retained(why::REFERRED),
        Some(_) => fate,
    }
}

impl Sweep<'_> {
    /// Removes expired artifacts, with tombstones, and orphans (artifacts of runs that the store does not have).
    pub(super) fn artifacts(&self) -> Result<Tally, MaintenanceError> {
        let (artifacts, folder) = (FileArtifacts::at(self.state), self.state.join("artifacts"));
        let mut tally = Tally::default();
        for session in artifacts.sessions().at(&folder)? {
            let stored = artifacts.of_session(session).at(&folder)?;
            // Taken after the listing: the store already has the run of every artifact that was listed.
            let mut snapshot = self.pass.snapshot()?;
            let (mut expired, mut orphans) = (Vec::new(), Vec::new());
            let mut attachments = None;
            for artifact in stored {
                let fate = match self.artifact_fate(&artifact, &mut snapshot) {
                    ArtifactFate::Retained(reason) => ArtifactFate::Retained(reason),
                    fate @ (ArtifactFate::Expired | ArtifactFate::Orphan) => {
                        if attachments.is_none() {
                            attachments = Some(snapshot.attachments()?);
                        }
                        unless_attached(fate, artifact.name, attachments.as_ref().and_then(Option::as_ref))
                    }
                };
                match fate {
                    ArtifactFate::Retained(reason) => {
                        tally.retain(reason, 1);
                        continue;
                    }
                    // Later requests show images. A file that cannot be read counts as one.
                    ArtifactFate::Expired if artifacts.is_picture(artifact.name).unwrap_or(true) => {
                        tally.retain(why::REFERRED, 1);
                        continue;
                    }
                    ArtifactFate::Expired => expired.push(artifact.name),
                    ArtifactFate::Orphan => orphans.push(artifact.name),
                }
                tally.remove(artifact.bytes);
            }
            if self.pass.mode == GcMode::Remove {
                let is_known = snapshot.has_session(session)?;
                self.remove_artifacts(session, is_known, &expired, &orphans).at(&folder)?;
            }
        }
        Ok(tally)
    }

    fn remove_artifacts(
        &self,
        session: SessionId,
        is_known: bool,
        expired: &[ArtifactName],
        orphans: &[ArtifactName],
    ) -> io::Result<()> {
        let artifacts = FileArtifacts::at(self.state);
        if is_known {
            if !expired.is_empty() {
                artifacts.expire(session, expired, self.now)?;
            }
            return artifacts.discard(orphans);
        }
        // The first images of a new session may be about to be written to its folder.
        let is_new = || artifacts.folder_modified(session).is_ok_and(|at| at > self.orphans_before);
        if orphans.is_empty() && !self.removed.sessions.contains(&session) && is_new() {
            return Ok(());
        }
        artifacts.remove(session, &[expired, orphans].concat())
    }

    fn artifact_fate(&self, artifact: &ArtifactFile, snapshot: &mut GcSnapshot) -> ArtifactFate {
        let run = artifact.name.call.run;
        if self.removed.runs.contains(&run) {
            return ArtifactFate::Orphan;
        }
        match snapshot.run(run) {
            Err(_) => ArtifactFate::Retained(why::UNREADABLE),
            Ok(None) if artifact.modified > self.orphans_before => ArtifactFate::Retained(why::YOUNG),
            Ok(None) => ArtifactFate::Orphan,
            Ok(Some(row)) => match (row.state, row.ended_at, self.artifacts_before) {
                (RunState::Queued | RunState::Running | RunState::Parked, _, _) => {
                    ArtifactFate::Retained(why::UNFINISHED)
                }
                (RunState::Ended, _, None) => ArtifactFate::Retained(why::FOREVER),
                (RunState::Ended, Some(ended), Some(before)) if ended <= before => ArtifactFate::Expired,
                (RunState::Ended, _, Some(_)) => ArtifactFate::Retained(why::YOUNG),
            },
        }
    }

    /// Removes the spool folders of commands whose runs have ended.
    pub(super) fn spool(&self) -> Result<Tally, MaintenanceError> {
        let runner = Runner::new(OWN_PROGRAM, self.state);
        let mut tally = Tally::default();
        let stored = runner.entries().at(self.state.join("spool"))?;
        // Taken after the listing: a command starts only after its record is in the store.
        let mut snapshot = self.pass.snapshot()?;
        for (name, path) in stored {
            if let Some(reason) = name.and_then(|name| self.retain_reason(&runner, name, &mut snapshot)) {
                tally.retain(reason, 1);
                continue;
            }
            // The process that ended the command may remove the folder at the same time.
            let bytes = size_of(&path).map_or(0, |(bytes, _)| bytes);
            self.remove(&mut tally, &path, bytes, || {
                let removed = name.map_or_else(|| remove_tree(&path), |name| runner.discard(name));
                removed.if_exists().map(drop)
            })?;
        }
        Ok(tally)
    }

    fn retain_reason(
        &self,
        runner: &Runner,
        name: SpoolName,
        snapshot: &mut GcSnapshot,
    ) -> Option<&'static str> {
        let run = name.call.run;
        let Ok(row) = snapshot.run(run) else { return Some(why::UNREADABLE) };
        if !self.removed.runs.contains(&run) && row.is_some_and(|row| row.state != RunState::Ended) {
            return Some(why::UNFINISHED);
        }
        runner.is_alive(name).unwrap_or(true).then_some(why::ALIVE)
    }

    /// Removes partial files that their writers left behind.
    pub(super) fn leftovers(&self) -> Result<Tally, MaintenanceError> {
        let mut tally = Tally::default();
        let mut found = FileArtifacts::at(self.state).unfinished().at(self.state.join("artifacts"))?;
        let scripts = self.state.join(SCRIPTS);
        found.extend(entries_with_extension(&scripts, "part").and_then(existing_files).at(&scripts)?);
        for (path, bytes, modified) in found {
            if modified > self.orphans_before {
                tally.retain(why::YOUNG, 1);
            } else {
                // Its writer may just have renamed it: a missing file is no error.
                self.remove(&mut tally, &path, bytes, || remove(&path))?;
            }
        }
        Ok(tally)
    }
}
