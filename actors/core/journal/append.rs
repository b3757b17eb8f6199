//! The writes of a journal and their outcomes: data only, so that decisions and stores need no common code.
//! `validate.rs` checks an append.

use std::sync::Arc;

use crate::model::{
    AccountId, BudgetAccount, BudgetRefusal, DecodeError, Incarnation, LedgerChange, MessageRow, ModelRow,
    Occurrence, OccurrenceId, OutboxMessage, Record, RunId, RunRow, ScheduleName, ScheduleOutcome,
    ScheduleWrite, Seq, SessionId, SessionRow, StoredDelivery, Timestamp,
};

/// One write of a batch.
#[derive(Debug)]
pub enum WriteOp {
    /// Appends to a session's journal.
    Append(Box<Append>),
    /// Opens a session and raises its incarnation; later writes of earlier incarnations are refused as
    /// [`WriteRefusal::Fenced`]. A session that does not exist yet is opened the same way and leaves no trace until its
    /// first append.
    Open(SessionId),
    /// Closes a session unless its inbox has rows: its incarnation is fenced, and the store forgets its in-memory state
    /// until the next open. Refused as `Fenced` unless the incarnation is the session's latest.
    Close(SessionId, Incarnation),
    /// Puts an item into a session's inbox.
    Deliver(SessionId, InboxItem),
    /// Replaces the pending delivery with this number; in another state it leaves the outbox. Of delivered ones the store
    /// keeps only the last [`KEPT_DELIVERIES`].
    UpdateDelivery(Box<StoredDelivery>),
    /// Makes the dead delivery with this number pending again, behind all others of its target.
    RetryDelivery(u64, Timestamp),
    /// Creates or replaces a schedule. Of the occurrences of each schedule the store keeps the newest
    /// [`KEPT_OCCURRENCES`](crate::model::KEPT_OCCURRENCES).
    Schedule(Box<ScheduleWrite>),
    /// Removes the schedule if it has this revision. The rows of its occurrences stay.
    RemoveSchedule(ScheduleName, u64),
}

/// Number of delivered messages that a store remembers.
pub const KEPT_DELIVERIES: u64 = 10_000;

/// An append to one session's journal, with everything that belongs to the same transaction.
#[derive(Debug, Clone)]
pub struct Append {
    /// The session.
    pub session: SessionId,
    /// The writer's incarnation. Refused as `Fenced` unless it is the session's latest.
    pub fence: Incarnation,
    /// The sequence number of the first record. Refused as `WrongSeq` unless it is the journal's last sequence number
    /// plus 1.
    pub expected: Seq,
    /// The records. Refused as `Malformed` if empty, unless `consumed` names rows of the inbox that need no record any
    /// more. Refused as `Unreadable` if a record cannot be decoded again.
    pub records: Vec<Arc<Record>>,
    /// Changes of budget accounts. Refused as `BudgetRefusal` if a reservation exceeds a limit.
    pub ledger: LedgerChange,
    /// Index rows to write.
    pub index: Vec<IndexRow>,
    /// An idempotency key and its run or message. Refused as `Duplicate` if the key is known.
    pub key: Option<(Arc<str>, RunId)>,
    /// Inbox rows of this session that the records consume; the append deletes them.
    pub consumed: Vec<u64>,
    /// Items for the inboxes of other sessions.
    pub deliver: Vec<(SessionId, InboxItem)>,
    /// Sessions that this append creates. Refused as `Malformed` if one of them already has records, occurs twice, is
    /// `session` itself, or has no records.
    pub spawned: Vec<SpawnedSession>,
}

/// A session created by another session's append: its first records, from sequence 1. No incarnation has opened it yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpawnedSession {
    /// The session.
    pub session: SessionId,
    /// Its first records; not empty.
    pub records: Vec<Arc<Record>>,
}

impl Append {
    /// Whether it has neither records nor consumed inbox rows. Nothing else is written without one of these.
    pub const fn is_empty(&self) -> bool {
        self.records.is_empty() && self.consumed.is_empty()
    }

    /// An append of `records` without any other change.
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

/// An index row. It replaces the stored row of the same session or run; a model's row is merged, a message is added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IndexRow {
    /// A session's row. Refused as `KeyTaken` if another session has its key.
    Session(SessionRow),
    /// A run's row. The run is among the open runs until its state is `Ended`.
    Run(Box<RunRow>),
    /// A model's row; its absent fields keep their stored values.
    Model(ModelRow),
    /// A message for the outbox, behind all others of its target.
    Outbox(Box<OutboxMessage>),
    /// A message's row.
    Message(MessageRow),
    /// The row of an occurrence whose run the append accepts. Refused as `Duplicate` if the occurrence has a run, and as
    /// `OccurrenceLeftOut` if it has another row.
    Occurrence(Occurrence),
}

/// An inbox message as JSON; the core writes and parses it.
pub type InboxItem = Arc<str>;

/// A row of an inbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxRow {
    /// Row number, ascending within the session.
    pub id: u64,
    /// The message.
    pub item: InboxItem,
}

/// The result of one write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The append is on disk.
    Appended(AppendReceipt),
    /// The session is open.
    Opened(OpenedSession),
    /// True if the session is closed. False if its inbox has rows; then the session is unchanged.
    Closed(bool),
    /// The item is in the inbox, in the row with this number.
    Delivered(u64),
    /// True if the delivery was there in the expected state. Otherwise nothing was changed.
    DeliveryUpdated(bool),
    /// What became of the write of a schedule, or of its removal.
    ScheduleWritten(ScheduleOutcome),
    /// Nothing was written.
    Refused(WriteRefusal),
}

/// An append that is on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppendReceipt {
    /// The journal's last sequence after the append.
    pub last: Seq,
    /// The accounts that the ledger names and all their ancestors, with their new state. Each stands before its ancestors,
    /// and only once.
    pub accounts: Vec<(AccountId, BudgetAccount)>,
}

/// The result of opening a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenedSession {
    /// The session's new incarnation, which its writes have to carry.
    pub incarnation: Incarnation,
    /// The journal's last sequence; 0 if it is empty.
    pub last: Seq,
    /// The rows of its inbox that can be read.
    pub inbox: Vec<InboxRow>,
    /// The error of a row of its inbox that cannot be read; `None` if all can.
    pub inbox_error: Option<String>,
}

/// Why one write of a batch was refused; the others are not affected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteRefusal {
    /// A later incarnation owns the session.
    #[error("fenced: incarnation {0} has taken the session over")]
    Fenced(Incarnation),
    /// The journal does not end at the sequence that the writer expected.
    #[error("the journal ends at {last}, so {expected} cannot be written")]
    WrongSeq {
        /// The sequence of the writer's first record.
        expected: Seq,
        /// The journal's last sequence.
        last: Seq,
    },
    /// A reservation exceeds a limit.
    #[error(transparent)]
    BudgetRefusal(BudgetRefusal),
    /// The idempotency key or the occurrence belongs to an earlier run.
    #[error("the idempotency key or the occurrence stands for run {0}")]
    Duplicate(RunId),
    /// The occurrence was missed or skipped.
    #[error("the occurrence {0} was left out")]
    OccurrenceLeftOut(OccurrenceId),
    /// Another session has the session key.
    #[error("session {0} has this key")]
    KeyTaken(SessionId),
    /// A record could not be decoded again.
    #[error("record {kind} could not be read back: {error}")]
    Unreadable {
        /// The record's kind, by its public name.
        kind: &'static str,
        /// The error of decoding it.
        error: DecodeError,
    },
    /// The write is invalid: for example, it has no records, or changes an account that does not exist.
    #[error("malformed write: {0}")]
    Malformed(String),
}

/// A record and its sequence number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRecord {
    /// Its sequence.
    pub seq: Seq,
    /// The record.
    pub record: Arc<Record>,
}
