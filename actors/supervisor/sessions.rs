//! SessionSupervisor: finds, opens, revives and gives up sessions. What it knows is the [`Directory`].

use std::sync::Arc;

use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, RpcReplyPort, SupervisionEvent};

use crate::{
    inspect::Inspect,
    model::{Incarnation, RunId, SessionId},
    persistence::DurableOutcome,
    port::JournalError,
    session::SessionMsg,
    supervisor::{
        directory::{Directory, DirectoryDependencies},
        opening::{OpenSessionError, RecoveredSession},
    },
};

/// The reason that ractor gives for an actor that was killed: nobody here does that to a session that has work.
const KILL_REASON: &str = "killed";

/// The messages of [`SessionSupervisor`].
#[derive(Debug)]
pub(crate) enum SessionsMsg {
    /// For that session, which is opened if it is not live, and begun with `SessionSeed` if it does not exist. Without that,
    /// what is said to a session that does not exist is not answered.
    Deliver(SessionId, Option<Arc<SessionSeed>>, SessionMsg),
    /// Opens a session that has work to do.
    Revive(SessionId),
    /// Something waits in the inbox of that session, which is opened if it is not live.
    NotifyInbox(SessionId),
    /// Ends a run as `failed(crash_loop)` of this, without opening its session; answered when that is on disk.
    ForceFail((SessionId, RunId), String, RpcReplyPort<()>),
    /// Ends all tasks and all sessions, without a record; nothing is opened any more.
    Suspend(RpcReplyPort<()>),
    /// What it knows.
    Inspect(Inspect<Directory>),
    /// Its own.
    Inner(SessionsInternalMsg),
}

/// What a session begins with.
#[derive(Debug)]
pub(crate) struct SessionSeed {
    pub(crate) key: Arc<str>,
    pub(crate) prompt: Arc<str>,
}

/// What the supervisor's own tasks say.
#[derive(Debug)]
pub(crate) enum SessionsInternalMsg {
    /// A session's journal was read, or not.
    Opened(SessionId, Box<Result<RecoveredSession, OpenSessionError>>),
    /// It is time to read a session's journal again.
    RetryRead(SessionId),
    /// The tasks of a dead session have ended.
    TasksEnded(SessionId),
    /// Open runs of a session have their end, or cannot have it.
    ForceFailed(SessionId, Result<Incarnation, OpenSessionError>),
    /// It is time to look for sessions that have been idle for long.
    ScanIdle,
    /// The actor of a session that was to end if it has nothing to do has something to do.
    PassivationDeclined(SessionId, ActorId),
    /// The store has let a session go, or not.
    Closed(SessionId, Result<DurableOutcome, JournalError>),
}

/// The actor.
#[derive(Debug)]
pub(crate) struct SessionSupervisor;

impl Actor for SessionSupervisor {
    type Msg = SessionsMsg;
    type State = Directory;
    type Arguments = Arc<DirectoryDependencies>;

    async fn pre_start(
        &self,
        me: ActorRef<SessionsMsg>,
        foundation: Arc<DirectoryDependencies>,
    ) -> Result<Directory, ActorProcessingErr> {
        Ok(Directory::start(me, foundation))
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
            SessionsMsg::NotifyInbox(session) => {
                directory.deliver(session, None, Some(SessionMsg::InboxReady));
            }
            SessionsMsg::ForceFail(which, error, reply) => directory.force_fail_run(which, error, reply),
            SessionsMsg::Suspend(reply) => directory.suspend(reply),
            SessionsMsg::Inspect(look) => look.run(directory)?,
            SessionsMsg::Inner(SessionsInternalMsg::Opened(session, opened)) => {
                directory.on_opened(session, *opened).await?;
            }
            SessionsMsg::Inner(SessionsInternalMsg::RetryRead(session)) => directory.open(session),
            SessionsMsg::Inner(SessionsInternalMsg::TasksEnded(session)) => directory.on_tasks_end(session),
            SessionsMsg::Inner(SessionsInternalMsg::ForceFailed(session, buried)) => {
                directory.on_force_failed(session, buried)?;
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
