//! The session that goes on under an id that a compression gave to its conversation.
//!
//! There is no index of such ids: they are asked for seldom. The time in one is that of its record, so that only runs can have
//! it that were under way then; their records are read, besides the row of every run.

use hermod_actors::{
    model::{Body, RunRow, SessionId, SessionRow, Timestamp},
    port::Read,
};

use super::{
    fault::Fault,
    reader::{PAGE, Reader},
};

/// The bits of an id behind its time.
const CHANCE: u32 = 80;

impl Reader {
    /// The session whose conversation has, or had, this lineage.
    pub(super) async fn of_lineage(&self, lineage: SessionId) -> Result<Option<SessionRow>, Fault> {
        let Ok(at) = i64::try_from(lineage.bits() >> CHANCE).map(Timestamp) else { return Ok(None) };
        let mut runs = self.runs(Read::Runs { session: None, max: usize::MAX }).await?;
        runs.retain(|run| was_under_way(run, at));
        let mut unreadable = None;
        for run in &runs {
            match self.has_begun(run, lineage).await {
                Ok(true) => return Ok(self.sessions(Read::Session(run.session)).await?.pop()),
                Ok(false) => {}
                // It may be another session's.
                Err(fault) => unreadable = Some(fault),
            }
        }
        unreadable.map_or(Ok(None), Err)
    }

    /// Whether a compression of this run has begun the lineage.
    async fn has_begun(&self, run: &RunRow, lineage: SessionId) -> Result<bool, Fault> {
        let mut next = run.first;
        loop {
            let page = self.page(run.session, next, PAGE).await?;
            let is_last = page.len() < PAGE;
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
fn was_under_way(run: &RunRow, at: Timestamp) -> bool {
    run.started_at.is_some_and(|began| began <= at) && run.ended_at.is_none_or(|ended| at <= ended)
}
