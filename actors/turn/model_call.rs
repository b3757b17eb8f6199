//! A model call: its attempts, its pauses, and what became of the models of its chain.

use std::sync::Arc;

use crate::{
    model::{
        Attempt, Failure, FailureClass, ModelRef, ModelStarted, SessionTime, Timestamp, UnansweredModel,
        UnansweredReason,
    },
    policy::{Candidate, LinkVisit},
};

/// A model call: all its attempts.
#[derive(Debug, Clone)]
pub(super) struct ModelCallState {
    /// The attempt that is wanted or under way, from 1.
    pub(super) attempt: Attempt,
    /// Whether an earlier call has shown this very view: its answer was discarded.
    pub(super) is_repeated: bool,
    /// Whether a provider has said that its request is too long, and nothing was done about that yet.
    pub(super) is_too_long: bool,
    /// Whether a model may have read one of its requests that have failed: not all were turned away.
    pub(super) may_be_read: bool,
    /// What its requests say of a budget that is nearly used up.
    pub(super) warning: Option<Arc<str>>,
    /// What they say of a view that is nearly full, once the first of them was made: all say the same.
    pub(super) pressure: Option<Arc<str>>,
    /// When the first attempt started, on the session's active clock, moved on by what was waited for known resets.
    pub(super) since: Option<u64>,
    /// What was waited for known resets, in milliseconds.
    pub(super) waited_ms: u64,
    /// The first link of the chain that may be asked: the answers of those before it were not taken.
    pub(super) first_link: usize,
    /// The models that have failed in this call, the last one last.
    pub(super) failed_models: Vec<ModelFailures>,
    pub(super) state: AttemptState,
}

/// The state of a model call's attempt.
#[derive(Debug, Clone)]
pub(super) enum AttemptState {
    /// It needs a lease; after the pause, if there is one.
    Wanted(Option<RetryPause>),
    /// It is started, by the record.
    Started(Arc<ModelStarted>),
}

/// What became of a model in this call.
#[derive(Debug, Clone)]
pub(super) struct ModelFailures {
    pub(super) model: ModelRef,
    /// How many attempts have failed in which way.
    failures: Vec<(&'static str, u32)>,
    last: Failure,
    eligibility: RetryEligibility,
}

/// Whether a call may come back to a model that has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RetryEligibility {
    /// It may, after a pause.
    AfterPause,
    /// Another is asked instead; it may, when others are let through to it too.
    WhenNoOther,
    /// It may not.
    Never,
}

impl ModelCallState {
    /// A call that nobody has made yet, and the link that it begins with.
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

    /// The started attempt.
    pub(super) const fn started(&self) -> Option<&Arc<ModelStarted>> {
        match &self.state {
            AttemptState::Started(started) => Some(started),
            AttemptState::Wanted(_) => None,
        }
    }

    /// The pause before the next attempt.
    pub(super) const fn pause(&self) -> Option<RetryPause> {
        match &self.state {
            AttemptState::Wanted(pause) => *pause,
            AttemptState::Started(_) => None,
        }
    }

    /// Ends the pause: says how much of it does not count.
    pub(super) fn end_pause(&mut self, now: SessionTime) -> u64 {
        let waited_ms = self.pause().map_or(0, |pause| pause.uncounted_ms(now));
        self.waited_ms = self.waited_ms.saturating_add(waited_ms);
        self.since = self.since.map(|since| since.saturating_add(waited_ms));
        waited_ms
    }

    /// How many attempts at this model have failed in this way.
    pub(super) fn failure_count(&self, model: &ModelRef, class: &FailureClass) -> u32 {
        let failures = self.failures_of(model).map_or(&[][..], |tried| &tried.failures);
        failures.iter().find(|(name, _)| *name == class.name()).map_or(0, |(_, times)| *times)
    }

    /// Counts one more failed attempt at this model.
    pub(super) fn track_failure(&mut self, model: ModelRef, failure: &Failure, patience: RetryEligibility) {
        let known = self.failed_models.iter().position(|tried| tried.model == model);
        let mut failures = known.map_or_else(Vec::new, |at| self.failed_models.remove(at).failures);
        let name = failure.class.name();
        match failures.iter_mut().find(|(other, _)| *other == name) {
            Some((_, times)) => *times += 1,
            None => failures.push((name, 1)),
        }
        self.failed_models.push(ModelFailures {
            model,
            failures,
            last: failure.clone(),
            eligibility: patience,
        });
    }

    fn failures_of(&self, model: &ModelRef) -> Option<&ModelFailures> {
        self.failed_models.iter().find(|tried| tried.model == *model)
    }

    /// The links of the chain that this call may still ask, by number.
    pub(super) fn remaining_links<'a>(
        &'a self,
        chain: &'a [ModelRef],
    ) -> impl Iterator<Item = (usize, &'a ModelRef)> {
        let left = |model: &ModelRef| {
            self.failures_of(model).is_none_or(|tried| tried.eligibility != RetryEligibility::Never)
        };
        chain.iter().enumerate().skip(self.first_link).filter(move |(_, model)| left(model))
    }

    /// The links of the chain that this call may still ask: those that it has left for another behind the others. `tokens`
    /// is what an attempt at a model would reserve.
    pub(super) fn candidates(&self, chain: &[ModelRef], tokens: impl Fn(&ModelRef) -> u64) -> Vec<Candidate> {
        let patience = |model: &ModelRef| self.failures_of(model).map(|tried| tried.eligibility);
        let mut links: Vec<&ModelRef> = self.remaining_links(chain).map(|(_, model)| model).collect();
        links.sort_by_key(|model| patience(model) == Some(RetryEligibility::WhenNoOther));
        let candidate = |model: &ModelRef| Candidate {
            model: model.clone(),
            visit: match patience(model) {
                Some(RetryEligibility::AfterPause) => LinkVisit::Return,
                Some(RetryEligibility::WhenNoOther | RetryEligibility::Never) | None => LinkVisit::First,
            },
            tokens: tokens(model),
        };
        links.into_iter().map(candidate).collect()
    }

    /// Whether this call has asked the model.
    pub(super) fn has_tried(&self, model: &ModelRef) -> bool {
        self.failures_of(model).is_some()
    }

    /// The last failure.
    pub(super) fn last_failure(&self) -> Option<&Failure> {
        self.failed_models.last().map(|tried| &tried.last)
    }

    /// What became of each link of the chain: those that are not skipped were tried.
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

impl ModelFailures {
    fn to_unanswered(&self) -> UnansweredModel {
        let attempts = self.failures.iter().map(|(_, times)| times).sum();
        UnansweredModel {
            model: self.model.clone(),
            reason: UnansweredReason::Tried { attempts, failure: self.last.clone() },
        }
    }
}

/// A pause between attempts, on the wall clock, so that a crash does not begin it anew.
#[derive(Debug, Clone, Copy)]
pub(super) struct RetryPause {
    pub(super) from: Timestamp,
    pub(super) until: Timestamp,
    /// When it began on the session's active clock, if the provider said when it ends: it does not count for the
    /// limits of time.
    pub(super) uncounted_since: Option<u64>,
}

impl RetryPause {
    /// Whether it is over. A clock that was set back does not stretch it.
    pub(super) fn is_over(self, now: Timestamp) -> bool {
        now >= self.until || now < self.from
    }

    /// How much of the active time it has not counted for, up to now.
    pub(super) fn uncounted_ms(self, now: SessionTime) -> u64 {
        let length = self.until.ms_since(self.from);
        self.uncounted_since.map_or(0, |since| now.active_ms.saturating_sub(since).min(length))
    }
}
