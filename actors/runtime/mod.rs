//! Runtime: the only door. Whoever is outside talks to this, and never to an actor.

mod read;
mod request;
mod watch;

use std::{sync::Arc, time::Duration};

use ractor::{Actor, ActorRef, RpcReplyPort};
use tokio::sync::{
    oneshot,
    watch::{Receiver, channel},
};

use crate::{
    hub::Hub,
    model::Outcome,
    model::{RunId, RunRow, RunState, Seq, SessionId, SessionRow, StopReason},
    port::{Journal, Read},
    provider::{ProviderMsg, ProviderStatus},
    session::{Accepted, NotAccepted, SessionMsg},
    supervisor::{Doors, NewSession, Parts, ProvidersMsg, Root, SessionsMsg, Terminated},
    tool_executor::{ToolExecutorMsg, ToolStatus},
    turn::Input,
};
pub use request::{Defaults, RunError, RunRequest, RunResult, SessionChoice, World};
pub use watch::Watch;

/// How often something is said again to a session that died before it answered; by then it has been given up.
const TRIES: usize = 5;

/// The running system.
#[derive(Debug)]
pub struct Runtime {
    root: ActorRef<()>,
    doors: Doors,
    journal: Arc<dyn Journal>,
    defaults: Defaults,
    terminated: Receiver<Option<Terminated>>,
}

impl Runtime {
    /// Starts the actors. Nothing is revived by itself: see [`Runtime::revive`] and [`Runtime::revive_all`].
    pub async fn start(world: World) -> Result<Self, Terminated> {
        let (terminated, watched) = channel(None);
        let (doors, opened) = oneshot::channel();
        let parts = Parts {
            journal: Arc::clone(&world.journal),
            clock: world.clock,
            boot: world.boot,
            providers: world.providers,
            tools: world.tools,
            tool_calls: world.tool_calls,
            artifacts: world.artifacts,
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
        let mut place = self.resolve(&request.session).await?;
        for _ in 0..TRIES {
            let (session, key) = place.clone();
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
                Some(Err(NotAccepted::KeyTaken(_))) => place = self.resolve(&request.session).await?,
                Some(Err(error)) => return Err(RunError::NotAccepted(error)),
                // The session died before it could say. It is asked again: it knows the run if that is on disk.
                None => self.alive()?,
            }
        }
        Err(RunError::NotAccepted(NotAccepted::KeepsDying(place.0)))
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
        Watch::new(Arc::clone(&self.journal), Arc::clone(self.hub()), session, from)
    }

    /// Stops a run; resolves when it is on disk that it is to stop. Its outcome follows.
    pub async fn stop(&self, run: RunId, reason: StopReason) -> Result<(), RunError> {
        let mut session = self.row(run).await?.session;
        for _ in 0..TRIES {
            let row = self.row(run).await?;
            if row.state == RunState::Ended {
                return Ok(());
            }
            session = row.session;
            let new = self.nothing_new();
            let stop = |reply| SessionsMsg::To(session, new, SessionMsg::Stop(Some(run), reason, reply));
            match self.ask(stop).await {
                Some(()) => return Ok(()),
                None => self.alive()?,
            }
        }
        Err(RunError::NotAccepted(NotAccepted::KeepsDying(session)))
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

    /// What each provider has seen since the runtime started, by name.
    pub async fn providers(&self) -> Vec<ProviderStatus> {
        let mut statuses = Vec::new();
        for name in self.doors.wiring.leases.names() {
            let (sender, receiver) = oneshot::channel();
            let ask = ProvidersMsg::To(Arc::clone(name), ProviderMsg::Status(sender.into()));
            if self.doors.wiring.providers.cast(ask).is_ok()
                && let Ok(status) = receiver.await
            {
                statuses.push(status);
            }
        }
        statuses
    }

    /// What the executor has seen since the runtime started; `None` if it is gone.
    pub async fn tool_status(&self) -> Option<ToolStatus> {
        let (sender, receiver) = oneshot::channel();
        self.doors.wiring.executor.cast(ToolExecutorMsg::Status(sender.into())).ok()?;
        receiver.await.ok()
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
}
