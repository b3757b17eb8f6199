//! Decides what follows a failed attempt of a model call: a repetition, another link of the chain, or the end of the
//! run. Also decides when no model of the chain can be called. The delays come from `policy/retry.rs`; failures of
//! summary calls are in `summary/calls.rs`.

use std::sync::Arc;

use crate::{
    model::{
        AttemptId, Body, Failure, FailureClass, ModelFailed, ModelRef, ModelWaiting, Outcome, OutcomeCause,
        OutcomeDetail, RunSpec, Timestamp, UnansweredModel, UnansweredReason,
    },
    policy::{
        AttemptHistory, FallbackAvailability, LinkAvailability, RetryDecision, available_from,
        with_validated_usage,
    },
    turn::{
        FailoverOptions, active_run::ActiveRun, decision::DecisionBuilder, estimates,
        model_call::ModelCallState,
    },
};

impl DecisionBuilder {
    /// The model call that is wanted or under way.
    fn model_call_state(&self) -> Option<(&ModelCallState, &Arc<RunSpec>)> {
        let run = self.run()?;
        Some((run.model_call_state()?, &run.spec))
    }

    /// Reacts to a failed attempt: another attempt at the same or another model, or the end of the run.
    pub(super) fn on_model_failure(&mut self, id: AttemptId, failure: &Failure, failover: &FailoverOptions) {
        if !self.is_current_attempt(id) {
            return;
        }
        let Some(started) = self.run().and_then(ActiveRun::model_started).cloned() else { return };
        let failure = &with_validated_usage(&started, failure.clone());
        if self.is_in_grace() {
            return self.on_grace_failure(id, failure);
        }
        if self.is_too_long(failure) {
            return self.on_too_long(id, failure);
        }
        if self.may_repeat_without_tools(failure) {
            return self.record(Body::ModelFailed(ModelFailed::new(id, failure.clone(), Some(self.now.at))));
        }
        let Some((state, spec)) = self.model_call_state() else { return };
        let model = started.model.clone();
        let others = self.other_links(&model);
        let failed_link = spec.chain.iter().position(|link| *link == model);
        let fallback = fallback_availability(&others, failed_link, &failover.links);
        let history = AttemptHistory {
            failures_of_class: state.failure_count(&model, &failure.class) + 1,
            elapsed_ms: state.since.map_or(0, |since| self.now.active_ms.saturating_sub(since)),
            waited_ms: state.waited_ms,
            was_answered: id.call.iteration > 1,
            at: self.now.at,
            fallback,
            recovery: failover.recovery,
        };
        let retry = &spec.limits.retry;
        let decision = retry.decide_retry(id, failure, history);
        let next = next_link(&others, |link| state.has_tried(&spec.chain[link]), &failover.links);
        let (retry_at, fallback) = match decision {
            RetryDecision::RetryAfterMs(ms) => (Some(self.now.at.plus_ms(ms)), None),
            RetryDecision::Fallback => match next {
                // A return to a failed model needs a pause that ends before the deadline.
                Some(link) if state.has_tried(&spec.chain[link]) => {
                    let pause = retry.pause_before_return(id, &failure.class, history);
                    (pause.map(|ms| self.now.at.plus_ms(ms)), next.filter(|_| pause.is_some()))
                }
                Some(_) | None => (next.map(|_| self.now.at), next),
            },
            RetryDecision::Fail => (None, None),
        };
        let failure = failure.clone();
        let failed = ModelFailed { fallback, ..ModelFailed::new(id, failure.clone(), retry_at) };
        self.record(Body::ModelFailed(failed));
        if retry_at.is_none() {
            let unanswered = match self.model_call_state() {
                Some((state, spec)) if spec.chain.len() > 1 && decision != RetryDecision::Fail => {
                    state.unanswered_models(&spec.chain, &skipped_unpriced(&self.unpriced_models()))
                }
                Some(_) | None => Vec::new(),
            };
            self.end_run(failed_end(failure, unanswered));
        }
    }

    /// Reacts to an attempt whose task ended without a result.
    pub(super) fn on_model_task_lost(&mut self, id: AttemptId) {
        let failure = Failure::new(FailureClass::Lost, "the task that made the call ended without a word");
        if id.call.is_aside() {
            return self.on_aside_failure(id, &failure);
        }
        self.on_model_failure(id, &failure, &FailoverOptions::default());
    }

    /// Reacts to an attempt that was recorded as started but never sent, because its process was suspended. The next
    /// attempt follows at once.
    pub(super) fn on_model_never_started(&mut self, id: AttemptId) {
        let failure = Failure::new(FailureClass::NotSent, "the process was suspended before it was made");
        if id.call.is_aside() {
            self.on_aside_failure(id, &failure);
        } else if self.is_current_attempt(id) {
            self.record(Body::ModelFailed(ModelFailed::new(id, failure, Some(self.now.at))));
        }
    }

    /// Reacts to a missing lease: no model can be called, or none before a time that a provider has named. The call
    /// waits for that time within the retry policy; otherwise the run ends.
    pub(super) fn on_no_lease(&mut self, id: AttemptId, skipped: &Arc<[UnansweredModel]>) {
        let AttemptId { call, attempt } = id;
        let Some(run) = self.run().filter(|run| run.is_wanted(id) && self.may_start()) else { return };
        let Some((state, spec)) = self.model_call_state() else { return };
        if run.is_in_grace() {
            return self.end_exhausted();
        }
        let unpriced = self.unpriced_models();
        let has_no_candidate = self.turn.candidates().is_none_or(|links| links.is_empty());
        if let Some((model, above)) = unpriced.first().cloned().filter(|_| has_no_candidate) {
            let cause = OutcomeCause::Unpriced { model, above };
            return self.end_run(OutcomeDetail::with_cause(Outcome::BudgetExhausted, cause));
        }
        let (retry, now) = (run.spec.limits.retry, self.now);
        let waited_ms = state.waited_ms + state.pause().map_or(0, |pause| pause.uncounted_ms(now));
        let until = skipped.iter().filter_map(skipped_until);
        let until = until.filter(|until| retry.may_wait(waited_ms, until.ms_since(now.at))).min();
        if let Some(until) = until {
            let skipped = Arc::clone(skipped);
            return self.record(Body::ModelWaiting(ModelWaiting { call, attempt, until, skipped }));
        }
        // A failure of this process (interrupted, not sent) does not explain why no model can be called.
        let counts =
            |class: &FailureClass| !matches!(class, FailureClass::Interrupted | FailureClass::NotSent);
        let last = state.last_failure().filter(|failure| counts(&failure.class));
        let failure = last.or_else(|| skipped.iter().map(link_failure).next()).cloned();
        let no_model = || Failure::new(FailureClass::ModelNotFound, "there is no model to ask");
        let has_more = spec.chain.len() > 1 || skipped.iter().any(|link| skipped_until(link).is_some());
        let skipped = [skipped, &*skipped_unpriced(&unpriced)].concat();
        let unanswered = if has_more { state.unanswered_models(&spec.chain, &skipped) } else { Vec::new() };
        self.end_run(failed_end(failure.unwrap_or_else(no_model), unanswered));
    }

    /// The links that the call may use instead of the failed model.
    fn other_links(&self, failed: &ModelRef) -> Vec<usize> {
        let (Some(run), Some((state, spec))) = (self.run(), self.model_call_state()) else {
            return Vec::new();
        };
        let is_priced = |model: &ModelRef| estimates::unpriced_above(run, &self.turn, model).is_none();
        let others =
            state.remaining_links(&spec.chain).filter(|(_, model)| *model != failed && is_priced(model));
        others.map(|(link, _)| link).collect()
    }

    /// The links without a known price while money is limited, each with the input tokens above which its price is
    /// unknown.
    fn unpriced_models(&self) -> Vec<(ModelRef, u64)> {
        let (Some(run), Some((state, spec))) = (self.run(), self.model_call_state()) else {
            return Vec::new();
        };
        let above =
            |model| Some((ModelRef::clone(model), estimates::unpriced_above(run, &self.turn, model)?));
        state.remaining_links(&spec.chain).filter_map(|(_, model)| above(model)).collect()
    }
}

pub(super) const fn link_failure(link: &UnansweredModel) -> &Failure {
    match &link.reason {
        UnansweredReason::Tried { failure, .. } | UnansweredReason::Skipped { failure, .. } => failure,
    }
}

const fn skipped_until(link: &UnansweredModel) -> Option<Timestamp> {
    if let UnansweredReason::Skipped { until, .. } = &link.reason { *until } else { None }
}

/// Why the links without a known price are not called, as an entry for each.
fn skipped_unpriced(unpriced: &[(ModelRef, u64)]) -> Vec<UnansweredModel> {
    let skipped_model = |(model, above): &(ModelRef, u64)| {
        let error = format!("its price is not known above {above} tokens of input, and money is limited");
        let failure = Failure::new(FailureClass::NotSent, error);
        UnansweredModel { model: model.clone(), reason: UnansweredReason::Skipped { until: None, failure } }
    };
    unpriced.iter().map(skipped_model).collect()
}

/// Whether another link can take the call now or later. A link without an entry in `links` counts as available.
fn fallback_availability(
    others: &[usize],
    failed_link: Option<usize>,
    links: &[LinkAvailability],
) -> FallbackAvailability {
    let availabilities: Vec<LinkAvailability> =
        others.iter().map(|link| links.get(*link).copied().unwrap_or(LinkAvailability::Available)).collect();
    if availabilities.iter().copied().any(may_answer) {
        return FallbackAvailability::Available;
    }
    // The failed model's own link counts too: another credential may be usable before the time that the failure names.
    let failed_link = failed_link.and_then(|link| links.get(link));
    let earliest = availabilities.iter().chain(failed_link).filter_map(|link| available_from(*link)).min();
    earliest.map_or(FallbackAvailability::Unavailable, FallbackAvailability::AvailableFrom)
}

/// The link for the next attempt: a link that is up and has not failed in this call, else any link that is up, else the
/// first.
fn next_link(
    others: &[usize],
    has_tried: impl Fn(usize) -> bool,
    links: &[LinkAvailability],
) -> Option<usize> {
    let is_usable = |link: &usize| links.get(*link).copied().is_none_or(may_answer);
    let is_untried = |link: &usize| is_usable(link) && !has_tried(*link);
    let mut remaining = others.iter().copied();
    remaining
        .clone()
        .find(is_untried)
        .or_else(|| remaining.clone().find(is_usable))
        .or_else(|| remaining.next())
}

/// Whether the link is up: no breaker blocks it.
const fn may_answer(availability: LinkAvailability) -> bool {
    availability.is_up() || matches!(availability, LinkAvailability::Probing)
}

/// The end of a run without an answer from any model.
fn failed_end(failure: Failure, chain: Vec<UnansweredModel>) -> OutcomeDetail {
    let is_refused = failure.class == FailureClass::ContentRefused;
    let outcome = if is_refused { Outcome::Refused } else { Outcome::Failed };
    OutcomeDetail::with_cause(outcome, OutcomeCause::Provider { failure, chain })
}
