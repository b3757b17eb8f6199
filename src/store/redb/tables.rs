use redb::{Key, ReadableTable, Table, TableDefinition, Value, WriteTransaction};

use super::fault::Fault;

/// An id's 128 bits, then a number within it: rows of one id are neighbours.
pub(super) type Place = (u128, u64);
type Definition<K, V> = TableDefinition<'static, K, V>;

pub(super) const META: Definition<&str, u64> = Definition::new("meta");
/// Rows of records, by their places in the order of time. See [`super::log`].
pub(super) const LOG: Definition<u64, &[u8]> = Definition::new("appends");
/// For each session the place of its last row, its last sequence, and its rows since the last mark.
pub(super) const TAILS: Definition<u128, (u64, u64, u64)> = Definition::new("tails");
/// (session, the last sequence of a row) and the place of that row.
pub(super) const MARKS: Definition<Place, u64> = Definition::new("marks");
pub(super) const INBOX: Definition<Place, &[u8]> = Definition::new("inbox");
pub(super) const ACCOUNTS: Definition<u128, &[u8]> = Definition::new("accounts");
/// Rows as JSON.
pub(super) const SESSIONS: Definition<u128, &[u8]> = Definition::new("sessions");
pub(super) const SESSION_KEYS: Definition<&str, u128> = Definition::new("session_keys");
/// Rows as JSON.
pub(super) const RUNS: Definition<u128, &[u8]> = Definition::new("runs");
/// (session, run).
pub(super) const RUNS_BY_SESSION: Definition<(u128, u128), ()> = Definition::new("runs_by_session");
pub(super) const OPEN_RUNS: Definition<u128, ()> = Definition::new("open_runs");
/// Idempotency keys, and the runs they stand for.
pub(super) const KEYS: Definition<&str, u128> = Definition::new("keys");
/// Sessions that were removed, and the place of the last row that is left of each.
pub(super) const GRAVES: Definition<u128, u64> = Definition::new("graves");

/// The tables of one write transaction, each opened when it is first needed: a table that is not touched costs nothing.
pub(super) struct Tables<'t> {
    pub(super) log: Lazy<'t, u64, &'static [u8]>,
    pub(super) tails: Lazy<'t, u128, (u64, u64, u64)>,
    pub(super) marks: Lazy<'t, Place, u64>,
    pub(super) inbox: Lazy<'t, Place, &'static [u8]>,
    pub(super) accounts: Lazy<'t, u128, &'static [u8]>,
    pub(super) sessions: Lazy<'t, u128, &'static [u8]>,
    pub(super) session_keys: Lazy<'t, &'static str, u128>,
    pub(super) runs: Lazy<'t, u128, &'static [u8]>,
    pub(super) runs_by_session: Lazy<'t, (u128, u128), ()>,
    pub(super) open_runs: Lazy<'t, u128, ()>,
    pub(super) keys: Lazy<'t, &'static str, u128>,
    pub(super) graves: Lazy<'t, u128, u64>,
}

impl<'t> Tables<'t> {
    pub(super) fn of(txn: &'t WriteTransaction) -> Self {
        Self {
            log: Lazy::new(txn, LOG),
            tails: Lazy::new(txn, TAILS),
            marks: Lazy::new(txn, MARKS),
            inbox: Lazy::new(txn, INBOX),
            accounts: Lazy::new(txn, ACCOUNTS),
            sessions: Lazy::new(txn, SESSIONS),
            session_keys: Lazy::new(txn, SESSION_KEYS),
            runs: Lazy::new(txn, RUNS),
            runs_by_session: Lazy::new(txn, RUNS_BY_SESSION),
            open_runs: Lazy::new(txn, OPEN_RUNS),
            keys: Lazy::new(txn, KEYS),
            graves: Lazy::new(txn, GRAVES),
        }
    }

    /// Makes the tables that are not there yet, so that a read finds all of them. Says the last place in the log.
    pub(super) fn create(mut self) -> Result<u64, Fault> {
        let places = self.log.open()?.last()?.map_or(0, |(place, _)| place.value());
        self.tails.open()?;
        self.marks.open()?;
        self.inbox.open()?;
        self.accounts.open()?;
        self.sessions.open()?;
        self.session_keys.open()?;
        self.runs.open()?;
        self.runs_by_session.open()?;
        self.open_runs.open()?;
        self.keys.open()?;
        self.graves.open()?;
        Ok(places)
    }
}

pub(super) struct Lazy<'t, K: Key + 'static, V: Value + 'static> {
    txn: &'t WriteTransaction,
    definition: TableDefinition<'static, K, V>,
    table: Option<Table<'t, K, V>>,
}

impl<'t, K: Key + 'static, V: Value + 'static> Lazy<'t, K, V> {
    fn new(txn: &'t WriteTransaction, definition: TableDefinition<'static, K, V>) -> Self {
        Self { txn, definition, table: None }
    }

    pub(super) fn open(&mut self) -> Result<&mut Table<'t, K, V>, Fault> {
        match &mut self.table {
            Some(table) => Ok(table),
            table @ None => Ok(table.insert(self.txn.open_table(self.definition)?)),
        }
    }
}
