//! A queue of jobs that is fair between their owners: an owner with many jobs gets one in each round. Pure.

use std::collections::BTreeMap;

/// Jobs that wait, by key. Of two jobs with the same rank the one of the earlier round comes first.
#[derive(Debug)]
pub struct FairQueue<K, O, J> {
    waiting: BTreeMap<K, WaitingJob<O, J>>,
    /// The latest round of which a job was taken.
    round: u64,
    arrivals: u64,
}

#[derive(Debug)]
struct WaitingJob<O, J> {
    owner: O,
    /// The present round when the job arrived, or the one after the owner's last waiting job.
    round: u64,
    arrival: u64,
    job: J,
}

impl<K, O, J> Default for FairQueue<K, O, J> {
    fn default() -> Self {
        Self { waiting: BTreeMap::new(), round: 0, arrivals: 0 }
    }
}

impl<K: Ord + Copy, O: PartialEq, J> FairQueue<K, O, J> {
    /// Adds a job. A waiting job with the same key is replaced and keeps its place.
    pub fn push(&mut self, key: K, owner: O, job: J) {
        if let Some(waiting) = self.waiting.get_mut(&key) {
            waiting.job = job;
            return;
        }
        let own = self.waiting.values().filter(|waiting| waiting.owner == owner);
        let round = own.map(|waiting| waiting.round + 1).max().unwrap_or(0).max(self.round);
        self.arrivals += 1;
        self.waiting.insert(key, WaitingJob { owner, round, arrival: self.arrivals, job });
    }

    /// The waiting job with this key.
    pub fn get_mut(&mut self, key: K) -> Option<&mut J> {
        self.waiting.get_mut(&key).map(|waiting| &mut waiting.job)
    }

    /// Removes the jobs for which `keep` is false.
    pub fn retain(&mut self, keep: impl Fn(&J) -> bool) {
        self.waiting.retain(|_, waiting| keep(&waiting.job));
    }

    /// Takes the first job: the smallest rank, then the earliest round, then the earliest arrival. A job without a rank
    /// stays.
    pub fn take<R: Ord>(&mut self, rank: impl Fn(&J) -> Option<R>) -> Option<J> {
        let ranked = self
            .waiting
            .iter()
            .filter_map(|(key, waiting)| Some((rank(&waiting.job)?, waiting.round, waiting.arrival, *key)));
        let (.., key) = ranked.min()?;
        let taken = self.waiting.remove(&key)?;
        self.round = self.round.max(taken.round);
        Some(taken.job)
    }

    /// The waiting jobs, in the order of their keys.
    pub fn jobs(&self) -> impl Iterator<Item = &J> {
        self.waiting.values().map(|waiting| &waiting.job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks in which order jobs of these owners are taken. An upper-case owner is urgent.
    #[track_caller]
    fn check(arrivals: &str, expect: &str) {
        let mut queue = FairQueue::default();
        for (key, owner) in arrivals.chars().enumerate() {
            queue.push(key, owner.to_ascii_lowercase(), owner);
        }
        let taken: String =
            std::iter::from_fn(|| queue.take(|owner| Some(owner.is_ascii_lowercase()))).collect();
        assert_eq!(taken, expect, "{arrivals}");
    }

    #[test]
    fn owners_take_turns_and_urgent_jobs_come_first() {
        check("", "");
        check("abc", "abc");
        check("aaab", "abaa");
        check("aaabbc", "abcaba");
        check("aaaB", "Baaa");
        check("aAAb", "AAab");
    }

    #[test]
    fn an_owner_with_many_jobs_delays_a_later_one_by_one_job() {
        let mut queue = FairQueue::default();
        (0..20).for_each(|key| queue.push(key, 'a', 'a'));
        for _ in 0..5 {
            assert_eq!(queue.take(|_| Some(())), Some('a'));
        }
        queue.push(20, 'b', 'b');
        assert_eq!(queue.take(|_| Some(())), Some('b'));
    }

    #[test]
    fn a_job_without_a_rank_waits() {
        let mut queue = FairQueue::default();
        queue.push(1, 'a', "held");
        queue.push(2, 'b', "free");
        let free = |job: &&str| (*job == "free").then_some(());
        assert_eq!(queue.take(free), Some("free"));
        assert_eq!(queue.take(free), None);
        queue.push(1, 'a', "free");
        assert_eq!(queue.jobs().count(), 1, "the same key is the same job");
        assert_eq!(queue.take(free), Some("free"));
    }

    #[test]
    fn a_removed_job_is_not_taken() {
        let mut queue = FairQueue::default();
        queue.push(1, 'a', 10);
        queue.push(2, 'b', 20);
        queue.retain(|job| *job != 10);
        *queue.get_mut(2).expect("it waits") = 30;
        assert_eq!(queue.get_mut(1), None);
        assert_eq!(queue.take(|_| Some(())), Some(30));
    }
}
