use std::{fs, io, path::Path};

use hermod_actors::{
    model::{RunState, SessionId},
    port::ArtifactName,
};

use super::{Undone, footprint::size_of, gc::Times};
use crate::{
    artifacts::{FileArtifacts, KeptArtifact},
    daemon::{OWN_PROGRAM, SCRIPTS},
    files::remove_tree,
    process::runner::{Name, Runner},
    store::redb::{Caring, Gone, Lookup, Mode, Tally, why},
};

/// Removes the artifacts whose time is over, with a note that they were there; and those of runs that there are not.
pub(super) fn artifacts(
    state: &Path,
    caring: &Caring,
    (gone, times): (&Gone, Times),
) -> Result<Tally, Undone> {
    let artifacts = FileArtifacts::at(state);
    let mut tally = Tally::default();
    let failed = || Undone::at(state.join("artifacts"));
    for session in artifacts.sessions().map_err(failed())? {
        let kept = artifacts.of(session).map_err(failed())?;
        // Looked up after they were listed: whatever was made then has its run in the store.
        let mut lookup = caring.lookup()?;
        let (mut over, mut stray) = (Vec::new(), Vec::new());
        for artifact in kept {
            match fate(&artifact, &mut lookup, (gone, times)) {
                Fate::Stays(why) => tally.keep(why, 1),
                Fate::Over if is_picture(&artifacts, artifact.name) => tally.keep(why::REFERRED, 1),
                Fate::Over => over.push(artifact),
                Fate::Stray => stray.push(artifact),
            }
        }
        over.iter().chain(&stray).for_each(|artifact| tally.remove(artifact.bytes));
        if caring.mode() == Mode::Remove {
            let removed = remove(&artifacts, session, (&over, &stray), (&lookup, gone, times));
            removed?.map_err(failed())?;
        }
    }
    Ok(tally)
}

fn remove(
    artifacts: &FileArtifacts,
    session: SessionId,
    (over, stray): (&[KeptArtifact], &[KeptArtifact]),
    (lookup, gone, times): (&Lookup, &Gone, Times),
) -> Result<io::Result<()>, Undone> {
    let names = |of: &[KeptArtifact]| of.iter().map(|artifact| artifact.name).collect::<Vec<_>>();
    let (over, stray) = (names(over), names(stray));
    if !lookup.has_session(session)? {
        // Somebody may be about to put the first pictures of a new session into its folder.
        let is_new = || artifacts.touched(session).is_ok_and(|at| at > times.untouched);
        let stays = stray.is_empty() && !gone.sessions.contains(&session) && is_new();
        return Ok(if stays { Ok(()) } else { artifacts.remove(session, &[over, stray].concat()) });
    }
    let retired = if over.is_empty() { Ok(()) } else { artifacts.retire(session, &over, times.now) };
    Ok(retired.and_then(|()| artifacts.discard(&stray)))
}

/// What becomes of an artifact.
enum Fate {
    Stays(&'static str),
    /// Its time is over.
    Over,
    /// Its run is not in the store.
    Stray,
}

fn fate(artifact: &KeptArtifact, lookup: &mut Lookup, (gone, times): (&Gone, Times)) -> Fate {
    let run = artifact.name.call.run;
    if gone.runs.contains(&run) {
        return Fate::Stray;
    }
    match lookup.run(run) {
        Err(_) => Fate::Stays(why::UNREADABLE),
        Ok(None) if artifact.modified > times.untouched => Fate::Stays(why::YOUNG),
        Ok(None) => Fate::Stray,
        Ok(Some(row)) => match (row.state, row.ended_at, times.artifacts) {
            (RunState::Queued | RunState::Running | RunState::Parked, _, _) => Fate::Stays(why::UNFINISHED),
            (RunState::Ended, _, None) => Fate::Stays(why::FOREVER),
            (RunState::Ended, Some(ended), Some(before)) if ended <= before => Fate::Over,
            (RunState::Ended, _, Some(_)) => Fate::Stays(why::YOUNG),
        },
    }
}

/// Whether it is shown with later requests. What cannot be looked at may be.
fn is_picture(artifacts: &FileArtifacts, name: ArtifactName) -> bool {
    artifacts.is_picture(name).unwrap_or(true)
}

/// Removes what is kept of commands of runs that have ended.
pub(super) fn spool(state: &Path, caring: &Caring, gone: &Gone) -> Result<Tally, Undone> {
    let runner = Runner::new(OWN_PROGRAM, state);
    let mut tally = Tally::default();
    let kept = runner.kept().map_err(Undone::at(state.join("spool")))?;
    // Looked up after it was listed: a command begins when that it may is in the store.
    let mut lookup = caring.lookup()?;
    for (name, path) in kept {
        let stays = name.and_then(|name| stays(&runner, name, (&mut lookup, gone)));
        if let Some(why) = stays {
            tally.keep(why, 1);
            continue;
        }
        // Whoever ended it may clear it at the same time.
        let bytes = size_of(&path).map_or(0, |(bytes, _)| bytes);
        if caring.mode() == Mode::Remove {
            let removed = match name {
                Some(name) => runner.discard(name),
                None => remove_tree(&path),
            };
            match removed {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(Undone::at(path)(error)),
                Ok(()) | Err(_) => {}
            }
        }
        tally.remove(bytes);
    }
    Ok(tally)
}

fn stays(runner: &Runner, name: Name, (lookup, gone): (&mut Lookup, &Gone)) -> Option<&'static str> {
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

/// Removes what was to become something else, and was left by whoever made it.
pub(super) fn leftovers(state: &Path, mode: Mode, times: Times) -> Result<Tally, Undone> {
    let mut tally = Tally::default();
    let mut found = FileArtifacts::at(state).unfinished().map_err(Undone::at(state.join("artifacts")))?;
    let scripts = state.join(SCRIPTS);
    found.extend(super::scripts::parts(&scripts).map_err(Undone::at(&scripts))?);
    for (path, bytes, modified) in found {
        if modified > times.untouched {
            tally.keep(why::YOUNG, 1);
            continue;
        }
        match mode {
            Mode::DryRun => {}
            Mode::Remove => remove_if_there(&path).map_err(Undone::at(path))?,
        }
        tally.remove(bytes);
    }
    Ok(tally)
}

/// Whoever made it may have just finished it.
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
