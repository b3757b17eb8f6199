use std::fs;

use redb::{Key, ReadTransaction, ReadableTableMetadata, TableDefinition, Value};

use super::super::{
    blobs::Blobs,
    fault::Fault,
    tables::{
        ACCOUNTS, GRAVES, INBOX, KEYS, LOG, MARKS, OPEN_RUNS, RUNS, RUNS_BY_SESSION, SESSION_KEYS, SESSIONS,
        TAILS,
    },
};

/// What the store takes up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoreFootprint {
    /// Bytes of its file.
    pub file: u64,
    /// How many of them hold nothing: what is written next goes there.
    pub free: u64,
    /// Bytes of the rows that hold records, the keys of these rows included.
    pub records: u64,
    /// Bytes of all other rows.
    pub index: u64,
    /// Sessions.
    pub sessions: u64,
    /// Runs.
    pub runs: u64,
    /// Those that have not ended.
    pub unfinished: u64,
    /// Values in files of their own.
    pub blobs: u64,
    /// Their bytes.
    pub blob_bytes: u64,
}

/// What a table takes up.
#[derive(Default)]
struct Size {
    /// Bytes of its pages.
    pages: u64,
    rows: u64,
}

pub(super) fn measure(
    txn: &ReadTransaction,
    file: &std::path::Path,
    blobs: &Blobs,
) -> Result<StoreFootprint, Fault> {
    let log = size(txn, LOG)?;
    let mut index = Size::default();
    for more in [
        size(txn, TAILS)?,
        size(txn, MARKS)?,
        size(txn, INBOX)?,
        size(txn, ACCOUNTS)?,
        size(txn, SESSIONS)?,
        size(txn, SESSION_KEYS)?,
        size(txn, RUNS)?,
        size(txn, RUNS_BY_SESSION)?,
        size(txn, OPEN_RUNS)?,
        size(txn, KEYS)?,
        size(txn, GRAVES)?,
    ] {
        index.pages += more.pages;
        index.rows += more.rows;
    }
    let bytes = fs::metadata(file).map_err(Fault::at(file))?.len();
    let mut footprint = StoreFootprint {
        file: bytes,
        free: bytes.saturating_sub(log.pages + index.pages),
        records: log.rows,
        index: index.rows,
        sessions: txn.open_table(SESSIONS)?.len()?,
        runs: txn.open_table(RUNS)?.len()?,
        unfinished: txn.open_table(OPEN_RUNS)?.len()?,
        ..StoreFootprint::default()
    };
    let each = |_, bytes| {
        footprint.blobs += 1;
        footprint.blob_bytes += bytes;
    };
    blobs.each(each).map_err(Fault::at(file))?;
    Ok(footprint)
}

fn size<K: Key + 'static, V: Value + 'static>(
    txn: &ReadTransaction,
    table: TableDefinition<'static, K, V>,
) -> Result<Size, Fault> {
    let stats = txn.open_table(table)?.stats()?;
    let (rows, rest) = (stats.stored_bytes(), stats.metadata_bytes() + stats.fragmented_bytes());
    Ok(Size { pages: rows + rest, rows })
}
