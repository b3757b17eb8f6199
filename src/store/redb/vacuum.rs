//! A store of which most was deleted is made small when it is opened: only then does nobody read or write it.

use hermod_actors::port::Clock;
use redb::{Database, ReadableDatabase, ReadableTable, ReadableTableMetadata, WriteTransaction};

use super::{
    error::StoreError,
    tables::{LOG, META},
};
use crate::clock::SystemClock;

/// A smaller file is left as it is.
const MIN_VACUUM_BYTES: u64 = 64 << 20;
/// Rows of the log that were deleted when the free pages were last counted.
const COUNTED_AT: &str = "counted_at";

/// Makes the store small if more than half of its file is free, and says what is to be noted about it. To count the free
/// pages takes a read of all others; so that is done only when many rows have gone since it was last done.
pub(super) fn vacuum(db: &mut Database, bytes: u64) -> Result<Option<FreePageCount>, StoreError> {
    vacuum_above(db, bytes, MIN_VACUUM_BYTES)
}

pub(super) fn vacuum_above(
    db: &mut Database,
    bytes: u64,
    smallest: u64,
) -> Result<Option<FreePageCount>, StoreError> {
    if bytes <= smallest {
        return Ok(None);
    }
    let Some(counted) = count_if_thinned(db)? else { return Ok(None) };
    let clock = SystemClock::default();
    let used = used_bytes(db)?;
    if bytes.saturating_sub(used) <= bytes / 2 {
        tracing::debug!(bytes, used, ms = clock.monotonic_ms(), "the store is not worth compacting");
        return Ok(Some(counted));
    }
    db.compact()?;
    tracing::info!(bytes, used, ms = clock.monotonic_ms(), "the store was compacted");
    Ok(Some(counted))
}

/// The rows that had gone when the free pages were counted.
pub(super) struct FreePageCount(u64);

impl FreePageCount {
    /// Notes it, in the transaction that begins the epoch.
    pub(super) fn record(&self, txn: &WriteTransaction) -> Result<(), StoreError> {
        txn.open_table(META)?.insert(COUNTED_AT, self.0)?;
        Ok(())
    }
}

/// Whether so many rows of the log have gone that counting may pay: a quarter of what is left.
fn count_if_thinned(db: &Database) -> Result<Option<FreePageCount>, StoreError> {
    let txn = db.begin_read()?;
    let log = txn.open_table(LOG)?;
    let (rows, last) = (log.len()?, log.last()?.map_or(0, |(place, _)| place.value()));
    let gone = last.saturating_sub(rows);
    let before = txn.open_table(META)?.get(COUNTED_AT)?.map_or(0, |gone| gone.value());
    // The youngest rows may have gone too, and with them the last place.
    let since = gone.saturating_sub(before);
    Ok((rows == 0 || since > rows / 4).then_some(FreePageCount(gone)))
}

/// The bytes of pages that hold something.
fn used_bytes(db: &Database) -> Result<u64, StoreError> {
    let txn = db.begin_write()?;
    let stats = txn.stats()?;
    txn.abort()?;
    Ok(stats.allocated_pages().saturating_mul(stats.page_size() as u64))
}
