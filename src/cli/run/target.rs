use std::path::{Path, PathBuf};

use hermod_actors::{
    SessionChoice,
    model::{RunRow, RunSpec, RunState, SessionId},
    port::Read,
};

use super::args::ConversationArgs;
use crate::{
    cli::{
        exit::Failure,
        workspace::{self, Place},
    },
    control::{Fault, Named, Reader},
};

/// The conversation that a command is about, as the store has it.
#[derive(Debug)]
pub(crate) struct Target {
    /// Where a new run goes.
    pub(crate) choice: SessionChoice,
    /// The runs of it that have not ended, in their order, each with its spec.
    pub(crate) open: Vec<(RunRow, RunSpec)>,
    /// The spec of its youngest run.
    pub(crate) before: Option<RunSpec>,
    /// The run that was named, if one was.
    named: Option<RunRow>,
    /// How many unfinished runs wait in other sessions.
    pub(crate) elsewhere: usize,
}

impl Target {
    /// Finds it.
    pub(crate) async fn find(reader: &Reader, args: &ConversationArgs) -> Result<Self, Failure> {
        let (choice, session, named) = match (&args.resume, &args.session) {
            (Some(id), _) => match reader.find(id).await.map_err(of_resume)? {
                Named::Session(row) => (SessionChoice::Id(row.id), Some(row.id), None),
                Named::Run(row) => (SessionChoice::Id(row.session), Some(row.session), Some(*row)),
            },
            (None, Some(key)) => {
                let known = reader.sessions(Read::SessionOfKey((**key).into())).await?.pop();
                (SessionChoice::Key((**key).into()), known.map(|row| row.id), None)
            }
            (None, None) => (SessionChoice::New, None, None),
        };
        Self::of(reader, choice, session, named).await
    }

    /// The conversation of a run.
    pub(crate) async fn of_run(reader: &Reader, row: RunRow) -> Result<Self, Failure> {
        Self::of(reader, SessionChoice::Id(row.session), Some(row.session), Some(row)).await
    }

    async fn of(
        reader: &Reader,
        choice: SessionChoice,
        session: Option<SessionId>,
        named: Option<RunRow>,
    ) -> Result<Self, Failure> {
        let (mine, others): (Vec<_>, Vec<_>) =
            reader.runs(Read::OpenRuns).await?.into_iter().partition(|row| Some(row.session) == session);
        let mut open = Vec::new();
        for row in mine {
            let spec = spec(reader, &row).await?;
            open.push((row, spec));
        }
        let before = match session {
            Some(session) => youngest(reader, session).await?,
            None => None,
        };
        Ok(Self { choice, open, before, named, elsewhere: others.len() })
    }

    /// Where its tools work if nothing is said: where they did before, since its prompt names that folder.
    pub(crate) fn workspace(&self, state: &Path) -> Result<PathBuf, Failure> {
        let former = self.before.as_ref().map(|before| Place::Former(Path::new(&before.workspace)));
        workspace::resolve(former.unwrap_or(Place::Here), state)
    }

    /// The unfinished run to go on with: the one that was named, else the youngest, so that all before it end too.
    pub(crate) fn unfinished(&self) -> Result<&(RunRow, RunSpec), Failure> {
        let waiting = match self.elsewhere {
            0 => String::new(),
            1 => "; 1 unfinished run waits in another session: it goes on with `hermod runs resume --all`"
                .into(),
            n => format!(
                "; {n} unfinished runs wait in other sessions: they go on with `hermod runs resume --all`"
            ),
        };
        match &self.named {
            Some(row) if row.state == RunState::Ended => {
                let ended = row.ended.as_ref().map_or_else(String::new, |ended| format!(": {ended}"));
                Err(Failure::usage(format!(
                    "--resume: run {} has ended{ended}; give a TEXT to continue its conversation{waiting}",
                    row.id
                )))
            }
            Some(row) => self
                .open
                .iter()
                .find(|(open, _)| open.id == row.id)
                .ok_or_else(|| Failure::usage(format!("--resume: run {} has no unfinished row", row.id))),
            None => self.open.last().ok_or_else(|| {
                Failure::usage(format!(
                    "--resume: this session has no unfinished run; give a TEXT to continue its conversation{waiting}"
                ))
            }),
        }
    }
}

fn of_resume(fault: Fault) -> Fault {
    Fault { text: format!("--resume: {}", fault.text), ..fault }
}

async fn youngest(reader: &Reader, session: SessionId) -> Result<Option<RunSpec>, Failure> {
    match reader.runs(Read::Runs { session: Some(session), max: 1 }).await?.pop() {
        Some(row) => Ok(Some(spec(reader, &row).await?)),
        None => Ok(None),
    }
}

async fn spec(reader: &Reader, row: &RunRow) -> Result<RunSpec, Failure> {
    Ok(RunSpec::clone(&reader.accepted(row).await?.spec))
}
