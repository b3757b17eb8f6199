//! The session that goes on under an id that a compression gave to its conversation.
//!
//! There is no index of such ids: they are asked for seldom. The time in one is that of its record, so that only runs can have
//! it that were under way then; their records are read, besides the row of every run.

use hermod_actors::{
    model::{Body, RunRow, SessionId, SessionRow, Timestamp},
    port::Query,
};

use super::{
    error::RequestError,
    reader::{PAGE_RECORDS, StoreReader},
};

/// The bits of an id behind its time.
const ULID_RANDOM_BITS: u32 = 80;

impl StoreReader {
    /// The session whose conversation has, or had, this lineage.
    pub(super) async fn of_lineage(&self, lineage: SessionId) -> Result<Option<SessionRow>, RequestError> {
        let Ok(at) = i64::try_from(lineage.bits() >> ULID_RANDOM_BITS).map(Timestamp) else {
            return Ok(None);
        };
        let mut runs = self.runs(Query::Runs { session: None, max: usize::MAX }).await?;
        runs.retain(|run| was_open_at(run, at));
        let mut unreadable = None;
        for run in &runs {
            match self.has_lineage(run, lineage).await {
                Ok(true) => return Ok(self.sessions(Query::Session(run.session)).await?.pop()),
                Ok(false) => {}
                // It may be another session's.
                Err(fault) => unreadable = Some(fault),
            }
        }
        unreadable.map_or(Ok(None), Err)
    }

    /// Whether a compression of this run has begun the lineage.
    async fn has_lineage(&self, run: &RunRow, lineage: SessionId) -> Result<bool, RequestError> {
        let mut next = run.first;
        loop {
            let page = self.page(run.session, next, PAGE_RECORDS).await?;
            let is_last = page.len() < PAGE_RECORDS;
            for (seq, record) in page {
                next = seq + 1;
                if matches!(&record.body, Body::ContextCompacted(compacted) if compacted.lineage == lineage) {
                    return Ok(true);
                }
                if matches!(&record.body, Body::RunEnded(ended) if ended.run == run.id && seq >= run.last) {
                    return Ok(false);
                }
            }
            if is_last {
                return Ok(false);
            }
        }
    }
}

/// Whether a run had begun and not ended at this time.
fn was_open_at(run: &RunRow, at: Timestamp) -> bool {
    run.started_at.is_some_and(|began| began <= at) && run.ended_at.is_none_or(|ended| at <= ended)
}
