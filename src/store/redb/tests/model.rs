//! A model of the store: what it must contain, by what it has acknowledged.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use futures::executor::block_on;
use hermod_actors::{
    model::{
        AccountId, BudgetAccount, Incarnation, MessageRow, ModelRef, ModelRow, Occurrence, OccurrenceId,
        Record, RunId, RunRow, RunState, Schedule, ScheduleName, ScheduleWrite, Seq, SessionId, SessionRow,
    },
    port::{
        InboxItem, IndexRow, Journal, ReadFuture, StoreView, WriteOp, WriteOutcome, WriteRefusal,
        validate_append,
    },
};

/// The content of a store.
#[derive(Debug, Clone, Default)]
pub(super) struct Model {
    /// The latest incarnation of each session in the current process.
    fences: BTreeMap<SessionId, Incarnation>,
    /// The latest incarnation of any session: a store counts the openings of all sessions together.
    latest: Option<Incarnation>,
    records: BTreeMap<SessionId, Vec<Arc<Record>>>,
    /// Rows in their order, with their numbers if these are known.
    inbox: BTreeMap<SessionId, Vec<(Option<u64>, InboxItem)>>,
    accounts: BTreeMap<AccountId, BudgetAccount>,
    sessions: BTreeMap<SessionId, SessionRow>,
    runs: BTreeMap<RunId, RunRow>,
    messages: BTreeMap<RunId, MessageRow>,
    keys: BTreeMap<Arc<str>, RunId>,
    models: HashMap<ModelRef, ModelRow>,
    pub(super) schedules: BTreeMap<ScheduleName, Schedule>,
    occurrences: BTreeMap<OccurrenceId, Occurrence>,
}

impl Model {
    /// Ends the process: its incarnations are void.
    pub(super) fn end(&mut self) {
        self.fences.clear();
        self.latest = None;
    }

    pub(super) fn records(&self) -> impl Iterator<Item = (&SessionId, &Vec<Arc<Record>>)> {
        self.records.iter()
    }

    pub(super) fn last(&self, session: SessionId) -> Seq {
        self.records.get(&session).map_or(0, |records| records.len() as Seq)
    }

    pub(super) fn fence(&self, session: SessionId) -> Option<Incarnation> {
        self.fences.get(&session).copied()
    }

    pub(super) fn has(&self, run: RunId) -> Option<&RunRow> {
        self.runs.get(&run)
    }

    pub(super) fn has_row(&self, session: SessionId) -> bool {
        self.sessions.contains_key(&session)
    }

    /// The number of a row of an inbox, if one is known.
    pub(super) fn item(&self, session: SessionId) -> Option<u64> {
        self.inbox.get(&session)?.iter().find_map(|(row, _)| *row)
    }

    /// Applies writes whose outcome is not known yet.
    pub(super) fn assume(&mut self, batch: &[WriteOp]) {
        for write in batch {
            // A refused write changes nothing.
            let _ = self.apply(write, None);
        }
    }

    /// Applies what the store reports as done.
    pub(super) fn take(&mut self, batch: &[WriteOp], written: &[WriteOutcome]) -> Result<(), String> {
        for (write, written) in batch.iter().zip(written) {
            if let (WriteOp::Open(session), WriteOutcome::Opened(opened)) = (write, written) {
                let last = Model::last(self, *session);
                if opened.last != last {
                    return Err(format!("{session} ends with {last}, and was opened at {}", opened.last));
                }
            }
            let applied = self.apply(write, Some(written));
            let refused = matches!(written, WriteOutcome::Refused(_));
            if applied.is_err() != refused {
                return Err(format!("{write:?} came to {written:?}, and should to {applied:?}"));
            }
        }
        Ok(())
    }

    fn apply(&mut self, write: &WriteOp, written: Option<&WriteOutcome>) -> Result<(), WriteRefusal> {
        match write {
            WriteOp::Open(session) => {
                if let Some(WriteOutcome::Opened(opened)) = written {
                    self.latest = Some(opened.incarnation);
                    self.fences.insert(*session, opened.incarnation);
                    let numbers = opened.inbox.iter().map(|row| (Some(row.id), Arc::clone(&row.item)));
                    self.inbox.insert(*session, numbers.collect());
                } else if let Some(latest) = &mut self.latest {
                    // A takeover fences the earlier incarnation, also within one batch.
                    latest.revival += 1;
                    self.fences.insert(*session, *latest);
                }
            }
            WriteOp::Close(session, _) => {
                if let Some(WriteOutcome::Closed(true)) = written {
                    self.fences.remove(session);
                }
            }
            WriteOp::Deliver(session, item) => {
                let row = match written {
                    Some(WriteOutcome::Delivered(row)) => Some(*row),
                    Some(
                        WriteOutcome::Appended(_)
                        | WriteOutcome::Opened(_)
                        | WriteOutcome::Closed(_)
                        | WriteOutcome::DeliveryUpdated(_)
                        | WriteOutcome::ScheduleWritten(_)
                        | WriteOutcome::Refused(_),
                    )
                    | None => None,
                };
                self.inbox.entry(*session).or_default().push((row, Arc::clone(item)));
            }
            // `tests/work.rs` writes none.
            WriteOp::UpdateDelivery(_) | WriteOp::RetryDelivery(..) => {}
            WriteOp::Schedule(write) => self.write_schedule(write),
            WriteOp::RemoveSchedule(name, revision) => {
                self.schedules.retain(|of, row| of != name || row.revision != *revision);
            }
            WriteOp::Append(append) => {
                let postings = validate_append(append, self)?;
                self.accounts.extend(postings.iter().map(|posting| (posting.id, posting.account)));
                self.records.entry(append.session).or_default().extend(append.records.iter().cloned());
                for founded in &append.spawned {
                    self.records.entry(founded.session).or_default().extend(founded.records.iter().cloned());
                }
                append.index.iter().for_each(|row| self.put_row(row));
                self.keys.extend(append.key.clone());
                let inbox = self.inbox.entry(append.session).or_default();
                inbox.retain(|(row, _)| row.is_none_or(|row| !append.consumed.contains(&row)));
                for (session, item) in &append.deliver {
                    self.inbox.entry(*session).or_default().push((None, Arc::clone(item)));
                }
            }
        }
        Ok(())
    }

    fn put_row(&mut self, row: &IndexRow) {
        match row {
            IndexRow::Session(row) => drop(self.sessions.insert(row.id, row.clone())),
            IndexRow::Run(row) => drop(self.runs.insert(row.id, RunRow::clone(row))),
            IndexRow::Message(row) => drop(self.messages.insert(row.id, row.clone())),
            IndexRow::Model(row) => {
                let before = self.models.remove(&row.model);
                self.models.insert(row.model.clone(), row.clone().merged_over(before));
            }
            IndexRow::Occurrence(row) => self.add_occurrence(row),
            IndexRow::Outbox(_) => {}
        }
    }

    fn write_schedule(&mut self, write: &ScheduleWrite) {
        let name = &write.schedule.name;
        if self.schedules.get(name).map_or(0, |row| row.revision) == write.expected {
            self.schedules.insert(name.clone(), write.schedule.clone());
            write.left_out.iter().for_each(|row| self.add_occurrence(row));
        }
    }

    fn add_occurrence(&mut self, row: &Occurrence) {
        self.occurrences.entry(row.id.clone()).or_insert_with(|| row.clone());
    }

    /// Compares a store with the model, byte for byte; the error says what differs.
    pub(super) fn compare(&self, journal: &dyn Journal) -> Result<(), String> {
        let rows = journal.rows();
        same("sessions", rows.sessions(usize::MAX), &self.sessions.values().cloned().collect())?;
        same("runs", rows.runs(None, usize::MAX), &self.runs.values().cloned().collect())?;
        let open = self.runs.values().filter(|row| row.state != RunState::Ended);
        same("open runs", rows.open_runs(), &open.cloned().collect())?;
        for (key, run) in &self.keys {
            same(&format!("run of key {key}"), rows.run_of_key(key), &self.runs.get(run).cloned())?;
        }
        for (id, row) in &self.messages {
            same(&format!("message {id}"), rows.message(*id), &Some(row.clone()))?;
        }
        for (id, account) in &self.accounts {
            same(&format!("account {id}"), rows.account(*id), &Some(*account))?;
        }
        same("schedules", rows.schedules(), &self.schedules.values().cloned().collect())?;
        for (id, row) in &self.occurrences {
            same(&format!("occurrence {id}"), rows.occurrence(id.clone()), &Some(row.clone()))?;
        }
        let models: Vec<ModelRef> = self.models.keys().cloned().collect();
        same("models", rows.models(models), &self.models.values().cloned().collect())?;
        for row in self.sessions.values() {
            same(&format!("session of key {}", row.key), rows.session_of_key(&row.key), &Some(row.clone()))?;
        }
        for (session, items) in &self.inbox {
            let found = read(rows.inbox(*session))?;
            let (found, expected): (Vec<_>, Vec<_>) =
                (found.iter().map(|row| &row.item).collect(), items.iter().map(|(_, item)| item).collect());
            if found != expected {
                return Err(format!(
                    "the inbox of {session} has {} rows, not {}",
                    found.len(),
                    expected.len()
                ));
            }
        }
        for (session, expected) in &self.records {
            let found = read(journal.records(*session, 1, usize::MAX))?;
            if found.len() != expected.len() {
                return Err(format!("{session} has {} records, not {}", found.len(), expected.len()));
            }
            for ((found, expected), seq) in found.iter().zip(expected).zip(1..) {
                if found.seq != seq || found.record != *expected {
                    return Err(format!("record {seq} of {session} is not the one that was written"));
                }
            }
        }
        Ok(())
    }
}

fn read<T>(read: ReadFuture<T>) -> Result<T, String> {
    block_on(read).map_err(|error| error.to_string())
}

/// Compares rows that are read with those that were written.
fn same<T: PartialEq>(what: &str, rows: ReadFuture<T>, expected: &T) -> Result<(), String> {
    if read(rows)? == *expected { Ok(()) } else { Err(format!("{what}: not as written")) }
}

impl StoreView for Model {
    type Error = WriteRefusal;

    fn latest_incarnation(&mut self, session: SessionId) -> Result<Incarnation, WriteRefusal> {
        Ok(self.fence(session).unwrap_or(Incarnation { epoch: 0, revival: 0 }))
    }

    fn last_seq(&mut self, session: SessionId) -> Result<Seq, WriteRefusal> {
        Ok(Model::last(self, session))
    }

    fn run_of_key(&mut self, key: &str) -> Result<Option<RunId>, WriteRefusal> {
        Ok(self.keys.get(key).copied())
    }

    fn session_of_key(&mut self, key: &str) -> Result<Option<SessionId>, WriteRefusal> {
        Ok(self.sessions.values().find(|row| *row.key == *key).map(|row| row.id))
    }

    fn has_inbox_row(&mut self, session: SessionId, row: u64) -> Result<bool, WriteRefusal> {
        let rows = self.inbox.get(&session);
        Ok(rows.is_some_and(|rows| rows.iter().any(|(known, _)| *known == Some(row))))
    }

    fn occurrence(&mut self, id: &OccurrenceId) -> Result<Option<Occurrence>, WriteRefusal> {
        Ok(self.occurrences.get(id).cloned())
    }

    fn account(&mut self, id: AccountId) -> Result<Option<BudgetAccount>, WriteRefusal> {
        Ok(self.accounts.get(&id).copied())
    }
}

/// The contents that a journal must or may have.
#[derive(Debug, Default)]
pub(super) struct Book {
    /// The content by all acknowledged batches.
    pub(super) model: Model,
    /// The content before each acknowledged batch of this process.
    pub(super) before: Vec<Model>,
    /// The batch that is under way.
    pub(super) under_way: Vec<WriteOp>,
    /// The first wrong answer of the store.
    pub(super) wrong: Option<String>,
}

impl Book {
    /// Records that a batch is handed to the store.
    pub(super) fn begins(&mut self, batch: &[WriteOp]) {
        self.under_way = batch.iter().map(copy).collect();
    }

    /// Records that the store has acknowledged the batch.
    pub(super) fn acknowledged(&mut self, written: &[WriteOutcome]) {
        let batch = std::mem::take(&mut self.under_way);
        self.before.push(self.model.clone());
        if let Err(wrong) = self.model.take(&batch, written) {
            self.wrong.get_or_insert(wrong);
        }
    }

    /// The contents that a strict store may have after the process: the acknowledged batches, perhaps with the batch
    /// under way.
    pub(super) fn strict(&self) -> [Model; 2] {
        let mut with = self.model.clone();
        with.assume(&self.under_way);
        [self.model.clone(), with]
    }

    /// The contents that a relaxed store may have: any prefix of these batches.
    pub(super) fn relaxed(&self) -> Vec<Model> {
        self.strict().into_iter().rev().chain(self.before.iter().rev().cloned()).collect()
    }

    /// Continues with the one of `allowed` that the journal has; if it has none, the error says how the first differs.
    pub(super) fn settle(&mut self, allowed: Vec<Model>, journal: &dyn Journal) -> Result<(), String> {
        if let Some(wrong) = self.wrong.take() {
            return Err(wrong);
        }
        let mut first = None;
        let found = allowed.into_iter().find(|model| match model.compare(journal) {
            Ok(()) => true,
            Err(why) => {
                first.get_or_insert(why);
                false
            }
        });
        let Some(mut found) = found else { return Err(first.unwrap_or_default()) };
        found.end();
        *self = Self { model: found, ..Self::default() };
        Ok(())
    }
}

/// A copy of a write.
pub(super) fn copy(write: &WriteOp) -> WriteOp {
    match write {
        WriteOp::Append(append) => WriteOp::Append(append.clone()),
        WriteOp::Open(session) => WriteOp::Open(*session),
        WriteOp::Close(session, incarnation) => WriteOp::Close(*session, *incarnation),
        WriteOp::Deliver(session, item) => WriteOp::Deliver(*session, Arc::clone(item)),
        WriteOp::UpdateDelivery(update) => WriteOp::UpdateDelivery(update.clone()),
        WriteOp::RetryDelivery(number, now) => WriteOp::RetryDelivery(*number, *now),
        WriteOp::Schedule(write) => WriteOp::Schedule(write.clone()),
        WriteOp::RemoveSchedule(name, revision) => WriteOp::RemoveSchedule(name.clone(), *revision),
    }
}
