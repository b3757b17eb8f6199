//! Disk usage of the store's file and blobs, with its row counts. `maintenance/footprint.rs` measures the whole state
//! directory.

use std::fs;

use redb::{Key, ReadTransaction, ReadableTableMetadata, Value};

use super::super::{
    blobs::Blobs,
    error::StoreError,
    tables::{self, Definition, LOG, OPEN_RUNS, RUNS, SESSIONS, Visit},
};

/// The disk usage and the row counts of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoreFootprint {
    /// Bytes of the store's file.
    pub file: u64,
    /// Free bytes of the file, which later writes reuse.
    pub free: u64,
    /// Bytes of the rows of the log, with their keys.
    pub records: u64,
    /// Bytes of all other rows.
    pub index: u64,
    /// Number of sessions.
    pub sessions: u64,
    /// Number of runs.
    pub runs: u64,
    /// Runs that have not ended.
    pub unfinished: u64,
    /// Number of blobs.
    pub blobs: u64,
    /// Their bytes.
    pub blob_bytes: u64,
}

/// Sums the sizes of tables.
struct TableSizes<'t> {
    txn: &'t ReadTransaction,
    /// Bytes of the tables' pages.
    pages: u64,
    rows: u64,
}

pub(super) fn measure(
    txn: &ReadTransaction,
    file: &std::path::Path,
    blobs: &Blobs,
) -> Result<StoreFootprint, StoreError> {
    let none = || TableSizes { txn, pages: 0, rows: 0 };
    let (mut log, mut all) = (none(), none());
    log.table(LOG)?;
    tables::visit(&mut all)?;
    let bytes = fs::metadata(file).map_err(StoreError::at(file))?.len();
    let mut footprint = StoreFootprint {
        file: bytes,
        free: bytes.saturating_sub(all.pages),
        records: log.rows,
        index: all.rows - log.rows,
        sessions: txn.open_table(SESSIONS)?.len()?,
        runs: txn.open_table(RUNS)?.len()?,
        unfinished: txn.open_table(OPEN_RUNS)?.len()?,
        ..StoreFootprint::default()
    };
    let each = |_, bytes| {
        footprint.blobs += 1;
        footprint.blob_bytes += bytes;
    };
    blobs.for_each(each).map_err(StoreError::at(file))?;
    Ok(footprint)
}

impl Visit for TableSizes<'_> {
    type Error = StoreError;

    fn table<K: Key + 'static, V: Value + 'static>(
        &mut self,
        definition: Definition<K, V>,
    ) -> Result<(), StoreError> {
        let stats = self.txn.open_table(definition)?.stats()?;
        let (rows, rest) = (stats.stored_bytes(), stats.metadata_bytes() + stats.fragmented_bytes());
        self.pages += rows + rest;
        self.rows += rows;
        Ok(())
    }
}
