//! Disk usage of the store's file by kind of row, with row counts. Blobs and the rest of the state directory are
//! measured in `maintenance/footprint.rs`.

use std::{fs, path::Path};

use redb::{Key, ReadTransaction, ReadableTableMetadata, Value};
use serde::{Deserialize, Serialize};

use super::super::{
    error::{Result, StoreError},
    tables::{self, Definition, LOG, OPEN_RUNS, RUNS, SESSIONS, Visit},
};
use crate::files::IoResult as _;

/// The disk usage and the row counts of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreFootprint {
    /// Bytes of the rows of the log, with their keys.
    pub records: u64,
    /// Bytes of all other rows.
    pub index: u64,
    /// Approximate free bytes of the file, which later writes reuse.
    pub free: u64,
    /// Number of sessions.
    pub sessions: u64,
    /// Number of runs.
    pub runs: u64,
    /// Runs that have not ended.
    pub unfinished: u64,
}

/// Sums the sizes of tables.
struct TableSizes<'t> {
    txn: &'t ReadTransaction,
    /// Bytes of the tables' pages.
    pages: u64,
    rows: u64,
}

/// Measures the store whose file is at `path`.
pub(super) fn measure(txn: &ReadTransaction, path: &Path) -> Result<StoreFootprint> {
    let none = || TableSizes { txn, pages: 0, rows: 0 };
    let (mut log, mut all) = (none(), none());
    log.table(LOG)?;
    tables::visit(&mut all)?;
    Ok(StoreFootprint {
        free: fs::metadata(path).at(path)?.len().saturating_sub(all.pages),
        records: log.rows,
        index: all.rows - log.rows,
        sessions: txn.open_table(SESSIONS)?.len()?,
        runs: txn.open_table(RUNS)?.len()?,
        unfinished: txn.open_table(OPEN_RUNS)?.len()?,
    })
}

impl Visit for TableSizes<'_> {
    type Error = StoreError;

    fn table<K: Key + 'static, V: Value + 'static>(&mut self, definition: Definition<K, V>) -> Result<()> {
        let stats = self.txn.open_table(definition)?.stats()?;
        let (rows, rest) = (stats.stored_bytes(), stats.metadata_bytes() + stats.fragmented_bytes());
        self.pages += rows + rest;
        self.rows += rows;
        Ok(())
    }
}
