//! What is known of the sessions that are live, come or go, and what is done about those that die.

use std::{
    collections::{BTreeMap, HashMap},
    mem::take,
    sync::Arc,
    time::Duration,
};

use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, MessagingErr, RpcReplyPort, SpawnErr};
use tokio::{sync::oneshot, task::JoinSet};

use crate::{
    model::{BootId, Cause, Incarnation, RunId, SessionId},
    persistence::Stored,
    policy::{Intensity, Verdict},
    port::{Journal, JournalError, Write},
    session::{Arguments, CallTasks, NotAccepted, Session, SessionMsg, Wiring},
    supervisor::{
        NewSession, SessionPlace, SessionStatus, SessionsMsg,
        burial::{bury, write},
        entry::{Entry, Next, Place, Then},
        opening::{Opened, Unopened, open},
        roster::Roster,
        sessions::Inner,
    },
    turn::Input,
};

/// A run whose session has died so often in a row at the same step is `failed(crash_loop)`.
const DEATHS_AT_ONE_STEP: u32 = 3;
/// A session may die so often, at whatever steps; then all its runs are.
const INTENSITY: Intensity = Intensity { deaths: 12, within_ms: 60_000 };
/// How often a journal that the store cannot read is tried, before the runtime ends of it.
const READS: u32 = 3;
/// Between the first two of them; it doubles.
const READ_AGAIN: Duration = Duration::from_millis(100);
/// How long a session has to come to rest when all are suspended, and then its tasks to be gone.
const SUSPENDING: Duration = Duration::from_millis(500);

/// What every directory of a runtime is built on. It outlives them.
#[derive(Debug)]
pub(crate) struct Foundation {
    pub(super) journal: Arc<dyn Journal>,
    pub(super) wiring: Arc<Wiring>,
    pub(super) boot: BootId,
    /// For how long a session with nothing to do keeps its actor.
    pub(super) idle: Duration,
    pub(super) roster: Arc<Roster>,
}

/// See the module. The state of SessionSupervisor.
pub(crate) struct Directory {
    pub(super) me: ActorRef<SessionsMsg>,
    pub(super) foundation: Arc<Foundation>,
    pub(super) entries: BTreeMap<SessionId, Entry>,
    actors: HashMap<ActorId, SessionId>,
    pub(super) suspended: bool,
    /// The time after which it is looked for sessions that have been idle for long; it ends with the directory.
    pub(super) looking: Option<JoinSet<()>>,
}

impl Directory {
    /// A directory that knows nobody; but whoever went on in an earlier one is revived.
    pub(super) fn begin(me: ActorRef<SessionsMsg>, foundation: Arc<Foundation>) -> Self {
        let known = foundation.roster.begin();
        let (entries, actors) = (BTreeMap::new(), HashMap::new());
        let mut directory = Self { me, foundation, entries, actors, suspended: false, looking: None };
        for (session, (tasks, goes_on, incarnation)) in known {
            let place = Place::Ending(Vec::new(), Next::Revive);
            directory
                .entries
                .insert(session, Entry { place, tasks, goes_on, incarnation, ..Entry::new(None) });
            directory.end_tasks(session, Next::Revive);
        }
        directory
    }

    /// What it knows.
    pub(crate) fn statuses(&self) -> Vec<SessionStatus> {
        let status = |(session, entry): (&SessionId, &Entry)| SessionStatus {
            session: *session,
            place: match &entry.place {
                Place::Opening(_) => SessionPlace::Opening,
                Place::Live(_) | Place::Resting(..) => SessionPlace::Live,
                Place::Ending(..) | Place::Burying(..) | Place::Closing(_) | Place::Kept => {
                    SessionPlace::Ending
                }
                Place::Quarantined(why) => SessionPlace::Quarantined(why.clone()),
            },
            deaths: entry.died,
        };
        self.entries.iter().map(status).collect()
    }

    /// Whether the session's runs are run here, or about to be.
    pub(crate) fn has(&self, session: SessionId) -> bool {
        let Some(entry) = self.entries.get(&session) else { return false };
        entry.goes_on && !matches!(entry.place, Place::Quarantined(_))
    }

    /// The actor of a live session.
    #[cfg(feature = "testkit")]
    pub(crate) fn actor(&self, session: SessionId) -> Option<ActorRef<SessionMsg>> {
        match &self.entries.get(&session)?.place {
            Place::Live(actor) | Place::Resting(actor, _) => Some(actor.clone()),
            Place::Opening(_)
            | Place::Ending(..)
            | Place::Burying(..)
            | Place::Closing(_)
            | Place::Kept
            | Place::Quarantined(_) => None,
        }
    }

    /// Hands a message to a session, which is opened if it is not live; none, or any but an order at rest, is to let its
    /// runs go on from now.
    pub(super) fn deliver(
        &mut self,
        session: SessionId,
        new: Option<Arc<NewSession>>,
        message: Option<SessionMsg>,
    ) {
        if self.suspended {
            return;
        }
        let goes_on = message.as_ref().is_none_or(|message| !message.is_at_rest());
        if message.is_none() {
            // Behind this it is in the roster that the session goes on.
            self.foundation.roster.heard(session);
        }
        let Some(entry) = self.entries.get_mut(&session) else {
            let place = Place::Opening(message.into_iter().collect());
            let entry = Entry { place, goes_on, ..Entry::new(new) };
            self.entries.insert(session, entry);
            return self.open(session);
        };
        entry.new = entry.new.take().or(new);
        if goes_on && !entry.goes_on {
            entry.goes_on = true;
            self.foundation.roster.note(session, entry);
        }
        // It is not given before its session is awake: who knows what is wanted by then.
        let is_live = matches!(entry.place, Place::Live(_));
        let message = if is_live { message.map(|message| entry.hand(message)) } else { message };
        match &mut entry.place {
            Place::Opening(waiting)
            | Place::Ending(waiting, _)
            | Place::Burying(waiting, _)
            | Place::Resting(_, waiting) => waiting.extend(message),
            Place::Closing(waiting) => {
                entry.rung |= message.is_none();
                waiting.extend(message);
            }
            Place::Kept => {
                entry.place = Place::Opening(message.into_iter().collect());
                self.open(session);
            }
            Place::Live(actor) => {
                let Some(message) = message else { return };
                // A dead actor's event is on its way: until it comes, what is said to it waits.
                if let Err(MessagingErr::SendErr(message)) = actor.cast(message) {
                    entry.place = Place::Ending(vec![message], Next::Rest);
                }
            }
            Place::Quarantined(why) => {
                let refusal = NotAccepted::Quarantined { session, error: why.clone() };
                refuse(message, &refusal);
            }
        }
    }

    /// Reads the session's journal, in a task.
    pub(super) fn open(&mut self, session: SessionId) {
        let (foundation, me) = (Arc::clone(&self.foundation), self.me.clone());
        let opening = self.take_over(session);
        tokio::spawn(async move {
            let opened = open(&*foundation.journal, session, opening).await;
            tell(&me, Inner::Opened(session, Box::new(opened)));
        });
    }

    /// Takes a session over. As whom is not known until that is done: whoever lets it go before takes it over again.
    fn take_over(
        &mut self,
        session: SessionId,
    ) -> impl Future<Output = Result<Stored, JournalError>> + Send + use<> {
        if let Some(entry) = self.entries.get_mut(&session) {
            entry.incarnation = None;
            self.foundation.roster.note(session, entry);
        }
        write(&self.foundation.wiring.persistence, Write::Open(session))
    }

    /// The journal was read, or not. An error is one of the store and ends this actor.
    pub(super) async fn opened(
        &mut self,
        session: SessionId,
        opened: Result<Opened, Unopened>,
    ) -> Result<(), ActorProcessingErr> {
        let Some(entry) = self.entries.get_mut(&session).filter(|_| !self.suspended) else { return Ok(()) };
        match opened {
            Ok(opened) => self.wake(session, opened).await,
            Err(Unopened::Unreadable(why)) => {
                self.bury(session, None, Cause::Quarantined { error: why.clone() }, Then::Quarantine(why));
            }
            // Whoever waits is told by the runtime's end, which is near.
            Err(Unopened::Write(error)) => tracing::debug!(%session, %error, "not opened"),
            Err(Unopened::Read(error)) if entry.reads + 1 >= READS => return Err(error.into()),
            Err(Unopened::Read(error)) => {
                tracing::warn!(%session, %error, "the store cannot be read, trying again");
                let (pause, me) = (READ_AGAIN * 2_u32.pow(entry.reads), self.me.clone());
                entry.reads += 1;
                tokio::spawn(async move {
                    tokio::time::sleep(pause).await;
                    tell(&me, Inner::Again(session));
                });
            }
        }
        Ok(())
    }

    /// Gives the session its next actor, unless it has died too often where it stands.
    async fn wake(&mut self, session: SessionId, (dormant, incarnation, is_rung): Opened) {
        let Some(entry) = self.entries.get_mut(&session) else { return };
        entry.reads = 0;
        entry.incarnation = Some(incarnation);
        let is_nowhere = dormant.is_new() && entry.new.is_none();
        // It was removed since it was looked up: whoever said something looks again.
        if is_nowhere && !entry.place.take_waiting().is_empty() {
            return self.forget(session);
        }
        if let Some(error) = entry.died_of.take() {
            let standing = dormant.standing();
            if entry.crashes.count(standing) >= DEATHS_AT_ONE_STEP {
                let run = standing.map(|standing| standing.run);
                let then = if run.is_some() { Then::GoOn } else { Then::Forget };
                return self.bury(session, run, Cause::CrashLoop { error }, then);
            }
        }
        entry.rests = false;
        let waiting = entry.place.take_waiting().into_iter().map(|message| entry.hand(message)).collect();
        let boot = self.foundation.boot.clone();
        let first = match &entry.new {
            Some(new) if dormant.is_new() => Input::Opened {
                key: Arc::clone(&new.key),
                prompt: Arc::clone(&new.prompt),
                incarnation,
                boot,
            },
            Some(_) | None => Input::Revived { incarnation, boot },
        };
        entry.tasks = CallTasks::default();
        self.foundation.roster.note(session, entry);
        let (wiring, tasks) = (Arc::clone(&self.foundation.wiring), entry.tasks.clone());
        let arguments = Arguments { id: session, wiring, dormant, first, tasks, is_rung, waiting };
        match Actor::spawn_linked(None, Session, arguments, self.me.get_cell()).await {
            Ok((actor, _)) => {
                self.actors.insert(actor.get_id(), session);
                entry.place = Place::Live(actor);
                self.look_in(self.foundation.idle);
            }
            Err(SpawnErr::StartupFailed(error)) => self.died(session, &error),
            Err(error @ (SpawnErr::ActorAlreadyStarted | SpawnErr::ActorAlreadyRegistered(_))) => {
                self.died(session, &error.into());
            }
        }
    }

    /// An actor has ended: by itself, or by an error.
    pub(super) fn ended(&mut self, actor: ActorId, error: Option<ActorProcessingErr>) {
        let Some(session) = self.actors.remove(&actor) else { return };
        match error {
            _ if self.suspended => {}
            Some(error) => self.died(session, &error),
            None => self.end_tasks(session, Next::Rest),
        }
    }

    fn died(&mut self, session: SessionId, error: &ActorProcessingErr) {
        let now_ms = self.foundation.wiring.clock.monotonic_ms();
        let Some(entry) = self.entries.get_mut(&session) else { return };
        // The runtime is about to end of that; it says nothing of the session.
        if error.is::<JournalError>() {
            return self.end_tasks(session, Next::Rest);
        }
        entry.died += 1;
        entry.died_of = Some(error.to_string());
        let next = match entry.deaths.count(now_ms, INTENSITY) {
            Verdict::Restart => Next::Revive,
            Verdict::GiveUp => Next::GiveUp,
        };
        tracing::warn!(%session, %error, ?next, "session actor died");
        self.end_tasks(session, next);
    }

    fn end_tasks(&mut self, session: SessionId, next: Next) {
        let Some(entry) = self.entries.get_mut(&session) else { return };
        entry.place = Place::Ending(entry.place.take_waiting(), next);
        let (tasks, me) = (entry.tasks.clone(), self.me.clone());
        tokio::spawn(async move {
            #[cfg(feature = "testkit")]
            if crate::mutation::planted(crate::mutation::Mutation::ReviveEarly) {
                tasks.outlive();
            }
            tasks.end().await;
            tell(&me, Inner::TasksEnded(session));
        });
    }

    pub(super) fn tasks_ended(&mut self, session: SessionId) {
        let Some(entry) = self.entries.get_mut(&session) else { return };
        if entry.is_done() {
            return self.forget(session);
        }
        let Place::Ending(waiting, next) = &mut entry.place else { return };
        match *next {
            Next::GiveUp => {
                let error = entry.died_of.take().unwrap_or_else(|| "its actor keeps dying".into());
                self.bury(session, None, Cause::CrashLoop { error }, Then::Forget);
            }
            Next::Rest | Next::Revive => {
                entry.place = Place::Opening(take(waiting));
                self.open(session);
            }
        }
    }

    /// Ends a run as `failed(crash_loop)` without opening its session, which must not be here yet.
    pub(super) fn give_up(
        &mut self,
        (session, run): (SessionId, RunId),
        error: String,
        reply: RpcReplyPort<()>,
    ) {
        let is_here = self.entries.get(&session).is_some_and(|entry| !entry.is_leaving());
        if self.suspended || is_here {
            tracing::warn!(%session, %run, "a run of a session that is here is not given up");
            return;
        }
        self.entries.entry(session).or_insert_with(|| Entry::new(None));
        self.bury(session, Some(run), Cause::CrashLoop { error }, Then::Tell(reply));
    }

    /// Ends open runs of the session, or one of them, for nobody else will; until that is done, what comes in waits.
    fn bury(&mut self, session: SessionId, run: Option<RunId>, cause: Cause, then: Then) {
        tracing::error!(%session, %cause, "the session's runs are ended");
        let Some(entry) = self.entries.get_mut(&session) else { return };
        entry.place = Place::Burying(entry.place.take_waiting(), then);
        let (foundation, me) = (Arc::clone(&self.foundation), self.me.clone());
        let opening = self.take_over(session);
        tokio::spawn(async move {
            let buried = bury(&*foundation.journal, &foundation.wiring, (session, run), cause, opening).await;
            tell(&me, Inner::Buried(session, buried));
        });
    }

    /// The runs have their end, or not. An error is one of the store and ends this actor.
    pub(super) fn buried(
        &mut self,
        session: SessionId,
        buried: Result<Incarnation, Unopened>,
    ) -> Result<(), ActorProcessingErr> {
        let incarnation = match buried {
            Ok(incarnation) => Some(incarnation),
            Err(Unopened::Write(_)) => return Ok(()),
            Err(Unopened::Read(error)) => return Err(error.into()),
            Err(Unopened::Unreadable(error)) => {
                tracing::error!(%session, error, "its runs cannot be ended");
                None
            }
        };
        let Some(entry) = self.entries.get_mut(&session) else { return Ok(()) };
        entry.incarnation = incarnation;
        let waiting = entry.place.take_waiting();
        match std::mem::replace(&mut entry.place, Place::Opening(Vec::new())) {
            Place::Burying(_, Then::GoOn) => {
                entry.place = Place::Opening(waiting);
                self.open(session);
            }
            Place::Burying(_, Then::Forget) => {
                self.forget(session);
                let why = NotAccepted::KeepsDying(session);
                waiting.into_iter().for_each(|message| refuse(Some(message), &why));
            }
            Place::Burying(_, Then::Tell(reply)) => {
                if waiting.is_empty() && !entry.goes_on {
                    self.forget(session);
                } else {
                    entry.place = Place::Opening(waiting);
                    self.open(session);
                }
                if reply.send(()).is_err() {
                    tracing::debug!(%session, "nobody waits for the burial any more");
                }
            }
            Place::Burying(_, Then::Quarantine(why)) => {
                let refusal = NotAccepted::Quarantined { session, error: why.clone() };
                entry.place = Place::Quarantined(why);
                waiting.into_iter().for_each(|message| refuse(Some(message), &refusal));
            }
            other @ (Place::Opening(_)
            | Place::Live(_)
            | Place::Resting(..)
            | Place::Ending(..)
            | Place::Closing(_)
            | Place::Kept
            | Place::Quarantined(_)) => entry.place = other,
        }
        Ok(())
    }

    /// Lets what is on its way to disk arrive, then ends all tasks. Nothing is started meanwhile.
    pub(super) fn suspend(&mut self, reply: RpcReplyPort<()>) {
        self.suspended = true;
        self.looking = None;
        self.foundation.roster.clear();
        let mut tasks = Vec::new();
        for (_, entry) in take(&mut self.entries) {
            let actor = match entry.place {
                Place::Live(actor) | Place::Resting(actor, _) => Some(actor),
                Place::Opening(_)
                | Place::Ending(..)
                | Place::Burying(..)
                | Place::Closing(_)
                | Place::Kept
                | Place::Quarantined(_) => None,
            };
            tasks.push((entry.tasks, actor));
        }
        tokio::spawn(async move {
            futures::future::join_all(tasks.iter().filter_map(|(_, actor)| actor.as_ref()).map(quiet)).await;
            let ended = futures::future::join_all(tasks.iter().map(|(tasks, _)| tasks.end()));
            if tokio::time::timeout(SUSPENDING, ended).await.is_err() {
                tracing::warn!("a call does not end; the process goes without it");
            }
            if reply.send(()).is_err() {
                tracing::debug!("nobody waits for the end any more");
            }
        });
    }
}

/// Tells a submission why it is not accepted; whoever else waits asks again when its reply is dropped.
fn refuse(message: Option<SessionMsg>, why: &NotAccepted) {
    if let Some(SessionMsg::Submit(_, caller)) = message {
        caller.answer(Err(why.clone()));
    }
}

pub(super) fn tell(supervisor: &ActorRef<SessionsMsg>, said: Inner) {
    if supervisor.cast(SessionsMsg::Inner(said)).is_err() {
        tracing::debug!("said to a supervisor of sessions that has gone");
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
