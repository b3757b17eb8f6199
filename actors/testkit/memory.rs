use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::{
    FutureExt,
    future::{BoxFuture, ready},
};

use crate::{
    model::{
        Account, AccountId, Incarnation, ModelRef, ModelRow, Record, RunId, RunRow, RunState, Seq, SessionId,
        SessionRow, decode, encode,
    },
    mutation::{Mutation, planted},
    port::{
        Append, Appended, InboxItem, InboxRow, Index, Journal, JournalError, Opened, Read, ReadError,
        Refusal, Rows, StoredRecord, View, Write, Written, admit, fence,
    },
};

/// A journal in memory. Records are kept encoded, so that each is read back as a disk would give it.
///
/// Clones are handles of one process; [`MemoryJournal::reopened`] is what the next process finds. A commit is applied
/// when it is called.
#[derive(Debug, Clone)]
pub struct MemoryJournal {
    store: Arc<Mutex<Store>>,
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
        Self { store: Arc::new(Mutex::new(Store { epoch: 1, ..Store::default() })), epoch: 1 }
    }

    /// The same store, as a new process opens it: the epoch is raised, and no session is open. Whoever still holds an
    /// earlier handle belongs to a process that is gone: its commits are `Unavailable`.
    #[must_use]
    pub fn reopened(&self) -> Self {
        let mut store = lock(&self.store);
        store.epoch += 1;
        store.open.clear();
        store.revivals = 0;
        Self { store: Arc::clone(&self.store), epoch: store.epoch }
    }

    /// How many sessions are open: whoever forgets one closes it.
    pub fn open_sessions(&self) -> usize {
        lock(&self.store).open.len()
    }

    /// What waits in inboxes, with whose they are.
    pub fn inboxes(&self) -> Vec<(SessionId, InboxItem)> {
        lock(&self.store).inbox.iter().map(|((session, _), item)| (*session, Arc::clone(item))).collect()
    }

    fn apply(&self, batch: Vec<Write>) -> Result<Vec<Written>, JournalError> {
        let mut store = lock(&self.store);
        if store.epoch != self.epoch && !planted(Mutation::NoFence) {
            return Err(JournalError::Unavailable("another process has opened the store".to_owned()));
        }
        Ok(batch.into_iter().map(|write| store.write(write).unwrap_or_else(Written::Refused)).collect())
    }
}

impl Journal for MemoryJournal {
    fn commit(&self, batch: Vec<Write>) -> BoxFuture<'static, Result<Vec<Written>, JournalError>> {
        ready(self.apply(batch)).boxed()
    }

    fn read(&self, what: Read) -> BoxFuture<'static, Result<Rows, ReadError>> {
        ready(lock(&self.store).read(&what)).boxed()
    }
}

/// No write leaves a row half done, so a panic of another test thread does not spoil the store.
fn lock(store: &Mutex<Store>) -> MutexGuard<'_, Store> {
    store.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug, Default)]
struct Store {
    epoch: u64,
    /// The revivals of the sessions that are open.
    open: BTreeMap<SessionId, u32>,
    /// How often one was opened in this epoch.
    revivals: u32,
    log: BTreeMap<(SessionId, Seq), Vec<u8>>,
    inbox: BTreeMap<(SessionId, u64), InboxItem>,
    inbox_last: u64,
    accounts: BTreeMap<AccountId, Account>,
    sessions: BTreeMap<SessionId, SessionRow>,
    session_keys: BTreeMap<Arc<str>, SessionId>,
    runs: BTreeMap<RunId, RunRow>,
    open_runs: BTreeSet<RunId>,
    keys: BTreeMap<Arc<str>, RunId>,
    models: BTreeMap<String, ModelRow>,
}

impl Store {
    fn write(&mut self, write: Write) -> Result<Written, Refusal> {
        match write {
            Write::Append(append) => self.append(*append).map(Written::Appended),
            Write::Open(session) => Ok(Written::Opened(self.take_over(session))),
            Write::Close(session, incarnation) => self.let_go(session, incarnation).map(Written::Closed),
            Write::Deliver(session, item) => Ok(Written::Delivered(self.deliver(session, item))),
        }
    }

    fn append(&mut self, append: Append) -> Result<Appended, Refusal> {
        let postings = admit(&append, &mut *self)?;
        self.log(append.session, append.expected, &append.records);
        for founded in &append.found {
            self.log(founded.session, 1, &founded.records);
        }
        self.accounts.extend(postings.iter().map(|posting| (posting.id, posting.account)));
        for index in append.index {
            match index {
                Index::Session(row) => self.index_session(row),
                Index::Run(row) => self.index_run(*row),
                Index::Model(row) => self.index_model(row),
            }
        }
        self.keys.extend(append.key);
        for row in append.take.into_iter().filter(|_| !planted(Mutation::RepeatInbox)) {
            self.inbox.remove(&(append.session, row));
        }
        for (session, item) in append.send {
            self.deliver(session, item);
        }
        let accounts = postings.into_iter().map(|posting| (posting.id, posting.account)).collect();
        Ok(Appended { last: self.end(append.session), accounts })
    }

    fn log(&mut self, session: SessionId, first: Seq, records: &[Arc<Record>]) {
        let rows = (first..).zip(records).map(|(seq, record)| ((session, seq), encode(record)));
        self.log.extend(rows);
    }

    fn take_over(&mut self, session: SessionId) -> Opened {
        self.revivals += 1;
        self.open.insert(session, self.revivals);
        let incarnation = Incarnation { epoch: self.epoch, revival: self.revivals };
        let (last, inbox) = (self.end(session), self.inbox_of(session));
        let opened = Opened { incarnation, last, inbox, unreadable: None };
        if planted(Mutation::ForgetInbox) {
            self.inbox.retain(|(of, _), _| *of != session);
        }
        opened
    }

    fn let_go(&mut self, session: SessionId, incarnation: Incarnation) -> Result<bool, Refusal> {
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
        self.models.insert(name, row.over(before));
    }

    fn end(&self, session: SessionId) -> Seq {
        self.log.range((session, 0)..=(session, Seq::MAX)).next_back().map_or(0, |((_, seq), _)| *seq)
    }

    fn inbox_of(&self, session: SessionId) -> Vec<InboxRow> {
        let rows = self.inbox.range((session, 0)..=(session, u64::MAX));
        rows.map(|((_, id), item)| InboxRow { id: *id, item: Arc::clone(item) }).collect()
    }

    fn read(&self, what: &Read) -> Result<Rows, ReadError> {
        Ok(match what {
            Read::Records { session, from, max } => self.records(*session, *from, *max)?,
            Read::Inbox(session) => Rows::Inbox(self.inbox_of(*session)),
            Read::Session(id) => Rows::Sessions(self.sessions.get(id).cloned().into_iter().collect()),
            Read::SessionOfKey(key) => {
                let row = self.session_keys.get(key).and_then(|id| self.sessions.get(id));
                Rows::Sessions(row.cloned().into_iter().collect())
            }
            Read::Sessions { max } => Rows::Sessions(youngest(self.sessions.values(), *max)),
            Read::Run(id) => Rows::Runs(self.runs.get(id).cloned().into_iter().collect()),
            Read::Runs { session: None, max } => Rows::Runs(youngest(self.runs.values(), *max)),
            Read::Runs { session: Some(session), max } => {
                Rows::Runs(youngest(self.runs.values().filter(|run| run.session == *session), *max))
            }
            Read::OpenRuns => {
                Rows::Runs(self.open_runs.iter().filter_map(|id| self.runs.get(id)).cloned().collect())
            }
            Read::RunOfKey(key) => {
                let row = self.keys.get(key).and_then(|id| self.runs.get(id));
                Rows::Runs(row.cloned().into_iter().collect())
            }
            Read::Account(id) => Rows::Account(self.accounts.get(id).copied().map(Box::new)),
            Read::AllModels => Rows::Models(self.models.values().cloned().collect()),
            Read::Models(models) => {
                let row = |model: &ModelRef| self.models.get(&model.to_string()).cloned();
                Rows::Models(models.iter().filter_map(row).collect())
            }
        })
    }

    fn records(&self, session: SessionId, from: Seq, max: usize) -> Result<Rows, ReadError> {
        let rows = self.log.range((session, from)..=(session, Seq::MAX)).take(max);
        let stored = rows.map(|((_, seq), bytes)| match decode(bytes) {
            Ok(record) => Ok(StoredRecord { seq: *seq, record: Arc::new(record) }),
            Err(error) => Err(ReadError::Record { session, seq: *seq, error }),
        });
        Ok(Rows::Records(stored.collect::<Result<_, _>>()?))
    }
}

/// The last `max` of rows that come in the order of ids.
fn youngest<'a, T: Clone + 'a>(rows: impl DoubleEndedIterator<Item = &'a T>, max: usize) -> Vec<T> {
    let mut rows: Vec<T> = rows.rev().take(max).cloned().collect();
    rows.reverse();
    rows
}

impl View for Store {
    type Stop = Refusal;

    fn latest(&mut self, session: SessionId) -> Result<Incarnation, Refusal> {
        let revival = self.open.get(&session).copied().unwrap_or(0);
        Ok(Incarnation { epoch: self.epoch, revival })
    }

    fn last(&mut self, session: SessionId) -> Result<Seq, Refusal> {
        Ok(self.end(session))
    }

    fn run_of_key(&mut self, key: &str) -> Result<Option<RunId>, Refusal> {
        Ok(self.keys.get(key).copied())
    }

    fn session_of_key(&mut self, key: &str) -> Result<Option<SessionId>, Refusal> {
        Ok(self.session_keys.get(key).copied())
    }

    fn waits(&mut self, session: SessionId, row: u64) -> Result<bool, Refusal> {
        Ok(self.inbox.contains_key(&(session, row)))
    }

    fn account(&mut self, id: AccountId) -> Result<Option<Account>, Refusal> {
        Ok(self.accounts.get(&id).copied())
    }
}
