//! The clock of a run: which of the session's active time counts for its limits.

use crate::{model::SessionTime, turn::model_call::RetryPause};

/// Times of a run on the session's active clock, in milliseconds.
#[derive(Debug, Clone)]
pub(super) struct RunClock {
    /// The start of the run.
    pub(super) started: SessionTime,
    /// Active time since `started` that does not count: waits for a known reset or for a person that are over.
    pub(super) uncounted_ms: u64,
    /// Counted active time up to the last result of a call.
    pub(super) progress_ms: u64,
    /// When the run was parked.
    pub(super) parked_at: Option<u64>,
    /// Since when the model call of the present iteration is wanted.
    model_wanted_since: Option<u64>,
}

impl RunClock {
    pub(super) const fn new(started: SessionTime) -> Self {
        Self { started, uncounted_ms: 0, progress_ms: 0, parked_at: None, model_wanted_since: None }
    }

    /// Start of the counted active time, moved forward by all time that does not count; `pause` is under way.
    pub(super) fn counted_from(&self, now: SessionTime, pause: Option<RetryPause>) -> u64 {
        let parked = self.parked_at.map_or(0, |since| now.active_ms.saturating_sub(since));
        let waiting = parked + pause.map_or(0, |pause| pause.uncounted_ms(now));
        self.started.active_ms + self.uncounted_ms + waiting
    }

    /// Milliseconds for which the model call has been wanted.
    pub(super) fn model_wait_ms(&self, now: SessionTime) -> u64 {
        self.model_wanted_since.map_or(0, |since| now.active_ms.saturating_sub(since))
    }

    /// Stops the clock when the run becomes parked, and resumes it when the run is parked no longer.
    pub(super) fn track_state(&mut self, is_parked: bool, is_model_wanted: bool, active_ms: u64) {
        if !is_parked {
            self.uncounted_ms += self.parked_at.map_or(0, |since| active_ms.saturating_sub(since));
        }
        self.parked_at = is_parked.then(|| self.parked_at.unwrap_or(active_ms));
        self.model_wanted_since = is_model_wanted.then(|| self.model_wanted_since.unwrap_or(active_ms));
    }
}
