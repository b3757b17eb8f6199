//! SessionSupervisor: the directory of live sessions. It finds, opens, revives and gives up.

use std::{
    collections::{BTreeMap, HashMap},
    panic::AssertUnwindSafe,
    sync::Arc,
    time::Duration,
};

use futures::FutureExt;
use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, RpcReplyPort, SupervisionEvent};
use tokio::sync::oneshot;

use crate::{
    model::{BootId, Incarnation, SessionId},
    persistence::{Stored, replay},
    policy::{Deaths, Intensity, Verdict},
    port::{Journal, Write},
    session::{Arguments, CallTasks, NotAccepted, Session, SessionMsg, Wiring},
    supervisor::burial::{bury, write},
    turn::{Dormant, Input},
};

/// A session may die so often; then it is left alone until the next start of the process.
const INTENSITY: Intensity = Intensity { deaths: 3, within_ms: 60_000 };

/// How long a session has to come to rest when all are suspended.
const SUSPENDING: Duration = Duration::from_millis(500);

/// The messages of [`SessionSupervisor`].
#[derive(Debug)]
pub(crate) enum SessionsMsg {
    /// For that session, which is opened if it is not live; `NewSession` is for one that does not exist.
    To(SessionId, Arc<NewSession>, SessionMsg),
    /// Opens a session that has work to do.
    Revive(SessionId),
    /// Ends all tasks and all sessions, without a record; nothing is opened any more.
    Suspend(RpcReplyPort<()>),
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
    Opened(SessionId, Box<Result<(Dormant, Incarnation), String>>),
    /// The tasks of a dead session have ended.
    TasksEnded(SessionId),
    /// The open runs of a session that was given up have their end.
    Buried(SessionId),
}

/// The actor.
#[derive(Debug)]
pub(crate) struct SessionSupervisor;

/// Its state.
pub(crate) struct State {
    journal: Arc<dyn Journal>,
    wiring: Arc<Wiring>,
    boot: BootId,
    sessions: BTreeMap<SessionId, Entry>,
    actors: HashMap<ActorId, SessionId>,
    suspended: bool,
}

struct Entry {
    place: Place,
    tasks: CallTasks,
    deaths: Deaths,
    new: Option<Arc<NewSession>>,
}

/// Where a session is; what comes in while it is not live waits here.
enum Place {
    Opening(Vec<SessionMsg>),
    Live(ActorRef<SessionMsg>),
    /// Its actor is dead; its tasks are being ended.
    Ending(Vec<SessionMsg>, Next),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    /// Open it again.
    Revive,
    /// Open it again if somebody wants it.
    Rest,
    /// It keeps dying.
    GiveUp,
}

impl Actor for SessionSupervisor {
    type Msg = SessionsMsg;
    type State = State;
    type Arguments = (Arc<dyn Journal>, Arc<Wiring>, BootId);

    async fn pre_start(
        &self,
        _me: ActorRef<SessionsMsg>,
        (journal, wiring, boot): Self::Arguments,
    ) -> Result<State, ActorProcessingErr> {
        let (sessions, actors) = (BTreeMap::new(), HashMap::new());
        Ok(State { journal, wiring, boot, sessions, actors, suspended: false })
    }

    async fn handle(
        &self,
        me: ActorRef<SessionsMsg>,
        message: SessionsMsg,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            SessionsMsg::To(_, _, message) if state.suspended => drop(message),
            SessionsMsg::To(session, new, message) => state.deliver(&me, session, Some(new), Some(message)),
            SessionsMsg::Revive(_) if state.suspended => {}
            SessionsMsg::Revive(session) => state.deliver(&me, session, None, None),
            SessionsMsg::Suspend(reply) => state.suspend(reply),
            SessionsMsg::Inner(Inner::Opened(session, opened)) => {
                state.opened(&me, session, *opened).await;
            }
            SessionsMsg::Inner(Inner::TasksEnded(session)) => state.tasks_ended(&me, session),
            SessionsMsg::Inner(Inner::Buried(session)) => state.buried(session),
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        me: ActorRef<SessionsMsg>,
        event: SupervisionEvent,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match event {
            SupervisionEvent::ActorFailed(cell, error) => {
                state.ended(&me, cell.get_id(), Some(&error.to_string()));
            }
            SupervisionEvent::ActorTerminated(cell, _, _) => state.ended(&me, cell.get_id(), None),
            SupervisionEvent::ActorStarted(_) | SupervisionEvent::ProcessGroupChanged(_) => {}
        }
        Ok(())
    }
}

impl State {
    fn deliver(
        &mut self,
        me: &ActorRef<SessionsMsg>,
        session: SessionId,
        new: Option<Arc<NewSession>>,
        message: Option<SessionMsg>,
    ) {
        let Some(entry) = self.sessions.get_mut(&session) else {
            let (tasks, deaths) = (CallTasks::default(), Deaths::default());
            let place = Place::Opening(message.into_iter().collect());
            self.sessions.insert(session, Entry { place, tasks, deaths, new });
            return self.open(me, session);
        };
        match &mut entry.place {
            Place::Opening(waiting) | Place::Ending(waiting, _) => waiting.extend(message),
            Place::Live(actor) => {
                let Some(message) = message else { return };
                // A dead actor's event is on its way: until it comes, what is said to it waits.
                if let Err(ractor::MessagingErr::SendErr(message)) = actor.cast(message) {
                    entry.place = Place::Ending(vec![message], Next::Rest);
                }
            }
        }
    }

    /// Takes the session over, behind whatever an earlier incarnation still has in the queue, and reads its journal.
    fn open(&self, me: &ActorRef<SessionsMsg>, session: SessionId) {
        let (journal, writer) = (Arc::clone(&self.journal), self.wiring.persistence.clone());
        let me = me.clone();
        tokio::spawn(async move {
            let read = AssertUnwindSafe(read(journal, writer, session)).catch_unwind().await;
            let opened = read.unwrap_or_else(|_| Err("its journal makes the program panic".into()));
            if me.cast(SessionsMsg::Inner(Inner::Opened(session, Box::new(opened)))).is_err() {
                tracing::debug!(%session, "opened after its supervisor had gone");
            }
        });
    }

    async fn opened(
        &mut self,
        me: &ActorRef<SessionsMsg>,
        session: SessionId,
        opened: Result<(Dormant, Incarnation), String>,
    ) {
        if self.suspended {
            return;
        }
        let Some(entry) = self.sessions.get_mut(&session) else { return };
        let Place::Opening(waiting) = &mut entry.place else { return };
        let waiting = std::mem::take(waiting);
        let (dormant, incarnation) = match opened {
            Ok(opened) => opened,
            Err(error) => return self.give_up(me, session, waiting, &error),
        };
        let boot = self.boot.clone();
        let first = match &entry.new {
            Some(new) if dormant.is_new() => Input::Opened {
                key: Arc::clone(&new.key),
                prompt: Arc::clone(&new.prompt),
                incarnation,
                boot,
            },
            Some(_) | None => Input::Revived { incarnation, boot },
        };
        let (wiring, tasks) = (Arc::clone(&self.wiring), entry.tasks.clone());
        let arguments = Arguments { id: session, wiring, dormant, first, tasks, waiting };
        match Actor::spawn_linked(None, Session, arguments, me.get_cell()).await {
            Ok((actor, _)) => {
                self.actors.insert(actor.get_id(), session);
                entry.place = Place::Live(actor);
            }
            Err(error) => self.died(me, session, &error.to_string()),
        }
    }

    /// An actor has ended: by itself, or by an error.
    fn ended(&mut self, me: &ActorRef<SessionsMsg>, actor: ActorId, error: Option<&str>) {
        let Some(session) = self.actors.remove(&actor) else { return };
        if self.suspended {
            return;
        }
        match error {
            Some(error) => self.died(me, session, error),
            None => self.end_tasks(me, session, Next::Rest),
        }
    }

    fn died(&mut self, me: &ActorRef<SessionsMsg>, session: SessionId, error: &str) {
        let now_ms = self.wiring.clock.monotonic_ms();
        let Some(entry) = self.sessions.get_mut(&session) else { return };
        let next = match entry.deaths.count(now_ms, INTENSITY) {
            Verdict::Restart => Next::Revive,
            Verdict::GiveUp => Next::GiveUp,
        };
        tracing::warn!(%session, error, given_up = next == Next::GiveUp, "session actor died");
        self.end_tasks(me, session, next);
    }

    fn end_tasks(&mut self, me: &ActorRef<SessionsMsg>, session: SessionId, next: Next) {
        let Some(entry) = self.sessions.get_mut(&session) else { return };
        let waiting = match &mut entry.place {
            Place::Opening(waiting) | Place::Ending(waiting, _) => std::mem::take(waiting),
            Place::Live(_) => Vec::new(),
        };
        entry.place = Place::Ending(waiting, next);
        let (tasks, me) = (entry.tasks.clone(), me.clone());
        tokio::spawn(async move {
            tasks.end().await;
            if me.cast(SessionsMsg::Inner(Inner::TasksEnded(session))).is_err() {
                tracing::debug!(%session, "tasks ended after their supervisor had gone");
            }
        });
    }

    fn tasks_ended(&mut self, me: &ActorRef<SessionsMsg>, session: SessionId) {
        let Some(entry) = self.sessions.get_mut(&session) else { return };
        let Place::Ending(waiting, next) = &mut entry.place else { return };
        let (waiting, next) = (std::mem::take(waiting), *next);
        match next {
            Next::GiveUp => self.give_up(me, session, waiting, "its actor keeps dying"),
            Next::Rest if waiting.is_empty() || self.suspended => {
                self.sessions.remove(&session);
            }
            Next::Rest | Next::Revive => {
                entry.place = Place::Opening(waiting);
                self.open(me, session);
            }
        }
    }

    /// Ends its open runs, for nobody else will; until that is done, what comes in waits.
    fn give_up(
        &mut self,
        me: &ActorRef<SessionsMsg>,
        session: SessionId,
        waiting: Vec<SessionMsg>,
        why: &str,
    ) {
        tracing::error!(%session, why, "session given up");
        let Some(entry) = self.sessions.get_mut(&session) else { return };
        entry.place = Place::Ending(waiting, Next::GiveUp);
        let (journal, wiring, me) = (Arc::clone(&self.journal), Arc::clone(&self.wiring), me.clone());
        let why = why.to_owned();
        tokio::spawn(async move {
            match bury(&*journal, &wiring.persistence, &*wiring.clock, session, &why).await {
                Ok(runs) => {
                    runs.iter().for_each(|row| wiring.hub.ended(row.id));
                    wiring.hub.look_again(session);
                }
                Err(error) => tracing::error!(%session, error, "its runs cannot be ended"),
            }
            if me.cast(SessionsMsg::Inner(Inner::Buried(session))).is_err() {
                tracing::debug!(%session, "buried after its supervisor had gone");
            }
        });
    }

    fn buried(&mut self, session: SessionId) {
        let Some(entry) = self.sessions.remove(&session) else { return };
        let (Place::Opening(waiting) | Place::Ending(waiting, _)) = entry.place else { return };
        for message in waiting {
            if let SessionMsg::Submit(_, reply) = message
                && reply.send(Err(NotAccepted::KeepsDying(session))).is_err()
            {
                tracing::debug!(%session, "nobody waits for the answer any more");
            }
        }
    }

    /// Lets what is on its way to disk arrive, then ends all tasks. Nothing is started meanwhile.
    fn suspend(&mut self, reply: RpcReplyPort<()>) {
        self.suspended = true;
        let entries: Vec<Entry> = std::mem::take(&mut self.sessions).into_values().collect();
        tokio::spawn(async move {
            let live = entries.iter().filter_map(|entry| match &entry.place {
                Place::Live(actor) => Some(actor),
                Place::Opening(_) | Place::Ending(..) => None,
            });
            futures::future::join_all(live.map(quiet)).await;
            for entry in &entries {
                entry.tasks.end().await;
            }
            if reply.send(()).is_err() {
                tracing::debug!("nobody waits for the end any more");
            }
        });
    }
}

/// Waits until a session has ended by itself, for a while; then it is ended by force.
async fn quiet(actor: &ActorRef<SessionMsg>) {
    let (sender, receiver) = oneshot::channel();
    if actor.cast(SessionMsg::Suspend(sender.into())).is_ok()
        && tokio::time::timeout(SUSPENDING, receiver).await.is_err()
    {
        tracing::warn!("a session does not come to rest");
    }
    if let Err(error) = actor.kill_and_wait(None).await {
        tracing::debug!(%error, "it had ended already");
    }
}

async fn read(
    journal: Arc<dyn Journal>,
    writer: super::Writer,
    session: SessionId,
) -> Result<(Dormant, Incarnation), String> {
    let opened = match write(&writer, Write::Open(session)).await? {
        Stored::Opened(opened) => opened,
        Stored::Refused(refusal) => return Err(refusal.to_string()),
        Stored::Appended(_) | Stored::Delivered => return Err("the store answered another question".into()),
    };
    let mut dormant = Dormant::empty(session);
    replay(&*journal, session, 1, |_, record| dormant.fold(&record))
        .await
        .map_err(|error| error.to_string())?;
    if dormant.last() != opened.last {
        return Err(format!("its journal has {} records of {}", dormant.last(), opened.last));
    }
    Ok((dormant, opened.incarnation))
}
