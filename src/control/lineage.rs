//! Finds the session that continues under a lineage, the id that a compaction gives to its conversation.
//!
//! Lineages have no index, because lookups are rare. An id contains the time of its record, so only runs open at that
//! time can have it. Besides the row of every run, only the records of those runs are read.

use std::{ops::ControlFlow, sync::Arc};

use hermod_actors::model::{Body, Record, RunRow, SessionId, SessionRow, Timestamp};

use super::{error::RequestError, reader::StoreReader};

/// The random bits of an id, below its time.
const ULID_RANDOM_BITS: u32 = 80;

impl StoreReader {
    /// The session whose conversation has, or had, this lineage.
    pub(super) async fn of_lineage(&self, lineage: SessionId) -> Result<Option<SessionRow>, RequestError> {
        let Ok(began_at) = i64::try_from(lineage.bits() >> ULID_RANDOM_BITS).map(Timestamp) else {
            return Ok(None);
        };
        let mut runs = self.read(|rows| rows.runs(None, usize::MAX)).await?;
        runs.retain(|run| was_open_at(run, began_at));
        let mut unreadable = None;
        for run in &runs {
            match self.has_lineage(run, lineage).await {
                Ok(true) => return self.read(|rows| rows.session(run.session)).await,
                Ok(false) => {}
                // The lineage may be in another session, so the search continues.
                Err(error) => unreadable = Some(error),
            }
        }
        unreadable.map_or(Ok(None), Err)
    }

    /// True if a compaction of this run began the lineage.
    async fn has_lineage(&self, run: &RunRow, lineage: SessionId) -> Result<bool, RequestError> {
        let each = |seq, record: Arc<Record>| {
            if matches!(&record.body, Body::ContextCompacted(compacted) if compacted.lineage == lineage) {
                return ControlFlow::Break(true);
            }
            if matches!(&record.body, Body::RunEnded(ended) if ended.run == run.id && seq >= run.last) {
                return ControlFlow::Break(false);
            }
            ControlFlow::Continue(())
        };
        let found = self.visit(run.session, run.first, each).await?;
        Ok(found.break_value().unwrap_or(false))
    }
}

/// True if the run had started and not ended at `at`.
fn was_open_at(run: &RunRow, at: Timestamp) -> bool {
    run.started_at.is_some_and(|began| began <= at) && run.ended_at.is_none_or(|ended| at <= ended)
}
