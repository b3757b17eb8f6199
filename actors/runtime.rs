//! Runtime: the only door. Whoever is outside talks to this, and never to an actor.

use std::{sync::Arc, time::Duration};

use ractor::{Actor, ActorRef, RpcReplyPort};
use tokio::sync::{mpsc, oneshot, watch};

use crate::{
    hub::Hub,
    model::{
        AssistantMessage, Body, BootId, Durable, Ended, Event, EventBody, IdError, Outcome, Record, RunId,
        RunRow, RunSpec, RunState, Seq, SessionId, SessionRow, StopReason, Timestamp, Usage,
    },
    persistence::replay,
    port::{Clock, Journal, Provider, Read, ReadError, Rows, Tool},
    session::{Accepted, NotAccepted, SessionMsg},
    supervisor::{Doors, NewSession, Parts, Root, SessionsMsg, Terminated},
    turn::Input,
};

/// What the runtime is given of the world.
#[derive(Debug)]
pub struct World {
    /// The store.
    pub journal: Arc<dyn Journal>,
    /// The time, and chance.
    pub clock: Arc<dyn Clock>,
    /// The boot of the machine.
    pub boot: BootId,
    /// The endpoints by name, each with how many calls it may have at once.
    pub providers: Vec<(Arc<str>, Arc<dyn Provider>, usize)>,
    /// The tools.
    pub tools: Vec<Arc<dyn Tool>>,
    /// How many tool calls may be under way at once.
    pub tool_calls: usize,
    /// What a request that does not say otherwise is run with.
    pub defaults: Defaults,
}

/// See [`World::defaults`].
#[derive(Debug, Clone)]
pub struct Defaults {
    /// The spec of a run.
    pub spec: RunSpec,
    /// The system prompt of a new session.
    pub prompt: Arc<str>,
}

/// A task for the runtime.
#[derive(Debug, Clone)]
pub struct RunRequest {
    /// What is to be done; not empty.
    pub input: Arc<str>,
    /// In which conversation.
    pub session: SessionChoice,
    /// With what; the defaults if absent.
    pub spec: Option<RunSpec>,
    /// The system prompt, if the session is new; the default if absent.
    pub prompt: Option<Arc<str>>,
    /// A repeated request with the same key gets the first one's run.
    pub idempotency_key: Option<Arc<str>>,
}

impl RunRequest {
    /// A task in a conversation of its own, with the defaults.
    pub fn new(input: impl Into<Arc<str>>) -> Self {
        Self {
            input: input.into(),
            session: SessionChoice::New,
            spec: None,
            prompt: None,
            idempotency_key: None,
        }
    }
}

/// Which session a run belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionChoice {
    /// A new one.
    New,
    /// The one with the key; a new one if there is none.
    Key(Arc<str>),
    /// The one with the id, which must exist.
    Id(SessionId),
}

/// What came of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunResult {
    /// The run.
    pub run: RunId,
    /// Its session.
    pub session: SessionId,
    /// How it ended.
    pub ended: Ended,
    /// What the model said last: the answer of a completed run; of another, at most a part of one.
    pub text: Option<String>,
    /// The iterations it took.
    pub iterations: u32,
    /// What its model calls used.
    pub usage: Usage,
    /// When it was accepted.
    pub accepted_at: Timestamp,
    /// When it began.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
}

/// A run that did not complete.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// The request cannot be taken as it is.
    #[error("{field}: {error}")]
    Invalid {
        /// The field of the request.
        field: &'static str,
        /// What is wrong with it, and the remedy.
        error: String,
    },
    /// There is no such session.
    #[error("there is no session {0}")]
    NoSession(SessionId),
    /// There is no such run.
    #[error("there is no run {0}")]
    NoRun(RunId),
    /// It was not accepted.
    #[error(transparent)]
    NotAccepted(NotAccepted),
    /// The store cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The runtime has ended; the run goes on when it is started again.
    #[error("the runtime has ended: {0}")]
    Terminated(Terminated),
    /// The time given to wait is over; the run goes on.
    #[error("run {0} has not ended yet")]
    StillRunning(RunId),
    /// It ended in another way than by completing.
    #[error("{}", .0.ended)]
    NotCompleted(Box<RunResult>),
}

impl From<IdError> for RunError {
    fn from(error: IdError) -> Self {
        Self::Invalid { field: "id", error: error.to_string() }
    }
}

/// The running system.
#[derive(Debug)]
pub struct Runtime {
    root: ActorRef<()>,
    doors: Doors,
    journal: Arc<dyn Journal>,
    defaults: Defaults,
    terminated: watch::Receiver<Option<Terminated>>,
}

impl Runtime {
    /// Starts the actors. Nothing is revived by itself: see [`Runtime::revive`] and [`Runtime::revive_all`].
    pub async fn start(world: World) -> Result<Self, Terminated> {
        let (terminated, watched) = watch::channel(None);
        let (doors, opened) = oneshot::channel();
        let parts = Parts {
            journal: Arc::clone(&world.journal),
            clock: world.clock,
            boot: world.boot,
            providers: world.providers,
            tools: world.tools,
            tool_calls: world.tool_calls,
            terminated,
            doors,
        };
        let failed = |error: String| Terminated::Actor { name: "Root", error };
        let (root, _) = Actor::spawn(None, Root, parts).await.map_err(|error| failed(error.to_string()))?;
        let doors = opened.await.map_err(|error| failed(error.to_string()))?;
        Ok(Self { root, doors, journal: world.journal, defaults: world.defaults, terminated: watched })
    }

    /// What a request is run with if it does not say otherwise.
    pub const fn defaults(&self) -> &Defaults {
        &self.defaults
    }

    /// The names of all tools, sorted.
    pub fn tools(&self) -> Vec<String> {
        self.doors.wiring.tools.names()
    }

    /// Runs a task in a conversation of its own and returns the answer. Everything but `completed` is an error.
    pub async fn chat(&self, text: &str) -> Result<String, RunError> {
        let result = self.run(RunRequest::new(text)).await?;
        match result.ended.outcome {
            Outcome::Completed => Ok(result.text.unwrap_or_default()),
            Outcome::Failed
            | Outcome::Stopped
            | Outcome::TimedOut
            | Outcome::BudgetExhausted
            | Outcome::LoopDetected
            | Outcome::Refused => Err(RunError::NotCompleted(Box::new(result))),
        }
    }

    /// Runs a task and waits for its outcome, whatever that is.
    pub async fn run(&self, request: RunRequest) -> Result<RunResult, RunError> {
        let accepted = self.submit(request).await?;
        self.wait(accepted.run, None).await
    }

    /// Accepts a task: when this resolves with `Ok`, it is on disk and will come to an outcome.
    pub async fn submit(&self, request: RunRequest) -> Result<Accepted, RunError> {
        if request.input.trim().is_empty() {
            let error = "is empty; say what is to be done".into();
            return Err(RunError::Invalid { field: "input", error });
        }
        if let Some(first) = self.known(request.idempotency_key.as_ref()).await? {
            return Ok(first);
        }
        let run = RunId::from_bits(self.ulid());
        let spec = Arc::new(request.spec.unwrap_or_else(|| self.defaults.spec.clone()));
        let prompt = request.prompt.unwrap_or_else(|| Arc::clone(&self.defaults.prompt));
        loop {
            let (session, key) = self.resolve(&request.session).await?;
            let new = Arc::new(NewSession { key, prompt: Arc::clone(&prompt) });
            let input = Input::Submitted {
                run,
                input: Arc::clone(&request.input),
                spec: Arc::clone(&spec),
                key: request.idempotency_key.clone(),
            };
            let answer =
                self.ask(|reply| SessionsMsg::To(session, new, SessionMsg::Submit(input, reply))).await;
            match answer {
                Some(Ok(accepted)) => return Ok(accepted),
                Some(Err(NotAccepted::Duplicate(first))) => return self.accepted(first).await,
                // Another submission opened a session with this key first: this one belongs there.
                Some(Err(NotAccepted::KeyTaken(_))) => {}
                Some(Err(error @ NotAccepted::Session { .. })) => return Err(RunError::NotAccepted(error)),
                // The session died before it could say: what is on disk says it.
                None => match self.accepted(run).await {
                    Err(RunError::NoRun(_)) => {}
                    answer => return answer,
                },
            }
        }
    }

    /// Waits until a run has its outcome. Only the waiting ends after `limit`.
    pub async fn wait(&self, run: RunId, limit: Option<Duration>) -> Result<RunResult, RunError> {
        let wait = self.wait_for(run);
        match limit {
            None => wait.await,
            Some(limit) => {
                tokio::time::timeout(limit, wait).await.unwrap_or(Err(RunError::StillRunning(run)))
            }
        }
    }

    async fn wait_for(&self, run: RunId) -> Result<RunResult, RunError> {
        loop {
            let ending = self.hub().ending(run);
            let row = self.row(run).await?;
            if row.state == RunState::Ended {
                return self.result(row).await;
            }
            self.alive()?;
            // An error says as much as an end: look at the row again.
            ending.await.unwrap_or_default();
        }
    }

    /// Watches a session from the record `from` on (1 for all). No record is missed; deltas are those from now on.
    pub fn watch(&self, session: SessionId, from: Seq) -> Watch {
        let hub = Arc::clone(self.hub());
        let live = hub.watch(session);
        Watch {
            journal: Arc::clone(&self.journal),
            hub,
            session,
            next: from,
            replayed: Some(Vec::new()),
            live,
        }
    }

    /// Stops a run; resolves when it is on disk that it is to stop. Its outcome follows.
    pub async fn stop(&self, run: RunId, reason: StopReason) -> Result<(), RunError> {
        let row = self.row(run).await?;
        if row.state == RunState::Ended {
            return Ok(());
        }
        let new = self.nothing_new();
        let stop = |reply| SessionsMsg::To(row.session, new, SessionMsg::Stop(Some(run), reason, reply));
        match self.ask(stop).await {
            Some(()) => Ok(()),
            None => self.alive(),
        }
    }

    /// Opens a session, so that its unfinished runs go on.
    pub fn revive(&self, session: SessionId) -> Result<(), RunError> {
        self.cast(SessionsMsg::Revive(session))
    }

    /// Opens every session that has an unfinished run, and says how many runs there are.
    pub async fn revive_all(&self) -> Result<usize, RunError> {
        let runs = self.open_runs().await?;
        for run in &runs {
            self.revive(run.session)?;
        }
        Ok(runs.len())
    }

    /// The runs that have not ended.
    pub async fn open_runs(&self) -> Result<Vec<RunRow>, RunError> {
        self.read_runs(Read::OpenRuns).await
    }

    /// The youngest runs, at most `max`, in the order in which they were accepted.
    pub async fn list(&self, session: Option<SessionId>, max: usize) -> Result<Vec<RunRow>, RunError> {
        self.read_runs(Read::Runs { session, max }).await
    }

    /// The youngest sessions, at most `max`, in the order in which they were opened.
    pub async fn sessions(&self, max: usize) -> Result<Vec<SessionRow>, RunError> {
        self.read_sessions(Read::Sessions { max }).await
    }

    /// Ends all tasks and actors without an outcome: at the next start, what was under way goes on.
    pub async fn suspend(self) {
        self.ask(SessionsMsg::Suspend).await.unwrap_or_default();
        if let Err(error) = self.root.stop_and_wait(None, None).await {
            tracing::debug!(%error, "the runtime had ended already");
        }
    }

    /// Resolves when the runtime has ended, with the reason.
    pub async fn terminated(&self) -> Terminated {
        let mut terminated = self.terminated.clone();
        match terminated.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or(Terminated::Suspended),
            Err(_) => Terminated::Actor { name: "Root", error: "it ended without a word".into() },
        }
    }

    fn alive(&self) -> Result<(), RunError> {
        match &*self.terminated.borrow() {
            Some(reason) => Err(RunError::Terminated(reason.clone())),
            None => Ok(()),
        }
    }

    fn hub(&self) -> &Arc<Hub> {
        &self.doors.wiring.hub
    }

    fn ulid(&self) -> u128 {
        let clock = &self.doors.wiring.clock;
        let ms = u64::try_from(clock.at().0).unwrap_or(0);
        ulid::Ulid::from_parts(ms, clock.random()).0
    }

    fn nothing_new(&self) -> Arc<NewSession> {
        Arc::new(NewSession { key: "".into(), prompt: Arc::clone(&self.defaults.prompt) })
    }

    /// Asks the supervisor of sessions; `None` if whoever should answer died.
    async fn ask<T>(&self, message: impl FnOnce(RpcReplyPort<T>) -> SessionsMsg) -> Option<T> {
        let (sender, receiver) = oneshot::channel();
        self.cast(message(sender.into())).ok()?;
        receiver.await.ok()
    }

    fn cast(&self, message: SessionsMsg) -> Result<(), RunError> {
        self.alive()?;
        self.doors.sessions.cast(message).map_err(|_| {
            let error = "it is gone".into();
            RunError::Terminated(Terminated::Actor { name: "SessionSupervisor", error })
        })
    }

    async fn resolve(&self, choice: &SessionChoice) -> Result<(SessionId, Arc<str>), RunError> {
        self.alive()?;
        match choice {
            SessionChoice::New => {
                let id = SessionId::from_bits(self.ulid());
                Ok((id, id.to_string().into()))
            }
            SessionChoice::Key(key) => {
                let known = self.read_sessions(Read::SessionOfKey(Arc::clone(key))).await?;
                let id = known.first().map_or_else(|| SessionId::from_bits(self.ulid()), |row| row.id);
                Ok((id, Arc::clone(key)))
            }
            SessionChoice::Id(id) => {
                let known = self.read_sessions(Read::Session(*id)).await?;
                let row = known.first().ok_or(RunError::NoSession(*id))?;
                Ok((row.id, Arc::clone(&row.key)))
            }
        }
    }

    async fn known(&self, key: Option<&Arc<str>>) -> Result<Option<Accepted>, RunError> {
        let Some(key) = key else { return Ok(None) };
        let rows = self.read_runs(Read::RunOfKey(Arc::clone(key))).await?;
        Ok(rows.first().map(|row| Accepted { run: row.id, session: row.session, at: row.accepted_at }))
    }

    async fn accepted(&self, run: RunId) -> Result<Accepted, RunError> {
        let row = self.row(run).await?;
        Ok(Accepted { run, session: row.session, at: row.accepted_at })
    }

    /// A run's row.
    pub async fn row(&self, run: RunId) -> Result<RunRow, RunError> {
        self.read_runs(Read::Run(run)).await?.pop().ok_or(RunError::NoRun(run))
    }

    /// A session's row: by its id.
    pub async fn session(&self, session: SessionId) -> Result<SessionRow, RunError> {
        self.read_sessions(Read::Session(session)).await?.pop().ok_or(RunError::NoSession(session))
    }

    /// A session's row: by its key, if there is one.
    pub async fn session_of_key(&self, key: &str) -> Result<Option<SessionRow>, RunError> {
        Ok(self.read_sessions(Read::SessionOfKey(key.into())).await?.pop())
    }

    /// The records of a session from `from` on, each with its sequence.
    pub async fn journal(&self, session: SessionId, from: Seq) -> Result<Vec<(Seq, Arc<Record>)>, RunError> {
        let mut records = Vec::new();
        replay(&*self.journal, session, from, |seq, record| records.push((seq, Arc::clone(&*record))))
            .await?;
        Ok(records)
    }

    async fn read_runs(&self, what: Read) -> Result<Vec<RunRow>, RunError> {
        match self.journal.read(what).await? {
            Rows::Runs(rows) => Ok(rows),
            Rows::Records(_) | Rows::Inbox(_) | Rows::Sessions(_) | Rows::Account(_) => Err(other_question()),
        }
    }

    async fn read_sessions(&self, what: Read) -> Result<Vec<SessionRow>, RunError> {
        match self.journal.read(what).await? {
            Rows::Sessions(rows) => Ok(rows),
            Rows::Records(_) | Rows::Inbox(_) | Rows::Runs(_) | Rows::Account(_) => Err(other_question()),
        }
    }

    async fn result(&self, row: RunRow) -> Result<RunResult, RunError> {
        // What was said last stands directly before the terminal record, in the same append.
        let records = self.journal(row.session, row.last.saturating_sub(1).max(row.first)).await?;
        let said = records.iter().find_map(|(_, record)| match &record.body {
            Body::ModelAnswered(answered) if answered.call.run == row.id => {
                Some(Arc::clone(&answered.message))
            }
            _ => None,
        });
        let text = said.filter(|said| !said.text.is_empty()).map(|said| AssistantMessage::clone(&said).text);
        Ok(RunResult {
            run: row.id,
            session: row.session,
            ended: row.ended.unwrap_or(Ended { outcome: Outcome::Failed, cause: None }),
            text,
            iterations: row.iterations,
            usage: row.usage,
            accepted_at: row.accepted_at,
            started_at: row.started_at,
            ended_at: row.ended_at,
        })
    }
}

fn other_question() -> RunError {
    RunError::Read(ReadError::Unavailable("the journal answered another question".into()))
}

/// What a watcher reads from.
#[derive(Debug)]
pub struct Watch {
    journal: Arc<dyn Journal>,
    hub: Arc<Hub>,
    session: SessionId,
    next: Seq,
    /// Records still to be handed out before the live ones; `None` when all of them were.
    replayed: Option<Vec<(Seq, Durable<Arc<Record>>)>>,
    live: mpsc::Receiver<Event>,
}

impl Watch {
    /// The next event; errors are those of the store. Never ends by itself.
    pub async fn next(&mut self) -> Result<Event, ReadError> {
        loop {
            if let Some(replayed) = &mut self.replayed {
                if let Some((seq, record)) = replayed.pop() {
                    self.next = seq + 1;
                    return Ok(Event { session: self.session, body: EventBody::Recorded { seq, record } });
                }
                let mut records = Vec::new();
                replay(&*self.journal, self.session, self.next, |seq, record| records.push((seq, record)))
                    .await?;
                records.reverse();
                self.replayed = (!records.is_empty()).then_some(records);
                continue;
            }
            match self.live.recv().await {
                Some(Event { body: EventBody::Recorded { seq, .. }, .. }) if seq < self.next => {}
                // A gap: what lies in it is on disk.
                Some(Event { body: EventBody::Recorded { seq, .. }, .. }) if seq > self.next => {
                    self.replayed = Some(Vec::new());
                }
                Some(event) => {
                    if let EventBody::Recorded { seq, .. } = &event.body {
                        self.next = seq + 1;
                    }
                    return Ok(event);
                }
                // Fell behind: listen anew, and read what was missed.
                None => {
                    self.live = self.hub.watch(self.session);
                    self.replayed = Some(Vec::new());
                }
            }
        }
    }
}
