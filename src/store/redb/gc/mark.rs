//! The mark phase: the blobs and scripts to which rows of a snapshot refer. Also lookups of sessions and runs, for
//! files beside the store.

use std::{
    collections::{BTreeSet, HashSet},
    fmt,
};

use hermod_actors::model::{Body, RunId, RunRow, SessionId};
use redb::{ReadTransaction, ReadableTable};

use super::{
    super::{
        blobs::{BlobHash, Blobs},
        error::StoreError,
        log::LogRow,
        read::SnapshotReader,
        tables::{INBOX, LOG, RUNS, SESSIONS},
    },
    collector::{GcError, RemovedSet},
};

/// The blobs that retained rows refer to; `None` if a row cannot be read.
pub(super) fn referenced_blobs(
    txn: &ReadTransaction,
    gone: &RemovedSet,
) -> Result<Option<HashSet<BlobHash>>, StoreError> {
    let mut found = HashSet::new();
    for row in txn.open_table(LOG)?.iter()? {
        let (place, row) = row?;
        let Ok((session, row)) = LogRow::parse_any(place.value(), row.value()) else { return Ok(None) };
        if gone.sessions.contains(&session) {
            continue;
        }
        for (_, stored) in row.records() {
            let Ok(stored) = stored else { return Ok(None) };
            found.extend(Blobs::referenced_hash(stored));
        }
    }
    for row in txn.open_table(SESSIONS)?.iter()? {
        let (id, stored) = row?;
        if !gone.sessions.contains(&SessionId::from_bits(id.value())) {
            found.extend(Blobs::referenced_hash(stored.value()));
        }
    }
    for row in txn.open_table(RUNS)?.iter()? {
        let (id, stored) = row?;
        if !gone.runs.contains(&RunId::from_bits(id.value())) {
            found.extend(Blobs::referenced_hash(stored.value()));
        }
    }
    for row in txn.open_table(INBOX)?.iter()? {
        found.extend(Blobs::referenced_hash(row?.1.value()));
    }
    Ok(Some(found))
}

/// Lookups in one snapshot. Blocks.
pub struct Lookup {
    reader: SnapshotReader,
}

impl Lookup {
    pub(super) const fn new(reader: SnapshotReader) -> Self {
        Self { reader }
    }

    /// Whether the session exists.
    pub fn has_session(&self, session: SessionId) -> Result<bool, GcError> {
        let is_there = || Ok(self.reader.txn().open_table(SESSIONS)?.get(session.bits())?.is_some());
        Ok(self.reader.file().run(is_there)?)
    }

    /// The row of a run; `None` if the run does not exist.
    pub fn run(&mut self, run: RunId) -> Result<Option<RunRow>, GcError> {
        self.reader.read(|rows| rows.run(run)).map_err(|error| GcError::Failed(error.to_string()))
    }

    fn runs(&self) -> Result<Vec<RunId>, StoreError> {
        self.reader.file().run(|| {
            let rows = self.reader.txn().open_table(RUNS)?;
            rows.iter()?.map(|row| Ok(RunId::from_bits(row?.0.value()))).collect()
        })
    }

    /// The rehearsal scripts of retained runs; `None` if one cannot be read.
    pub fn scripts(&mut self, gone: &RemovedSet) -> Result<Option<BTreeSet<String>>, GcError> {
        let mut scripts = BTreeSet::new();
        for run in self.runs()?.into_iter().filter(|run| !gone.runs.contains(run)) {
            let Ok(Some(row)) = self.run(run) else { return Ok(None) };
            let read = self.reader.read(|rows| rows.records(row.session, row.first, 1));
            let Ok(records) = read else { return Ok(None) };
            let Some(Body::RunAccepted(accepted)) = records.first().map(|stored| &stored.record.body) else {
                return Ok(None);
            };
            scripts.extend(accepted.spec.script.map(|hash| hash.to_string()));
        }
        Ok(Some(scripts))
    }
}

impl fmt::Debug for Lookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lookup").finish_non_exhaustive()
    }
}
