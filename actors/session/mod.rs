//! Session: the shell around a [`Turn`]. It asks the core what inputs mean, has that written, and only then does it.
//!
//! Architecture invariant: a handler awaits nothing. Inputs wait in order, at most one append is in flight, and when it
//! is durable all that has come in meanwhile is decided as one append.

mod ask;
mod attempt;
mod bounds;
mod calls;
mod inbox;
mod output;
mod said;
mod seek;
mod shell;
mod stored;
mod tools;
mod view;
mod watchdog;
mod write;

use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use tokio::sync::OwnedSemaphorePermit;

use crate::{
    handlers::HandlerWatch,
    hub::Hub,
    model::{RunId, SessionId, Shortage, StopReason, Timestamp},
    persistence::{PersistenceMsg, Stored, Writing},
    port::{Clock, ContextError, Journal, JournalError},
    provider::{Lease, Leases},
    supervisor::{Address, ProvidersMsg, SessionsMsg},
    tool_executor::{ToolExecutorMsg, Tools},
    turn::{Input, RaiseError, ReplayedSession},
};
pub(crate) use shell::State;

pub(crate) use calls::CallTasks;

/// What a session needs of the rest of the runtime.
#[derive(Debug, Clone)]
pub(crate) struct Wiring {
    pub(crate) persistence: ActorRef<PersistenceMsg>,
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) sessions: Arc<Address<SessionsMsg>>,
    pub(crate) providers: Arc<Address<ProvidersMsg>>,
    pub(crate) executor: Arc<Address<ToolExecutorMsg>>,
    pub(crate) leases: Arc<Leases>,
    pub(crate) tools: Arc<Tools>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) writing: Arc<Writing>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) handlers: Arc<HandlerWatch>,
}

/// Whether limits are raised.
pub(crate) type Raising = Result<(), RaiseError>;

/// The messages of [`Session`].
#[derive(Debug)]
pub(crate) enum SessionMsg {
    /// Accept a run.
    Submit(Input, Caller),
    /// Stop a run; answered when that is durable.
    Stop(Option<RunId>, StopReason, RpcReplyPort<()>),
    /// Stop a run and start nothing; the first is answered when the stop is durable, the second like `Suspend`.
    StopAtRest(RunId, StopReason, [RpcReplyPort<()>; 2]),
    /// Say something to a run (`Input::Steer`); answered, when that is durable, with whether the run is there to hear it.
    Steer(Input, RpcReplyPort<bool>),
    /// Decide about a call in doubt (`Input::Decided`); answered, when that is durable, with whether it was asked.
    Decide(Input, RpcReplyPort<bool>),
    /// Likewise, and start nothing; the second is answered like `Suspend`.
    DecideAtRest(Input, RpcReplyPort<bool>, RpcReplyPort<()>),
    /// Raise the limits of a run (`Input::Raise`); answered when that is durable, or with why they are not raised.
    Raise(Input, RpcReplyPort<Raising>),
    /// Likewise, and start nothing; the second is answered like `Suspend`.
    RaiseAtRest(Input, RpcReplyPort<Raising>, RpcReplyPort<()>),
    /// Start nothing more; answered, and ended, when nothing is on its way to disk.
    Suspend(RpcReplyPort<()>),
    /// End if there is nothing to do; answered if there is.
    Rest(RpcReplyPort<()>),
    /// What it is at: only the testkit asks.
    #[cfg(feature = "testkit")]
    Look(crate::look::Look<State>),
    /// Something waits in its inbox.
    Rung,
    /// Its own.
    Inner(Inner),
}

impl SessionMsg {
    /// Whether it is an order at rest.
    pub(crate) const fn is_at_rest(&self) -> bool {
        match self {
            Self::StopAtRest(..) | Self::DecideAtRest(..) | Self::RaiseAtRest(..) => true,
            Self::Submit(..)
            | Self::Stop(..)
            | Self::Steer(..)
            | Self::Decide(..)
            | Self::Raise(..)
            | Self::Suspend(_)
            | Self::Rest(_)
            | Self::Rung
            | Self::Inner(_) => false,
            #[cfg(feature = "testkit")]
            Self::Look(_) => false,
        }
    }

    /// The same to a session that goes on: of an order at rest, whoever waits for the rest is told at once.
    pub(crate) fn under_way(self) -> Self {
        let (order, rested) = match self {
            Self::StopAtRest(run, reason, [stopped, rested]) => {
                (Self::Stop(Some(run), reason, stopped), rested)
            }
            Self::DecideAtRest(input, decided, rested) => (Self::Decide(input, decided), rested),
            Self::RaiseAtRest(input, raised, rested) => (Self::Raise(input, raised), rested),
            Self::Submit(..)
            | Self::Stop(..)
            | Self::Steer(..)
            | Self::Decide(..)
            | Self::Raise(..)
            | Self::Suspend(_)
            | Self::Rest(_)
            | Self::Rung
            | Self::Inner(_) => return self,
            #[cfg(feature = "testkit")]
            Self::Look(_) => return self,
        };
        if rested.send(()).is_err() {
            tracing::debug!("nobody waits for the rest any more");
        }
        order
    }
}

/// What the session's own tasks, and Persistence, say to it.
#[derive(Debug)]
pub(crate) enum Inner {
    /// A call came to something.
    Input(Input),
    /// What was waited for is there.
    Leased(Input, Lease),
    /// Likewise, for a tool call.
    Permitted(Input, OwnedSemaphorePermit),
    /// The append with this number came to this.
    Stored(u64, Result<Stored, JournalError>),
    /// What was about to come has had its turn.
    GoOn,
    /// What was read of its inbox.
    Heard(inbox::Heard),
    /// `Rest`, behind whatever ended calls have said by then.
    Rest(RpcReplyPort<()>),
    /// A task that waited for a lease or a permit has panicked: the session dies of it, and is revived.
    Broken,
}

/// Who waits for a submission's answer, and the permit that bounds how many do: it is given back when both are gone.
#[derive(Debug)]
pub(crate) struct Caller {
    reply: RpcReplyPort<Result<Accepted, NotAccepted>>,
    _permit: Arc<OwnedSemaphorePermit>,
}

impl Caller {
    /// Whoever waits for this reply, and was admitted.
    pub(crate) fn new(
        reply: RpcReplyPort<Result<Accepted, NotAccepted>>,
        permit: Arc<OwnedSemaphorePermit>,
    ) -> Self {
        Self { reply, _permit: permit }
    }

    /// Answers.
    pub(crate) fn answer(self, answer: Result<Accepted, NotAccepted>) {
        if self.reply.send(answer).is_err() {
            tracing::debug!("nobody waits for the answer of a submission any more");
        }
    }
}

/// A run that is on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accepted {
    /// The run; of a repeated submission, the first one.
    pub run: RunId,
    /// Its session.
    pub session: SessionId,
    /// When it was accepted.
    pub at: Timestamp,
}

/// Why a run was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAccepted {
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
    KeepsDying(SessionId),
    /// Too many submissions wait to be written. Nothing was done: come again.
    #[error("{waiting} submissions wait to be written already; try again later")]
    Overloaded {
        /// How many may wait.
        waiting: usize,
    },
    /// The session would be new, and its system prompt cannot be built. Nothing was done.
    #[error("the system prompt of a new session cannot be built: {0}")]
    NoPrompt(ContextError),
    /// The disk has too little room. Nothing was done; runs that were accepted go on.
    #[error(transparent)]
    NoRoom(Shortage),
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
pub(crate) struct Session;

/// What a session is made of.
pub(crate) struct Arguments {
    pub(crate) id: SessionId,
    pub(crate) wiring: Arc<Wiring>,
    pub(crate) dormant: ReplayedSession,
    /// `Opened` or `Revived`.
    pub(crate) first: Input,
    pub(crate) tasks: CallTasks,
    /// Whether something waits in its inbox.
    pub(crate) is_rung: bool,
    /// What has come in meanwhile.
    pub(crate) waiting: Vec<SessionMsg>,
}

impl Actor for Session {
    type Msg = SessionMsg;
    type State = State;
    type Arguments = Arguments;

    async fn pre_start(
        &self,
        me: ActorRef<SessionMsg>,
        arguments: Arguments,
    ) -> Result<State, ActorProcessingErr> {
        let _running = arguments.wiring.handlers.enter("Session", Some(arguments.id));
        let state = State::begin(me, arguments);
        state.note_idle();
        Ok(state)
    }

    async fn handle(
        &self,
        _me: ActorRef<SessionMsg>,
        message: SessionMsg,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let _running = state.wiring.handlers.enter("Session", Some(state.id));
        match message {
            SessionMsg::Inner(Inner::Stored(number, stored)) => state.stored(number, stored)?,
            SessionMsg::Inner(Inner::GoOn) => state.gathered(),
            SessionMsg::Rest(stays) => state.prepare_to_rest(stays),
            SessionMsg::Inner(Inner::Rest(stays)) => state.rest(stays),
            SessionMsg::Inner(Inner::Broken) => return Err("what it waited for has panicked".into()),
            #[cfg(feature = "testkit")]
            SessionMsg::Look(look) => return look.at(state),
            message @ (SessionMsg::Submit(..)
            | SessionMsg::Stop(..)
            | SessionMsg::StopAtRest(..)
            | SessionMsg::Steer(..)
            | SessionMsg::Decide(..)
            | SessionMsg::DecideAtRest(..)
            | SessionMsg::Raise(..)
            | SessionMsg::RaiseAtRest(..)
            | SessionMsg::Suspend(_)
            | SessionMsg::Rung
            | SessionMsg::Inner(_)) => {
                state.take(message);
            }
        }
        state.gather();
        state.note_idle();
        Ok(())
    }
}
