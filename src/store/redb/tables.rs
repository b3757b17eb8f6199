//! The tables of the store: their names, keys and values, in one list. Also how they are opened, and visited one by
//! one.

use std::ops::RangeInclusive;

use hermod_actors::model::SessionId;
use redb::{
    Key, ReadOnlyTable, ReadTransaction, ReadableTable, Table, TableDefinition, TableError, Value,
    WriteTransaction,
};

use super::error::Result;

/// An id's 128 bits, then a number within it: rows of one id are neighbours.
pub(super) type CompositeKey = (u128, u64);
/// The range of all rows of a session in a table by session and number.
pub(super) const fn rows_of(session: SessionId) -> RangeInclusive<CompositeKey> {
    (session.bits(), 0)..=(session.bits(), u64::MAX)
}

/// The range of all runs of a session in `runs_by_session`, and of all messages in `messages_by_session`.
pub(super) const fn runs_of(session: SessionId) -> RangeInclusive<(u128, u128)> {
    (session.bits(), 0)..=(session.bits(), u128::MAX)
}

/// The range of all occurrences of a schedule.
pub(super) const fn occurrences_of(name: &str) -> RangeInclusive<(&str, i64)> {
    (name, i64::MIN)..=(name, i64::MAX)
}

pub(super) type Definition<K, V> = TableDefinition<'static, K, V>;

/// Calls `each` with every row of a table, in the order of the keys.
pub(super) fn for_each_row<K: Key + 'static, V: Value + 'static>(
    txn: &ReadTransaction,
    table: Definition<K, V>,
    mut each: impl FnMut(K::SelfType<'_>, V::SelfType<'_>) -> Result<()>,
) -> Result<()> {
    for row in txn.open_table(table)?.iter()? {
        let (key, value) = row?;
        each(key.value(), value.value())?;
    }
    Ok(())
}

/// Opens a table; `None` if no version that writes it has opened the store yet.
pub(super) fn open_existing<K: Key, V: Value>(
    txn: &ReadTransaction,
    table: Definition<K, V>,
) -> Result<Option<ReadOnlyTable<K, V>>> {
    match txn.open_table(table) {
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        table => Ok(Some(table?)),
    }
}

/// An operation on every table.
pub(super) trait Visit {
    type Error;

    fn table<K: Key + 'static, V: Value + 'static>(
        &mut self,
        definition: Definition<K, V>,
    ) -> Result<(), Self::Error>;
}

/// The only list of the tables: code that concerns all of them is generated from it.
macro_rules! tables {
    ($($(#[$doc:meta])* $field:ident, $definition:ident: $key:ty => $value:ty = $name:literal;)*) => {
        $($(#[$doc])* pub(super) const $definition: Definition<$key, $value> = Definition::new($name);)*

        /// The names of all tables.
        pub(super) const NAMES: &[&str] = &[$($name),*];

        /// Calls the visitor with every table.
        pub(super) fn visit<V: Visit>(visitor: &mut V) -> Result<(), V::Error> {
            $(visitor.table($definition)?;)*
            Ok(())
        }

        /// The tables of one write transaction, each opened at its first use: an unused table costs nothing.
        pub(super) struct Tables<'t> {
            txn: &'t WriteTransaction,
            $($field: Option<Table<'t, $key, $value>>,)*
        }

        impl<'t> Tables<'t> {
            pub(super) fn of(txn: &'t WriteTransaction) -> Self {
                Self { txn, $($field: None,)* }
            }

            $($(#[$doc])* pub(super) fn $field(&mut self) -> Result<&mut Table<'t, $key, $value>> {
                match &mut self.$field {
                    Some(table) => Ok(table),
                    table @ None => Ok(table.insert(self.txn.open_table($definition)?)),
                }
            })*

            /// Creates missing tables, so that a read finds all of them. Returns the last position in the log.
            pub(super) fn create(mut self) -> Result<u64> {
                $(self.$field()?;)*
                Ok(self.log()?.last()?.map_or(0, |(position, _)| position.value()))
            }
        }
    };
}

tables! {
    /// Numbers of the store by name, such as its schema version and its epoch.
    meta, META: &'static str => u64 = "meta";
    /// Rows of records by position, in the order of time. See [`super::log`].
    log, LOG: u64 => &'static [u8] = "appends";
    /// By session: position of the last row, last sequence number, and rows since the last mark.
    tails, TAILS: u128 => (u64, u64, u64) = "tails";
    /// (session, last sequence number of a row) to the position of that row.
    marks, MARKS: CompositeKey => u64 = "marks";
    /// (session, number) to an unread inbox message.
    inbox, INBOX: CompositeKey => &'static [u8] = "inbox";
    accounts, ACCOUNTS: u128 => &'static [u8] = "accounts";
    /// Rows as JSON.
    sessions, SESSIONS: u128 => &'static [u8] = "sessions";
    /// Session keys of callers, and their sessions.
    session_keys, SESSION_KEYS: &'static str => u128 = "session_keys";
    /// Rows as JSON.
    runs, RUNS: u128 => &'static [u8] = "runs";
    /// (session, run).
    runs_by_session, RUNS_BY_SESSION: (u128, u128) => () = "runs_by_session";
    /// Runs that have not ended.
    open_runs, OPEN_RUNS: u128 => () = "open_runs";
    /// Rows as JSON, of messages that did not become runs of their own.
    messages, MESSAGES: u128 => &'static [u8] = "messages";
    /// (session, message).
    messages_by_session, MESSAGES_BY_SESSION: (u128, u128) => () = "messages_by_session";
    /// Idempotency keys, and their runs or messages.
    keys, KEYS: &'static str => u128 = "keys";
    /// Removed sessions, and the position of the last remaining row of each.
    tombstones, TOMBSTONES: u128 => u64 = "graves";
    /// Rows of models as JSON, by `provider/model`.
    models, MODELS: &'static str => &'static [u8] = "models";
    /// Pending messages as JSON, by target and number. See [`super::outbox`].
    outbox, OUTBOX: (&'static str, u64) => &'static [u8] = "outbox";
    /// The last delivered messages as JSON, by number.
    delivered, DELIVERED: u64 => &'static [u8] = "delivered";
    /// Messages that were given up as JSON, by number.
    dead_letters, DEAD_LETTERS: u64 => &'static [u8] = "dead_letters";
    /// Schedules as JSON, by name. See [`super::schedules`].
    schedules, SCHEDULES: &'static str => &'static [u8] = "schedules";
    /// Occurrences as JSON, by schedule and time in milliseconds.
    occurrences, OCCURRENCES: (&'static str, i64) => &'static [u8] = "occurrences";
}
