//! Resolves the conversation that a new or resumed run belongs to: its session, its unfinished runs, its last spec and
//! workspace.

use std::path::{Path, PathBuf};

use hermod_actors::{
    SessionChoice,
    model::{AgentName, QueueOverrides, RunRow, RunSpec, RunState, SessionId},
};

use super::{
    error::{HostError, StartError},
    folders::{WorkspaceChoice, resolve_workspace},
    session_workspace::{SessionFolder, create_session_workspace},
};
use crate::{
    config::{Config, WorkspaceScope},
    control::{ResolvedId, StoreReader},
};

/// The conversation that a caller asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConversationChoice<'a> {
    /// A new one.
    New,
    /// The session with this key; if there is none, the run's acceptance creates it.
    Key(&'a str),
    /// The session of the run or session that this text names: `last`, an id, the end of a run's id, a key or a
    /// lineage.
    Id(&'a str),
}

/// The conversation of a caller, as stored.
#[derive(Debug, Default)]
pub struct ConversationTarget {
    /// The session of a new run.
    pub choice: SessionChoice,
    /// The unfinished runs of the conversation, in their order, each with its spec.
    pub open: Vec<(RunRow, RunSpec)>,
    /// The spec of its youngest run.
    pub last_spec: Option<RunSpec>,
    /// The agent of its session; `None` if there is no session yet.
    pub agent: Option<AgentName>,
    /// How the messages of its session queue, where that is set for it.
    pub queue: QueueOverrides,
    /// The run that the caller names, if it names one.
    named_run: Option<RunRow>,
    /// Number of unfinished runs in other sessions.
    pub waiting_elsewhere: usize,
}

impl ConversationTarget {
    /// Finds the conversation that a caller asks for.
    pub async fn find(reader: &StoreReader, choice: ConversationChoice<'_>) -> Result<Self, HostError> {
        let (choice, session, agent, named_run) = match choice {
            ConversationChoice::Id(id) => match reader.find(id).await? {
                ResolvedId::Session(row) => (SessionChoice::Id(row.id), Some(row.id), Some(row.agent), None),
                ResolvedId::Run(row) => {
                    let agent = Some(row.agent.clone());
                    (SessionChoice::Id(row.session), Some(row.session), agent, Some(*row))
                }
            },
            ConversationChoice::Key(key) => {
                let known = reader.read(|rows| rows.session_of_key(key)).await?;
                let (session, agent) = known.map(|row| (row.id, row.agent)).unzip();
                (SessionChoice::Key(key.into()), session, agent, None)
            }
            ConversationChoice::New => (SessionChoice::New, None, None, None),
        };
        Self::of(reader, (choice, agent), session, named_run).await
    }

    /// The conversation of a submission, without its unfinished runs: the new run is queued behind them.
    pub async fn for_submission(reader: &StoreReader, session: &str) -> Result<Self, HostError> {
        let row = reader.session_of_id_or_key(session).await?;
        let choice = match &row {
            Some(row) => SessionChoice::Id(row.id),
            None => SessionChoice::Key(session.into()),
        };
        let Some(row) = row else { return Ok(Self::new(choice)) };
        let last_spec = find_last_spec(reader, row.id).await?;
        Ok(Self { last_spec, agent: Some(row.agent), queue: row.queue, ..Self::new(choice) })
    }

    /// A conversation without any run.
    pub fn new(choice: SessionChoice) -> Self {
        Self { choice, ..Self::default() }
    }

    /// The conversation of a run.
    pub async fn of_run(reader: &StoreReader, row: RunRow) -> Result<Self, HostError> {
        let agent = Some(row.agent.clone());
        Self::of(reader, (SessionChoice::Id(row.session), agent), Some(row.session), Some(row)).await
    }

    async fn of(
        reader: &StoreReader,
        (choice, agent): (SessionChoice, Option<AgentName>),
        session: Option<SessionId>,
        named_run: Option<RunRow>,
    ) -> Result<Self, HostError> {
        let (in_session, elsewhere): (Vec<_>, Vec<_>) = reader
            .read(|rows| rows.open_runs())
            .await?
            .into_iter()
            .partition(|row| Some(row.session) == session);
        let mut open = Vec::new();
        for row in in_session {
            let spec = read_spec(reader, &row).await?;
            open.push((row, spec));
        }
        let last_spec = match session {
            Some(session) => find_last_spec(reader, session).await?,
            None => None,
        };
        let waiting_elsewhere = elsewhere.len();
        Ok(Self { open, last_spec, agent, named_run, waiting_elsewhere, ..Self::new(choice) })
    }

    /// The configuration of the conversation's agent. A caller may name the agent of a new conversation; of another one it
    /// may only name the agent that it has.
    pub fn config<'c>(&self, config: &'c Config, named: Option<&str>) -> Result<&'c Config, HostError> {
        let name = match (&self.agent, named) {
            (Some(own), Some(named)) if own.as_str() != named => {
                return Err(HostError::usage(format!(
                    "agent: this session belongs to the agent `{own}`; name that one or none, or take a new session"
                )));
            }
            (Some(own), _) => own.as_str(),
            (None, Some(named)) => named,
            (None, None) => return Ok(config),
        };
        let found = name.parse().ok().and_then(|name: AgentName| config.for_agent(&name));
        found.ok_or_else(|| {
            let known = config.agent_names();
            HostError::usage(format!("agent: there is no agent `{name}`; there are: {known}"))
        })
    }

    /// The workspace of a new run; `named` is the folder that the caller names. If there is none, it is that of the
    /// conversation's last run, because the prompt names that folder. Without a last run, that of the agent, else the
    /// caller's folder `current`, else that of this process. Where each session has its own, that one is made in the
    /// folder.
    pub fn workspace(
        &self,
        (named, current): (Option<PathBuf>, Option<PathBuf>),
        config: &Config,
        state: &Path,
    ) -> Result<PathBuf, StartError> {
        let former = self.last_spec.as_ref().map(|last_spec| Path::new(&last_spec.workspace));
        if let (None, Some(former)) = (&named, former) {
            return resolve_workspace(WorkspaceChoice::Former(former), state);
        }
        let choice = match (&named, &config.agent.workspace.0, &current) {
            (Some(named), _, _) => WorkspaceChoice::Named(named),
            (None, Some(of_agent), _) => WorkspaceChoice::Created(of_agent),
            (None, None, Some(current)) => WorkspaceChoice::Named(current),
            (None, None, None) => WorkspaceChoice::Current,
        };
        let root = resolve_workspace(choice, state)?;
        match config.sandbox.workspace {
            WorkspaceScope::Shared => Ok(root),
            WorkspaceScope::Session => {
                create_session_workspace(&root, &SessionFolder::new(&self.choice, former), state)
            }
        }
    }

    /// The unfinished run to resume: the named one, else the youngest, so that all runs before it end too.
    pub fn unfinished(&self) -> Result<&(RunRow, RunSpec), HostError> {
        let note = match self.waiting_elsewhere {
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
                Err(HostError::usage(format!(
                    "run {} has ended{ended}; give a TEXT to continue its conversation{note}",
                    row.id
                )))
            }
            Some(row) => self
                .open
                .iter()
                .find(|(open, _)| open.id == row.id)
                .ok_or_else(|| HostError::usage(format!("run {} has no unfinished row", row.id))),
            None => self.open.last().ok_or_else(|| {
                HostError::usage(format!(
                    "this session has no unfinished run; give a TEXT to continue its conversation{note}"
                ))
            }),
        }
    }
}

async fn find_last_spec(reader: &StoreReader, session: SessionId) -> Result<Option<RunSpec>, HostError> {
    match reader.read(|rows| rows.runs(Some(session), 1)).await?.pop() {
        Some(row) => Ok(Some(read_spec(reader, &row).await?)),
        None => Ok(None),
    }
}

async fn read_spec(reader: &StoreReader, row: &RunRow) -> Result<RunSpec, HostError> {
    Ok(RunSpec::clone(&reader.acceptance(row).await?.spec))
}
