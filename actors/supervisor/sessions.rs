//! The SessionSupervisor actor, its messages, and the seed of a new session. Its state is the [`Directory`], whose
//! methods do the work.

use std::sync::Arc;

use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, RpcReplyPort, SupervisionEvent};

use crate::{
    inspect::Inspect,
    model::{AgentName, Incarnation, RunId, SessionId},
    persistence::WriteResult,
    session::SessionMsg,
    supervisor::{
        RuntimeParts,
        directory::Directory,
        opening::{OpenSessionError, RecoveredSession},
    },
};

/// The exit reason that ractor reports for a killed actor, which counts as a crash. This program kills actors of
/// sessions only when it suspends all of them.
const KILL_REASON: &str = "killed";

/// The messages of [`SessionSupervisor`].
#[derive(Debug)]
pub(crate) enum SessionsMsg {
    /// Delivers a message to a session, which is opened if it is not live, and created from the `SessionSeed` if it
    /// does not exist. Without a seed, messages to a missing session get no answer.
    Deliver(SessionId, Option<Arc<SessionSeed>>, SessionMsg),
    /// Opens a session that has work to do.
    Revive(SessionId),
    /// Stops the actor of a session if it is idle.
    Passivate(SessionId),
    /// Ends a run as `failed(crash_loop)` with this error, without opening its session. Answered when that is done, or
    /// cannot be.
    ForceFail((SessionId, RunId), String, RpcReplyPort<()>),
    /// Ends all sessions and their tasks, after time for pending appends to become durable. Nothing is recorded for
    /// that; no session is opened afterwards.
    Suspend(RpcReplyPort<()>),
    /// Inspects the directory.
    Inspect(Inspect<Directory>),
    /// From the supervisor's own tasks.
    Inner(SessionsInternalMsg),
}

/// The initial data of a new session.
#[derive(Debug)]
pub(crate) struct SessionSeed {
    pub(crate) key: Arc<str>,
    pub(crate) agent: AgentName,
    pub(crate) prompt: Arc<str>,
}

/// Messages from the supervisor's own tasks.
#[derive(Debug)]
pub(crate) enum SessionsInternalMsg {
    /// A session's journal was read, or could not be.
    Opened(SessionId, Box<Result<RecoveredSession, OpenSessionError>>),
    /// The delay is over: read the session's journal again.
    RetryRead(SessionId),
    /// The tasks of a crashed or stopped session have ended.
    TasksEnded(SessionId),
    /// The session's open runs were force-failed, or could not be.
    ForceFailed(SessionId, Result<Incarnation, OpenSessionError>),
    /// Scan for idle sessions.
    ScanIdle,
    /// The actor of a session declined its passivation: it has work.
    PassivationDeclined(SessionId, ActorId),
    /// The store has closed a session, or refused.
    Closed(SessionId, WriteResult<bool>),
}

#[derive(Debug)]
pub(crate) struct SessionSupervisor;

impl Actor for SessionSupervisor {
    type Msg = SessionsMsg;
    type State = Directory;
    type Arguments = Arc<RuntimeParts>;

    async fn pre_start(
        &self,
        me: ActorRef<SessionsMsg>,
        parts: Arc<RuntimeParts>,
    ) -> Result<Directory, ActorProcessingErr> {
        Ok(Directory::start(me, parts))
    }

    async fn handle(
        &self,
        _me: ActorRef<SessionsMsg>,
        message: SessionsMsg,
        directory: &mut Directory,
    ) -> Result<(), ActorProcessingErr> {
        let _running = directory.track_handler();
        match message {
            SessionsMsg::Deliver(session, new, message) => {
                directory.deliver(session, new, Some(message));
            }
            SessionsMsg::Revive(session) => directory.deliver(session, None, None),
            SessionsMsg::Passivate(session) => directory.passivate(session),
            SessionsMsg::ForceFail((session, run), error, reply) => {
                directory.force_fail_run(session, run, error, reply);
            }
            SessionsMsg::Suspend(reply) => directory.suspend(reply),
            SessionsMsg::Inspect(inspection) => inspection.run(directory)?,
            SessionsMsg::Inner(SessionsInternalMsg::Opened(session, opened)) => {
                directory.on_opened(session, *opened).await?;
            }
            SessionsMsg::Inner(SessionsInternalMsg::RetryRead(session)) => directory.open(session),
            SessionsMsg::Inner(SessionsInternalMsg::TasksEnded(session)) => directory.on_tasks_end(session),
            SessionsMsg::Inner(SessionsInternalMsg::ForceFailed(session, result)) => {
                directory.on_force_failed(session, result)?;
            }
            SessionsMsg::Inner(SessionsInternalMsg::ScanIdle) => directory.scan_idle(),
            SessionsMsg::Inner(SessionsInternalMsg::PassivationDeclined(session, actor)) => {
                directory.on_passivation_declined(session, actor);
            }
            SessionsMsg::Inner(SessionsInternalMsg::Closed(session, closed)) => {
                directory.on_closed(session, closed);
            }
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _me: ActorRef<SessionsMsg>,
        event: SupervisionEvent,
        directory: &mut Directory,
    ) -> Result<(), ActorProcessingErr> {
        let _running = directory.track_handler();
        match event {
            SupervisionEvent::ActorFailed(cell, error) => directory.on_actor_end(cell.get_id(), Some(error)),
            SupervisionEvent::ActorTerminated(cell, _, why) => {
                let error = why.filter(|why| why == KILL_REASON).map(ActorProcessingErr::from);
                directory.on_actor_end(cell.get_id(), error);
            }
            SupervisionEvent::ActorStarted(_) | SupervisionEvent::ProcessGroupChanged(_) => {}
        }
        Ok(())
    }
}
