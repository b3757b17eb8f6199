//! The state of one call beside the runs ("aside"): folds the records of its attempts.

use std::sync::Arc;

use crate::{
    model::{AsideAnswered, AsideJob, Attempt, AttemptId, CallId, ModelFailed, ModelStarted, SessionTime},
    turn::{
        input::DueAction,
        model_call::{AttemptState, ModelCallState, RetryEligibility, RetryPause},
    },
};

/// Attempts of one call for this job, crashes included. Those of a summary are bounded by its chain.
pub(super) const fn max_attempts(job: AsideJob) -> Attempt {
    match job {
        AsideJob::Summary => Attempt::MAX,
        AsideJob::Title | AsideJob::Vision => 4,
        // A run may wait for it, whatever the attempts end with.
        AsideJob::Memory => 2,
    }
}

/// The state of one aside: its attempts, and whether it is given up.
#[derive(Debug, Clone)]
pub(super) struct AsideCall {
    /// The attempts.
    pub(super) attempts: ModelCallState,
    /// Unusable answers in a row by the present link of the chain.
    pub(super) unusable_answers: u32,
    /// Whether no further attempt is made.
    pub(super) is_given_up: bool,
}

impl AsideCall {
    /// A call of which `attempt` is the first wanted attempt.
    pub(super) const fn new(attempt: Attempt) -> Self {
        let mut attempts = ModelCallState::new(0);
        attempts.attempt = attempt;
        Self { attempts, unusable_answers: 0, is_given_up: false }
    }

    /// The started attempt.
    pub(super) const fn started(&self) -> Option<&Arc<ModelStarted>> {
        self.attempts.started()
    }

    /// Whether this is the next attempt of `call`, and has not started.
    pub(super) fn is_wanted(&self, call: CallId, id: AttemptId) -> bool {
        call.attempt(self.attempts.attempt) == id && self.started().is_none()
    }

    pub(super) fn on_started(&mut self, started: &Arc<ModelStarted>, now: SessionTime) {
        self.attempts.on_started(started, None, now);
    }

    /// Folds an answer; `links` is the length of the chain. Another attempt is wanted, unless the caller has what it
    /// needs.
    pub(super) fn on_answered(&mut self, answered: &AsideAnswered, links: usize) {
        self.attempts.attempt = answered.attempt + 1;
        self.attempts.state = AttemptState::Wanted(None);
        self.unusable_answers = if answered.unusable.is_none() { 0 } else { self.unusable_answers + 1 };
        if let Some(link) = answered.fallback {
            (self.attempts.first_link, self.unusable_answers) = (link, 0);
            self.is_given_up |= link >= links;
        }
    }

    pub(super) fn on_failed(&mut self, failed: &ModelFailed, now: SessionTime) {
        if let Some(started) = self.started().cloned() {
            let never = failed.fallback.map(|_| RetryEligibility::Never);
            let eligibility = never.unwrap_or(RetryEligibility::AfterPause);
            self.attempts.track_failure(started.model.clone(), &failed.failure, eligibility);
        }
        self.attempts.attempt = failed.attempt + 1;
        let pause = |until| RetryPause { from: now.at, until, uncounted_since: None };
        self.attempts.state = AttemptState::Wanted(failed.retry_at.map(pause));
        self.is_given_up |= failed.retry_at.is_none();
    }

    /// The action that should be in flight, if the call is wanted or under way.
    pub(super) fn due(&self, call: CallId, now: SessionTime) -> DueAction {
        self.attempts.due(call, now)
    }
}
