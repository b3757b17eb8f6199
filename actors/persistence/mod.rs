//! Persistence: the one writer. It batches what all sessions append, and vouches for what is on disk.
//!
//! Architecture invariant: `Durable::vouch` is called in `commit.rs`, on acknowledgement, in `replay.rs`, on replay, and
//! nowhere else; what vouches earlier is a wrong twin, and not in the product.

mod commit;
mod queue;
mod replay;

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use ractor::{Actor, ActorProcessingErr, ActorRef};

#[cfg(feature = "testkit")]
use self::commit::{is_vouched_early, vouched_early};
use self::{
    commit::commit,
    queue::{Queue, is_awaited, lock},
};
use crate::{
    handlers::HandlerWatch,
    model::{Durable, NoRoom, Record, SessionId, Timestamp},
    port::{Clock, Journal, JournalError, Opened, Refusal, Write},
};

#[cfg(feature = "testkit")]
pub(crate) use commit::vouched;
pub(crate) use replay::{records_of, replay};

/// What became of a write.
#[derive(Debug)]
pub(crate) enum Stored {
    /// The append is on disk.
    Appended(Vec<Durable<Arc<Record>>>),
    /// The session is taken over.
    Opened(Opened),
    /// Whether the session is let go; if not, something waits in its inbox.
    Closed(bool),
    /// The item is in the inbox.
    Delivered,
    /// Nothing was written.
    Refused(Refusal),
}

/// Where the answer goes. Called from the task that commits, so it only hands on.
pub(crate) type Reply = Box<dyn FnOnce(Result<Stored, JournalError>) + Send>;

/// The messages of [`Persistence`].
pub(crate) enum PersistenceMsg {
    /// Writes, and answers when it is durable or refused.
    Write(Write, Reply),
    /// What this session has waiting goes next: somebody waits for what comes after it.
    Hurry(SessionId),
    /// Its own.
    Inner(Failed),
}

/// What the committing task says: the store takes no writes any more.
#[derive(Debug)]
pub(crate) struct Failed(JournalError);

impl fmt::Debug for PersistenceMsg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write(write, _) => f.debug_tuple("Write").field(write).finish(),
            Self::Hurry(session) => f.debug_tuple("Hurry").field(session).finish(),
            Self::Inner(inner) => f.debug_tuple("Inner").field(inner).finish(),
        }
    }
}

/// The actor.
#[derive(Debug)]
pub(crate) struct Persistence;

/// Its state.
pub(crate) struct State {
    journal: Arc<dyn Journal>,
    queue: Arc<Mutex<Queue>>,
    writing: Arc<Writing>,
    handlers: Arc<HandlerWatch>,
}

/// Since when a commit is under way. It has no deadline: it is answered, or the process ends; so a disk that does not
/// answer has to be seen here.
#[derive(Debug)]
pub(crate) struct Writing {
    clock: Arc<dyn Clock>,
    journal: Arc<dyn Journal>,
    since: Mutex<Option<Timestamp>>,
}

impl Writing {
    /// Nothing is under way.
    pub(crate) fn new(clock: Arc<dyn Clock>, journal: Arc<dyn Journal>) -> Self {
        Self { clock, journal, since: Mutex::default() }
    }

    /// What there is no room for on the disk; `None` if nothing waits for that.
    pub(crate) fn no_room(&self) -> Option<NoRoom> {
        self.journal.no_room()
    }

    /// When the commit began that is under way; `None` if none is.
    pub(crate) fn since(&self) -> Option<Timestamp> {
        *self.since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begins(&self) {
        *self.since.lock().unwrap_or_else(PoisonError::into_inner) = Some(self.clock.at());
    }

    fn ended(&self) {
        *self.since.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Actor for Persistence {
    type Msg = PersistenceMsg;
    type State = State;
    type Arguments = (Arc<dyn Journal>, Arc<Writing>, Arc<HandlerWatch>);

    async fn pre_start(
        &self,
        _me: ActorRef<PersistenceMsg>,
        (journal, writing, handlers): Self::Arguments,
    ) -> Result<State, ActorProcessingErr> {
        Ok(State { journal, queue: Arc::default(), writing, handlers })
    }

    async fn handle(
        &self,
        me: ActorRef<PersistenceMsg>,
        message: PersistenceMsg,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let _running = state.handlers.enter("Persistence", None);
        #[cfg(feature = "testkit")]
        let message = if is_vouched_early(&message) { vouched_early(message) } else { message };
        let batch = {
            let mut queue = lock(&state.queue);
            match message {
                PersistenceMsg::Write(write, reply) if is_awaited(&write) => {
                    queue.waiting.push_front((write, reply));
                }
                PersistenceMsg::Write(write, reply) => queue.waiting.push_back((write, reply)),
                PersistenceMsg::Hurry(session) => queue.hurry(session),
                // Nothing can be promised any more: the supervisor ends the runtime.
                PersistenceMsg::Inner(Failed(error)) => return Err(Box::new(error)),
            }
            if queue.committing { None } else { queue.cut() }
        };
        if let Some(batch) = batch {
            let (journal, queue) = (Arc::clone(&state.journal), Arc::clone(&state.queue));
            tokio::spawn(commit((journal, Arc::clone(&state.writing)), queue, batch, me));
        }
        Ok(())
    }
}

impl Drop for State {
    /// Who is left waiting is told by the end of the runtime.
    fn drop(&mut self) {
        let left = std::mem::take(&mut lock(&self.queue).waiting);
        drop(left);
    }
}
