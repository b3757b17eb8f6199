//! Persistence: the only actor that writes to the store, and its messages. It batches the appends of all sessions and
//! marks records on disk as durable. Also the monitor that tells since when a commit is under way.
//!
//! Architecture invariant: `Durable::mark_durable` is called in `write.rs`, on acknowledgement, in `replay.rs`, on
//! replay, and nowhere else. Mutants of the tests make an early acknowledgement; the product contains none.

mod commit;
mod queue;
mod replay;
mod write;

use std::sync::{Arc, Mutex};

use ractor::{Actor, ActorProcessingErr, ActorRef};

#[cfg(feature = "testkit")]
use self::commit::{ack_early, is_early_ack_mutant};
use self::{
    commit::commit,
    queue::{WriteQueue, is_stop_write},
};
use crate::{
    handlers::HandlerWatch,
    lock,
    model::{DiskFull, Durable, Record, SessionId, Timestamp},
    port::{Clock, Journal, JournalError, WriteOp, WriteOutcome, WriteRefusal},
};

pub(crate) use replay::{replay, replay_page, run_records};
pub(crate) use write::{
    append, append_with, close, open, remove_schedule, retry_delivery, update_delivery, write_schedule,
};

/// The result of a write: its answer, or why nothing was written. An error means that the store has failed.
pub(crate) type WriteResult<T> = Result<Result<T, WriteRefusal>, JournalError>;

/// The result of an append: its records, now durable.
pub(crate) type AppendResult = WriteResult<Vec<Durable<Arc<Record>>>>;

/// Receives the outcome. Called from the committing task, so it must only forward.
pub(crate) type OutcomeReply = Box<dyn FnOnce(Result<WriteOutcome, JournalError>) + Send>;

/// The messages of [`PersistenceActor`].
pub(crate) enum PersistenceMsg {
    /// Writes, and answers when it is durable or refused. Made by [`append`], [`open`] and [`close`].
    Write(WriteOp, OutcomeReply),
    /// Moves the waiting append of this session to the front: a later decision waits for it.
    Expedite(SessionId),
    /// From the committing task.
    Inner(StoreFailed),
}

/// The committing task's report that the store takes no more writes.
pub(crate) struct StoreFailed(JournalError);

#[derive(Debug)]
pub(crate) struct PersistenceActor;

/// The queue, shared with the committing task.
pub(crate) struct PersistenceState {
    journal: Arc<dyn Journal>,
    queue: Arc<Mutex<WriteQueue>>,
    commit_monitor: Arc<CommitMonitor>,
    handlers: Arc<HandlerWatch>,
}

/// Tells since when a commit is under way, and which write waits for disk space. A commit has no deadline: it is
/// answered, or the process ends. So a disk that does not answer is noticed here.
#[derive(Debug)]
pub(crate) struct CommitMonitor {
    clock: Arc<dyn Clock>,
    journal: Arc<dyn Journal>,
    since: Mutex<Option<Timestamp>>,
}

impl CommitMonitor {
    /// A monitor without a commit under way.
    pub(crate) fn new(clock: Arc<dyn Clock>, journal: Arc<dyn Journal>) -> Self {
        Self { clock, journal, since: Mutex::default() }
    }

    /// The write that lacks disk space; `None` if none does.
    pub(crate) fn disk_full(&self) -> Option<DiskFull> {
        self.journal.disk_full()
    }

    /// Start of the commit that is under way; `None` if there is none.
    pub(crate) fn since(&self) -> Option<Timestamp> {
        *lock(&self.since)
    }

    fn start(&self) {
        *lock(&self.since) = Some(self.clock.at());
    }

    fn finish(&self) {
        *lock(&self.since) = None;
    }
}

impl Actor for PersistenceActor {
    type Msg = PersistenceMsg;
    type State = PersistenceState;
    type Arguments = (Arc<dyn Journal>, Arc<CommitMonitor>, Arc<HandlerWatch>);

    async fn pre_start(
        &self,
        _me: ActorRef<PersistenceMsg>,
        (journal, commit_monitor, handlers): Self::Arguments,
    ) -> Result<PersistenceState, ActorProcessingErr> {
        Ok(PersistenceState { journal, queue: Arc::default(), commit_monitor, handlers })
    }

    async fn handle(
        &self,
        me: ActorRef<PersistenceMsg>,
        message: PersistenceMsg,
        state: &mut PersistenceState,
    ) -> Result<(), ActorProcessingErr> {
        let _running = state.handlers.enter("Persistence", None);
        #[cfg(feature = "testkit")]
        let message = if is_early_ack_mutant(&message) { ack_early(message) } else { message };
        let batch = {
            let mut queue = lock(&state.queue);
            match message {
                PersistenceMsg::Write(write, reply) if is_stop_write(&write) => {
                    queue.waiting.push_front((write, reply));
                }
                PersistenceMsg::Write(write, reply) => queue.waiting.push_back((write, reply)),
                PersistenceMsg::Expedite(session) => queue.expedite(session),
                // No write can be promised any more: the supervisor ends the runtime.
                PersistenceMsg::Inner(StoreFailed(error)) => return Err(Box::new(error)),
            }
            if queue.is_committing { None } else { queue.next_batch() }
        };
        if let Some(batch) = batch {
            let (journal, queue) = (Arc::clone(&state.journal), Arc::clone(&state.queue));
            tokio::spawn(commit(journal, Arc::clone(&state.commit_monitor), queue, batch, me));
        }
        Ok(())
    }
}

impl Drop for PersistenceState {
    /// Drops the waiting writes. Their callers learn of it from the end of the runtime.
    fn drop(&mut self) {
        let waiting = std::mem::take(&mut lock(&self.queue).waiting);
        drop(waiting);
    }
}
