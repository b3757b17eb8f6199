//! Gc of files beside the store: artifacts, spool folders of ended commands, and partial files.

use std::{fs, io, path::Path};

use hermod_actors::{
    model::{RunState, SessionId},
    port::ArtifactName,
};

use super::{MaintenanceError, footprint::size_of, gc::GcCutoffs, scripts::SCRIPTS};
use crate::{
    artifacts::{ArtifactFile, FileArtifacts},
    files::remove_tree,
    process::runner::{OWN_PROGRAM, Runner, SpoolName},
    store::redb::{GcMode, GcPass, Lookup, RemovedSet, Tally, why},
};

/// Removes expired artifacts, with tombstones, and orphans (artifacts of runs that the store does not have).
pub(super) fn sweep_artifacts(
    state: &Path,
    caring: &GcPass,
    gone: &RemovedSet,
    times: GcCutoffs,
) -> Result<Tally, MaintenanceError> {
    let artifacts = FileArtifacts::at(state);
    let mut tally = Tally::default();
    let failed = || MaintenanceError::at(state.join("artifacts"));
    for session in artifacts.sessions().map_err(failed())? {
        let kept = artifacts.of_session(session).map_err(failed())?;
        // Opened after the listing: the store already has the run of every artifact that was listed.
        let mut lookup = caring.lookup()?;
        let (mut over, mut stray) = (Vec::new(), Vec::new());
        for artifact in kept {
            match artifact_fate(&artifact, &mut lookup, gone, times) {
                ArtifactFate::Retained(why) => tally.retain(why, 1),
                ArtifactFate::Expired if is_picture(&artifacts, artifact.name) => {
                    tally.retain(why::REFERRED, 1);
                }
                ArtifactFate::Expired => over.push(artifact),
                ArtifactFate::Orphan => stray.push(artifact),
            }
        }
        over.iter().chain(&stray).for_each(|artifact| tally.remove(artifact.bytes));
        if caring.mode() == GcMode::Remove {
            let removed = remove_from_session(&artifacts, session, (&over, &stray), (&lookup, gone, times));
            removed?.map_err(failed())?;
        }
    }
    Ok(tally)
}

fn remove_from_session(
    artifacts: &FileArtifacts,
    session: SessionId,
    (over, stray): (&[ArtifactFile], &[ArtifactFile]),
    (lookup, gone, times): (&Lookup, &RemovedSet, GcCutoffs),
) -> Result<io::Result<()>, MaintenanceError> {
    let names = |of: &[ArtifactFile]| of.iter().map(|artifact| artifact.name).collect::<Vec<_>>();
    let (over, stray) = (names(over), names(stray));
    if !lookup.has_session(session)? {
        // The first images of a new session may be about to be written to its folder.
        let is_new = || artifacts.folder_modified(session).is_ok_and(|at| at > times.orphans_before);
        let stays = stray.is_empty() && !gone.sessions.contains(&session) && is_new();
        return Ok(if stays { Ok(()) } else { artifacts.remove(session, &[over, stray].concat()) });
    }
    let retired = if over.is_empty() { Ok(()) } else { artifacts.expire(session, &over, times.now) };
    Ok(retired.and_then(|()| artifacts.discard(&stray)))
}

/// What gc does with an artifact.
enum ArtifactFate {
    Retained(&'static str),
    /// Its retention time is over.
    Expired,
    /// Its run is not in the store.
    Orphan,
}

fn artifact_fate(
    artifact: &ArtifactFile,
    lookup: &mut Lookup,
    gone: &RemovedSet,
    times: GcCutoffs,
) -> ArtifactFate {
    let run = artifact.name.call.run;
    if gone.runs.contains(&run) {
        return ArtifactFate::Orphan;
    }
    match lookup.run(run) {
        Err(_) => ArtifactFate::Retained(why::UNREADABLE),
        Ok(None) if artifact.modified > times.orphans_before => ArtifactFate::Retained(why::YOUNG),
        Ok(None) => ArtifactFate::Orphan,
        Ok(Some(row)) => match (row.state, row.ended_at, times.artifacts_before) {
            (RunState::Queued | RunState::Running | RunState::Parked, _, _) => {
                ArtifactFate::Retained(why::UNFINISHED)
            }
            (RunState::Ended, _, None) => ArtifactFate::Retained(why::FOREVER),
            (RunState::Ended, Some(ended), Some(before)) if ended <= before => ArtifactFate::Expired,
            (RunState::Ended, _, Some(_)) => ArtifactFate::Retained(why::YOUNG),
        },
    }
}

/// Whether the artifact is an image, which later requests show; true if the file cannot be read.
fn is_picture(artifacts: &FileArtifacts, name: ArtifactName) -> bool {
    artifacts.is_picture(name).unwrap_or(true)
}

/// Removes the spool folders of commands whose runs have ended.
pub(super) fn sweep_spool(
    state: &Path,
    caring: &GcPass,
    gone: &RemovedSet,
) -> Result<Tally, MaintenanceError> {
    let runner = Runner::new(OWN_PROGRAM, state);
    let mut tally = Tally::default();
    let kept = runner.entries().map_err(MaintenanceError::at(state.join("spool")))?;
    // Opened after the listing: a command starts only after its record is in the store.
    let mut lookup = caring.lookup()?;
    for (name, path) in kept {
        let stays = name.and_then(|name| retain_reason(&runner, name, &mut lookup, gone));
        if let Some(why) = stays {
            tally.retain(why, 1);
            continue;
        }
        // The process that ended the command may remove the folder at the same time.
        let bytes = size_of(&path).map_or(0, |(bytes, _)| bytes);
        if caring.mode() == GcMode::Remove {
            let removed = match name {
                Some(name) => runner.discard(name),
                None => remove_tree(&path),
            };
            match removed {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(MaintenanceError::at(path)(error));
                }
                Ok(()) | Err(_) => {}
            }
        }
        tally.remove(bytes);
    }
    Ok(tally)
}

fn retain_reason(
    runner: &Runner,
    name: SpoolName,
    lookup: &mut Lookup,
    gone: &RemovedSet,
) -> Option<&'static str> {
    let run = name.call.run;
    let open = match lookup.run(run) {
        Err(_) => return Some(why::UNREADABLE),
        Ok(row) => !gone.runs.contains(&run) && row.is_some_and(|row| row.state != RunState::Ended),
    };
    if open {
        return Some(why::UNFINISHED);
    }
    runner.is_alive(name).unwrap_or(true).then_some(why::ALIVE)
}

/// Removes partial files that their writers left behind.
pub(super) fn sweep_leftovers(
    state: &Path,
    mode: GcMode,
    times: GcCutoffs,
) -> Result<Tally, MaintenanceError> {
    let mut tally = Tally::default();
    let mut found =
        FileArtifacts::at(state).unfinished().map_err(MaintenanceError::at(state.join("artifacts")))?;
    let scripts = state.join(SCRIPTS);
    found.extend(super::scripts::parts(&scripts).map_err(MaintenanceError::at(&scripts))?);
    for (path, bytes, modified) in found {
        if modified > times.orphans_before {
            tally.retain(why::YOUNG, 1);
            continue;
        }
        match mode {
            GcMode::DryRun => {}
            GcMode::Remove => remove_if_there(&path).map_err(MaintenanceError::at(path))?,
        }
        tally.remove(bytes);
    }
    Ok(tally)
}

/// Ignores a missing file: its writer may just have renamed it.
fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_removed_meanwhile_is_no_failure() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.part");
        fs::write(&path, "x").unwrap();
        remove_if_there(&path).unwrap();
        remove_if_there(&path).unwrap();
        assert!(remove_if_there(dir.path()).is_err());
    }
}
