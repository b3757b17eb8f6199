//! The layout of the log, with the writing and parsing of its rows: one row for each append, or several for a long one.
//! They are in the order of time and not of sessions, so a commit with appends of many sessions writes neighbouring
//! pages.
//!
//! Each row names the session's previous row; `tails` has the session's last row, and `marks` every 64th one.
//! A page of a long journal is thus found without following all of its rows.

use std::borrow::Cow;

use hermod_actors::model::{Seq, SessionId};
use redb::{ReadableTable, StorageError, TableDefinition, WriteTransaction};

use super::{
    error::Result,
    tables::{CompositeKey, Tables},
};

/// Rows of a session from one mark to the next.
const ROWS_PER_MARK: u64 = 64;
/// Maximum bytes of a row with several records. The engine's pages are powers of two, and a long value would waste half
/// of them.
const MAX_ROW_BYTES: usize = 16 * 1024;
/// Bytes of a row before its records: session, first sequence number, position of the session's previous row (0: none).
/// The records follow, each after its length (u32). All numbers are little-endian.
const HEADER_BYTES: usize = 16 + 8 + 8;

/// The end of a session's records; all 0 for a session without records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct SessionTail {
    /// The position of its last row.
    pub(super) position: u64,
    /// The sequence number of its last record.
    pub(super) last: Seq,
    /// Rows since the last mark.
    pub(super) rows_since_mark: u64,
}

impl SessionTail {
    /// The stored tail of a session.
    pub(super) fn read(
        tails: &impl ReadableTable<u128, (u64, Seq, u64)>,
        session: SessionId,
    ) -> Result<Option<Self>, StorageError> {
        Ok(tails.get(session.bits())?.map(|tail| Self::of(tail.value())))
    }

    pub(super) fn of((position, last, rows_since_mark): (u64, Seq, u64)) -> Self {
        Self { position, last, rows_since_mark }
    }

    /// Counts a row since the last mark; returns whether the row must be marked.
    pub(super) fn grow(&mut self) -> bool {
        self.rows_since_mark = (self.rows_since_mark + 1) % ROWS_PER_MARK;
        self.rows_since_mark == 0
    }
}

/// Appends records of a session after its tail. `last_position` is the last position taken in the log, and is advanced.
pub(super) fn append<'v>(
    tables: &mut Tables<'_>,
    last_position: &mut u64,
    session: SessionId,
    mut tail: SessionTail,
    stored: impl IntoIterator<Item = Result<Cow<'v, [u8]>>>,
) -> Result<SessionTail> {
    let mut row = row_header(session, tail);
    for stored in stored {
        let stored = stored?;
        if row.len() > HEADER_BYTES && row.len() + 4 + stored.len() > MAX_ROW_BYTES {
            insert_row(tables, last_position, session, &mut tail, &row)?;
            row = row_header(session, tail);
        }
        let length = u32::try_from(stored.len()).unwrap_or_else(|_| unreachable!("what is long is spilled"));
        row.extend(length.to_le_bytes());
        row.extend_from_slice(&stored);
        tail.last += 1;
    }
    insert_row(tables, last_position, session, &mut tail, &row)?;
    tables.tails()?.insert(session.bits(), (tail.position, tail.last, tail.rows_since_mark))?;
    Ok(tail)
}

fn row_header(session: SessionId, tail: SessionTail) -> Vec<u8> {
    let mut row = Vec::with_capacity(1024);
    row.extend(session.bits().to_le_bytes());
    row.extend((tail.last + 1).to_le_bytes());
    row.extend(tail.position.to_le_bytes());
    row
}

fn insert_row(
    tables: &mut Tables<'_>,
    last_position: &mut u64,
    session: SessionId,
    tail: &mut SessionTail,
    row: &[u8],
) -> Result<()> {
    *last_position += 1;
    tail.position = *last_position;
    tables.log()?.insert(tail.position, row)?;
    if tail.grow() {
        tables.marks()?.insert((session.bits(), tail.last), tail.position)?;
    }
    Ok(())
}

/// Schema 1: a row for each record, by (session, sequence number).
const RECORDS: TableDefinition<CompositeKey, &[u8]> = TableDefinition::new("log");

/// Migrates schema 1: moves the records to rows of whole appends, in the transaction that starts the epoch. A crash in
/// between leaves the old store.
pub(super) fn migrate_from_1(txn: &WriteTransaction) -> Result<()> {
    let records = txn.open_table(RECORDS)?;
    let (mut tables, mut last_position) = (Tables::of(txn), 0);
    let mut session: Option<u128> = records.first()?.map(|(key, _)| key.value().0);
    while let Some(bits) = session {
        let rows = records.range((bits, 0)..=(bits, u64::MAX))?;
        let stored = rows.map(|row| Ok(Cow::Owned(row?.1.value().to_vec())));
        let id = SessionId::from_bits(bits);
        append(&mut tables, &mut last_position, id, SessionTail::default(), stored)?;
        let next = bits.checked_add(1).map(|next| records.range((next, 0)..)).transpose()?;
        session = next.and_then(|mut rows| rows.next()).transpose()?.map(|(key, _)| key.value().0);
    }
    drop((records, tables));
    txn.delete_table(RECORDS)?;
    Ok(())
}

/// The session to which a row belongs.
pub(super) fn session_of_row(bytes: &[u8]) -> Result<SessionId, String> {
    take(&mut &*bytes).map(|owner| SessionId::from_bits(u128::from_le_bytes(owner)))
}

/// A stored row.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LogRow<'r> {
    /// The sequence number of its first record.
    pub(super) first: Seq,
    /// The position of the session's previous row; 0 for the first one.
    pub(super) previous: u64,
    rest: &'r [u8],
}

impl<'r> LogRow<'r> {
    /// Parses the row at `position`, which must belong to `session`.
    pub(super) fn parse(session: SessionId, position: u64, bytes: &'r [u8]) -> Result<Self, String> {
        let (owner, row) = Self::parse_any(position, bytes)?;
        if owner != session {
            return Err(format!("row {position} of the log belongs to session {owner}"));
        }
        Ok(row)
    }

    /// Parses the row at `position`, and returns its session.
    pub(super) fn parse_any(position: u64, bytes: &'r [u8]) -> Result<(SessionId, Self), String> {
        let mut rest = bytes;
        let (owner, first, previous) = (take(&mut rest)?, take(&mut rest)?, take(&mut rest)?);
        let row = Self { first: u64::from_le_bytes(first), previous: u64::from_le_bytes(previous), rest };
        // The previous row must be at a lower position, so that following rows backwards terminates.
        if row.previous >= position {
            return Err(format!("row {position} of the log names row {} as the one before it", row.previous));
        }
        Ok((SessionId::from_bits(u128::from_le_bytes(owner)), row))
    }

    /// The stored records with their sequence numbers.
    pub(super) fn records(&self) -> impl Iterator<Item = (Seq, Result<&'r [u8], String>)> + use<'r> {
        let (mut rest, mut seq) = (self.rest, self.first);
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let record = record(&mut rest);
            if record.is_err() {
                rest = &[];
            }
            seq += 1;
            Some((seq - 1, record))
        })
    }
}

fn record<'r>(rest: &mut &'r [u8]) -> Result<&'r [u8], String> {
    let length = u32::from_le_bytes(take(rest)?);
    let length = usize::try_from(length).map_err(|error| error.to_string())?;
    let (record, after) = rest.split_at_checked(length).ok_or("its row ends within it")?;
    *rest = after;
    Ok(record)
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], String> {
    let (taken, after) = rest.split_first_chunk().ok_or("its row is too short")?;
    *rest = after;
    Ok(*taken)
}

#[cfg(test)]
mod tests {
    use redb::{Builder, Database, backends::InMemoryBackend};

    use super::*;

    const SESSION: SessionId = SessionId::from_bits(7 << 64);

    fn appended(db: &Database, tail: SessionTail, records: &[&[u8]]) -> (SessionTail, Vec<Vec<u8>>) {
        let txn = db.begin_write().unwrap();
        let mut tables = Tables::of(&txn);
        let mut last_position = tail.position + 10;
        let stored = records.iter().map(|record| Ok(Cow::Borrowed(*record)));
        let tail = append(&mut tables, &mut last_position, SESSION, tail, stored).unwrap();
        let rows = tables.log().unwrap().iter().unwrap();
        let rows = rows.map(|row| row.unwrap().1.value().to_vec()).collect();
        drop(tables);
        txn.commit().unwrap();
        (tail, rows)
    }

    fn store() -> Database {
        Builder::new().create_with_backend(InMemoryBackend::new()).unwrap()
    }

    #[test]
    fn an_append_is_a_row_that_names_the_one_before() {
        let db = store();
        let (tail, _) = appended(&db, SessionTail::default(), &[b"one", b"two"]);
        let (tail, rows) = appended(&db, tail, &[b"three"]);
        assert_eq!(tail, SessionTail { position: 22, last: 3, rows_since_mark: 2 });
        let first = LogRow::parse(SESSION, 11, &rows[0]).unwrap();
        let second = LogRow::parse(SESSION, 22, &rows[1]).unwrap();
        assert_eq!((first.first, first.previous, second.first, second.previous), (1, 0, 3, 11));
        let records: Vec<_> = first.records().chain(second.records()).collect();
        assert_eq!(records, [(1, Ok(&b"one"[..])), (2, Ok(b"two")), (3, Ok(b"three"))]);
    }

    #[test]
    fn what_is_long_takes_several_rows() {
        let long = vec![b'x'; MAX_ROW_BYTES - HEADER_BYTES - 4];
        let (tail, rows) = appended(&store(), SessionTail::default(), &[&long, b"y", &long]);
        assert_eq!((tail.last, rows.len()), (3, 3));
        assert!(rows.iter().all(|row| row.len() <= MAX_ROW_BYTES));
    }

    #[test]
    fn every_64th_row_is_marked() {
        let db = store();
        let tail = (0..130).fold(SessionTail::default(), |tail, _| appended(&db, tail, &[b"a", b"b"]).0);
        let txn = db.begin_write().unwrap();
        let marks = Tables::of(&txn).marks().unwrap().iter().unwrap().count();
        assert_eq!((marks, tail.rows_since_mark), (2, 2));
    }

    #[test]
    fn a_damaged_row_says_so() {
        let (_, rows) = appended(&store(), SessionTail::default(), &[b"one", b"two"]);
        let row = &rows[0];
        let check = |session: SessionId, position: u64, bytes: &[u8], expect: &str| {
            let error = LogRow::parse(session, position, bytes).unwrap_err();
            assert!(error.contains(expect), "{error}");
        };
        check(SESSION, 11, &row[..HEADER_BYTES - 1], "too short");
        check(SessionId::from_bits(1), 11, row, "belongs to session");
        check(SESSION, 0, row, "names row 0");
        for cut in [HEADER_BYTES + 2, HEADER_BYTES + 5, row.len() - 1] {
            let records: Vec<_> = LogRow::parse(SESSION, 11, &row[..cut]).unwrap().records().collect();
            let last = records.last().unwrap();
            assert!(last.1.is_err(), "{cut}: {records:?}");
        }
    }
}
