//! What a run's own calls have spent in all its legs, and the reservation that did not fit. Also the output limits of
//! models that failures have shown. The ledger's arithmetic is in `journal/ledger.rs`.

use crate::{
    model::{Amounts, Body, BudgetRefusal, ModelRef, ModelStarted, RetryReason, RunId, Usage},
    policy::spent_by_failure,
};

/// The cost of one tool call.
pub(super) const ONE_CALL: Amounts =
    Amounts { iterations: None, tokens: None, usd: None, tool_calls: Some(1), children: None };

/// The spend of a run by its own calls, without its subagents, and the refusal that exhausted it.
#[derive(Debug, Clone, Default)]
pub(super) struct RunBudget {
    pub(super) usage: Usage,
    /// Spend of all ended attempts and started tool calls. An unknown cost counts as its reservation.
    pub(super) spent: Amounts,
    /// Output limits of models, in tokens, as their failures have shown.
    pub(super) output_caps: Vec<(ModelRef, u64)>,
    /// Count of the iteration numbers that are no iterations: grace calls of earlier legs, and a call that was given up
    /// in the append that started it.
    pub(super) skipped_numbers: u32,
    /// The reservation that did not fit. From then on only the grace call is made.
    pub(super) exhausted: Option<BudgetRefusal>,
}

/// A reservation that the ledger refused.
#[derive(Debug, Clone)]
pub(super) struct RefusedReservation {
    pub(super) refusal: BudgetRefusal,
    /// The run that was under way when the refusal arrived.
    pub(super) run: Option<RunId>,
}

impl RunBudget {
    /// Adds what a record spends. `started` is the attempt of a model call or aside that the record ends. It is
    /// absent for other kinds only: `decide` writes no end of an attempt that is not started, and a late end has its
    /// own kind.
    #[expect(clippy::wildcard_enum_match_arm, reason = "other kinds spend nothing")]
    pub(super) fn apply(&mut self, body: &Body, started: Option<&ModelStarted>) {
        let usage = body.settled_usage().and_then(|(_, usage)| usage);
        self.usage.add(&usage.copied().unwrap_or_default());
        match body {
            Body::ModelAnswered(_) | Body::SummaryAnswered(_) | Body::AsideAnswered(_) => {
                self.spent.add(&started.map(|started| started.spent(usage)).unwrap_or_default());
            }
            Body::ModelFailed(failed) | Body::SummaryFailed(failed) | Body::AsideFailed(failed) => {
                let spent = started.map(|started| spent_by_failure(started, &failed.failure));
                self.spent.add(&spent.unwrap_or_default());
            }
            // The reserved amounts counted as spent until now.
            Body::ModelLate(late) => {
                self.spent.add(&late.spent());
                self.spent.reduce(&late.booked);
            }
            Body::CallStarted(_) => self.spent.add(&ONE_CALL),
            Body::CallLost(lost) if lost.reason == RetryReason::NeverStarted => self.spent.reduce(&ONE_CALL),
            _ => {}
        }
    }
}

impl RefusedReservation {
    /// Whether `run` wanted the reservation. A refusal of an ancestor's account concerns only a run that was under way
    /// then; a later run gets its own refusal.
    pub(super) fn concerns(&self, run: RunId) -> bool {
        self.refusal.account == run.into() || self.run == Some(run)
    }
}
