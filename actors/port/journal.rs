use std::{fmt::Debug, sync::Arc};

use futures::future::BoxFuture;

use crate::model::{
    AccountId, BudgetAccount, BudgetRefusal, DecodeError, DiskFull, Incarnation, LedgerChange, ModelRef,
    ModelRow, Record, RunId, RunRow, Seq, SessionId, SessionRow,
};

/// The store, as the core sees it.
///
/// Contract, checked by one suite for every implementation (`hermod_actors::testkit::journal_contract`):
/// - The writes of one [`Journal::commit`] are applied in order and become durable together. Each is checked before it
///   is written; one that is refused leaves no trace, and the others of its batch are not disturbed.
/// - When `commit` resolves with `Ok`, everything that was not refused is on disk (as far as the configured durability
///   goes). After an `Err` nothing is known, and every later commit fails too.
/// - Commits may be called one at a time only; reads at any time, and they see every commit that has resolved.
pub trait Journal: Debug + Send + Sync + 'static {
    /// Writes a batch.
    fn commit(&self, batch: Vec<WriteOp>) -> BoxFuture<'static, Result<Vec<WriteOutcome>, JournalError>>;

    /// How often this store was restored from a copy. What was begun before the last time is not begun in it: see
    /// [`Boot::Other`](super::Boot).
    fn restore_generation(&self) -> u64 {
        0
    }

    /// Reads rows.
    fn read(&self, what: Query) -> BoxFuture<'static, Result<QueryRows, ReadError>>;

    /// What the commit under way finds no room for and waits for; `None` if it does not wait so. Never blocks.
    fn disk_full(&self) -> Option<DiskFull> {
        None
    }
}

/// One write of a batch.
#[derive(Debug)]
pub enum WriteOp {
    /// Appends to a session's journal.
    Append(Box<Append>),
    /// Takes a session over: raises its incarnation, so that whatever an earlier one still sends is
    /// [`WriteRefusal::Fenced`]. A session that does not exist yet is opened the same way, and leaves no trace until its
    /// first append.
    Open(SessionId),
    /// Lets a session go, unless something waits in its inbox: whoever had it is fenced, and the store keeps nothing in
    /// memory for it until it is opened again. Refused as `Fenced` unless this is the session's latest incarnation.
    Close(SessionId, Incarnation),
    /// Puts an item into a session's inbox.
    Deliver(SessionId, InboxItem),
}

/// An append to the journal of one session, with all that belongs into the same transaction.
#[derive(Debug, Clone)]
pub struct Append {
    /// The session.
    pub session: SessionId,
    /// Who writes. Refused as `Fenced` unless it is the session's latest incarnation.
    pub fence: Incarnation,
    /// The sequence of the first record. Refused as `WrongSeq` unless it is the last one in the journal plus 1.
    pub expected: Seq,
    /// The records. Refused as `Malformed` if there are none, unless rows of the inbox are taken in that have nothing to say
    /// any more; as `Unreadable` if one of them could not be read back.
    pub records: Vec<Arc<Record>>,
    /// What changes in accounts. Refused as `BudgetRefusal` if a reservation does not fit.
    pub ledger: LedgerChange,
    /// Index rows to write.
    pub index: Vec<IndexRow>,
    /// An idempotency key and the run it stands for. Refused as `Duplicate` if the key is known.
    pub key: Option<(Arc<str>, RunId)>,
    /// Inbox rows of this session that the records take in: deleted.
    pub consumed: Vec<u64>,
    /// Items for the inboxes of other sessions.
    pub deliver: Vec<(SessionId, InboxItem)>,
    /// Sessions that begin with this append. Refused as `Malformed` if one of them has records already, is named twice, is
    /// `session` itself, or would begin without a record.
    pub spawned: Vec<SpawnedSession>,
}

/// A session that another one begins: its first records, from sequence 1 on. Nobody has opened it yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpawnedSession {
    /// The session.
    pub session: SessionId,
    /// Its records, not empty.
    pub records: Vec<Arc<Record>>,
}

impl Append {
    /// An append of `records` and nothing else.
    pub fn new(session: SessionId, fence: Incarnation, expected: Seq, records: Vec<Arc<Record>>) -> Self {
        Self {
            session,
            fence,
            expected,
            records,
            ledger: LedgerChange::default(),
            index: Vec::new(),
            key: None,
            consumed: Vec::new(),
            deliver: Vec::new(),
            spawned: Vec::new(),
        }
    }
}

/// An index row, written over the row of the same id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IndexRow {
    /// A session's. Refused as `KeyTaken` if another session has its key.
    Session(SessionRow),
    /// A run's. While its state is not `Ended`, the run is among [`Query::OpenRuns`].
    Run(Box<RunRow>),
    /// A model's: what it does not say stays as it was.
    Model(ModelRow),
}

/// What others have to say to a session: JSON that the core gives and takes.
pub type InboxItem = Arc<str>;

/// A row of an inbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxRow {
    /// Its number, growing per session.
    pub id: u64,
    /// What is said.
    pub item: InboxItem,
}

/// What became of one write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The append is on disk.
    Appended(AppendReceipt),
    /// The session is taken over.
    Opened(OpenedSession),
    /// Whether the session is let go; if not, something waits in its inbox, and it is as it was.
    Closed(bool),
    /// The item is in the inbox, in the row with this number.
    Delivered(u64),
    /// Nothing was written.
    Refused(WriteRefusal),
}

/// An append that is on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppendReceipt {
    /// The last sequence in the session's journal, after it.
    pub last: Seq,
    /// The accounts that its ledger touched, after it: the account itself first, then its ancestors.
    pub accounts: Vec<(AccountId, BudgetAccount)>,
}

/// A session that was taken over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenedSession {
    /// The incarnation to write with.
    pub incarnation: Incarnation,
    /// The last sequence in its journal; 0 if it has none.
    pub last: Seq,
    /// What waits in its inbox, as far as it can be read.
    pub inbox: Vec<InboxRow>,
    /// Why a row of its inbox cannot be read; `None` if all can.
    pub inbox_error: Option<String>,
}

/// Why a write was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteRefusal {
    /// A later incarnation has taken the session over.
    #[error("fenced: incarnation {0} has taken the session over")]
    Fenced(Incarnation),
    /// The journal does not end where the writer thought.
    #[error("the journal ends at {last}, so {expected} cannot be written")]
    WrongSeq {
        /// What the writer expected to write.
        expected: Seq,
        /// The last sequence there is.
        last: Seq,
    },
    /// A reservation does not fit.
    #[error(transparent)]
    BudgetRefusal(BudgetRefusal),
    /// The idempotency key stands for an earlier run.
    #[error("the idempotency key stands for run {0}")]
    Duplicate(RunId),
    /// Another session has the key.
    #[error("session {0} has this key")]
    KeyTaken(SessionId),
    /// A record could not be read back.
    #[error("record {kind} could not be read back: {error}")]
    Unreadable {
        /// The record's kind, by its public name.
        kind: &'static str,
        /// What the reader would say.
        error: DecodeError,
    },
    /// The write makes no sense (no records, an account that does not exist).
    #[error("malformed write: {0}")]
    Malformed(String),
}

/// Why a commit failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    /// The store does not take writes (any more): the runtime must end.
    #[error("the store takes no writes: {0}")]
    Unavailable(String),
    /// Across a network: the writes may be on disk or not.
    #[error("it is not known whether the store took the writes: {0}")]
    Ambiguous(String),
}

/// Why a read failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The store cannot be read.
    #[error("the store cannot be read: {0}")]
    Unavailable(String),
    /// One record cannot be read: its session is to be quarantined, and no other.
    #[error("record {seq} of session {session}: {error}")]
    Record {
        /// The session.
        session: SessionId,
        /// The record's sequence.
        seq: Seq,
        /// What is wrong with it.
        error: DecodeError,
    },
    /// An index row cannot be read.
    #[error("a row of {table} cannot be read: {error}")]
    Row {
        /// The table.
        table: &'static str,
        /// What is wrong.
        error: String,
    },
}

/// What to read. Lists come in the order of ids, which is that of creation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Query {
    /// Records of a session, from a sequence on, at most `max`.
    Records {
        /// The session.
        session: SessionId,
        /// The first sequence wanted.
        from: Seq,
        /// At most so many.
        max: usize,
    },
    /// The inbox of a session.
    Inbox(SessionId),
    /// One session's row.
    Session(SessionId),
    /// The row of the session with this key.
    SessionOfKey(Arc<str>),
    /// The rows of the `max` youngest sessions.
    Sessions {
        /// At most so many.
        max: usize,
    },
    /// One run's row.
    Run(RunId),
    /// The rows of the `max` youngest runs, of one session or of all.
    Runs {
        /// Only this session's.
        session: Option<SessionId>,
        /// At most so many.
        max: usize,
    },
    /// The rows of all runs that have not ended. Costs what they are, not what is stored.
    OpenRuns,
    /// The run that an idempotency key stands for.
    RunOfKey(Arc<str>),
    /// An account.
    Account(AccountId),
    /// The rows of those of these models that have one, in this order.
    Models(Vec<ModelRef>),
    /// The rows of all models, in the order of their names.
    AllModels,
}

/// What was read; the variant that belongs to the question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueryRows {
    /// For [`Query::Records`].
    Records(Vec<StoredRecord>),
    /// For [`Query::Inbox`].
    Inbox(Vec<InboxRow>),
    /// For the questions about sessions.
    Sessions(Vec<SessionRow>),
    /// For the questions about runs.
    Runs(Vec<RunRow>),
    /// For [`Query::BudgetAccount`].
    Account(Option<Box<BudgetAccount>>),
    /// For [`Query::Models`] and [`Query::AllModels`].
    Models(Vec<ModelRow>),
}

/// A record and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRecord {
    /// Its sequence.
    pub seq: Seq,
    /// The record.
    pub record: Arc<Record>,
}
