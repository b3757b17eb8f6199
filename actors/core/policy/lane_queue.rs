//! The places of one lane, and the runs that wait for one. Pure.

use std::collections::BTreeMap;

use crate::model::Timestamp;

/// The runs of one lane: how many are under way, and which wait, in the order of their acceptance.
///
/// A run that goes on takes its place back at once, so more runs than the limit can be under way. No other run gets a
/// place meanwhile.
#[derive(Debug)]
pub struct LaneQueue<J> {
    limit: Option<u32>,
    occupied: usize,
    waiting: BTreeMap<WaitKey, J>,
    arrivals: u64,
}

/// When a waiting run was accepted, and the number of its arrival.
pub type WaitKey = (Timestamp, u64);

impl<J> Default for LaneQueue<J> {
    fn default() -> Self {
        Self { limit: None, occupied: 0, waiting: BTreeMap::new(), arrivals: 0 }
    }
}

impl<J> LaneQueue<J> {
    /// Sets the limit; `None` is no limit.
    pub const fn set_limit(&mut self, limit: Option<u32>) {
        self.limit = limit;
    }

    /// Adds a run that waits. Returns the key with which it is removed.
    pub fn push(&mut self, accepted_at: Timestamp, job: J) -> WaitKey {
        self.arrivals += 1;
        let key = (accepted_at, self.arrivals);
        self.waiting.insert(key, job);
        key
    }

    /// Removes a run that waits no more.
    pub fn remove(&mut self, key: WaitKey) -> Option<J> {
        self.waiting.remove(&key)
    }

    /// Takes a place for a run that has begun already, whatever the limit is.
    pub const fn occupy(&mut self) {
        self.occupied += 1;
    }

    /// Takes a place for a run that has not waited, if one is free and no run waits. Returns false otherwise.
    pub fn try_occupy(&mut self) -> bool {
        let may = self.waiting.is_empty() && self.has_place();
        self.occupied += usize::from(may);
        may
    }

    /// Gives a place back.
    pub const fn release(&mut self) {
        self.occupied = self.occupied.saturating_sub(1);
    }

    /// Takes a place for the run that has waited longest, if one is free.
    pub fn take_next(&mut self) -> Option<J> {
        let (_, job) = if self.has_place() { self.waiting.pop_first()? } else { return None };
        self.occupied += 1;
        Some(job)
    }

    /// The numbers of runs that have a place, and that wait.
    pub fn counts(&self) -> (usize, usize) {
        (self.occupied, self.waiting.len())
    }

    fn has_place(&self) -> bool {
        self.limit.is_none_or(|limit| self.occupied < usize::try_from(limit).unwrap_or(usize::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a script of letters and checks which runs begin. A lower-case letter is a run that waits, accepted in the
    /// order of the alphabet; `!` gives a place back, `+` takes one back, `?` is a run that tries without waiting.
    #[track_caller]
    fn check(limit: Option<u32>, script: &str, expected: &str) {
        let mut queue = LaneQueue::default();
        queue.set_limit(limit);
        let mut begun = String::new();
        for step in script.chars() {
            match step {
                '!' => queue.release(),
                '+' => queue.occupy(),
                '?' => begun.push_str(if queue.try_occupy() { "?" } else { "" }),
                run => {
                    queue.push(Timestamp(i64::from(u32::from(run))), run);
                }
            }
            begun.extend(std::iter::from_fn(|| queue.take_next()));
        }
        assert_eq!(begun, expected, "{limit:?} {script}");
    }

    #[test]
    fn places_go_to_the_run_that_was_accepted_first() {
        check(None, "cab", "cab");
        check(Some(1), "cab", "c");
        check(Some(1), "cab!!", "cab");
        check(Some(2), "abcd!", "abc");
        check(Some(0), "a?", "");
    }

    #[test]
    fn a_run_that_goes_on_has_its_place_and_no_other_begins_meanwhile() {
        check(Some(1), "a!b+!", "ab");
        check(Some(1), "a!b+c!!", "abc");
        check(Some(1), "a!b+c!", "ab");
    }

    #[test]
    fn a_run_that_does_not_wait_is_behind_those_that_do() {
        check(Some(1), "??", "?");
        check(Some(1), "?!?", "??");
        check(Some(1), "?a?!?", "?a");
    }

    #[test]
    fn a_run_that_waits_no_more_gets_no_place() {
        let mut queue = LaneQueue::default();
        queue.set_limit(Some(1));
        let first = queue.push(Timestamp(1), 'a');
        queue.push(Timestamp(1), 'b');
        assert_eq!((queue.remove(first), queue.remove(first)), (Some('a'), None));
        assert_eq!((queue.take_next(), queue.take_next(), queue.counts()), (Some('b'), None, (1, 0)));
    }
}
