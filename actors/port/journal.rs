//! Port of the store: the traits that commit and read, and their errors. Assumes no storage engine and no single
//! machine. The writes and their outcomes are in `core/journal`.

use std::fmt::Debug;

use futures::future::BoxFuture;
use hermod_core::journal::{InboxRow, StoredRecord, WriteOp, WriteOutcome};

use super::feed::{FeedCursor, FeedEntry};
use crate::model::{
    AccountId, BudgetAccount, DecodeError, DeliveryQuery, DiskFull, MessageRow, ModelRef, ModelRow,
    Occurrence, OccurrenceId, OccurrenceQuery, RunId, RunRow, Schedule, ScheduleName, Seq, SessionId,
    SessionRow, StoredDelivery,
};

/// The store, as the core sees it.
///
/// Contract, checked by one suite for every implementation (`hermod_testkit::journal_contract`):
/// - The writes of one [`Journal::commit`] are applied in order and become durable together. Each write is checked
///   before it is applied; a refused write leaves no trace and does not affect the others of its batch.
/// - When `commit` returns `Ok`, every write that was not refused is on disk, as far as the configured durability goes.
///   After an `Err` the result is unknown, and every later commit fails too.
/// - Commits are called one at a time. Reads may run at any time and see every commit that has returned.
pub trait Journal: Debug + Send + Sync + 'static {
    /// Commits a batch; the outcomes are in the order of the writes.
    fn commit(&self, batch: Vec<WriteOp>) -> BoxFuture<'static, Result<Vec<WriteOutcome>, JournalError>>;

    /// The number of restores of this store from a backup. A call started before the last restore counts as started on
    /// another boot; see [`Boot::Other`](super::Boot).
    fn restore_generation(&self) -> u64 {
        0
    }

    /// Reads at most `max` records of a session, from the sequence `from` on. Sees every commit that has returned.
    fn records(&self, session: SessionId, from: Seq, max: usize) -> ReadFuture<Vec<StoredRecord>>;

    /// The reader of all rows but the records.
    fn rows(&self) -> &dyn RowReader;

    /// The missing disk space that the current commit waits for; `None` if it does not wait. Never blocks.
    fn disk_full(&self) -> Option<DiskFull> {
        None
    }
}

/// The answer of a read.
pub type ReadFuture<T> = BoxFuture<'static, Result<T, ReadError>>;

/// Reads the rows of a store: indexes, inboxes, accounts, models. Sees every commit that has returned.
///
/// Lists are in the order of the ids, which is the order of creation.
pub trait RowReader: Send + Sync {
    /// The inbox of a session.
    fn inbox(&self, session: SessionId) -> ReadFuture<Vec<InboxRow>>;

    /// One session's row.
    fn session(&self, id: SessionId) -> ReadFuture<Option<SessionRow>>;

    /// The row of the session with this key.
    fn session_of_key(&self, key: &str) -> ReadFuture<Option<SessionRow>>;

    /// The rows of the `max` newest sessions.
    fn sessions(&self, max: usize) -> ReadFuture<Vec<SessionRow>>;

    /// The rows of the `max` newest sessions that are older than `before`, in the order of their opening.
    fn sessions_before(&self, before: SessionId, max: usize) -> ReadFuture<Vec<SessionRow>>;

    /// One run's row.
    fn run(&self, id: RunId) -> ReadFuture<Option<RunRow>>;

    /// The row of the run with this idempotency key.
    fn run_of_key(&self, key: &str) -> ReadFuture<Option<RunRow>>;

    /// The run or message with this idempotency key.
    fn id_of_key(&self, key: &str) -> ReadFuture<Option<RunId>>;

    /// The row of a message; `None` for one that became a run of its own.
    fn message(&self, id: RunId) -> ReadFuture<Option<MessageRow>>;

    /// The rows of the `max` newest runs, of one session or of all.
    fn runs(&self, session: Option<SessionId>, max: usize) -> ReadFuture<Vec<RunRow>>;

    /// The rows of the `max` newest runs that are older than `before`, in the order of acceptance.
    fn runs_before(&self, before: RunId, max: usize) -> ReadFuture<Vec<RunRow>>;

    /// The rows of all runs that have not ended. The cost depends on their number, not on the size of the store.
    fn open_runs(&self) -> ReadFuture<Vec<RunRow>>;

    /// A budget account.
    fn account(&self, id: AccountId) -> ReadFuture<Option<BudgetAccount>>;

    /// The rows of these models, in this order; models without a row are left out.
    fn models(&self, models: Vec<ModelRef>) -> ReadFuture<Vec<ModelRow>>;

    /// The rows of all models, in the order of their names.
    fn all_models(&self) -> ReadFuture<Vec<ModelRow>>;

    /// Deliveries, in the order of their numbers. Rows that cannot be read are left out.
    fn deliveries(&self, query: DeliveryQuery) -> ReadFuture<Vec<StoredDelivery>>;

    /// All schedules, in the order of their names. Rows that cannot be read are left out.
    fn schedules(&self) -> ReadFuture<Vec<Schedule>>;

    /// One schedule.
    fn schedule(&self, name: ScheduleName) -> ReadFuture<Option<Schedule>>;

    /// The row of an occurrence.
    fn occurrence(&self, id: OccurrenceId) -> ReadFuture<Option<Occurrence>>;

    /// Occurrences, the newest first. Those of the same time are in the reverse order of their schedules' names. Rows that
    /// cannot be read are left out.
    fn occurrences(&self, query: OccurrenceQuery) -> ReadFuture<Vec<Occurrence>>;

    /// Entries of the feed after a place, in their order; at most `max`, and none only if there are no more. The records
    /// of removed sessions are left out.
    fn feed(&self, after: FeedCursor, max: usize) -> ReadFuture<Vec<FeedEntry>>;

    /// The place behind the last record.
    fn feed_end(&self) -> ReadFuture<FeedCursor>;
}

/// Why a commit failed as a whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    /// The store accepts no more writes; the runtime must end.
    #[error("the store takes no writes: {0}")]
    Unavailable(String),
    /// For a store across a network: the writes may or may not be on disk.
    #[error("it is not known whether the store took the writes: {0}")]
    Ambiguous(String),
}

/// Why a read failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The store cannot be read.
    #[error("the store cannot be read: {0}")]
    Unavailable(String),
    /// One record cannot be read; only its session is quarantined.
    #[error("record {seq} of session {session}: {error}")]
    Record {
        /// The session.
        session: SessionId,
        /// The record's sequence.
        seq: Seq,
        /// The decoding error.
        error: DecodeError,
    },
    /// An index row cannot be read.
    #[error("a row of {table} cannot be read: {error}")]
    Row {
        /// The table of the row.
        table: &'static str,
        /// The error, as text.
        error: String,
    },
}
