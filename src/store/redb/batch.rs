//! The writes of one transaction: appends, openings, closings and deliveries, with their rows. `validate_append` of the
//! core checks each append against this view of the store. Also [`CommitterState`]: the open sessions and their
//! incarnations.

use std::{collections::HashMap, io, sync::Arc};

use hermod_actors::{
    model::{
        self, AccountId, BudgetAccount, Incarnation, MessageRow, ModelRow, Occurrence, OccurrenceId, RunId,
        RunRow, RunState, Seq, SessionId, SessionRow,
    },
    port::{
        Append, AppendReceipt, InboxItem, InboxRow, IndexRow, OpenedSession, Posting, StoreView, WriteOp,
        WriteOutcome, WriteRefusal, fence, validate_append,
    },
};
use redb::{ReadableTable, WriteTransaction};
use serde::Serialize;

use super::{
    accounts,
    blobs::Spiller,
    error::StoreError,
    log::{self, SessionTail},
    read,
    tables::{Tables, rows_of},
};

/// What the committer keeps in memory.
#[derive(Debug)]
pub(super) struct CommitterState {
    pub(super) epoch: u64,
    /// The open sessions; only they can be appended to. (64 bytes each.)
    sessions: HashMap<SessionId, OpenSession>,
    /// Number of openings in this epoch, of all sessions together.
    /// Earlier incarnations of a closed session thus stay fenced without a counter of its own.
    revivals: u32,
    /// Rows of inboxes and of the outbox are numbered by epoch and count, so that no number repeats and no counter needs a
    /// row.
    last_row_number: u64,
    /// The last position taken in the log.
    last_position: u64,
}

#[derive(Debug, Clone, Copy)]
struct OpenSession {
    revival: u32,
    tail: SessionTail,
}

impl CommitterState {
    /// The state at the start of an epoch; `last_position` is the last position taken in the log.
    pub(super) fn new(epoch: u64, last_position: u64) -> Self {
        Self { epoch, sessions: HashMap::new(), revivals: 0, last_row_number: epoch << 32, last_position }
    }

    fn close(&mut self, session: SessionId) {
        self.sessions.remove(&session);
        if self.sessions.len() < self.sessions.capacity() / 4 {
            self.sessions.shrink_to(self.sessions.len() * 2);
        }
    }

    /// Whether the session is open in this epoch.
    pub(super) fn is_open(&self, session: SessionId) -> bool {
        self.sessions.contains_key(&session)
    }
}

/// The writes of one transaction.
pub(super) struct Batch<'t> {
    pub(super) tables: Tables<'t>,
    state: &'t mut CommitterState,
    spiller: &'t mut Spiller,
    pub(super) dirty: bool,
}

/// Why a write is not done.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(super) enum WriteAbort {
    /// Refuses this write alone.
    Refused(#[from] WriteRefusal),
    /// Fails this write and all later ones.
    Failed(#[from] StoreError),
}

pub(super) type Result<T, E = WriteAbort> = std::result::Result<T, E>;

impl From<redb::StorageError> for WriteAbort {
    fn from(error: redb::StorageError) -> Self {
        Self::Failed(error.into())
    }
}

impl<'t> Batch<'t> {
    pub(super) fn new(
        txn: &'t WriteTransaction,
        state: &'t mut CommitterState,
        spiller: &'t mut Spiller,
    ) -> Self {
        Self { tables: Tables::of(txn), state, spiller, dirty: false }
    }

    pub(super) fn write(&mut self, write: WriteOp) -> Result<WriteOutcome, StoreError> {
        let written = match write {
            WriteOp::Append(append) => self.append(*append).map(WriteOutcome::Appended),
            WriteOp::Open(session) => self.open_session(session).map(WriteOutcome::Opened),
            WriteOp::Close(session, incarnation) => {
                self.release_session(session, incarnation).map(WriteOutcome::Closed)
            }
            WriteOp::Deliver(session, item) => self.deliver(session, &item).map(WriteOutcome::Delivered),
            WriteOp::UpdateDelivery(update) => {
                self.update_delivery(&update).map(WriteOutcome::DeliveryUpdated)
            }
            WriteOp::RetryDelivery(number, now) => {
                self.retry_delivery(number, now).map(WriteOutcome::DeliveryUpdated)
            }
            WriteOp::Schedule(write) => self.write_schedule(*write).map(WriteOutcome::ScheduleWritten),
            WriteOp::RemoveSchedule(name, revision) => {
                self.remove_schedule(&name, revision).map(WriteOutcome::ScheduleWritten)
            }
        };
        written.or_else(|abort| match abort {
            WriteAbort::Refused(refusal) => Ok(WriteOutcome::Refused(refusal)),
            WriteAbort::Failed(error) => Err(error),
        })
    }

    /// Whether there is anything to commit.
    pub(super) fn has_changes(self) -> bool {
        self.dirty
    }

    fn append(&mut self, append: Append) -> Result<AppendReceipt> {
        let postings = validate_append(&append, self)?;
        self.dirty = true;
        let Append { session, records, index, key, consumed, deliver, spawned, .. } = append;
        let last = self.append_records(session, &records)?;
        for spawned in spawned {
            self.append_records(spawned.session, &spawned.records)?;
        }
        self.write_postings(&postings)?;
        for index in index {
            match index {
                IndexRow::Session(row) => self.index_session(&row)?,
                IndexRow::Run(row) => self.index_run(&row)?,
                IndexRow::Model(row) => self.index_model(row)?,
                IndexRow::Outbox(message) => self.add_message(*message)?,
                IndexRow::Message(row) => self.index_message(&row)?,
                IndexRow::Occurrence(row) => self.add_occurrences(&[row])?,
            }
        }
        if let Some((key, run)) = key {
            self.tables.keys()?.insert(&*key, run.bits())?;
        }
        for row in consumed {
            self.tables.inbox()?.remove((session.bits(), row))?;
        }
        for (session, item) in deliver {
            self.deliver(session, &item)?;
        }
        let accounts = postings.into_iter().map(|posting| (posting.id, posting.account)).collect();
        Ok(AppendReceipt { last, accounts })
    }

    /// Appends records to a session; returns its last sequence number.
    fn append_records(&mut self, session: SessionId, records: &[Arc<model::Record>]) -> Result<Seq> {
        let tail = self.tail(session)?;
        if records.is_empty() {
            return Ok(tail.last);
        }
        let spiller = &mut *self.spiller;
        let stored = records.iter().map(|record| spiller.store(model::encode(record)));
        let tail = log::append(&mut self.tables, &mut self.state.last_position, session, tail, stored)?;
        // A session that another one spawns need not be open.
        if let Some(open) = self.state.sessions.get_mut(&session) {
            open.tail = tail;
        }
        Ok(tail.last)
    }

    fn write_postings(&mut self, postings: &[Posting]) -> Result<()> {
        for posting in postings.iter().filter(|posting| posting.is_changed) {
            let row = accounts::encode(&posting.account);
            self.tables.accounts()?.insert(posting.id.bits(), &*row)?;
        }
        Ok(())
    }

    fn index_session(&mut self, row: &SessionRow) -> Result<()> {
        let (id, value) = (row.id.bits(), json(row));
        // An unreadable row is overwritten; its old key continues to refer to the session.
        let previous = {
            let previous = self.tables.sessions()?.insert(id, &*self.spiller.store(value)?)?;
            previous.and_then(|previous| self.spiller.blobs.json::<SessionRow>(previous.value()).ok())
        };
        let keys = self.tables.session_keys()?;
        if let Some(previous) = previous.filter(|previous| previous.key != row.key) {
            keys.remove(&*previous.key)?;
        }
        keys.insert(&*row.key, id)?;
        Ok(())
    }

    fn index_run(&mut self, row: &RunRow) -> Result<()> {
        let (id, value) = (row.id.bits(), json(row));
        let is_new = self.tables.runs()?.insert(id, &*self.spiller.store(value)?)?.is_none();
        if is_new {
            self.tables.runs_by_session()?.insert((row.session.bits(), id), ())?;
        }
        let open_runs = self.tables.open_runs()?;
        match row.state {
            // The key is removed even if the run had no row: a run whose row was lost is still listed.
            RunState::Ended => drop(open_runs.remove(id)?),
            RunState::Queued | RunState::Running | RunState::Parked => {
                if open_runs.get(id)?.is_none() {
                    open_runs.insert(id, ())?;
                }
            }
        }
        Ok(())
    }

    fn index_message(&mut self, row: &MessageRow) -> Result<()> {
        let (id, value) = (row.id.bits(), json(row));
        let is_new = self.tables.messages()?.insert(id, &*self.spiller.store(value)?)?.is_none();
        if is_new {
            self.tables.messages_by_session()?.insert((row.session.bits(), id), ())?;
        }
        Ok(())
    }

    /// An unreadable row is overwritten.
    fn index_model(&mut self, row: ModelRow) -> Result<()> {
        let (name, models) = (row.model.to_string(), self.tables.models()?);
        let previous = models.get(&*name)?.and_then(|previous| serde_json::from_slice(previous.value()).ok());
        models.insert(&*name, &*json(&row.merged_over(previous)))?;
        Ok(())
    }

    /// The number of a new row of an inbox or the outbox.
    pub(super) fn next_row_number(&mut self) -> u64 {
        self.state.last_row_number = self.state.last_row_number.saturating_add(1);
        self.state.last_row_number
    }

    fn deliver(&mut self, session: SessionId, item: &InboxItem) -> Result<u64> {
        self.dirty = true;
        let row = self.next_row_number();
        let value = self.spiller.store(item.as_bytes())?;
        self.tables.inbox()?.insert((session.bits(), row), &*value)?;
        Ok(row)
    }

    fn open_session(&mut self, session: SessionId) -> Result<OpenedSession> {
        let (inbox, inbox_error) = self.inbox(session)?;
        let tail = self.tail(session)?;
        // At the limit the store fails; the next process starts a new epoch.
        let revival = self.state.revivals.checked_add(1).ok_or_else(|| {
            let error = "sessions were opened too often; start the process again";
            StoreError::from(redb::Error::Io(io::Error::other(error)))
        })?;
        self.state.revivals = revival;
        self.state.sessions.insert(session, OpenSession { revival, tail });
        let incarnation = Incarnation { epoch: self.state.epoch, revival };
        Ok(OpenedSession { incarnation, last: tail.last, inbox, inbox_error })
    }

    fn release_session(&mut self, session: SessionId, incarnation: Incarnation) -> Result<bool> {
        fence(session, incarnation, self)?;
        let has_message = self.tables.inbox()?.range(rows_of(session))?.next().transpose()?.is_some();
        if !has_message {
            self.state.close(session);
        }
        Ok(!has_message)
    }

    fn tail(&mut self, session: SessionId) -> Result<SessionTail> {
        if let Some(open) = self.state.sessions.get(&session) {
            return Ok(open.tail);
        }
        Ok(SessionTail::read(self.tables.tails()?, session)?.unwrap_or_default())
    }

    /// The readable rows, and the error of the last unreadable one.
    fn inbox(&mut self, session: SessionId) -> Result<(Vec<InboxRow>, Option<String>)> {
        let (mut rows, mut unreadable) = (Vec::new(), None);
        for row in self.tables.inbox()?.range(rows_of(session))? {
            let (key, value) = row?;
            let id = key.value().1;
            match read::inbox_item(&self.spiller.blobs, value.value()) {
                Ok(item) => rows.push(InboxRow { id, item }),
                Err(error) => {
                    let error = error.into_text();
                    unreadable = Some(format!("row {id} of the inbox of {session} cannot be read: {error}"));
                }
            }
        }
        Ok((rows, unreadable))
    }
}

impl StoreView for Batch<'_> {
    type Error = WriteAbort;

    fn latest_incarnation(&mut self, session: SessionId) -> Result<Incarnation> {
        let revival = self.state.sessions.get(&session).map_or(0, |open| open.revival);
        Ok(Incarnation { epoch: self.state.epoch, revival })
    }

    fn last_seq(&mut self, session: SessionId) -> Result<Seq> {
        Ok(self.tail(session)?.last)
    }

    fn run_of_key(&mut self, key: &str) -> Result<Option<RunId>> {
        Ok(self.tables.keys()?.get(key)?.map(|run| RunId::from_bits(run.value())))
    }

    fn session_of_key(&mut self, key: &str) -> Result<Option<SessionId>> {
        Ok(self.tables.session_keys()?.get(key)?.map(|id| SessionId::from_bits(id.value())))
    }

    fn has_inbox_row(&mut self, session: SessionId, row: u64) -> Result<bool> {
        Ok(self.tables.inbox()?.get((session.bits(), row))?.is_some())
    }

    fn occurrence(&mut self, id: &OccurrenceId) -> Result<Option<Occurrence>> {
        self.occurrence_row(id)
    }

    fn account(&mut self, id: AccountId) -> Result<Option<BudgetAccount>> {
        let Some(row) = self.tables.accounts()?.get(id.bits())? else { return Ok(None) };
        let account = accounts::decode(row.value()).map_err(|error| {
            WriteRefusal::Malformed(format!("the row of account {id} cannot be read: {error}"))
        })?;
        Ok(Some(account))
    }
}

pub(super) fn json(row: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(row).expect("a row is a struct with named fields, written to memory")
}
