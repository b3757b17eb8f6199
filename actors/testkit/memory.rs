//! The journal in memory: the reference adapter for tests. No I/O.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::{
    FutureExt,
    future::{BoxFuture, ready},
};

use hermod_actors::{
    model::{
        AccountId, BudgetAccount, Delivery, DeliveryQuery, DeliveryState, Incarnation, KEPT_OCCURRENCES,
        MAX_SCHEDULES, MessageRow, ModelRef, ModelRow, Occurrence, OccurrenceId, OccurrenceQuery, Record,
        RunId, RunRow, RunState, Schedule, ScheduleName, ScheduleOutcome, ScheduleWrite, Seq, SessionId,
        SessionRow, StoredDelivery, Timestamp, decode, encode,
    },
    mutants::{Mutant, mutant_enabled},
    port::{
        Append, AppendReceipt, FeedCursor, FeedEntry, InboxItem, InboxRow, IndexRow, Journal, JournalError,
        KEPT_DELIVERIES, OpenedSession, ReadError, ReadFuture, RowReader, StoreView, StoredRecord, WriteOp,
        WriteOutcome, WriteRefusal, fence, validate_append,
    },
};

/// A journal in memory. Records are stored encoded, so that each read decodes as it would from a disk.
///
/// Clones are handles of one process; [`MemoryJournal::reopened`] returns the handle of the next process. A commit is
/// applied when `commit` is called, not when its future is polled.
#[derive(Debug, Clone)]
pub struct MemoryJournal {
    store: Arc<Mutex<MemoryStore>>,
    epoch: u64,
}

impl Default for MemoryJournal {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryJournal {
    /// An empty journal, in epoch 1.
    pub fn new() -> Self {
        Self { store: Arc::new(Mutex::new(MemoryStore { epoch: 1, ..MemoryStore::default() })), epoch: 1 }
    }

    /// The same store, opened by a new process: the epoch is raised, and no session is open. Earlier handles belong to
    /// an ended process: their commits fail as `Unavailable`.
    #[must_use]
    pub fn reopened(&self) -> Self {
        let mut store = lock(&self.store);
        store.epoch += 1;
        store.open.clear();
        store.revivals = 0;
        Self { store: Arc::clone(&self.store), epoch: store.epoch }
    }

    /// Number of open sessions. Passivation closes a session: the number is 0 when all are passivated.
    pub fn open_sessions(&self) -> usize {
        lock(&self.store).open.len()
    }

    /// All inbox messages, each with its session.
    pub fn inboxes(&self) -> Vec<(SessionId, InboxItem)> {
        lock(&self.store).inbox.iter().map(|((session, _), item)| (*session, Arc::clone(item))).collect()
    }

    fn read<T: Send + 'static>(&self, read: impl FnOnce(&MemoryStore) -> T) -> ReadFuture<T> {
        ready(Ok(read(&lock(&self.store)))).boxed()
    }

    fn apply(&self, batch: Vec<WriteOp>) -> Result<Vec<WriteOutcome>, JournalError> {
        let mut store = lock(&self.store);
        if store.epoch != self.epoch && !mutant_enabled(Mutant::NoFence) {
            return Err(JournalError::Unavailable("another process has opened the store".to_owned()));
        }
        Ok(batch.into_iter().map(|write| store.write(write).unwrap_or_else(WriteOutcome::Refused)).collect())
    }
}

impl Journal for MemoryJournal {
    fn commit(&self, batch: Vec<WriteOp>) -> BoxFuture<'static, Result<Vec<WriteOutcome>, JournalError>> {
        ready(self.apply(batch)).boxed()
    }

    fn records(&self, session: SessionId, from: Seq, max: usize) -> ReadFuture<Vec<StoredRecord>> {
        ready(lock(&self.store).records(session, from, max)).boxed()
    }

    fn rows(&self) -> &dyn RowReader {
        self
    }
}

impl RowReader for MemoryJournal {
    fn inbox(&self, session: SessionId) -> ReadFuture<Vec<InboxRow>> {
        self.read(|store| store.inbox_of(session))
    }

    fn session(&self, id: SessionId) -> ReadFuture<Option<SessionRow>> {
        self.read(|store| store.sessions.get(&id).cloned())
    }

    fn session_of_key(&self, key: &str) -> ReadFuture<Option<SessionRow>> {
        self.read(|store| store.session_keys.get(key).and_then(|id| store.sessions.get(id)).cloned())
    }

    fn sessions(&self, max: usize) -> ReadFuture<Vec<SessionRow>> {
        self.read(|store| youngest(store.sessions.values(), max))
    }

    fn sessions_before(&self, before: SessionId, max: usize) -> ReadFuture<Vec<SessionRow>> {
        self.read(|store| youngest(store.sessions.range(..before).map(|(_, row)| row), max))
    }

    fn run(&self, id: RunId) -> ReadFuture<Option<RunRow>> {
        self.read(|store| store.runs.get(&id).cloned())
    }

    fn run_of_key(&self, key: &str) -> ReadFuture<Option<RunRow>> {
        self.read(|store| store.keys.get(key).and_then(|id| store.runs.get(id)).cloned())
    }

    fn id_of_key(&self, key: &str) -> ReadFuture<Option<RunId>> {
        self.read(|store| store.keys.get(key).copied())
    }

    fn message(&self, id: RunId) -> ReadFuture<Option<MessageRow>> {
        self.read(|store| store.messages.get(&id).cloned())
    }

    fn runs(&self, session: Option<SessionId>, max: usize) -> ReadFuture<Vec<RunRow>> {
        let is_of = |run: &&RunRow| session.is_none_or(|session| run.session == session);
        self.read(|store| youngest(store.runs.values().filter(is_of), max))
    }

    fn runs_before(&self, before: RunId, max: usize) -> ReadFuture<Vec<RunRow>> {
        self.read(|store| youngest(store.runs.range(..before).map(|(_, row)| row), max))
    }

    fn feed(&self, after: FeedCursor, max: usize) -> ReadFuture<Vec<FeedEntry>> {
        self.read(|store| store.feed(after, max))
    }

    fn feed_end(&self) -> ReadFuture<FeedCursor> {
        self.read(|store| {
            store
                .feed(FeedCursor::default(), usize::MAX)
                .last()
                .map_or_else(FeedCursor::default, |last| last.cursor)
        })
    }

    fn open_runs(&self) -> ReadFuture<Vec<RunRow>> {
        self.read(|store| store.open_runs.iter().filter_map(|id| store.runs.get(id)).cloned().collect())
    }

    fn account(&self, id: AccountId) -> ReadFuture<Option<BudgetAccount>> {
        self.read(|store| store.accounts.get(&id).copied())
    }

    fn models(&self, models: Vec<ModelRef>) -> ReadFuture<Vec<ModelRow>> {
        let names = models.iter().map(ToString::to_string);
        self.read(|store| names.filter_map(|name| store.models.get(&name)).cloned().collect())
    }

    fn all_models(&self) -> ReadFuture<Vec<ModelRow>> {
        self.read(|store| store.models.values().cloned().collect())
    }

    fn deliveries(&self, query: DeliveryQuery) -> ReadFuture<Vec<StoredDelivery>> {
        self.read(|store| store.deliveries_of(&query))
    }

    fn schedules(&self) -> ReadFuture<Vec<Schedule>> {
        self.read(|store| store.schedules.values().cloned().collect())
    }

    fn schedule(&self, name: ScheduleName) -> ReadFuture<Option<Schedule>> {
        self.read(|store| store.schedules.get(&name).cloned())
    }

    fn occurrence(&self, id: OccurrenceId) -> ReadFuture<Option<Occurrence>> {
        self.read(|store| store.occurrences.get(&id).cloned())
    }

    fn occurrences(&self, query: OccurrenceQuery) -> ReadFuture<Vec<Occurrence>> {
        self.read(|store| store.occurrences_of(&query))
    }
}

/// Ignores poisoning: a panic in another test thread leaves no row half written.
fn lock(store: &Mutex<MemoryStore>) -> MutexGuard<'_, MemoryStore> {
    store.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug, Default)]
struct MemoryStore {
    epoch: u64,
    /// The open sessions, each with the opening number of its incarnation.
    open: BTreeMap<SessionId, u32>,
    /// Openings of any session in this epoch.
    revivals: u32,
    log: BTreeMap<(SessionId, Seq), Vec<u8>>,
    /// The records in the order of the feed; each has a position of its own, from 1.
    order: Vec<(SessionId, Seq)>,
    inbox: BTreeMap<(SessionId, u64), InboxItem>,
    inbox_last: u64,
    accounts: BTreeMap<AccountId, BudgetAccount>,
    sessions: BTreeMap<SessionId, SessionRow>,
    session_keys: BTreeMap<Arc<str>, SessionId>,
    runs: BTreeMap<RunId, RunRow>,
    open_runs: BTreeSet<RunId>,
    keys: BTreeMap<Arc<str>, RunId>,
    messages: BTreeMap<RunId, MessageRow>,
    models: BTreeMap<String, ModelRow>,
    deliveries: BTreeMap<u64, Delivery>,
    delivery_last: u64,
    schedules: BTreeMap<ScheduleName, Schedule>,
    occurrences: BTreeMap<OccurrenceId, Occurrence>,
}

impl MemoryStore {
    fn write(&mut self, write: WriteOp) -> Result<WriteOutcome, WriteRefusal> {
        match write {
            WriteOp::Append(append) => self.append(*append).map(WriteOutcome::Appended),
            WriteOp::Open(session) => Ok(WriteOutcome::Opened(self.take_over(session))),
            WriteOp::Close(session, incarnation) => {
                self.close(session, incarnation).map(WriteOutcome::Closed)
            }
            WriteOp::Deliver(session, item) => Ok(WriteOutcome::Delivered(self.deliver(session, item))),
            WriteOp::UpdateDelivery(update) => {
                Ok(WriteOutcome::DeliveryUpdated(self.update_delivery(*update)))
            }
            WriteOp::RetryDelivery(number, now) => {
                Ok(WriteOutcome::DeliveryUpdated(self.retry_delivery(number, now)))
            }
            WriteOp::Schedule(write) => Ok(WriteOutcome::ScheduleWritten(self.write_schedule(*write))),
            WriteOp::RemoveSchedule(name, revision) => {
                Ok(WriteOutcome::ScheduleWritten(self.remove_schedule(&name, revision)))
            }
        }
    }

    fn append(&mut self, append: Append) -> Result<AppendReceipt, WriteRefusal> {
        let postings = validate_append(&append, &mut *self)?;
        self.log(append.session, append.expected, &append.records);
        for spawned in &append.spawned {
            self.log(spawned.session, 1, &spawned.records);
        }
        self.accounts.extend(postings.iter().map(|posting| (posting.id, posting.account)));
        for index in append.index {
            match index {
                IndexRow::Session(row) => self.index_session(row),
                IndexRow::Run(row) => self.index_run(*row),
                IndexRow::Model(row) => self.index_model(row),
                IndexRow::Outbox(message) => self.add_delivery(Delivery::new(*message)),
                IndexRow::Message(row) => drop(self.messages.insert(row.id, row)),
                IndexRow::Occurrence(row) => self.add_occurrence(row),
            }
        }
        self.keys.extend(append.key);
        for row in append.consumed.into_iter().filter(|_| !mutant_enabled(Mutant::RepeatInbox)) {
            self.inbox.remove(&(append.session, row));
        }
        for (session, item) in append.deliver {
            self.deliver(session, item);
        }
        let accounts = postings.into_iter().map(|posting| (posting.id, posting.account)).collect();
        Ok(AppendReceipt { last: self.end(append.session), accounts })
    }

    fn log(&mut self, session: SessionId, first: Seq, records: &[Arc<Record>]) {
        let rows = (first..).zip(records).map(|(seq, record)| ((session, seq), encode(record)));
        self.log.extend(rows);
        self.order.extend((first..).zip(records).map(|(seq, _)| (session, seq)));
    }

    fn feed(&self, after: FeedCursor, max: usize) -> Vec<FeedEntry> {
        let positioned =
            (1..).zip(&self.order).map(|(position, of)| (FeedCursor { position, records: 1 }, of));
        let entry = |(cursor, (session, seq)): (FeedCursor, &(SessionId, Seq))| {
            let record =
                decode(&self.log[&(*session, *seq)]).map(Arc::new).map_err(|error| error.to_string());
            FeedEntry { cursor, session: *session, seq: *seq, record }
        };
        positioned.filter(|(cursor, _)| *cursor > after).take(max).map(entry).collect()
    }

    fn take_over(&mut self, session: SessionId) -> OpenedSession {
        self.revivals += 1;
        self.open.insert(session, self.revivals);
        let incarnation = Incarnation { epoch: self.epoch, revival: self.revivals };
        let (last, inbox) = (self.end(session), self.inbox_of(session));
        let opened = OpenedSession { incarnation, last, inbox, inbox_error: None };
        if mutant_enabled(Mutant::ForgetInbox) {
            self.inbox.retain(|(of, _), _| *of != session);
        }
        opened
    }

    fn close(&mut self, session: SessionId, incarnation: Incarnation) -> Result<bool, WriteRefusal> {
        fence(session, incarnation, self)?;
        let is_empty = self.inbox_of(session).is_empty();
        if is_empty {
            self.open.remove(&session);
        }
        Ok(is_empty)
    }

    fn deliver(&mut self, session: SessionId, item: InboxItem) -> u64 {
        self.inbox_last += 1;
        self.inbox.insert((session, self.inbox_last), item);
        self.inbox_last
    }

    fn add_delivery(&mut self, delivery: Delivery) {
        self.delivery_last += 1;
        self.deliveries.insert(self.delivery_last, delivery);
    }

    fn update_delivery(&mut self, StoredDelivery { number, delivery }: StoredDelivery) -> bool {
        let is_pending = |stored: &&mut Delivery| stored.state == DeliveryState::Pending;
        let Some(stored) = self.deliveries.get_mut(&number).filter(is_pending) else { return false };
        *stored = delivery;
        let is_delivered = |(_, stored): &(&u64, &Delivery)| stored.state == DeliveryState::Delivered;
        let delivered: Vec<u64> = self.deliveries.iter().filter(is_delivered).map(|(n, _)| *n).collect();
        let kept = usize::try_from(KEPT_DELIVERIES).unwrap_or(usize::MAX);
        for number in &delivered[..delivered.len().saturating_sub(kept)] {
            self.deliveries.remove(number);
        }
        true
    }

    fn retry_delivery(&mut self, number: u64, now: Timestamp) -> bool {
        let is_dead = |stored: &Delivery| stored.state == DeliveryState::Dead;
        if !self.deliveries.get(&number).is_some_and(is_dead) {
            return false;
        }
        if let Some(dead) = self.deliveries.remove(&number) {
            self.add_delivery(dead.retried(now));
        }
        true
    }

    fn deliveries_of(&self, query: &DeliveryQuery) -> Vec<StoredDelivery> {
        let wanted = |(_, delivery): &(&u64, &Delivery)| {
            delivery.state == query.state && query.wants(&delivery.message)
        };
        let stored = |(number, delivery): (&u64, &Delivery)| StoredDelivery {
            number: *number,
            delivery: delivery.clone(),
        };
        let all: Vec<StoredDelivery> = self.deliveries.iter().filter(wanted).map(stored).collect();
        let first =
            if query.state == DeliveryState::Pending { 0 } else { all.len().saturating_sub(query.max) };
        all.into_iter().skip(first).take(query.max).collect()
    }

    fn write_schedule(&mut self, write: ScheduleWrite) -> ScheduleOutcome {
        let ScheduleWrite { schedule, expected, left_out, notices } = write;
        let revision = self.schedules.get(&schedule.name).map_or(0, |stored| stored.revision);
        if revision != expected {
            return ScheduleOutcome::Changed(revision);
        }
        if revision == 0 && self.schedules.len() as u64 >= MAX_SCHEDULES {
            return ScheduleOutcome::TooMany;
        }
        for row in left_out {
            self.add_occurrence(row);
        }
        for notice in notices {
            self.add_delivery(Delivery::new(notice));
        }
        self.schedules.insert(schedule.name.clone(), schedule);
        ScheduleOutcome::Written
    }

    fn remove_schedule(&mut self, name: &ScheduleName, expected: u64) -> ScheduleOutcome {
        let revision = self.schedules.get(name).map_or(0, |stored| stored.revision);
        if revision == 0 || revision != expected {
            return ScheduleOutcome::Changed(revision);
        }
        self.schedules.remove(name);
        ScheduleOutcome::Written
    }

    /// Adds the row of an occurrence that has none, and removes the oldest of its schedule beyond the limit.
    fn add_occurrence(&mut self, row: Occurrence) {
        let first = |schedule: &ScheduleName, at| OccurrenceId { schedule: schedule.clone(), at };
        let times = |schedule| first(schedule, Timestamp(i64::MIN))..=first(schedule, Timestamp(i64::MAX));
        let times = times(&row.id.schedule);
        if mutant_enabled(Mutant::RepeatOccurrence) {
            self.occurrences.remove(&row.id);
        }
        self.occurrences.entry(row.id.clone()).or_insert(row);
        let oldest = self.occurrences.range(times.clone()).rev().nth(KEPT_OCCURRENCES);
        if let Some(oldest) = oldest.map(|(id, _)| id.clone()) {
            self.occurrences.retain(|id, _| !(times.start()..=&oldest).contains(&id));
        }
    }

    fn occurrences_of(&self, query: &OccurrenceQuery) -> Vec<Occurrence> {
        let mut wanted: Vec<_> = self.occurrences.values().filter(|row| query.wants(row)).cloned().collect();
        wanted.sort_by(|a, b| (b.id.at, &b.id.schedule).cmp(&(a.id.at, &a.id.schedule)));
        wanted.truncate(query.max);
        wanted
    }

    fn index_session(&mut self, row: SessionRow) {
        self.session_keys.insert(Arc::clone(&row.key), row.id);
        let key = Arc::clone(&row.key);
        if let Some(before) = self.sessions.insert(row.id, row)
            && before.key != key
        {
            self.session_keys.remove(&before.key);
        }
    }

    fn index_run(&mut self, row: RunRow) {
        match row.state {
            RunState::Queued | RunState::Running | RunState::Parked => self.open_runs.insert(row.id),
            RunState::Ended => self.open_runs.remove(&row.id),
        };
        self.runs.insert(row.id, row);
    }

    fn index_model(&mut self, row: ModelRow) {
        let name = row.model.to_string();
        let before = self.models.remove(&name);
        self.models.insert(name, row.merged_over(before));
    }

    fn end(&self, session: SessionId) -> Seq {
        self.log.range((session, 0)..=(session, Seq::MAX)).next_back().map_or(0, |((_, seq), _)| *seq)
    }

    fn inbox_of(&self, session: SessionId) -> Vec<InboxRow> {
        let rows = self.inbox.range((session, 0)..=(session, u64::MAX));
        rows.map(|((_, id), item)| InboxRow { id: *id, item: Arc::clone(item) }).collect()
    }

    fn records(&self, session: SessionId, from: Seq, max: usize) -> Result<Vec<StoredRecord>, ReadError> {
        let rows = self.log.range((session, from)..=(session, Seq::MAX)).take(max);
        let stored = rows.map(|((_, seq), bytes)| match decode(bytes) {
            Ok(record) => Ok(StoredRecord { seq: *seq, record: Arc::new(record) }),
            Err(error) => Err(ReadError::Record { session, seq: *seq, error }),
        });
        stored.collect()
    }
}

/// Returns the last `max` of `rows`, which are in the order of their ids; keeps that order.
fn youngest<'a, T: Clone + 'a>(rows: impl DoubleEndedIterator<Item = &'a T>, max: usize) -> Vec<T> {
    let mut rows: Vec<T> = rows.rev().take(max).cloned().collect();
    rows.reverse();
    rows
}

impl StoreView for MemoryStore {
    type Error = WriteRefusal;

    fn latest_incarnation(&mut self, session: SessionId) -> Result<Incarnation, WriteRefusal> {
        let revival = self.open.get(&session).copied().unwrap_or(0);
        Ok(Incarnation { epoch: self.epoch, revival })
    }

    fn last_seq(&mut self, session: SessionId) -> Result<Seq, WriteRefusal> {
        Ok(self.end(session))
    }

    fn run_of_key(&mut self, key: &str) -> Result<Option<RunId>, WriteRefusal> {
        Ok(self.keys.get(key).copied())
    }

    fn session_of_key(&mut self, key: &str) -> Result<Option<SessionId>, WriteRefusal> {
        Ok(self.session_keys.get(key).copied())
    }

    fn has_inbox_row(&mut self, session: SessionId, row: u64) -> Result<bool, WriteRefusal> {
        Ok(self.inbox.contains_key(&(session, row)))
    }

    fn occurrence(&mut self, id: &OccurrenceId) -> Result<Option<Occurrence>, WriteRefusal> {
        Ok(self.occurrences.get(id).cloned())
    }

    fn account(&mut self, id: AccountId) -> Result<Option<BudgetAccount>, WriteRefusal> {
        Ok(self.accounts.get(&id).copied())
    }
}
