//! Counts crashes of a supervisor's children: within a period (restart intensity, OTP), and in a row at one step.
//! Deterministic: the time is a parameter. Restarts nothing.

use std::collections::VecDeque;

/// How many crashes within a period end the restarts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestartIntensity {
    /// The crash with this number within the period is not followed by a restart.
    pub crashes_to_give_up: usize,
    /// The period, in milliseconds.
    pub period_ms: u64,
}

/// The recent crashes of one child: their times in milliseconds.
#[derive(Debug, Default)]
pub struct RestartHistory(VecDeque<u64>);

impl RestartHistory {
    /// Counts a crash at `now_ms`. Returns true if the child may be started again, false if it is given up.
    pub fn may_restart(&mut self, now_ms: u64, intensity: RestartIntensity) -> bool {
        self.0.push_back(now_ms);
        self.0.retain(|crash_ms| now_ms.saturating_sub(*crash_ms) <= intensity.period_ms);
        self.0.len() < intensity.crashes_to_give_up
    }
}

/// Consecutive crashes at the same step.
#[derive(Debug, Default)]
pub struct ConsecutiveCrashes<S> {
    step: Option<S>,
    crashes: u32,
}

impl<S: PartialEq> ConsecutiveCrashes<S> {
    /// Counts a crash at `step` and returns the number of consecutive crashes there.
    pub fn count(&mut self, step: S) -> u32 {
        self.crashes = match &self.step {
            Some(last) if *last == step => self.crashes.saturating_add(1),
            Some(_) | None => 1,
        };
        self.step = Some(step);
        self.crashes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_deaths_within_the_window_count() {
        let intensity = RestartIntensity { crashes_to_give_up: 3, period_ms: 1_000 };
        let check = |crashes: &[u64], expected: bool| {
            let mut counted = RestartHistory::default();
            let verdicts: Vec<_> = crashes.iter().map(|at| counted.may_restart(*at, intensity)).collect();
            assert_eq!(verdicts.last(), Some(&expected), "{crashes:?}");
        };
        check(&[0], true);
        check(&[0, 10, 20], false);
        check(&[0, 10, 1_500], true);
        check(&[0, 1_500, 1_900, 2_400], false);
    }

    #[test]
    fn only_deaths_in_a_row_at_one_step_count() {
        let check = |steps: &[u8], expected: u32| {
            let mut crashes = ConsecutiveCrashes::default();
            assert_eq!(steps.iter().map(|step| crashes.count(*step)).last(), Some(expected), "{steps:?}");
        };
        check(&[1], 1);
        check(&[1, 1, 1], 3);
        check(&[1, 1, 2], 1);
        check(&[1, 2, 1], 1);
    }
}
