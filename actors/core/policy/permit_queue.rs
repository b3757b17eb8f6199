//! The order in which waiting tool calls of one class get permits. Pure.

use crate::{model::RunId, policy::FairQueue};

/// The waiting calls of one class. Calls that an earlier incarnation started come first. Then the runs take turns,
/// however many calls an answer has.
#[derive(Debug)]
pub struct PermitQueue<J> {
    running: FairQueue<u64, RunId, J>,
    waiting: FairQueue<u64, RunId, J>,
    arrivals: u64,
}

impl<J> Default for PermitQueue<J> {
    fn default() -> Self {
        Self { running: FairQueue::default(), waiting: FairQueue::default(), arrivals: 0 }
    }
}

impl<J> PermitQueue<J> {
    /// Adds a call of this run. `is_running`: an earlier incarnation started the call.
    pub fn push(&mut self, run: RunId, is_running: bool, job: J) {
        self.arrivals += 1;
        let queue = if is_running { &mut self.running } else { &mut self.waiting };
        queue.push(self.arrivals, run, job);
    }

    /// Takes the call that gets the next permit.
    pub fn take_next(&mut self) -> Option<J> {
        self.running.take_next().or_else(|| self.waiting.take_next())
    }

    /// The calls that wait.
    pub fn jobs(&self) -> impl Iterator<Item = &J> {
        self.running.jobs().chain(self.waiting.jobs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the order of permits for calls of these runs. An upper-case run has a call that runs already.
    #[track_caller]
    fn check(arrivals: &str, expected: &str) {
        let mut queue = PermitQueue::default();
        for run in arrivals.chars() {
            let id = RunId::from_bits(u128::from(u32::from(run.to_ascii_lowercase())));
            queue.push(id, run.is_ascii_uppercase(), run);
        }
        assert_eq!(queue.jobs().count(), arrivals.len());
        assert_eq!(std::iter::from_fn(|| queue.take_next()).collect::<String>(), expected, "{arrivals}");
    }

    #[test]
    fn runs_take_turns_behind_calls_that_run_already() {
        check("", "");
        check("aaab", "abaa");
        check("aaaabbc", "abcabaa");
        check("aabB", "Baba");
        check("abAA", "AAab");
    }
}
