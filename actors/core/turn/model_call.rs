//! The state of a model call or summary call: its attempts, its pauses, and the failures of the models of its chain.
//! From them follow the models that it may still call. Folds records; `answer.rs`, `model_failure.rs` and
//! `summary/calls.rs` decide.

use std::sync::Arc;

use crate::{
    model::{
        Attempt, CallId, Failure, FailureClass, ModelFailed, ModelRef, ModelStarted, SessionTime, Timestamp,
        UnansweredModel, UnansweredReason,
    },
    policy::{Billing, Candidate, LinkVisit, billing, is_transient},
    turn::input::DueAction,
};

#[derive(Debug, Clone)]
pub(super) struct ModelCallState {
    /// The attempt that is wanted or under way, counted from 1.
    pub(super) attempt: Attempt,
    /// Whether an earlier call has already shown this view; its answer was discarded.
    pub(super) is_repeated: bool,
    /// Whether a provider has refused the request as too long, and the view has not changed since.
    pub(super) is_too_long: bool,
    /// Whether a model may have read a failed request of this call.
    pub(super) may_be_read: bool,
    /// The budget warning that all requests of this call carry.
    pub(super) warning: Option<Arc<str>>,
    /// The context pressure text (how full the view is) that the requests of this call carry: fixed with the first
    /// request, so that all are equal. After a compaction of the view they carry none.
    pub(super) pressure: Option<Arc<str>>,
    /// Start of the first attempt on the session's active clock, in milliseconds, moved forward by all waits for known
    /// resets.
    pub(super) since: Option<u64>,
    /// Waits for known resets, in milliseconds.
    pub(super) waited_ms: u64,
    /// Index of the first link that may be called: the answers of earlier links were not accepted.
    pub(super) first_link: usize,
    /// The models that have failed in this call, ordered by their last failure.
    pub(super) failed_models: Vec<ModelFailures>,
    pub(super) state: AttemptState,
}

#[derive(Debug, Clone)]
pub(super) enum AttemptState {
    /// Needs a lease, after the pause if there is one.
    Wanted(Option<RetryPause>),
    /// Started with this record.
    Started(Arc<ModelStarted>),
}

/// The failures of one model in this call.
#[derive(Debug, Clone)]
pub(super) struct ModelFailures {
    pub model: ModelRef,
    /// Number of failed attempts by name of the failure class.
    failures: Vec<(&'static str, u32)>,
    last: Failure,
    eligibility: RetryEligibility,
}

/// What the failure of an attempt changes in its run.
#[derive(Debug)]
pub(super) struct AttemptFailure {
    /// Whether the attempt had started.
    pub(super) was_started: bool,
    /// Whether a model may have read a request of this call by now.
    pub(super) has_shown: bool,
    /// The output limit of the model, in tokens, that the failure reports or implies.
    pub(super) output_cap: Option<(ModelRef, u64)>,
}

/// Whether a call may return to a model that has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RetryEligibility {
    /// The model is called again after a pause.
    AfterPause,
    /// Another model is called instead. The failed one comes last among the candidates, and may be leased like one that
    /// was never called.
    WhenNoOther,
    /// The model is not called again.
    Never,
}

impl ModelCallState {
    /// A call that is not started, with the first link that it may call.
    pub(super) const fn new(first_link: usize) -> Self {
        Self {
            attempt: 1,
            is_repeated: false,
            is_too_long: false,
            may_be_read: false,
            warning: None,
            pressure: None,
            since: None,
            waited_ms: 0,
            first_link,
            failed_models: Vec::new(),
            state: AttemptState::Wanted(None),
        }
    }

    /// Folds the start of the attempt.
    pub(super) fn on_started(
        &mut self,
        started: &Arc<ModelStarted>,
        pressure: Option<Arc<str>>,
        now: SessionTime,
    ) {
        self.since.get_or_insert(now.active_ms);
        self.pressure = pressure;
        self.state = AttemptState::Started(Arc::clone(started));
    }

    /// Folds a wait: no model may be called before `until`.
    pub(super) fn on_waiting(&mut self, until: Timestamp, now: SessionTime) {
        let pause = RetryPause { from: now.at, until, uncounted_since: Some(now.active_ms) };
        self.state = AttemptState::Wanted(Some(pause));
    }

    /// Folds the failure of an attempt, or that it was given up before its start. The next attempt is wanted.
    pub(super) fn on_failed(&mut self, failed: &ModelFailed, now: SessionTime) -> AttemptFailure {
        let class = &failed.failure.class;
        let started = self.started().cloned();
        let (mut was_read, mut output_cap) = (false, None);
        if let Some(started) = &started {
            was_read = billing(&failed.failure) != Billing::Nothing;
            let eligibility = match failed.fallback {
                None => RetryEligibility::AfterPause,
                Some(_) if is_transient(class) => RetryEligibility::WhenNoOther,
                Some(_) => RetryEligibility::Never,
            };
            self.track_failure(started.model.clone(), &failed.failure, eligibility);
            output_cap = output_cap_of(class, started).map(|cap| (started.model.clone(), cap));
        }
        let is_too_long = matches!(class, FailureClass::ContextTooLong { .. });
        self.attempt = failed.attempt + 1;
        self.is_too_long |= is_too_long;
        // A request refused as too long counts as shown: otherwise nothing of the view could ever be removed.
        self.may_be_read |= was_read || started.is_some() && is_too_long;
        let uncounted_since = class.reset_is_known().then_some(now.active_ms);
        let pause = failed.retry_at.map(|until| RetryPause { from: now.at, until, uncounted_since });
        self.state = AttemptState::Wanted(pause);
        AttemptFailure { was_started: started.is_some(), has_shown: self.may_be_read, output_cap }
    }

    /// The action that should be in flight for this call.
    pub(super) fn due(&self, call: CallId, now: SessionTime) -> DueAction {
        let id = call.attempt(self.attempt);
        match self.state {
            AttemptState::Started(_) => DueAction::CallModel(id),
            AttemptState::Wanted(Some(pause)) if !pause.is_over(now.at) => DueAction::WakeAt(pause.until),
            AttemptState::Wanted(_) => DueAction::Acquire(id),
        }
    }

    /// The started attempt.
    pub(super) const fn started(&self) -> Option<&Arc<ModelStarted>> {
        if let AttemptState::Started(started) = &self.state { Some(started) } else { None }
    }

    /// The pause before the next attempt.
    pub(super) const fn pause(&self) -> Option<RetryPause> {
        if let AttemptState::Wanted(pause) = &self.state { *pause } else { None }
    }

    /// Accounts for the pause that ends and returns its milliseconds that do not count for the limits.
    pub(super) fn end_pause(&mut self, now: SessionTime) -> u64 {
        let waited_ms = self.pause().map_or(0, |pause| pause.uncounted_ms(now));
        self.waited_ms = self.waited_ms.saturating_add(waited_ms);
        self.since = self.since.map(|since| since.saturating_add(waited_ms));
        waited_ms
    }

    /// Failed attempts at this model with this failure class.
    pub(super) fn failure_count(&self, model: &ModelRef, class: &FailureClass) -> u32 {
        let failures = self.failures_of(model).map_or(&[][..], |tried| &tried.failures);
        failures.iter().find(|(name, _)| *name == class.name()).map_or(0, |(_, count)| *count)
    }

    /// Counts one more failed attempt at this model.
    pub(super) fn track_failure(
        &mut self,
        model: ModelRef,
        failure: &Failure,
        eligibility: RetryEligibility,
    ) {
        let known = self.failed_models.iter().position(|tried| tried.model == model);
        let mut failures = known.map_or_else(Vec::new, |at| self.failed_models.remove(at).failures);
        let name = failure.class.name();
        match failures.iter_mut().find(|(other, _)| *other == name) {
            Some((_, count)) => *count += 1,
            None => failures.push((name, 1)),
        }
        self.failed_models.push(ModelFailures { model, failures, last: failure.clone(), eligibility });
    }

    fn failures_of(&self, model: &ModelRef) -> Option<&ModelFailures> {
        self.failed_models.iter().find(|tried| tried.model == *model)
    }

    /// The links that this call may still use, with their index in the chain.
    pub(super) fn remaining_links<'a>(
        &'a self,
        chain: &'a [ModelRef],
    ) -> impl Iterator<Item = (usize, &'a ModelRef)> {
        let is_eligible = |model: &ModelRef| {
            self.failures_of(model).is_none_or(|tried| tried.eligibility != RetryEligibility::Never)
        };
        chain.iter().enumerate().skip(self.first_link).filter(move |(_, model)| is_eligible(model))
    }

    /// The models that this call may still use; those with `WhenNoOther` come last. `tokens` returns what an attempt at
    /// a model would reserve.
    pub(super) fn candidates(&self, chain: &[ModelRef], tokens: impl Fn(&ModelRef) -> u64) -> Vec<Candidate> {
        let eligibility = |model: &ModelRef| self.failures_of(model).map(|tried| tried.eligibility);
        let mut links: Vec<&ModelRef> = self.remaining_links(chain).map(|(_, model)| model).collect();
        links.sort_by_key(|model| eligibility(model) == Some(RetryEligibility::WhenNoOther));
        let candidate = |model: &ModelRef| Candidate {
            model: model.clone(),
            visit: match eligibility(model) {
                Some(RetryEligibility::AfterPause) => LinkVisit::Return,
                Some(RetryEligibility::WhenNoOther | RetryEligibility::Never) | None => LinkVisit::First,
            },
            tokens: tokens(model),
        };
        links.into_iter().map(candidate).collect()
    }

    /// Whether an attempt at this model has failed in this call.
    pub(super) fn has_tried(&self, model: &ModelRef) -> bool {
        self.failures_of(model).is_some()
    }

    pub(super) fn last_failure(&self) -> Option<&Failure> {
        self.failed_models.last().map(|tried| &tried.last)
    }

    /// The result of each link: its failures if it was called, else its entry in `skipped`. Links with neither are left
    /// out.
    pub(super) fn unanswered_models(
        &self,
        chain: &[ModelRef],
        skipped: &[UnansweredModel],
    ) -> Vec<UnansweredModel> {
        let end = |model: &ModelRef| {
            let skipped = skipped.iter().find(|link| link.model == *model).cloned();
            self.failures_of(model).map(ModelFailures::to_unanswered).or(skipped)
        };
        chain.iter().filter_map(end).collect()
    }
}

/// The model's output limit, in tokens, after a failure because of that limit. A reported limit that the request was
/// within does not explain the failure; then half of the requested output is assumed.
fn output_cap_of(class: &FailureClass, started: &ModelStarted) -> Option<u64> {
    let FailureClass::OutputCap { limit } = class else { return None };
    let limit = limit.filter(|limit| *limit > 0 && *limit < started.max_tokens);
    Some(limit.unwrap_or(started.max_tokens / 2).max(1))
}

impl ModelFailures {
    fn to_unanswered(&self) -> UnansweredModel {
        let attempts = self.failures.iter().map(|(_, count)| count).sum();
        UnansweredModel {
            model: self.model.clone(),
            reason: UnansweredReason::Tried { attempts, failure: self.last.clone() },
        }
    }
}

/// A pause before an attempt. Its times are on the wall clock, so a crash does not restart it.
#[derive(Debug, Clone, Copy)]
pub(super) struct RetryPause {
    pub(super) from: Timestamp,
    pub(super) until: Timestamp,
    /// Start on the session's active clock, in milliseconds, if the provider named the end; then the pause does not
    /// count for time limits.
    pub(super) uncounted_since: Option<u64>,
}

impl RetryPause {
    /// Whether the pause is over: also if the clock was set back before `from`, which would prolong it.
    pub(super) fn is_over(self, now: Timestamp) -> bool {
        now >= self.until || now < self.from
    }

    /// Active time of the pause up to now that does not count, in milliseconds.
    pub(super) fn uncounted_ms(self, now: SessionTime) -> u64 {
        let length = self.until.ms_since(self.from);
        self.uncounted_since.map_or(0, |since| now.active_ms.saturating_sub(since).min(length))
    }
}
