//! Resolves the conversation that `hermod run` continues.

use std::path::{Path, PathBuf};

use hermod_actors::{
    SessionChoice,
    model::{RunRow, RunSpec, RunState, SessionId},
};

use super::args::ConversationArgs;
use crate::{
    cli::{
        exit::CliError,
        workspace::{self, WorkspaceChoice},
    },
    control::{RequestError, ResolvedId, StoreReader},
};

/// The conversation of a command, as stored.
#[derive(Debug)]
pub(crate) struct ConversationTarget {
    /// The session of a new run.
    pub(crate) choice: SessionChoice,
    /// The unfinished runs of the conversation, in their order, each with its spec.
    pub(crate) open: Vec<(RunRow, RunSpec)>,
    /// The spec of its youngest run.
    pub(crate) last_spec: Option<RunSpec>,
    /// The run that the arguments name, if they name one.
    named_run: Option<RunRow>,
    /// Number of unfinished runs in other sessions.
    pub(crate) waiting_elsewhere: usize,
}

impl ConversationTarget {
    /// Finds the conversation of the arguments.
    pub(crate) async fn find(reader: &StoreReader, args: &ConversationArgs) -> Result<Self, CliError> {
        let (choice, session, named) = match (&args.resume, &args.session) {
            (Some(id), _) => match reader.find(id).await.map_err(of_resume)? {
                ResolvedId::Session(row) => (SessionChoice::Id(row.id), Some(row.id), None),
                ResolvedId::Run(row) => (SessionChoice::Id(row.session), Some(row.session), Some(*row)),
            },
            (None, Some(key)) => {
                let known = reader.read(|rows| rows.session_of_key(key)).await?;
                (SessionChoice::Key((**key).into()), known.map(|row| row.id), None)
            }
            (None, None) => (SessionChoice::New, None, None),
        };
        Self::of(reader, choice, session, named).await
    }

    /// The conversation of a run.
    pub(crate) async fn of_run(reader: &StoreReader, row: RunRow) -> Result<Self, CliError> {
        Self::of(reader, SessionChoice::Id(row.session), Some(row.session), Some(row)).await
    }

    async fn of(
        reader: &StoreReader,
        choice: SessionChoice,
        session: Option<SessionId>,
        named_run: Option<RunRow>,
    ) -> Result<Self, CliError> {
        let (mine, others): (Vec<_>, Vec<_>) = reader
            .read(|rows| rows.open_runs())
            .await?
            .into_iter()
            .partition(|row| Some(row.session) == session);
        let mut open = Vec::new();
        for row in mine {
            let spec = spec(reader, &row).await?;
            open.push((row, spec));
        }
        let before = match session {
            Some(session) => youngest(reader, session).await?,
            None => None,
        };
        Ok(Self { choice, open, last_spec: before, named_run, waiting_elsewhere: others.len() })
    }

    /// The default workspace: the conversation's former one, because its prompt names that folder.
    pub(crate) fn workspace(&self, state: &Path) -> Result<PathBuf, CliError> {
        let former =
            self.last_spec.as_ref().map(|before| WorkspaceChoice::Former(Path::new(&before.workspace)));
        workspace::resolve(former.unwrap_or(WorkspaceChoice::Current), state)
    }

    /// The unfinished run to resume: the named one, else the youngest, so that all runs before it end too.
    pub(crate) fn unfinished(&self) -> Result<&(RunRow, RunSpec), CliError> {
        let waiting = match self.waiting_elsewhere {
            0 => String::new(),
            1 => "; 1 unfinished run waits in another session: it goes on with `hermod runs resume --all`"
                .into(),
            n => format!(
                "; {n} unfinished runs wait in other sessions: they go on with `hermod runs resume --all`"
            ),
        };
        match &self.named_run {
            Some(row) if row.state == RunState::Ended => {
                let ended = row.ended.as_ref().map_or_else(String::new, |ended| format!(": {ended}"));
                Err(CliError::usage(format!(
                    "--resume: run {} has ended{ended}; give a TEXT to continue its conversation{waiting}",
                    row.id
                )))
            }
            Some(row) => self
                .open
                .iter()
                .find(|(open, _)| open.id == row.id)
                .ok_or_else(|| CliError::usage(format!("--resume: run {} has no unfinished row", row.id))),
            None => self.open.last().ok_or_else(|| {
                CliError::usage(format!(
                    "--resume: this session has no unfinished run; give a TEXT to continue its conversation{waiting}"
                ))
            }),
        }
    }
}

fn of_resume(fault: RequestError) -> RequestError {
    RequestError { text: format!("--resume: {}", fault.text), ..fault }
}

async fn youngest(reader: &StoreReader, session: SessionId) -> Result<Option<RunSpec>, CliError> {
    match reader.read(|rows| rows.runs(Some(session), 1)).await?.pop() {
        Some(row) => Ok(Some(spec(reader, &row).await?)),
        None => Ok(None),
    }
}

async fn spec(reader: &StoreReader, row: &RunRow) -> Result<RunSpec, CliError> {
    Ok(RunSpec::clone(&reader.acceptance(row).await?.spec))
}
