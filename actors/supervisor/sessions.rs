//! SessionSupervisor: finds, opens, revives and gives up sessions. What it knows is the [`Directory`].

use std::sync::Arc;

use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, RpcReplyPort, SupervisionEvent};

use crate::{
    look::Look,
    model::{Incarnation, RunId, SessionId},
    persistence::Stored,
    port::JournalError,
    session::SessionMsg,
    supervisor::{
        directory::{Directory, Foundation},
        opening::{Opened, Unopened},
    },
};

/// The reason that ractor gives for an actor that was killed: nobody here does that to a session that has work.
const KILLED: &str = "killed";

/// The messages of [`SessionSupervisor`].
#[derive(Debug)]
pub(crate) enum SessionsMsg {
    /// For that session, which is opened if it is not live, and begun with `NewSession` if it does not exist. Without that,
    /// what is said to a session that does not exist is not answered.
    To(SessionId, Option<Arc<NewSession>>, SessionMsg),
    /// Opens a session that has work to do.
    Revive(SessionId),
    /// Something waits in the inbox of that session, which is opened if it is not live.
    Ring(SessionId),
    /// Ends a run as `failed(crash_loop)` of this, without opening its session; answered when that is on disk.
    GiveUp((SessionId, RunId), String, RpcReplyPort<()>),
    /// Ends all tasks and all sessions, without a record; nothing is opened any more.
    Suspend(RpcReplyPort<()>),
    /// What it knows.
    Look(Look<Directory>),
    /// Its own.
    Inner(Inner),
}

/// What a session begins with.
#[derive(Debug)]
pub(crate) struct NewSession {
    pub(crate) key: Arc<str>,
    pub(crate) prompt: Arc<str>,
}

/// What the supervisor's own tasks say.
#[derive(Debug)]
pub(crate) enum Inner {
    /// A session's journal was read, or not.
    Opened(SessionId, Box<Result<Opened, Unopened>>),
    /// It is time to read a session's journal again.
    Again(SessionId),
    /// The tasks of a dead session have ended.
    TasksEnded(SessionId),
    /// Open runs of a session have their end, or cannot have it.
    Buried(SessionId, Result<Incarnation, Unopened>),
    /// It is time to look for sessions that have been idle for long.
    Look,
    /// The actor of a session that was to end if it has nothing to do has something to do.
    Stays(SessionId, ActorId),
    /// The store has let a session go, or not.
    Closed(SessionId, Result<Stored, JournalError>),
}

/// The actor.
#[derive(Debug)]
pub(crate) struct SessionSupervisor;

impl Actor for SessionSupervisor {
    type Msg = SessionsMsg;
    type State = Directory;
    type Arguments = Arc<Foundation>;

    async fn pre_start(
        &self,
        me: ActorRef<SessionsMsg>,
        foundation: Arc<Foundation>,
    ) -> Result<Directory, ActorProcessingErr> {
        Ok(Directory::begin(me, foundation))
    }

    async fn handle(
        &self,
        _me: ActorRef<SessionsMsg>,
        message: SessionsMsg,
        directory: &mut Directory,
    ) -> Result<(), ActorProcessingErr> {
        let _running = directory.handler_runs();
        match message {
            SessionsMsg::To(session, new, message) => {
                directory.deliver(session, new, Some(message));
            }
            SessionsMsg::Revive(session) => directory.deliver(session, None, None),
            SessionsMsg::Ring(session) => directory.deliver(session, None, Some(SessionMsg::Rung)),
            SessionsMsg::GiveUp(which, error, reply) => directory.give_up(which, error, reply),
            SessionsMsg::Suspend(reply) => directory.suspend(reply),
            SessionsMsg::Look(look) => look.at(directory)?,
            SessionsMsg::Inner(Inner::Opened(session, opened)) => directory.opened(session, *opened).await?,
            SessionsMsg::Inner(Inner::Again(session)) => directory.open(session),
            SessionsMsg::Inner(Inner::TasksEnded(session)) => directory.tasks_ended(session),
            SessionsMsg::Inner(Inner::Buried(session, buried)) => directory.buried(session, buried)?,
            SessionsMsg::Inner(Inner::Look) => directory.look(),
            SessionsMsg::Inner(Inner::Stays(session, actor)) => directory.stays(session, actor),
            SessionsMsg::Inner(Inner::Closed(session, closed)) => directory.closed(session, closed),
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _me: ActorRef<SessionsMsg>,
        event: SupervisionEvent,
        directory: &mut Directory,
    ) -> Result<(), ActorProcessingErr> {
        let _running = directory.handler_runs();
        match event {
            SupervisionEvent::ActorFailed(cell, error) => directory.ended(cell.get_id(), Some(error)),
            SupervisionEvent::ActorTerminated(cell, _, why) => {
                let error = why.filter(|why| why == KILLED).map(ActorProcessingErr::from);
                directory.ended(cell.get_id(), error);
            }
            SupervisionEvent::ActorStarted(_) | SupervisionEvent::ProcessGroupChanged(_) => {}
        }
        Ok(())
    }
}
