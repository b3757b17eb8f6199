//! The Session actor: its messages, arguments and dependencies, and the replies and errors of a submission. It is the
//! shell around a `Turn`: the core decides what inputs mean; the shell has the records written, then acts. The actor's
//! state and its reconciliation are in `shell.rs`.
//!
//! Architecture invariant: a handler awaits nothing. Inputs wait in order, and at most one append is in flight. When it
//! is durable, the inputs that arrived meanwhile are decided together.

mod append;
mod append_result;
mod aside_admission;
mod begin;
mod inbox;
mod lease_wait;
mod memory_task;
mod model_attempt;
mod model_task;
mod output;
mod result_hooks;
mod shell;
mod stream_publisher;
mod task_deadlines;
mod tasks;
mod tools;
mod verification;
mod view;
mod watchdog;

use std::{collections::BTreeMap, sync::Arc};

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use tokio::sync::OwnedSemaphorePermit;

use crate::{
    model::{AgentName, CallId, LowDiskSpace, OccurrenceId, RunId, SessionId, Timestamp},
    persistence::AppendResult,
    port::SystemPromptError,
    supervisor::RuntimeParts,
    tool_executor::AdmittedCall,
    turn::{Input, RaiseError, ReplayedSession},
};
use shell::Grant;
pub(crate) use shell::{InputReply, SessionActorState};

pub(crate) use tasks::CallTasks;

/// Whether limits are raised, or why not.
pub(crate) type RaiseResult = Result<(), RaiseError>;

/// The messages of [`SessionActor`].
#[derive(Debug)]
pub(crate) enum SessionMsg {
    /// An input from outside, answered when it is durable. With `suspended` it is recorded without resuming the
    /// session's work; `suspended` is answered when the session then stops, as for `Suspend`.
    Command {
        /// A submission, a stop, a steering message, an approval or a raise.
        input: Input,
        /// The reply port.
        reply: InputReply,
        /// Answered when the session has stopped; `None`: it goes on with its work.
        suspended: Option<RpcReplyPort<()>>,
    },
    /// Start only what ends stopped runs. Stop and answer when no input waits, no append is in flight and nothing is
    /// being ended.
    Suspend(RpcReplyPort<()>),
    /// Stop if idle; answered only if the session stays.
    Passivate(RpcReplyPort<()>),
    /// Inspects the state, only for the testkit.
    #[cfg(feature = "testkit")]
    Inspect(crate::inspect::Inspect<SessionActorState>),
    /// The session's inbox has a new message.
    InboxReady,
    /// From the session's own tasks or Persistence.
    Inner(SessionInternalMsg),
}

impl SessionMsg {
    /// Whether it is a write-only command: it is recorded without resuming the session's work.
    pub(crate) const fn is_without_resume(&self) -> bool {
        matches!(self, Self::Command { suspended: Some(_), .. })
    }

    /// The same command for a session that keeps running. The port that waits for the suspension is answered at once.
    pub(crate) fn with_resume(mut self) -> Self {
        if let Self::Command { suspended, .. } = &mut self
            && let Some(suspended) = suspended.take()
            && suspended.send(()).is_err()
        {
            tracing::debug!("the reply to a command without resume was dropped by its caller");
        }
        self
    }
}

/// Messages from the session's own tasks and from Persistence.
#[derive(Debug)]
pub(crate) enum SessionInternalMsg {
    /// An input without a grant, such as the end of a call or a timer.
    Input(Input),
    /// The answer of a model call, with its admitted calls.
    Answered(Input, BTreeMap<CallId, AdmittedCall>),
    /// The lease or the permit of a call.
    Granted(Input, Grant),
    /// The result of the append with this number.
    AppendDone(u64, AppendResult),
    /// The tasks that were ready have run: the waiting inputs are decided.
    BatchReady,
    /// The inputs that were read from the session's inbox.
    InboxRead(inbox::InboxInputs),
    /// `Passivate`, queued behind the messages of ended calls.
    Passivate(RpcReplyPort<()>),
    /// A task that waited for a lease or a permit has panicked, or the inbox could not be read: the session crashes, and
    /// is revived.
    TaskFailed,
}

/// The reply port of a submission, with the permit that bounds how many callers wait. The permit is shared and is
/// released with its last holder.
#[derive(Debug)]
pub(crate) struct SubmitReply {
    reply: RpcReplyPort<Result<AcceptedRun, SubmitError>>,
    _permit: Arc<OwnedSemaphorePermit>,
}

impl SubmitReply {
    /// A reply port of an admitted submission.
    pub(crate) fn new(
        reply: RpcReplyPort<Result<AcceptedRun, SubmitError>>,
        permit: Arc<OwnedSemaphorePermit>,
    ) -> Self {
        Self { reply, _permit: permit }
    }

    /// Sends the answer.
    pub(crate) fn send(self, answer: Result<AcceptedRun, SubmitError>) {
        if self.reply.send(answer).is_err() {
            tracing::debug!("the reply to a submission was dropped by its caller");
        }
    }
}

/// A run that is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcceptedRun {
    /// The run; for a repeated submission, the first one.
    pub run: RunId,
    /// The run's session.
    pub session: SessionId,
    /// When the run was accepted.
    pub at: Timestamp,
}

/// Why a run was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The idempotency key or the occurrence belongs to an earlier run.
    #[error("the idempotency key or the occurrence stands for run {0}")]
    Duplicate(RunId),
    /// The occurrence was missed or skipped.
    #[error("the occurrence {0} was left out")]
    OccurrenceLeftOut(OccurrenceId),
    /// The records that would accept the run could not be read back.
    #[error("the run cannot be recorded: {0}")]
    Unreadable(String),
    /// Another session took the session's key first: the caller must resolve the key again.
    #[error("session {0} has this key")]
    KeyTaken(SessionId),
    /// The submission brings a history, but the session already has one.
    #[error("history: session {0} has one of its own; leave it out, or take a new session")]
    HasHistory(SessionId),
    /// The submission is of another agent than the session.
    #[error(
        "agent: session {session} belongs to the agent `{agent}`; name that one or none, or take a new session"
    )]
    OtherAgent {
        /// The session.
        session: SessionId,
        /// Its agent.
        agent: AgentName,
    },
    /// The session crashes again and again.
    #[error("session {0} keeps dying; `hermod journal {0}` shows how far it came")]
    CrashLooping(SessionId),
    /// Too many submissions wait to be written. Nothing was recorded: try again later.
    #[error("{waiting} submissions wait to be written already; try again later")]
    Overloaded {
        /// Limit of waiting submissions.
        waiting: usize,
    },
    /// The session would be new, and its system prompt cannot be built. Nothing was recorded.
    #[error("the system prompt of a new session cannot be built: {0}")]
    NoPrompt(SystemPromptError),
    /// The disk has too little free space. Nothing was recorded; accepted runs continue.
    #[error(transparent)]
    LowDiskSpace(LowDiskSpace),
    /// This version cannot read the session's journal. Other sessions are not affected.
    #[error(
        "session {session} is quarantined: {error}; begin a new session, use the version that wrote it, or set the session \
         aside with `hermod store repair {session}`"
    )]
    Quarantined {
        /// The session.
        session: SessionId,
        /// Why the journal cannot be read.
        error: String,
    },
}

#[derive(Debug)]
pub(crate) struct SessionActor;

/// The arguments of a session's actor.
pub(crate) struct SessionArguments {
    pub(crate) id: SessionId,
    pub(crate) parts: Arc<RuntimeParts>,
    pub(crate) replayed: ReplayedSession,
    /// The input of the first decision: `Opened` or `Revived`.
    pub(crate) first: Input,
    pub(crate) tasks: CallTasks,
    /// Whether the session's inbox has messages.
    pub(crate) has_inbox: bool,
    /// Messages that arrived while the session was being opened.
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
        let _running = arguments.parts.handlers.enter("Session", Some(arguments.id));
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
        let _running = state.parts.handlers.enter("Session", Some(state.id));
        match message {
            SessionMsg::Inner(SessionInternalMsg::AppendDone(number, stored)) => {
                state.on_append_done(number, stored)?;
            }
            SessionMsg::Inner(SessionInternalMsg::BatchReady) => state.on_batch_ready(),
            SessionMsg::Passivate(declined) => state.prepare_passivation(declined),
            SessionMsg::Inner(SessionInternalMsg::Passivate(declined)) => state.passivate(declined),
            SessionMsg::Inner(SessionInternalMsg::TaskFailed) => {
                return Err("what it waited for has panicked".into());
            }
            #[cfg(feature = "testkit")]
            SessionMsg::Inspect(inspection) => return inspection.run(state),
            message @ (SessionMsg::Command { .. }
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
