//! Reads of one snapshot. A short read runs in the calling task, within a limit of bytes. A longer one is repeated on a
//! blocking thread, without that limit.

use std::{ops::RangeBounds, str, sync::Arc};

use hermod_actors::{
    model::{
        AccountId, BudgetAccount, DecodeError, MessageRow, ModelRef, ModelRow, Record, RunId, RunRow, Seq,
        SessionId, SessionRow, decode,
    },
    port::{InboxItem, InboxRow, ReadError, StoredRecord},
};
use redb::{
    AccessGuard, Range, ReadOnlyTable, ReadTransaction, ReadableTable, StorageError, TableDefinition,
};
use serde::de::DeserializeOwned;

use super::{
    accounts,
    blobs::{BlobError, Blobs},
    engine::EngineFile,
    error::StoreError,
    log::{LogRow, SessionTail},
    tables::{
        ACCOUNTS, INBOX, KEYS, LOG, MARKS, MESSAGES, MODELS, OPEN_RUNS, RUNS, RUNS_BY_SESSION, SESSION_KEYS,
        SESSIONS, TAILS, rows_of, runs_of,
    },
};

/// Limits of a short read. 64 KiB of rows are read and decoded within 0.2 ms. A read of more than 256 records exceeds
/// that, so it is not tried.
const INLINE_READ_BYTES: usize = 64 * 1024;
const INLINE_READ_RECORDS: Seq = 256;

/// Maximum distance at which a row is reached by stepping: it usually is on the same page. A lookup costs as much as
/// ten steps.
const SCAN_DISTANCE: u64 = 8;

/// Reads rows of the log in descending order of position.
struct ReverseCursor {
    log: ReadOnlyTable<u64, &'static [u8]>,
    /// The position of the last read.
    position: u64,
    /// The rows before it, while the cursor steps.
    range: Option<Range<'static, u64, &'static [u8]>>,
}

/// An index row as stored.
type StoredValue<'t> = AccessGuard<'t, &'static [u8]>;

/// A log row with its position.
type PositionedRow = (u64, AccessGuard<'static, &'static [u8]>);

/// Why a read ends early.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadAbort {
    /// The read would block the calling task for too long.
    #[error("a read without a limit met one")]
    TooLong,
    /// The read failed.
    #[error(transparent)]
    Failed(#[from] ReadError),
    /// The engine failed.
    #[error(transparent)]
    Engine(StoreError),
}

pub(super) type Result<T, E = ReadAbort> = std::result::Result<T, E>;

/// Reads one snapshot.
#[derive(Debug)]
pub(super) struct SnapshotReader {
    pub(super) txn: ReadTransaction,
    pub(super) blobs: Blobs,
    pub(super) file: EngineFile,
    /// Bytes that may still be read; `None` without a limit.
    remaining_bytes: Option<usize>,
}

impl SnapshotReader {
    pub(super) fn new(txn: ReadTransaction, blobs: Blobs, file: EngineFile) -> Self {
        Self { txn, blobs, file, remaining_bytes: None }
    }

    /// Reads within the limits of a short read, otherwise fails with [`ReadAbort::TooLong`].
    pub(super) fn read_short<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.remaining_bytes = Some(INLINE_READ_BYTES);
        self.guarded(read)
    }

    /// Reads without a limit.
    pub(super) fn read<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T, ReadError> {
        self.remaining_bytes = None;
        self.guarded(read).map_err(ReadError::from)
    }

    /// Reads; a panic of the engine fails this read alone.
    fn guarded<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let file = self.file.clone();
        let read = file.catch(|| read(self)).unwrap_or_else(|error| Err(ReadAbort::Engine(error)));
        match read {
            Err(ReadAbort::Engine(error)) => Err(ReadAbort::Engine(file.explain(error))),
            read => read,
        }
    }

    /// At most `max` records, from the record number `from` on. Damage that the engine meets affects this session
    /// alone.
    pub(super) fn records(&mut self, session: SessionId, from: Seq, max: usize) -> Result<Vec<StoredRecord>> {
        match self.guarded(|rows| rows.log_records(session, from, max)) {
            Err(ReadAbort::Engine(error @ StoreError::Damaged { .. })) => {
                Err(damaged(session, from, error.to_string()))
            }
            read => read,
        }
    }

    fn log_records(&mut self, session: SessionId, from: Seq, max: usize) -> Result<Vec<StoredRecord>> {
        // The first record has number 1.
        let from = from.max(1);
        let end = from.saturating_add(u64::try_from(max).unwrap_or(u64::MAX));
        let rows = self.rows_between(session, from, end)?;
        // An append usually has two or three records.
        let mut records = Vec::with_capacity(rows.len().saturating_mul(3).min(max));
        for (position, bytes) in rows.iter().rev() {
            let row = LogRow::parse(session, *position, bytes.value());
            let row = row.map_err(|why| damaged(session, from, why))?;
            for (seq, stored) in row.records().filter(|(seq, _)| (from..end).contains(seq)) {
                let stored = stored.map_err(|why| damaged(session, seq, why))?;
                records.push(StoredRecord { seq, record: Arc::new(self.record(session, seq, stored)?) });
            }
        }
        Ok(records)
    }

    /// The log rows with records of this range, perhaps with some after it; the last row first.
    fn rows_between(&mut self, session: SessionId, from: Seq, end: Seq) -> Result<Vec<PositionedRow>> {
        let bits = session.bits();
        let mut rows = Vec::new();
        let Some(tail) = SessionTail::read(&self.open(TAILS)?, session)? else {
            let has_run = self.open(RUNS_BY_SESSION)?.range(runs_of(session))?.next();
            return match has_run.transpose()? {
                Some(_) => Err(damaged(session, from, "nothing says where the session ends".to_owned())),
                None => Ok(rows),
            };
        };
        if self.remaining_bytes.is_some() && end.min(tail.last).saturating_sub(from) > INLINE_READ_RECORDS {
            return Err(ReadAbort::TooLong);
        }
        let mark = self.open(MARKS)?.range((bits, end.saturating_sub(1))..=(bits, Seq::MAX))?.next();
        let mark = mark.transpose()?.map(|(_, position)| position.value());
        let mut log = ReverseCursor { log: self.open(LOG)?, position: u64::MAX, range: None };
        let (mut position, mut seq) = (mark.unwrap_or(tail.position), tail.last);
        while position != 0 && from <= seq {
            let missing = || damaged(session, seq, format!("row {position} of the log is missing"));
            let row = log.row(position)?.ok_or_else(missing)?;
            self.spend(row.value())?;
            let LogRow { first, previous, .. } =
                LogRow::parse(session, position, row.value()).map_err(|why| damaged(session, seq, why))?;
            rows.push((position, row));
            (position, seq) = (previous, first.saturating_sub(1));
        }
        Ok(rows)
    }

    pub(super) fn record(&mut self, session: SessionId, seq: Seq, stored: &[u8]) -> Result<Record> {
        if Blobs::is_spilled(stored) && self.remaining_bytes.is_some() {
            return Err(ReadAbort::TooLong);
        }
        match self.blobs.resolve(stored) {
            Ok(value) => Ok(decode(&value).map_err(|error| ReadError::Record { session, seq, error })?),
            Err(BlobError::Lost(why)) => Err(damaged(session, seq, why)),
            Err(BlobError::System(why)) => Err(ReadError::Unavailable(why).into()),
        }
    }

    pub(super) fn inbox(&mut self, session: SessionId) -> Result<Vec<InboxRow>> {
        let mut rows = Vec::new();
        for row in self.open(INBOX)?.range(rows_of(session))? {
            let (key, stored) = row?;
            self.spend(stored.value())?;
            let item = inbox_item(&self.blobs, stored.value()).map_err(|error| unreadable("inbox", error))?;
            rows.push(InboxRow { id: key.value().1, item });
        }
        Ok(rows)
    }

    pub(super) fn session(&mut self, id: SessionId) -> Result<Option<SessionRow>> {
        let row = self.open(SESSIONS)?.get(id.bits())?;
        row.map(|row| self.session_row(id.bits(), &row)).transpose()
    }

    pub(super) fn run(&mut self, id: RunId) -> Result<Option<RunRow>> {
        match self.open(RUNS)?.get(id.bits())? {
            Some(row) => self.run_row(id.bits(), &row).map(Some),
            // Substitutes the row of an unfinished run only, so that lookups of unknown runs stay cheap.
            None if self.open(OPEN_RUNS)?.get(id.bits())?.is_some() => {
                self.lost_run(id.bits(), format!("run {id} has no row")).map(Some)
            }
            None => Ok(None),
        }
    }

    pub(super) fn session_of_key(&mut self, key: &str) -> Result<Option<SessionRow>> {
        let id = self.open(SESSION_KEYS)?.get(key)?.map(|id| SessionId::from_bits(id.value()));
        id.map_or(Ok(None), |id| self.session(id))
    }

    pub(super) fn run_of_key(&mut self, key: &str) -> Result<Option<RunRow>> {
        let id = self.open(KEYS)?.get(key)?.map(|id| RunId::from_bits(id.value()));
        id.map_or(Ok(None), |id| self.run(id))
    }

    pub(super) fn id_of_key(&mut self, key: &str) -> Result<Option<RunId>> {
        Ok(self.open(KEYS)?.get(key)?.map(|id| RunId::from_bits(id.value())))
    }

    pub(super) fn message(&mut self, id: RunId) -> Result<Option<MessageRow>> {
        let Some(stored) = self.open(MESSAGES)?.get(id.bits())? else { return Ok(None) };
        self.spend(stored.value())?;
        let row = self.blobs.json::<MessageRow>(stored.value());
        Ok(Some(row.map_err(|error| unreadable("messages", error))?))
    }

    pub(super) fn sessions(&mut self, max: usize) -> Result<Vec<SessionRow>> {
        self.newest_rows(SESSIONS, .., max, Self::session_row)
    }

    pub(super) fn sessions_before(&mut self, before: SessionId, max: usize) -> Result<Vec<SessionRow>> {
        self.newest_rows(SESSIONS, ..before.bits(), max, Self::session_row)
    }

    pub(super) fn runs_before(&mut self, before: RunId, max: usize) -> Result<Vec<RunRow>> {
        self.newest_rows(RUNS, ..before.bits(), max, Self::run_row)
    }

    pub(super) fn runs(&mut self, session: Option<SessionId>, max: usize) -> Result<Vec<RunRow>> {
        let Some(session) = session else { return self.newest_rows(RUNS, .., max, Self::run_row) };
        let mut ids = Vec::new();
        for row in self.open(RUNS_BY_SESSION)?.range(runs_of(session))?.rev().take(max) {
            ids.push(row?.0.value().1);
        }
        ids.reverse();
        self.runs_with_ids(ids)
    }

    fn newest_rows<T>(
        &mut self,
        table: TableDefinition<u128, &'static [u8]>,
        ids: impl RangeBounds<u128>,
        max: usize,
        row: impl Fn(&mut Self, u128, &StoredValue<'_>) -> Result<T>,
    ) -> Result<Vec<T>> {
        let mut rows = Vec::new();
        let table = self.open(table)?;
        for stored in table.range(ids)?.rev().take(max) {
            let (id, stored) = stored?;
            rows.push(row(self, id.value(), &stored)?);
        }
        rows.reverse();
        Ok(rows)
    }

    /// A session's row. An unreadable row is substituted from other tables, so that it does not hide other sessions.
    fn session_row(&mut self, id: u128, stored: &StoredValue<'_>) -> Result<SessionRow> {
        match self.json("sessions", stored) {
            Err(ReadAbort::Failed(ReadError::Row { .. })) => self.lost_session(id),
            row => row,
        }
    }

    fn run_row(&mut self, id: u128, stored: &StoredValue<'_>) -> Result<RunRow> {
        match self.json("runs", stored) {
            Err(ReadAbort::Failed(error @ ReadError::Row { .. })) => self.lost_run(id, error.to_string()),
            row => row,
        }
    }

    pub(super) fn open_runs(&mut self) -> Result<Vec<RunRow>> {
        let mut ids = Vec::new();
        for row in self.open(OPEN_RUNS)?.iter()? {
            ids.push(row?.0.value());
        }
        self.runs_with_ids(ids)
    }

    /// The rows of runs that an index names; missing rows are substituted.
    fn runs_with_ids(&mut self, ids: Vec<u128>) -> Result<Vec<RunRow>> {
        let runs = self.open(RUNS)?;
        let row = |id| match runs.get(id)? {
            Some(row) => self.run_row(id, &row),
            None => self.lost_run(id, format!("run {} has no row", RunId::from_bits(id))),
        };
        ids.into_iter().map(row).collect()
    }

    pub(super) fn account(&mut self, id: AccountId) -> Result<Option<BudgetAccount>> {
        let Some(row) = self.open(ACCOUNTS)?.get(id.bits())? else { return Ok(None) };
        let account = accounts::decode(row.value())
            .map_err(|error| ReadError::Row { table: "accounts", error: format!("{id}: {error}") })?;
        Ok(Some(account))
    }

    pub(super) fn all_models(&mut self) -> Result<Vec<ModelRow>> {
        let (table, mut rows) = (self.open(MODELS)?, Vec::new());
        for row in table.iter()? {
            rows.push(self.json("models", &row?.1)?);
        }
        Ok(rows)
    }

    pub(super) fn models(&mut self, models: &[ModelRef]) -> Result<Vec<ModelRow>> {
        let (table, mut rows) = (self.open(MODELS)?, Vec::new());
        for model in models {
            if let Some(row) = table.get(&*model.to_string())? {
                rows.push(self.json("models", &row)?);
            }
        }
        Ok(rows)
    }

    fn json<T: DeserializeOwned>(&mut self, table: &'static str, row: &StoredValue<'_>) -> Result<T> {
        self.spend(row.value())?;
        self.blobs.json(row.value()).map_err(|error| unreadable(table, error).into())
    }

    pub(super) fn open<K: redb::Key, V: redb::Value>(
        &self,
        table: TableDefinition<K, V>,
    ) -> Result<ReadOnlyTable<K, V>> {
        self.txn.open_table(table).map_err(|error| ReadAbort::Engine(error.into()))
    }

    /// Subtracts a stored value from the limit of a short read. A blob exceeds the limit, because it is a file.
    pub(super) fn spend(&mut self, stored: &[u8]) -> Result<()> {
        let Some(remaining) = &mut self.remaining_bytes else { return Ok(()) };
        match remaining.checked_sub(stored.len()) {
            Some(rest) if !Blobs::is_spilled(stored) => *remaining = rest,
            Some(_) | None => return Err(ReadAbort::TooLong),
        }
        Ok(())
    }
}

impl ReverseCursor {
    /// The row at a position, which must be below those of earlier calls.
    fn row(&mut self, position: u64) -> Result<Option<AccessGuard<'static, &'static [u8]>>, StorageError> {
        let is_far = self.position.saturating_sub(position) > SCAN_DISTANCE;
        self.position = position;
        if is_far {
            self.range = None;
            return self.log.get(position);
        }
        let range = match &mut self.range {
            Some(range) => range,
            None => self.range.insert(self.log.range(..=position)?),
        };
        while let Some(row) = range.next_back() {
            let (found, row) = row?;
            if found.value() <= position {
                return Ok((found.value() == position).then_some(row));
            }
        }
        Ok(None)
    }
}

/// The message of an inbox row.
pub(super) fn inbox_item(blobs: &Blobs, stored: &[u8]) -> Result<InboxItem, BlobError> {
    let value = blobs.resolve(stored)?;
    str::from_utf8(&value).map(InboxItem::from).map_err(|error| BlobError::Lost(error.to_string()))
}

fn unreadable(table: &'static str, error: BlobError) -> ReadError {
    match error {
        BlobError::Lost(error) => ReadError::Row { table, error },
        BlobError::System(error) => ReadError::Unavailable(error),
    }
}

/// The error of an index row that cannot be read.
pub(super) fn unreadable_row(table: &'static str, error: String) -> ReadAbort {
    ReadError::Row { table, error }.into()
}

fn damaged(session: SessionId, seq: Seq, why: String) -> ReadAbort {
    ReadError::Record { session, seq, error: DecodeError::Malformed(why) }.into()
}

impl From<ReadAbort> for ReadError {
    fn from(abort: ReadAbort) -> Self {
        match abort {
            ReadAbort::Failed(error) => error,
            ReadAbort::Engine(_) | ReadAbort::TooLong => Self::Unavailable(abort.to_string()),
        }
    }
}

impl From<StorageError> for ReadAbort {
    fn from(error: StorageError) -> Self {
        Self::Engine(error.into())
    }
}
