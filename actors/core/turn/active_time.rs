//! The active time of the run under way: what counts for its limits, and when these end.

use crate::{
    model::{Body, Outcome, SessionTime},
    turn::{
        active_run::{ActiveRun, LoopState},
        model_call::RetryPause,
    },
};

impl ActiveRun {
    /// Stops the clock at the end of the run.
    pub(super) fn stop_clock(&mut self, now: SessionTime) {
        self.end_pause(now);
        self.clock.stopped_at.get_or_insert(now.active_ms);
    }

    /// Start of the counted active time on the session's active clock, in milliseconds, moved forward by all time that
    /// does not count.
    pub(super) fn counted_from(&self, now: SessionTime) -> u64 {
        self.clock.counted_from(now, self.pause())
    }

    /// The run's limits of active time: for each its end on the session's active clock, the limit in milliseconds, and
    /// the outcome.
    pub(super) fn time_limits(&self, now: SessionTime) -> impl Iterator<Item = (u64, u64, Outcome)> + use<> {
        let limits = &self.spec.limits;
        let timeout = limits.timeout_ms.map(|ms| (ms, Outcome::TimedOut));
        let wall = limits.wall_ms.map(|ms| (ms, Outcome::BudgetExhausted));
        let began = self.counted_from(now);
        timeout.into_iter().chain(wall).map(move |(ms, outcome)| (began.saturating_add(ms), ms, outcome))
    }

    /// When a subagent ends if it gets no new result: the time on the session's active clock, and the limit in
    /// milliseconds. `None` without such a limit, while a subagent of its own is live, and while its expectations are checked.
    pub(super) fn no_progress_deadline(&self, now: SessionTime) -> Option<(u64, u64)> {
        let limit_ms = self.spec.delegation?.progress_ms?;
        let progress_at = self.counted_from(now).saturating_add(self.clock.last_progress_ms);
        let may_stall =
            self.parent.is_some() && !self.subagents.has_live() && self.unverified_answer().is_none();
        may_stall.then(|| (progress_at.saturating_add(limit_ms), limit_ms))
    }

    /// Notes for the clock what a record has changed. Called after the record is folded.
    pub(super) fn track_time(&mut self, body: &Body, now: SessionTime) {
        let (is_parked, is_wanted) = (self.is_parked(), self.is_model_wanted());
        self.clock.track_state(is_parked, is_wanted, now.active_ms);
        if matches!(body, Body::ModelAnswered(_) | Body::CallEnded(_) | Body::ChildEnded(_)) {
            self.clock.last_progress_ms = now.active_ms.saturating_sub(self.counted_from(now));
        }
    }

    /// The pause before the next attempt of the model call.
    pub(super) fn pause(&self) -> Option<RetryPause> {
        self.model_call_state()?.pause()
    }

    /// Ends the pause before an attempt, because the attempt or another pause starts.
    pub(super) fn end_pause(&mut self, now: SessionTime) {
        if let LoopState::CallingModel(call) = &mut self.state {
            self.clock.uncounted_ms += call.end_pause(now);
        }
    }

    /// Whether the present moment does not count for the limits of time.
    pub(super) fn is_uncounted(&self, now: SessionTime) -> bool {
        let pauses =
            self.pause().is_some_and(|pause| pause.uncounted_since.is_some() && !pause.is_over(now.at));
        pauses || self.clock.stopped_at.is_some()
    }

    /// Whether the run gives its place in its lane to others: it waits for a person, for subagents alone, or for a time
    /// that a provider has named.
    pub(super) fn leaves_its_place(&self, now: SessionTime) -> bool {
        let waits_for_subagents = match &self.state {
            LoopState::CallingModel(_) => false,
            LoopState::RunningTools(step) => {
                let mut open = step.calls.iter().filter(|call| !call.is_settled()).peekable();
                open.peek().is_some() && open.all(|call| self.subagents.wait_of(call.id).is_some())
            }
            LoopState::Answered(_) => self.subagents.has_live(),
        };
        waits_for_subagents || self.is_uncounted(now)
    }
}
