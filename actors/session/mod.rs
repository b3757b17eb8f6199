//! Session: the shell around a [`Turn`]. It asks the core what inputs mean, has that written, and only then does it.
//!
//! Architecture invariant: a handler awaits nothing. Inputs wait in order, at most one append is in flight, and when it
//! is durable all that has come in meanwhile is decided as one append.

mod append;
mod append_result;
mod inbox;
mod lease_wait;
mod model_attempt;
mod model_task;
mod output;
mod shell;
mod stream_publisher;
mod task_deadlines;
mod tasks;
mod tools;
mod view;
mod watchdog;

use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use tokio::sync::OwnedSemaphorePermit;

use crate::{
    handlers::HandlerWatch,
    hub::Hub,
    model::{LowDiskSpace, RunId, SessionId, StopReason, Timestamp},
    persistence::{CommitMonitor, DurableOutcome, PersistenceMsg},
    port::{Clock, Journal, JournalError, SystemPromptError},
    provider::{Lease, Leases},
    supervisor::{ProvidersMsg, SessionsMsg, StableActorRef},
    tool_executor::{ToolExecutorMsg, ToolRegistry},
    turn::{Input, RaiseError, ReplayedSession},
};
pub(crate) use shell::SessionActorState;

pub(crate) use tasks::CallTasks;

/// What a session needs of the rest of the runtime.
#[derive(Debug, Clone)]
pub(crate) struct SessionDependencies {
    pub(crate) persistence: ActorRef<PersistenceMsg>,
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) sessions: Arc<StableActorRef<SessionsMsg>>,
    pub(crate) providers: Arc<StableActorRef<ProvidersMsg>>,
    pub(crate) executor: Arc<StableActorRef<ToolExecutorMsg>>,
    pub(crate) leases: Arc<Leases>,
    pub(crate) tools: Arc<ToolRegistry>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) commit_monitor: Arc<CommitMonitor>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) handlers: Arc<HandlerWatch>,
}

/// Whether limits are raised.
pub(crate) type RaiseResult = Result<(), RaiseError>;

/// The messages of [`SessionActor`].
#[derive(Debug)]
pub(crate) enum SessionMsg {
    /// Accept a run.
    Submit(Input, SubmitReply),
    /// Stop a run; answered when that is durable.
    Stop(Option<RunId>, StopReason, RpcReplyPort<()>),
    /// Stop a run and start nothing; the first is answered when the stop is durable, the second like `Suspend`.
    StopWithoutResume(RunId, StopReason, [RpcReplyPort<()>; 2]),
    /// Say something to a run (`Input::Steer`); answered, when that is durable, with whether the run is there to hear it.
    Steer(Input, RpcReplyPort<bool>),
    /// Decide about a call in doubt (`Input::Decided`); answered, when that is durable, with whether it was asked.
    Decide(Input, RpcReplyPort<bool>),
    /// Likewise, and start nothing; the second is answered like `Suspend`.
    DecideWithoutResume(Input, RpcReplyPort<bool>, RpcReplyPort<()>),
    /// Raise the limits of a run (`Input::Raise`); answered when that is durable, or with why they are not raised.
    Raise(Input, RpcReplyPort<RaiseResult>),
    /// Likewise, and start nothing; the second is answered like `Suspend`.
    RaiseWithoutResume(Input, RpcReplyPort<RaiseResult>, RpcReplyPort<()>),
    /// Start nothing more; answered, and ended, when nothing is on its way to disk.
    Suspend(RpcReplyPort<()>),
    /// End if there is nothing to do; answered if there is.
    Passivate(RpcReplyPort<()>),
    /// What it is at: only the testkit asks.
    #[cfg(feature = "testkit")]
    Inspect(crate::inspect::Inspect<SessionActorState>),
    /// Something waits in its inbox.
    InboxReady,
    /// Its own.
    Inner(SessionInternalMsg),
}

impl SessionMsg {
    /// Whether it is an order at rest.
    pub(crate) const fn is_without_resume(&self) -> bool {
        match self {
            Self::StopWithoutResume(..) | Self::DecideWithoutResume(..) | Self::RaiseWithoutResume(..) => {
                true
            }
            Self::Submit(..)
            | Self::Stop(..)
            | Self::Steer(..)
            | Self::Decide(..)
            | Self::Raise(..)
            | Self::Suspend(_)
            | Self::Passivate(_)
            | Self::InboxReady
            | Self::Inner(_) => false,
            #[cfg(feature = "testkit")]
            Self::Inspect(_) => false,
        }
    }

    /// The same to a session that goes on: of an order at rest, whoever waits for the rest is told at once.
    pub(crate) fn with_resume(self) -> Self {
        let (order, rested) = match self {
            Self::StopWithoutResume(run, reason, [stopped, rested]) => {
                (Self::Stop(Some(run), reason, stopped), rested)
            }
            Self::DecideWithoutResume(input, decided, rested) => (Self::Decide(input, decided), rested),
            Self::RaiseWithoutResume(input, raised, rested) => (Self::Raise(input, raised), rested),
            Self::Submit(..)
            | Self::Stop(..)
            | Self::Steer(..)
            | Self::Decide(..)
            | Self::Raise(..)
            | Self::Suspend(_)
            | Self::Passivate(_)
            | Self::InboxReady
            | Self::Inner(_) => return self,
            #[cfg(feature = "testkit")]
            Self::Inspect(_) => return self,
        };
        if rested.send(()).is_err() {
            tracing::debug!("nobody waits for the rest any more");
        }
        order
    }
}

/// What the session's own tasks, and Persistence, say to it.
#[derive(Debug)]
pub(crate) enum SessionInternalMsg {
    /// A call came to something.
    Input(Input),
    /// What was waited for is there.
    Leased(Input, Lease),
    /// Likewise, for a tool call.
    Permitted(Input, OwnedSemaphorePermit),
    /// The append with this number came to this.
    AppendDone(u64, Result<DurableOutcome, JournalError>),
    /// What was about to come has had its turn.
    BatchReady,
    /// What was read of its inbox.
    InboxRead(inbox::InboxInputs),
    /// `Passivate`, behind whatever ended calls have said by then.
    Passivate(RpcReplyPort<()>),
    /// A task that waited for a lease or a permit has panicked: the session dies of it, and is revived.
    WaitPanicked,
}

/// Who waits for a submission's answer, and the permit that bounds how many do: it is given back when both are gone.
#[derive(Debug)]
pub(crate) struct SubmitReply {
    reply: RpcReplyPort<Result<AcceptedRun, SubmitError>>,
    _permit: Arc<OwnedSemaphorePermit>,
}

impl SubmitReply {
    /// Whoever waits for this reply, and was admitted.
    pub(crate) fn new(
        reply: RpcReplyPort<Result<AcceptedRun, SubmitError>>,
        permit: Arc<OwnedSemaphorePermit>,
    ) -> Self {
        Self { reply, _permit: permit }
    }

    /// Answers.
    pub(crate) fn send(self, answer: Result<AcceptedRun, SubmitError>) {
        if self.reply.send(answer).is_err() {
            tracing::debug!("nobody waits for the answer of a submission any more");
        }
    }
}

/// A run that is on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcceptedRun {
    /// The run; of a repeated submission, the first one.
    pub run: RunId,
    /// Its session.
    pub session: SessionId,
    /// When it was accepted.
    pub at: Timestamp,
}

/// Why a run was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The idempotency key stands for an earlier run.
    #[error("the idempotency key stands for run {0}")]
    Duplicate(RunId),
    /// The records that would accept it could not be read back.
    #[error("the run cannot be recorded: {0}")]
    Unreadable(String),
    /// Another session got the key first: resolve it again.
    #[error("session {0} has this key")]
    KeyTaken(SessionId),
    /// The submission brings a history, and the session has one of its own.
    #[error("history: session {0} has one of its own; leave it out, or take a new session")]
    HasHistory(SessionId),
    /// The session dies whatever is tried.
    #[error("session {0} keeps dying; `hermod journal {0}` shows how far it came")]
    CrashLooping(SessionId),
    /// Too many submissions wait to be written. Nothing was done: come again.
    #[error("{waiting} submissions wait to be written already; try again later")]
    Overloaded {
        /// How many may wait.
        waiting: usize,
    },
    /// The session would be new, and its system prompt cannot be built. Nothing was done.
    #[error("the system prompt of a new session cannot be built: {0}")]
    NoPrompt(SystemPromptError),
    /// The disk has too little room. Nothing was done; runs that were accepted go on.
    #[error(transparent)]
    LowDiskSpace(LowDiskSpace),
    /// The session's journal cannot be read by this program. Others are not touched.
    #[error(
        "session {session} is quarantined: {error}; begin a new session, use the version that wrote it, or set the session \
         aside with `hermod store repair {session}`"
    )]
    Quarantined {
        /// The session.
        session: SessionId,
        /// Why.
        error: String,
    },
}

/// The actor.
#[derive(Debug)]
pub(crate) struct SessionActor;

/// What a session is made of.
pub(crate) struct SessionArguments {
    pub(crate) id: SessionId,
    pub(crate) wiring: Arc<SessionDependencies>,
    pub(crate) replayed: ReplayedSession,
    /// `Opened` or `Revived`.
    pub(crate) first: Input,
    pub(crate) tasks: CallTasks,
    /// Whether something waits in its inbox.
    pub(crate) has_inbox: bool,
    /// What has come in meanwhile.
    pub(crate) waiting: Vec<SessionMsg>,
}

impl Actor for SessionActor {
    type Msg = SessionMsg;
    type State = SessionActorState;
    type Arguments = SessionArguments;

    async fn pre_start(
        &self,
        me: ActorRef<SessionMsg>,
        arguments: SessionArguments,
    ) -> Result<SessionActorState, ActorProcessingErr> {
        let _running = arguments.wiring.handlers.enter("Session", Some(arguments.id));
        let state = SessionActorState::start(me, arguments);
        state.update_idle_since();
        Ok(state)
    }

    async fn handle(
        &self,
        _me: ActorRef<SessionMsg>,
        message: SessionMsg,
        state: &mut SessionActorState,
    ) -> Result<(), ActorProcessingErr> {
        let _running = state.wiring.handlers.enter("Session", Some(state.id));
        match message {
            SessionMsg::Inner(SessionInternalMsg::AppendDone(number, stored)) => {
                state.on_append_done(number, stored)?;
            }
            SessionMsg::Inner(SessionInternalMsg::BatchReady) => state.on_batch_ready(),
            SessionMsg::Passivate(stays) => state.prepare_passivation(stays),
            SessionMsg::Inner(SessionInternalMsg::Passivate(stays)) => state.passivate(stays),
            SessionMsg::Inner(SessionInternalMsg::WaitPanicked) => {
                return Err("what it waited for has panicked".into());
            }
            #[cfg(feature = "testkit")]
            SessionMsg::Inspect(look) => return look.run(state),
            message @ (SessionMsg::Submit(..)
            | SessionMsg::Stop(..)
            | SessionMsg::StopWithoutResume(..)
            | SessionMsg::Steer(..)
            | SessionMsg::Decide(..)
            | SessionMsg::DecideWithoutResume(..)
            | SessionMsg::Raise(..)
            | SessionMsg::RaiseWithoutResume(..)
            | SessionMsg::Suspend(_)
            | SessionMsg::InboxReady
            | SessionMsg::Inner(_)) => {
                state.enqueue_message(message);
            }
        }
        state.defer_for_group_commit();
        state.update_idle_since();
        Ok(())
    }
}
