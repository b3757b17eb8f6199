//! How an observer goes on after failures: pauses that double, events that are given up, and when it is told no more for a
//! while. Pure: time is an argument.

use std::time::Duration;

/// How often in a row an observer is told of an event before that is given up.
const MAX_TRIES: u32 = 3;
/// Events in a row that are given up before the observer is disabled. With the pauses, it has failed for 20 minutes then.
pub(super) const MAX_GIVEN_UP: u32 = 10;
/// The pause after the first failure. It doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause of an observer that is not disabled.
const MAX_PAUSE: Duration = Duration::from_mins(1);
/// The pause between two trials of an observer that is disabled.
const TRIAL_PAUSE: Duration = Duration::from_mins(30);

/// The failures of an observer since its last success.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ObserverPace {
    failures: u32,
    /// Failures with the present event.
    tries: u32,
    given_up: u32,
    is_disabled: bool,
}

/// What follows from a failure, after a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterFailure {
    /// The observer is told of the event again.
    Again,
    /// The event is given up, and the next one follows.
    GiveUp,
    /// The observer is disabled: after a long pause it is told of all that was given up.
    Disable,
}

impl ObserverPace {
    pub(super) const fn new() -> Self {
        Self { failures: 0, tries: 0, given_up: 0, is_disabled: false }
    }

    pub(super) fn on_success(&mut self) {
        *self = Self::new();
    }

    pub(super) fn on_failure(&mut self) -> AfterFailure {
        self.failures = self.failures.saturating_add(1);
        if self.is_disabled {
            return AfterFailure::Disable;
        }
        self.tries += 1;
        if self.tries < MAX_TRIES {
            return AfterFailure::Again;
        }
        self.tries = 0;
        self.given_up += 1;
        self.is_disabled = self.given_up >= MAX_GIVEN_UP;
        if self.is_disabled { AfterFailure::Disable } else { AfterFailure::GiveUp }
    }

    /// The pause before the next call.
    pub(super) fn pause(&self) -> Duration {
        match self.failures.checked_sub(1) {
            None => Duration::ZERO,
            Some(_) if self.is_disabled => TRIAL_PAUSE,
            Some(doublings) => {
                FIRST_PAUSE.saturating_mul(1_u32.checked_shl(doublings).unwrap_or(u32::MAX)).min(MAX_PAUSE)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_observer_that_only_fails_is_disabled_after_ten_events_and_many_minutes() {
        use AfterFailure::{Again, Disable, GiveUp};
        let mut pace = ObserverPace::new();
        let (mut time, mut before) = (Duration::ZERO, Duration::ZERO);
        for event in 1..=MAX_GIVEN_UP {
            for n in 1..=MAX_TRIES {
                assert!(pace.pause() >= before && pace.pause() <= MAX_PAUSE, "{pace:?}");
                before = pace.pause();
                time += before;
                let expected = match (n < MAX_TRIES, event < MAX_GIVEN_UP) {
                    (true, _) => Again,
                    (false, true) => GiveUp,
                    (false, false) => Disable,
                };
                assert_eq!(pace.on_failure(), expected, "event {event}, try {n}");
            }
        }
        assert!(time > Duration::from_mins(5) && time < Duration::from_mins(30), "{time:?}");
        for _ in 0..3 {
            assert_eq!((pace.pause(), pace.on_failure()), (TRIAL_PAUSE, Disable));
        }
        pace.on_success();
        assert_eq!((pace.pause(), pace.on_failure()), (Duration::ZERO, Again));
    }

    #[test]
    fn one_event_that_fails_costs_little_time() {
        let mut pace = ObserverPace::new();
        let mut time = Duration::ZERO;
        while pace.on_failure() == AfterFailure::Again {
            time += pace.pause();
        }
        assert!(time < Duration::from_secs(1), "{time:?}");
    }
}
