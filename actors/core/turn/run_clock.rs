//! The clock of a run: how much of the session's active time counts for the run's limits. The limits themselves are in
//! `active_run.rs`.

use crate::{model::SessionTime, turn::model_call::RetryPause};

/// Times and durations of a run on the session's active clock, in milliseconds.
#[derive(Debug, Clone)]
pub(super) struct RunClock {
    /// The start of the run.
    pub(super) started: SessionTime,
    /// Active time since `started` that does not count: past waits for a known reset or a person, and time between
    /// legs.
    pub(super) uncounted_ms: u64,
    /// Counted active time up to the last answer of the model, or result of a tool call or subagent.
    pub(super) last_progress_ms: u64,
    /// Since when the clock stands still, because the run is parked or has ended.
    pub(super) stopped_at: Option<u64>,
    /// Since when the model call of the present iteration is wanted.
    model_wanted_since: Option<u64>,
}

impl RunClock {
    pub(super) const fn new(started: SessionTime) -> Self {
        Self { started, uncounted_ms: 0, last_progress_ms: 0, stopped_at: None, model_wanted_since: None }
    }

    /// Start of the counted active time, moved forward by all time that does not count. `pause` is the pause under way,
    /// if any.
    pub(super) fn counted_from(&self, now: SessionTime, pause: Option<RetryPause>) -> u64 {
        let parked = self.stopped_at.map_or(0, |since| now.active_ms.saturating_sub(since));
        let waiting = parked + pause.map_or(0, |pause| pause.uncounted_ms(now));
        self.started.active_ms + self.uncounted_ms + waiting
    }

    /// Milliseconds for which the model call has been wanted.
    pub(super) fn model_wait_ms(&self, now: SessionTime) -> u64 {
        self.model_wanted_since.map_or(0, |since| now.active_ms.saturating_sub(since))
    }

    /// Notes whether the run is parked and whether its model call is wanted. The clock stands still while the run is
    /// parked.
    pub(super) fn track_state(&mut self, is_parked: bool, is_model_wanted: bool, active_ms: u64) {
        if !is_parked {
            self.uncounted_ms += self.stopped_at.map_or(0, |since| active_ms.saturating_sub(since));
        }
        self.stopped_at = is_parked.then(|| self.stopped_at.unwrap_or(active_ms));
        self.model_wanted_since = is_model_wanted.then(|| self.model_wanted_since.unwrap_or(active_ms));
    }
}
