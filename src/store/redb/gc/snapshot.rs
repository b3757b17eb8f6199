//! Lookups of sessions, runs and scripts in a snapshot of the store, for gc of the files of sessions and runs.

use std::collections::BTreeSet;

use hermod_actors::model::{Body, RunId, RunRow, SessionId};
use redb::{ReadTransaction, ReadableTable};

use super::{
    super::{
        error::Result,
        read::SnapshotReader,
        tables::{RUNS, SESSIONS},
    },
    collector::{GcError, RemovedSet},
};

/// Lookups in one snapshot. Block.
#[derive(Debug)]
pub struct GcSnapshot {
    pub(super) reader: SnapshotReader,
}

impl GcSnapshot {
    pub(super) fn txn(&self) -> &ReadTransaction {
        &self.reader.txn
    }

    /// Whether the session exists.
    pub fn has_session(&self, session: SessionId) -> Result<bool, GcError> {
        let is_there = || Ok(self.txn().open_table(SESSIONS)?.get(session.bits())?.is_some());
        Ok(self.reader.file.run(is_there)?)
    }

    /// The row of a run; `None` if the run does not exist.
    pub fn run(&mut self, run: RunId) -> Result<Option<RunRow>, GcError> {
        self.reader.read(|rows| rows.run(run)).map_err(|error| GcError::Failed(error.to_string()))
    }

    fn runs(&self) -> Result<Vec<RunId>> {
        self.reader.file.run(|| {
            let rows = self.txn().open_table(RUNS)?;
            rows.iter()?.map(|row| Ok(RunId::from_bits(row?.0.value()))).collect()
        })
    }

    /// The rehearsal scripts of retained runs; `None` if one cannot be read.
    pub fn scripts(&mut self, removed: &RemovedSet) -> Result<Option<BTreeSet<String>>, GcError> {
        let mut scripts = BTreeSet::new();
        for run in self.runs()?.into_iter().filter(|run| !removed.runs.contains(run)) {
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
