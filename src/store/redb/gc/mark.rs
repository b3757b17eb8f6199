//! The mark phase: the blobs to which rows of a snapshot refer.

use std::collections::HashSet;

use hermod_actors::model::{RunId, SessionId};
use redb::{ReadTransaction, ReadableTable};

use super::{
    super::{
        blobs::{BlobHash, Blobs},
        error::Result,
        log::LogRow,
        tables::{INBOX, LOG, RUNS, SESSIONS, for_each_row},
    },
    collector::RemovedSet,
};

/// The blobs that retained rows refer to; `None` if a row cannot be read.
pub(super) fn referenced_blobs(
    txn: &ReadTransaction,
    removed: &RemovedSet,
) -> Result<Option<HashSet<BlobHash>>> {
    let mut found = HashSet::new();
    for row in txn.open_table(LOG)?.iter()? {
        let (position, row) = row?;
        let Ok((session, row)) = LogRow::parse_any(position.value(), row.value()) else { return Ok(None) };
        if removed.sessions.contains(&session) {
            continue;
        }
        for (_, stored) in row.records() {
            let Ok(stored) = stored else { return Ok(None) };
            found.extend(Blobs::referenced_hash(stored));
        }
    }
    for_each_row(txn, SESSIONS, |id, stored| {
        if !removed.sessions.contains(&SessionId::from_bits(id)) {
            found.extend(Blobs::referenced_hash(stored));
        }
        Ok(())
    })?;
    for_each_row(txn, RUNS, |id, stored| {
        if !removed.runs.contains(&RunId::from_bits(id)) {
            found.extend(Blobs::referenced_hash(stored));
        }
        Ok(())
    })?;
    for_each_row(txn, INBOX, |_, stored| {
        found.extend(Blobs::referenced_hash(stored));
        Ok(())
    })?;
    Ok(Some(found))
}
