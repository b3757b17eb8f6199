//! What is known of the sessions that are live, come or go.

use std::{
    collections::{BTreeMap, HashMap},
    mem::take,
    sync::Arc,
    time::Duration,
};

use ractor::{ActorId, ActorRef, MessagingErr, RpcReplyPort};
use tokio::{sync::oneshot, task::JoinSet};

use crate::{
    active_deadline::ActiveDeadline,
    handlers::RunningHandler,
    model::{BootId, SessionId},
    port::Journal,
    session::{NotAccepted, SessionMsg, Wiring},
    supervisor::{
        NewSession, SessionPlace, SessionStatus, SessionsMsg,
        entry::{Entry, Next, Place},
        roster::Roster,
        sessions::Inner,
    },
};

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
    pub(super) actors: HashMap<ActorId, SessionId>,
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

    /// Notes that its handler runs.
    pub(super) fn handler_runs(&self) -> RunningHandler {
        self.foundation.wiring.handlers.enter("SessionSupervisor", None)
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
            if ActiveDeadline::after(SUSPENDING).bound(ended).await.is_none() {
                tracing::warn!("a call does not end; the process goes without it");
            }
            if reply.send(()).is_err() {
                tracing::debug!("nobody waits for the end any more");
            }
        });
    }
}

/// Tells a submission why it is not accepted; whoever else waits asks again when its reply is dropped.
pub(super) fn refuse(message: Option<SessionMsg>, why: &NotAccepted) {
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
        && ActiveDeadline::after(SUSPENDING).bound(receiver).await.is_none()
    {
        tracing::warn!("a session does not come to rest");
    }
    if let Err(error) = actor.kill_and_wait(None).await {
        tracing::debug!(%error, "it had ended already");
    }
}
