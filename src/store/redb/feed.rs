//! Reads of the feed: the rows of the log in the order of their positions.

use hermod_actors::{
    model::SessionId,
    port::{FeedCursor, FeedEntry, ReadError},
};
use redb::ReadableTable as _;

use super::{
    blobs::Blobs,
    log::LogRow,
    read::{ReadAbort, Result, SnapshotReader},
    tables::{LOG, TOMBSTONES},
};

/// Bytes of records after which a page ends. A client may take its entries slowly.
const MAX_PAGE_BYTES: usize = 1 << 20;

/// The bytes of a stored record, as far as its page is concerned: one in a file of its own ends the page.
fn size(stored: &[u8]) -> usize {
    if Blobs::is_spilled(stored) { MAX_PAGE_BYTES } else { stored.len() }
}

impl SnapshotReader {
    /// At most `max` entries after a place. A record that cannot be read is an entry too, so that it hides no others.
    pub(super) fn feed(&mut self, after: FeedCursor, max: usize) -> Result<Vec<FeedEntry>> {
        let (log, tombstones) = (self.open(LOG)?, self.open(TOMBSTONES)?);
        let mut entries = Vec::new();
        let mut bytes_read = 0;
        for stored in log.range(after.position..)? {
            if entries.len() >= max || bytes_read >= MAX_PAGE_BYTES {
                break;
            }
            let (position, bytes) = stored?;
            let position = position.value();
            self.spend(bytes.value())?;
            let (session, row) = match LogRow::parse_any(position, bytes.value()) {
                Ok(row) => row,
                Err(error) => {
                    tracing::warn!(position, %error, "a row of the log cannot be read");
                    continue;
                }
            };
            if tombstones.get(session.bits())?.is_some() {
                continue;
            }
            let seen = if position == after.position { after.records } else { 0 };
            for (records, (seq, stored)) in (1..).zip(row.records()) {
                if records > seen && entries.len() < max && bytes_read < MAX_PAGE_BYTES {
                    bytes_read += stored.as_ref().map_or(0, |stored| size(stored));
                    let cursor = FeedCursor { position, records };
                    entries.push(self.feed_entry(cursor, session, (seq, stored))?);
                }
            }
        }
        Ok(entries)
    }

    fn feed_entry(
        &mut self,
        cursor: FeedCursor,
        session: SessionId,
        (seq, stored): (u64, Result<&[u8], String>),
    ) -> Result<FeedEntry> {
        let record = match stored.map(|stored| self.record(session, seq, stored)) {
            Ok(Ok(record)) => Ok(record.into()),
            Ok(Err(ReadAbort::Failed(error @ ReadError::Record { .. }))) => Err(error.to_string()),
            Ok(Err(error)) => return Err(error),
            Err(error) => Err(error),
        };
        Ok(FeedEntry { cursor, session, seq, record })
    }

    /// The place behind the last record.
    pub(super) fn feed_end(&mut self) -> Result<FeedCursor> {
        let log = self.open(LOG)?;
        let Some((position, bytes)) = log.last()? else { return Ok(FeedCursor::default()) };
        let position = position.value();
        let records = LogRow::parse_any(position, bytes.value()).map_or(0, |(_, row)| row.records().count());
        Ok(FeedCursor { position, records: u32::try_from(records).unwrap_or(u32::MAX) })
    }
}
