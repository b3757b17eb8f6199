//! Applies the methods of compaction. First, long results of old calls are left out; then the oldest part is replaced
//! by a summary, in several calls if necessary. Without a summary the part is dropped. If nothing may be removed, the
//! run fails. Also reacts to requests that a provider refuses as too long.

use std::sync::Arc;

use super::ContextBudget;
use crate::{
    model::{
        AttemptId, Body, CompactionMethod, ContextCompacted, Failure, FailureClass, HistoryPosition,
        ModelFailed, Outcome, OutcomeCause, OutcomeDetail, SessionId,
    },
    turn::{
        Turn,
        active_run::ActiveRun,
        compaction_state::{CompactionNeed, PrefixSummary},
        decision::DecisionBuilder,
        delegate::derived_id,
        estimates,
    },
};

/// Most compactions for one input, and most retries of a call that one model refuses as too long.
const MAX_COMPACTIONS_PER_CALL: u32 = 3;

impl DecisionBuilder {
    /// Compacts the view if that is needed and possible without waiting for a summary.
    pub(in crate::turn) fn compact_if_needed(&mut self) {
        let mut passes = 0;
        while passes < MAX_COMPACTIONS_PER_CALL && !self.is_refused() && self.compact_once() {
            passes += 1;
        }
    }

    fn compact_once(&mut self) -> bool {
        let Some(run) = self.run().filter(|run| run.is_at_boundary() && !run.needs_no_compaction()) else {
            return false;
        };
        if let Some(PrefixSummary { end, text, calls }) = self.turn.due_summary(run) {
            let method = if *calls > 1 { CompactionMethod::Chunked } else { CompactionMethod::Summarised };
            let (end, text) = (*end, Arc::clone(text));
            self.compact(method, end, Some(text));
            return true;
        }
        let limits = self.turn.context_budget(run);
        let size = estimates::request_bytes(run, &self.turn);
        let elided = |to: HistoryPosition| size.saturating_sub(self.turn.history.elidable(to));
        match self.turn.need(run) {
            CompactionNeed::Nothing | CompactionNeed::Soon(_) => false,
            CompactionNeed::Impossible => {
                let parts = self.turn.context_breakdown(run);
                self.end_run(OutcomeDetail::with_cause(
                    Outcome::Failed,
                    OutcomeCause::ContextOverflow { parts },
                ));
                false
            }
            CompactionNeed::Now(to)
                if run.compaction.may_elide()
                    && elided(to) <= limits.map_or(0, ContextBudget::target_bytes) =>
            {
                self.compact(CompactionMethod::Elided, to, None);
                true
            }
            CompactionNeed::Now(to) if run.can_be_summarised() => {
                debug_assert!(run.compaction.summary_to(to).is_none(), "a summary is not taken");
                false
            }
            CompactionNeed::Drop(to)
                if elided(to) < size && limits.is_some_and(|limits| elided(to) <= limits.max_request) =>
            {
                self.compact(CompactionMethod::Elided, to, None);
                true
            }
            CompactionNeed::Now(to) | CompactionNeed::Drop(to) => {
                let notice = self.turn.drop_notice(run);
                self.compact(CompactionMethod::Dropped, to, Some(notice));
                true
            }
        }
    }

    /// Whether the failure is a request that a compaction can make shorter.
    pub(in crate::turn) fn is_too_long(&self, failure: &Failure) -> bool {
        matches!(failure.class, FailureClass::ContextTooLong { .. })
            && self.run().is_some_and(|run| run.spec.compaction.is_some())
    }

    /// Reacts to a request that was too long: the next attempt shows a shorter view, or the run fails.
    pub(in crate::turn) fn on_too_long(&mut self, id: AttemptId, failure: &Failure) {
        let Some(call) = self.run().and_then(ActiveRun::model_call_state) else { return };
        let failures = call.started().map_or(0, |started| call.failure_count(&started.model, &failure.class));
        let retry_at = (failures < MAX_COMPACTIONS_PER_CALL).then_some(self.now.at);
        self.record(Body::ModelFailed(ModelFailed::new(id, failure.clone(), retry_at)));
        if retry_at.is_none()
            && let Some(parts) = self.run().map(|run| self.turn.context_breakdown(run))
        {
            self.end_run(OutcomeDetail::with_cause(Outcome::Failed, OutcomeCause::ContextOverflow { parts }));
        }
    }

    /// Records `context.compacted`, with the size of the view before and after.
    fn compact(&mut self, method: CompactionMethod, to: HistoryPosition, summary: Option<Arc<str>>) {
        self.cancel_flush();
        let Some(run) = self.run() else { return };
        let density = self.turn.next_density(run);
        let tokens =
            |run: &ActiveRun, turn: &Turn| density.tokens(estimates::request_bytes(run, turn) as u64);
        let before = tokens(run, &self.turn);
        let waited_ms = run.clock.model_wait_ms(self.now);
        let compacted = ContextCompacted {
            run: run.id,
            lineage: self.lineage(),
            method,
            end: to,
            summary,
            tokens_before: before,
            tokens_after: 0,
            waited_ms,
        };
        self.record_measured(Body::ContextCompacted(Box::new(compacted)), |turn, body| {
            if let (Body::ContextCompacted(compacted), Some(run)) = (body, &turn.current) {
                compacted.tokens_after = tokens(run, turn);
            }
        });
    }

    /// The id of the conversation from this compaction on: ordered by time, and derived from the session and its last
    /// record.
    fn lineage(&self) -> SessionId {
        let parts = [&self.turn.session.bits().to_be_bytes()[..], &self.turn.last.to_be_bytes()];
        SessionId::from_bits(derived_id(self.now.at, &parts))
    }
}
