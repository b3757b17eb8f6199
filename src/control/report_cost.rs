//! What the model calls of runs cost in a time, folded from their records by the rules of the accounts. Pure.

use std::{collections::BTreeMap, sync::Arc};

use hermod_actors::{
    model::{
        AttemptId, Body, CallStatus, ModelFailed, ModelLate, ModelRef, ModelStarted, Record, RequestFate,
        Timestamp, Usage,
    },
    spent_by_failure,
};

use crate::view::{ReportCostView, ReportModelView};

/// Characters of an error.
const MAX_ERROR_CHARS: usize = 300;

/// The use of one model.
#[derive(Debug, Default)]
struct ModelTotals {
    requests: u64,
    failed_requests: u64,
    unpriced_requests: u64,
    input_tokens: u64,
    output_tokens: u64,
    /// Signed: a late answer corrects what was booked before.
    nano_usd: i128,
}

/// The use of all models.
#[derive(Debug, Default)]
pub(super) struct CostTotals(BTreeMap<ModelRef, ModelTotals>);

/// The records of one run, from the first on.
#[derive(Debug)]
pub(super) struct RunCostFold {
    since: Timestamp,
    until: Timestamp,
    started: BTreeMap<AttemptId, Arc<ModelStarted>>,
    /// Nano-dollars that the run booked in the time, without its subagents.
    pub(super) nano_usd: i128,
    /// Whether it is a subagent's whose session was not revived yet.
    is_unrevived_subagent: bool,
    /// Whether it went on after its process or its actor had ended.
    pub(super) is_resumed: bool,
    /// The last failure.
    pub(super) last_error: Option<String>,
}

impl CostTotals {
    /// The view, with the money of the accounts.
    pub(super) fn view(self, nano_usd: i128) -> ReportCostView {
        let amount = |amount: i128| u64::try_from(amount.max(0)).unwrap_or(u64::MAX);
        let attributed: i128 = self.0.values().map(|totals| totals.nano_usd).sum();
        let sum = |field: fn(&ModelTotals) -> u64| self.0.values().map(field).sum();
        let (requests, failed_requests) =
            (sum(|totals| totals.requests), sum(|totals| totals.failed_requests));
        let unpriced_requests = sum(|totals| totals.unpriced_requests);
        let model = |(model, totals): (ModelRef, ModelTotals)| ReportModelView {
            model,
            requests: totals.requests,
            failed_requests: totals.failed_requests,
            input_tokens: totals.input_tokens,
            output_tokens: totals.output_tokens,
            spent_usd: amount(totals.nano_usd),
        };
        ReportCostView {
            spent_usd: amount(nano_usd),
            unattributed_usd: amount(nano_usd - attributed),
            requests,
            failed_requests,
            unpriced_requests,
            models: self.0.into_iter().map(model).collect(),
        }
    }

    fn of(&mut self, model: &ModelRef) -> &mut ModelTotals {
        self.0.entry(model.clone()).or_default()
    }
}

impl RunCostFold {
    pub(super) fn new((since, until): (Timestamp, Timestamp), is_subagent: bool) -> Self {
        let (started, is_unrevived_subagent) = (BTreeMap::new(), is_subagent);
        Self {
            since,
            until,
            started,
            nano_usd: 0,
            is_unrevived_subagent,
            is_resumed: false,
            last_error: None,
        }
    }

    /// Adds the next record of the run, or of its session.
    #[expect(clippy::wildcard_enum_match_arm, reason = "other kinds cost nothing")]
    pub(super) fn take(&mut self, record: &Record, totals: &mut CostTotals) {
        let is_counted = (self.since..self.until).contains(&record.at);
        match &record.body {
            Body::SessionRevived(_) => {
                // The run above opens the session of a subagent, whose own actor then revives it.
                let is_begin = std::mem::replace(&mut self.is_unrevived_subagent, false);
                self.is_resumed |= is_counted && !is_begin;
            }
            Body::ModelStarted(started) | Body::AsideStarted(started) => {
                self.started.insert(started.id(), Arc::clone(started));
            }
            Body::SummaryStarted(summary) => {
                self.started.insert(summary.started.id(), Arc::clone(&summary.started));
            }
            Body::ModelAnswered(body) => {
                let id = body.call.attempt(body.attempt);
                self.answered(id, body.usage.as_ref(), is_counted, totals);
            }
            Body::SummaryAnswered(body) | Body::AsideAnswered(body) => {
                let id = body.call.attempt(body.attempt);
                self.answered(id, body.usage.as_ref(), is_counted, totals);
            }
            Body::ModelFailed(failed) => {
                self.last_error = Some(excerpt(&failed.failure.to_string()));
                self.failed(failed, is_counted, totals);
            }
            Body::SummaryFailed(failed) | Body::AsideFailed(failed) => {
                self.failed(failed, is_counted, totals);
            }
            Body::ModelLate(late) if is_counted => self.late(late, totals),
            Body::CallEnded(ended) if ended.end.status == CallStatus::Error => {
                self.last_error = Some(excerpt(&ended.end.content));
            }
            _ => {}
        }
    }

    fn answered(&mut self, id: AttemptId, usage: Option<&Usage>, is_counted: bool, totals: &mut CostTotals) {
        let Some(started) = self.started.get(&id).filter(|_| is_counted) else { return };
        let of_model = totals.of(&started.model);
        of_model.requests += 1;
        of_model.add_tokens(usage);
        self.nano_usd += of_model.book(started.spent(usage).usd);
    }

    fn failed(&mut self, failed: &ModelFailed, is_counted: bool, totals: &mut CostTotals) {
        let id = failed.call.attempt(failed.attempt);
        let Some(started) = self.started.get(&id).filter(|_| is_counted) else { return };
        let of_model = totals.of(&started.model);
        let (failure, fate) = (&failed.failure, failed.failure.request());
        let is_sent = fate != RequestFate::NotSent;
        of_model.requests += u64::from(is_sent);
        of_model.failed_requests += u64::from(is_sent);
        of_model.add_tokens(failure.usage.as_deref());
        if failure.usage.is_some() || fate == RequestFate::MayHaveRun {
            self.nano_usd += of_model.book(spent_by_failure(started, failure).usd);
        }
    }

    /// The answer of an attempt that was given up replaces what was booked for it.
    fn late(&mut self, late: &ModelLate, totals: &mut CostTotals) {
        let Some(started) = self.started.get(&late.id()) else { return };
        let of_model = totals.of(&started.model);
        of_model.add_tokens(Some(&late.usage));
        let booked = i128::from(late.booked.usd.unwrap_or(0));
        let change = i128::from(late.spent().usd.unwrap_or(0)) - booked;
        of_model.nano_usd += change;
        self.nano_usd += change;
    }
}

impl ModelTotals {
    fn add_tokens(&mut self, usage: Option<&Usage>) {
        if let Some(usage) = usage {
            self.input_tokens = self.input_tokens.saturating_add(usage.input_total());
            self.output_tokens = self.output_tokens.saturating_add(usage.output_total());
        }
    }

    /// Adds an amount; returns it.
    fn book(&mut self, nano_usd: Option<u64>) -> i128 {
        self.unpriced_requests += u64::from(nano_usd.is_none());
        let amount = i128::from(nano_usd.unwrap_or(0));
        self.nano_usd += amount;
        amount
    }
}

fn excerpt(text: &str) -> String {
    text.chars().take(MAX_ERROR_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use hermod_actors::model::{Incarnation, SessionRevived};

    use super::*;

    #[test]
    fn a_run_is_resumed_if_its_session_is_revived_after_its_beginning() {
        let check = |is_subagent, revivals: &[i64], expect| {
            let mut fold = RunCostFold::new((Timestamp(10), Timestamp(20)), is_subagent);
            for at in revivals {
                let incarnation = Incarnation { epoch: 1, revival: 1 };
                let body = Body::SessionRevived(SessionRevived { incarnation, boot: "b".to_owned() });
                let record = Record { at: Timestamp(*at), active_ms: 0, body };
                fold.take(&record, &mut CostTotals::default());
            }
            assert_eq!(fold.is_resumed, expect, "{is_subagent} {revivals:?}");
        };
        check(false, &[], false);
        check(false, &[11], true);
        check(false, &[9], false);
        check(true, &[11], false);
        check(true, &[11, 12], true);
        check(true, &[11, 20], false);
    }
}
