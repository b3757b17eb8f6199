//! Limits of all runs of the store together: the account in which an attempt counts, and the wait of a model call for
//! which a period has no room.

use std::sync::Arc;

use crate::{
    model::{
        AccountId, BudgetRefusal, Failure, FailureClass, ModelWaiting, Period, StoreLimits, Timestamp,
        UnansweredModel, UnansweredReason,
    },
    turn::{Turn, decision::DecisionBuilder},
};

/// The first wait for the settlement of other calls, in milliseconds. Each further one is as long as all before.
const FIRST_WAIT_MS: u64 = 1_000;
/// Most milliseconds of one wait for the settlement of other calls.
const MAX_SETTLE_WAIT_MS: u64 = 60_000;
/// Most milliseconds of one wait for the end of a period: after that, the limits may have been raised.
const MAX_PERIOD_WAIT_MS: u64 = 600_000;

impl Turn {
    /// Sets the limits that hold for all runs of the store from now on. They are no part of the state: records name what
    /// was reserved, and where.
    pub const fn set_store_limits(&mut self, limits: StoreLimits) {
        self.store_limits = limits;
    }

    /// The account of the period in which an attempt that starts at this time counts; `None` without limits.
    pub(super) fn period(&self, at: Timestamp) -> Option<AccountId> {
        self.store_limits.accounts(at).last().map(|account| account.id)
    }
}

impl DecisionBuilder {
    /// The wait of the model call for room in the period that has refused its reservation: for the settlement of other
    /// calls, if it fits then, else for the end of the period. `None` if the account is of no period, if no period has
    /// room for it, or if the wait would be longer than the retry policy allows.
    pub(super) fn wait_for_period(&self, refusal: &BudgetRefusal) -> Option<ModelWaiting> {
        let period = Period::of_account(refusal.account).filter(|_| fits_when(refusal, 0))?;
        let (run, now) = (self.run()?, self.now);
        let (state, retry) = (run.model_call_state()?, run.spec.limits.retry);
        let waited_ms = state.waited_ms + state.pause().map_or(0, |pause| pause.uncounted_ms(now));
        let left_ms = period.ends_at().ms_since(now.at);
        let (wait_ms, total_ms) = if fits_when(refusal, refusal.spent) {
            let wait_ms = waited_ms.clamp(FIRST_WAIT_MS, MAX_SETTLE_WAIT_MS).min(left_ms);
            (wait_ms, wait_ms)
        } else {
            (left_ms.min(MAX_PERIOD_WAIT_MS), left_ms)
        };
        let until = retry.may_wait(waited_ms, total_ms).then(|| now.at.plus_ms(wait_ms))?;
        let failure = Failure::new(FailureClass::NotSent, refusal.to_string());
        let reason = UnansweredReason::Skipped { until: Some(until), failure };
        let skipped = state
            .remaining_links(&run.spec.chain)
            .map(|(_, model)| UnansweredModel { model: model.clone(), reason: reason.clone() });
        let skipped: Arc<[UnansweredModel]> = skipped.collect();
        Some(ModelWaiting { call: run.model_call(), attempt: state.attempt, until, skipped })
    }
}

/// Whether the reservation fits on an account that has spent this amount and reserved nothing.
fn fits_when(refusal: &BudgetRefusal, spent: u64) -> bool {
    let total = refusal.needed.and_then(|needed| needed.checked_add(spent));
    total.is_some_and(|total| total <= refusal.limit)
}
