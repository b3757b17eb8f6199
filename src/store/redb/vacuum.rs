//! Shrinks a store's file from which most was deleted. This is done when the store is opened: only then it has no
//! readers and writers.

use hermod_actors::port::Clock;
use redb::{Database, ReadableDatabase, ReadableTable, ReadableTableMetadata};

use super::{
    error::Result,
    tables::{LOG, META},
};
use crate::clock::SystemClock;

/// Files up to this size are not shrunk.
pub(super) const MIN_VACUUM_BYTES: u64 = 64 << 20;
/// The `meta` row with the number of deleted log rows at the last count of free pages.
pub(super) const COUNTED_AT: &str = "counted_at";

/// Shrinks a store of more than `min_bytes` if more than half of its file is free; returns the number of deleted log rows if free pages were
/// counted. Counting free pages reads all other pages, and is therefore done only if many rows were deleted since the
/// last count.
pub(super) fn vacuum(db: &mut Database, bytes: u64, min_bytes: u64) -> Result<Option<u64>> {
    if bytes <= min_bytes {
        return Ok(None);
    }
    let Some(deleted_rows) = deleted_rows_if_many(db)? else { return Ok(None) };
    let clock = SystemClock::default();
    let used = used_bytes(db)?;
    if bytes.saturating_sub(used) <= bytes / 2 {
        tracing::debug!(bytes, used, ms = clock.monotonic_ms(), "the store is not worth compacting");
        return Ok(Some(deleted_rows));
    }
    db.compact()?;
    tracing::info!(bytes, used, ms = clock.monotonic_ms(), "the store was compacted");
    Ok(Some(deleted_rows))
}

/// The number of deleted log rows, if counting may pay: more than a quarter as many rows as remain were deleted since
/// the last count.
fn deleted_rows_if_many(db: &Database) -> Result<Option<u64>> {
    let txn = db.begin_read()?;
    let log = txn.open_table(LOG)?;
    let (rows, last) = (log.len()?, log.last()?.map_or(0, |(position, _)| position.value()));
    let deleted = last.saturating_sub(rows);
    let before = txn.open_table(META)?.get(COUNTED_AT)?.map_or(0, |deleted| deleted.value());
    // The number may fall: if the newest rows are deleted, the last position falls too.
    let since = deleted.saturating_sub(before);
    Ok((rows == 0 || since > rows / 4).then_some(deleted))
}

/// Bytes of pages in use.
fn used_bytes(db: &Database) -> Result<u64> {
    let txn = db.begin_write()?;
    let stats = txn.stats()?;
    txn.abort()?;
    Ok(stats.allocated_pages().saturating_mul(stats.page_size() as u64))
}
