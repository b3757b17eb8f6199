//! A queue of jobs that is fair between their owners: an owner with many jobs gets one in each round. Pure.

use std::collections::{BTreeMap, btree_map::Entry};

/// Jobs that wait, by key. Of two jobs with the same rank the one of the earlier round comes first.
#[derive(Debug)]
pub struct FairQueue<K, O, J> {
    waiting: BTreeMap<QueuePosition, WaitingJob<K, O, J>>,
    positions: BTreeMap<K, QueuePosition>,
    /// The number of waiting jobs of each owner, and the round of the last one.
    owners: BTreeMap<O, (usize, u64)>,
    /// The latest round of which a job was taken.
    round: u64,
    arrivals: u64,
}

/// The round of a job, and its arrival. The round is the present one when the job arrives, or the one after the owner's
/// last waiting job.
type QueuePosition = (u64, u64);

#[derive(Debug)]
struct WaitingJob<K, O, J> {
    key: K,
    owner: O,
    job: J,
}

impl<K, O, J> Default for FairQueue<K, O, J> {
    fn default() -> Self {
        let (waiting, positions, owners) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { waiting, positions, owners, round: 0, arrivals: 0 }
    }
}

impl<K: Ord + Copy, O: Ord + Copy, J> FairQueue<K, O, J> {
    /// Adds a job. A waiting job with the same key is replaced and keeps its position.
    pub fn push(&mut self, key: K, owner: O, job: J) {
        if let Some(waiting) = self.get_mut(key) {
            *waiting = job;
            return;
        }
        let (count, last) = self.owners.get(&owner).copied().unwrap_or_default();
        let round = if count == 0 { self.round } else { self.round.max(last + 1) };
        self.owners.insert(owner, (count + 1, round));
        self.arrivals += 1;
        let position = (round, self.arrivals);
        self.positions.insert(key, position);
        self.waiting.insert(position, WaitingJob { key, owner, job });
    }

    /// The waiting job with this key.
    pub fn get_mut(&mut self, key: K) -> Option<&mut J> {
        let position = self.positions.get(&key)?;
        self.waiting.get_mut(position).map(|waiting| &mut waiting.job)
    }

    /// Removes the jobs for which `keep` is false.
    pub fn retain(&mut self, keep: impl Fn(&J) -> bool) {
        let removed = self.waiting.iter().filter(|(_, waiting)| !keep(&waiting.job));
        let removed: Vec<QueuePosition> = removed.map(|(position, _)| *position).collect();
        removed.into_iter().for_each(|position| drop(self.remove(position)));
    }

    /// Takes the first job: the smallest rank, then the earliest round, then the earliest arrival. A job without a rank
    /// stays.
    pub fn take<R: Ord>(&mut self, rank: impl Fn(&J) -> Option<R>) -> Option<J> {
        let ranked =
            self.waiting.iter().filter_map(|(position, waiting)| Some((rank(&waiting.job)?, *position)));
        let (_, position) = ranked.min()?;
        self.take_at(position)
    }

    /// Takes the first job, whatever its rank is: the earliest round, then the earliest arrival.
    pub fn take_next(&mut self) -> Option<J> {
        let position = *self.waiting.first_key_value()?.0;
        self.take_at(position)
    }

    /// The waiting jobs, in the order of their positions.
    pub fn jobs(&self) -> impl Iterator<Item = &J> {
        self.waiting.values().map(|waiting| &waiting.job)
    }

    fn take_at(&mut self, position: QueuePosition) -> Option<J> {
        self.round = self.round.max(position.0);
        self.remove(position)
    }

    fn remove(&mut self, position: QueuePosition) -> Option<J> {
        let WaitingJob { key, owner, job } = self.waiting.remove(&position)?;
        self.positions.remove(&key);
        if let Entry::Occupied(mut entry) = self.owners.entry(owner) {
            entry.get_mut().0 -= 1;
            if entry.get().0 == 0 {
                entry.remove();
            }
        }
        Some(job)
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
    fn the_next_job_has_no_rank() {
        let mut queue = FairQueue::default();
        "aaB".chars().enumerate().for_each(|(key, owner)| queue.push(key, owner, owner));
        assert_eq!(std::iter::from_fn(|| queue.take_next()).collect::<String>(), "aBa");
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
