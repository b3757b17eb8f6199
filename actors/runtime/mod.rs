//! Runtime: the public API. Here it is started, waited for and ended, runs are stopped and revived, and tools and
//! providers are exchanged. The other methods are in the files beside. No public signature has an `ActorRef`.

mod approvals;
mod control;
mod conversation;
mod deliveries;
mod event_projection;
mod feed;
mod health;
mod images;
mod lanes;
mod memory;
mod model_lists;
mod prompt;
mod raise;
mod read;
mod repeat;
mod request;
mod schedules;
mod shared_events;
mod store_limits;
mod submit;
mod tree;
mod verifier;
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
    port::{DiskSpaceGauge, ModelProvider, PictureScaler, Tool},
    session::{InputReply, SessionMsg, SubmitError},
    supervisor::{ProvidersMsg, Root, RootArguments, RootMsg, RuntimeEnd, RuntimeParts, SessionsMsg},
    tool_executor::ToolExecutorHandle,
    turn::Input,
};
pub use control::SteerReceipt;
pub(crate) use conversation::ConversationMarks;
pub use conversation::{ConversationEnd, ConversationPage};
pub(crate) use feed::FeedTail;
pub use feed::RecordFeed;
pub use health::HealthProbe;
pub use images::{MAX_IMAGE_BYTES, MAX_IMAGES};
pub(crate) use memory::PresentMemory;
pub use repeat::{FirstTask, KeyConflict, TaskPart};
pub use request::{Defaults, RunError, RunRequest, RunResult, RuntimeDependencies, SessionChoice};
pub use schedules::ScheduleError;
pub use shared_events::{SharedEntry, SharedEvent};
pub(crate) use store_limits::PresentStoreLimits;
pub use submit::MAX_MESSAGE_BYTES;
pub(crate) use verifier::PresentVerifier;
pub use watch::Watch;

/// What a session does after a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AfterCommand {
    /// Its runs resume.
    Resume,
    /// Nothing is started, unless its runs are carried out here already.
    Rest,
}

/// The running system.
#[derive(Debug)]
pub struct Runtime {
    root: ActorRef<RootMsg>,
    parts: Arc<RuntimeParts>,
    defaults: Defaults,
    submissions: usize,
    space: Option<Arc<dyn DiskSpaceGauge>>,
    pictures: Arc<dyn PictureScaler>,
    terminated: Receiver<Option<RuntimeEnd>>,
}

impl Runtime {
    /// Starts the actors. No session is revived by itself: see [`Runtime::revive`] and [`Runtime::revive_all`].
    pub async fn start(mut dependencies: RuntimeDependencies) -> Result<Self, RuntimeEnd> {
        let (tools, artifacts) =
            (std::mem::take(&mut dependencies.tools), Arc::clone(&dependencies.artifacts));
        let policy = Arc::clone(&dependencies.policy);
        let executor = ToolExecutorHandle::new(tools, dependencies.tool_calls, artifacts, policy)
            .map_err(|error| RuntimeEnd::Actor { name: "ToolExecutor", error })?;
        let (defaults, space) = (dependencies.defaults.clone(), dependencies.space.clone());
        let (submissions, pictures) = (dependencies.submissions, Arc::clone(&dependencies.pictures));
        let (terminated, on_end) = channel(None);
        let (parts, on_parts) = oneshot::channel();
        let arguments = RootArguments { dependencies, executor, terminated, parts };
        let failed = |error: String| RuntimeEnd::Actor { name: "Root", error };
        let (root, _) =
            Actor::spawn(None, Root, arguments).await.map_err(|error| failed(error.to_string()))?;
        let parts = on_parts.await.map_err(|error| failed(error.to_string()))?;
        let runtime = Self { root, parts, defaults, submissions, space, pictures, terminated: on_end };
        runtime.request_default_limits().await;
        Ok(runtime)
    }

    /// The defaults for what a request leaves out.
    pub const fn defaults(&self) -> &Defaults {
        &self.defaults
    }

    /// The names of all tools, sorted.
    pub fn tools(&self) -> Vec<String> {
        self.parts.executor.tools().names()
    }

    /// Exchanges the tools while runs continue, and returns the number of their generation. All are refused if the
    /// name or the parameters of one are invalid.
    ///
    /// Calls under way keep their tools, and a run keeps the definitions that its requests began with. New calls use
    /// the new tools: one that is gone is answered with an error. A tool of the earlier generation that is not in
    /// `tools` too is closed after its last call ([`Tool::close`]).
    pub fn exchange_tools(&self, tools: Vec<Arc<dyn Tool>>) -> Result<u64, RunError> {
        self.check_running()?;
        let exchanged = self.parts.executor.exchange(tools);
        exchanged.map_err(|error| RunError::Invalid { field: "tools", error })
    }

    /// Exchanges the providers while runs continue: each with its name and the bound of its concurrent calls. All are
    /// refused if a name or a bound is invalid.
    ///
    /// A provider with the same adapter (the same `Arc`) and bound keeps its permits, breakers and statistics. Calls
    /// under way end as they are. A call that waits for a provider that is gone goes on along its chain, as if it had
    /// never been configured; one that waits for a time that the provider named does so after that time.
    pub fn exchange_providers(
        &self,
        providers: Vec<(Arc<str>, Arc<dyn ModelProvider>, usize)>,
    ) -> Result<(), RunError> {
        self.check_running()?;
        let parts = &self.parts;
        let invalid = |error| RunError::Invalid { field: "providers", error };
        parts.leases.exchange(providers).map_err(invalid)?;
        if parts.providers.cast(ProvidersMsg::Exchanged).is_err() {
            tracing::debug!("the runtime has ended during an exchange of providers");
        }
        Ok(())
    }

    /// Runs a task in a new session and returns the answer. Any outcome but `completed` is [`RunError::NotCompleted`],
    /// with the outcome, its cause and the last text.
    pub async fn chat(&self, text: &str) -> Result<String, RunError> {
        let result = self.run(RunRequest::new(text)).await?;
        if result.ended.outcome != Outcome::Completed {
            return Err(RunError::NotCompleted(Box::new(result)));
        }
        Ok(result.answer.map_or_else(String::new, |answer| answer.text))
    }

    /// Runs a task and waits for its outcome, whatever that is.
    pub async fn run(&self, request: RunRequest) -> Result<RunResult, RunError> {
        let accepted = self.submit(request).await?;
        self.wait(accepted.run, None).await
    }

    /// Waits until a run has its outcome. After `limit` only the wait ends, not the run.
    pub async fn wait(&self, run: RunId, limit: Option<Duration>) -> Result<RunResult, RunError> {
        let wait = async { self.result(self.wait_until(run, |state| state == RunState::Ended).await?).await };
        match limit {
            None => wait.await,
            Some(limit) => {
                tokio::time::timeout(limit, wait).await.unwrap_or(Err(RunError::WaitTimedOut(run)))
            }
        }
    }

    /// Waits until a run has its outcome or is parked, and returns its row.
    pub async fn wait_until_ended_or_parked(&self, run: RunId) -> Result<RunRow, RunError> {
        self.wait_until(run, |state| matches!(state, RunState::Parked | RunState::Ended)).await
    }

    async fn wait_until(&self, run: RunId, until: impl Fn(RunState) -> bool) -> Result<RunRow, RunError> {
        loop {
            let waiter = self.hub().watch_run_end(run);
            let row = self.row(run).await?;
            if until(row.state) {
                return Ok(row);
            }
            self.check_running()?;
            waiter.wait().await;
        }
    }

    /// Watches a session, beginning with the record `from` (1 for all). No record is missed. Deltas are those from now
    /// on; of the attempt under way, what was streamed before comes as one.
    pub fn watch(&self, session: SessionId, from: Seq) -> Watch {
        Watch::new(Arc::clone(&self.parts), session, from)
    }

    /// Stops a run; resolves when the stop is durable. The outcome follows.
    pub async fn stop(&self, run: RunId, reason: StopReason) -> Result<(), RunError> {
        self.stop_and(run, reason, AfterCommand::Resume).await
    }

    /// Opens a session, so that its unfinished runs resume.
    pub fn revive(&self, session: SessionId) -> Result<(), RunError> {
        self.parts.checkpoint.add_wanted(session);
        self.cast(SessionsMsg::Revive(session))
    }

    /// Opens every session with an unfinished run, and returns the number of these runs.
    pub async fn revive_all(&self) -> Result<usize, RunError> {
        let runs = self.open_runs().await?;
        self.keep_lane_places(&runs);
        for run in &runs {
            self.revive(run.session)?;
        }
        Ok(runs.len())
    }

    /// The runs that have not ended.
    pub async fn open_runs(&self) -> Result<Vec<RunRow>, RunError> {
        Ok(self.parts.journal.rows().open_runs().await?)
    }

    /// The latest runs, at most `max`, in the order of acceptance.
    pub async fn list(&self, session: Option<SessionId>, max: usize) -> Result<Vec<RunRow>, RunError> {
        Ok(self.parts.journal.rows().runs(session, max).await?)
    }

    /// The latest sessions, at most `max`, in the order of their opening.
    pub async fn sessions(&self, max: usize) -> Result<Vec<SessionRow>, RunError> {
        Ok(self.parts.journal.rows().sessions(max).await?)
    }

    /// Ends all tasks and actors without an outcome: unfinished runs resume after the next start. Closes the store with
    /// the runtime; one that is shared is ended by [`Runtime::shut_down`].
    pub async fn suspend(self) {
        self.shut_down().await;
    }

    /// Ends a shared runtime as [`Runtime::suspend`] does. The others that share it get
    /// [`RunError::Terminated`], and the store closes when the last of them drops it.
    pub async fn shut_down(&self) {
        self.halt_scheduler();
        if self.request(SessionsMsg::Suspend).await.is_none() {
            tracing::debug!("there were no sessions to suspend any more");
        }
        if let Err(error) = self.root.stop_and_wait(None, None).await {
            tracing::debug!(%error, "the runtime had ended already");
        }
    }

    /// Resolves when the runtime has ended, with the reason.
    pub async fn wait_for_end(&self) -> RuntimeEnd {
        let mut terminated = self.terminated.clone();
        match terminated.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or(RuntimeEnd::Suspended),
            Err(_) => RuntimeEnd::Actor { name: "Root", error: "it ended without a word".into() },
        }
    }

    fn check_running(&self) -> Result<(), RunError> {
        match &*self.terminated.borrow() {
            Some(reason) => Err(RunError::Terminated(reason.clone())),
            None => Ok(()),
        }
    }

    fn hub(&self) -> &Arc<Hub> {
        &self.parts.hub
    }

    fn new_ulid(&self) -> u128 {
        let clock = &self.parts.clock;
        let ms = u64::try_from(clock.at().0).unwrap_or(0);
        ulid::Ulid::from_parts(ms, clock.random()).0
    }

    /// Sends a request to the supervisor of sessions; `None` if the reply was dropped, as in a crash.
    async fn request<T>(&self, message: impl FnOnce(RpcReplyPort<T>) -> SessionsMsg) -> Option<T> {
        let (sender, receiver) = oneshot::channel();
        self.cast(message(sender.into())).ok()?;
        receiver.await.ok()
    }

    /// Sends an input to a session. Returns its answer, and whether the session does what comes `then`; `None` if the
    /// session crashed before it answered.
    async fn send_command<T>(
        &self,
        session: SessionId,
        input: Input,
        reply: impl FnOnce(RpcReplyPort<T>) -> InputReply,
        then: AfterCommand,
    ) -> Result<Option<(T, bool)>, RunError> {
        let ((answer, on_answer), (suspended, on_suspension)) = (oneshot::channel(), oneshot::channel());
        let suspended = (then == AfterCommand::Rest).then(|| suspended.into());
        let command = SessionMsg::Command { input, reply: reply(answer.into()), suspended };
        self.cast(SessionsMsg::Deliver(session, None, command))?;
        let answer = on_answer.await.ok();
        let is_done = then == AfterCommand::Resume || on_suspension.await.is_ok();
        Ok(answer.map(|answer| (answer, is_done)))
    }

    /// Sends a command like [`Self::send_command`], again if the session crashed before it answered.
    async fn repeat_command<T>(
        &self,
        session: SessionId,
        input: Input,
        reply: impl Fn(RpcReplyPort<T>) -> InputReply,
        then: AfterCommand,
    ) -> Result<T, RunError> {
        for _ in 0..submit::MAX_TRIES {
            match self.send_command(session, input.clone(), &reply, then).await? {
                Some((answer, _)) => return Ok(answer),
                None => self.check_running()?,
            }
        }
        Err(SubmitError::CrashLooping(session).into())
    }

    fn cast(&self, message: SessionsMsg) -> Result<(), RunError> {
        self.check_running()?;
        self.parts.sessions.cast(message).map_err(|_| {
            let reason = self.terminated.borrow().clone();
            RunError::Terminated(reason.unwrap_or(RuntimeEnd::Suspended))
        })
    }
}
