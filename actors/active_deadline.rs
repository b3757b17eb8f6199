//! Deadlines on the time for which this process ran.
//!
//! A process that was stopped (SIGSTOP, a frozen container, a paused machine) finds its timers expired when it
//! continues. Meanwhile an operation with a deadline may have ended, and its result was not read: the end of a command,
//! bytes in a socket. An [`ActiveDeadline`] counts such a gap as one tick, and grants time after it to read these
//! results.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// The longest time that counts as one tick.
const TICK: Duration = Duration::from_secs(1);
/// A timer that fires later than this shows that the process did not run.
const MIN_GAP: Duration = Duration::from_millis(500);
/// Bounds of the time that is granted after a gap.
const MIN_GRACE: Duration = Duration::from_secs(1);
const MAX_GRACE: Duration = Duration::from_secs(30);
/// Most gaps after which time is granted. A process that is stopped again and again must give up too.
const MAX_EXTENSIONS: u32 = 10;

/// A deadline that counts only the time in which this process ran.
#[derive(Debug, Clone)]
pub struct ActiveDeadline {
    /// The end of the current tick.
    tick_ends: Instant,
    /// The time left after that tick.
    left: Duration,
    /// The least time that is granted after a gap.
    grace: Duration,
    extensions: u32,
}

impl ActiveDeadline {
    /// A deadline that is over when the process has run for `limit` from now on.
    pub fn after(limit: Duration) -> Self {
        let tick = limit.min(TICK);
        Self {
            tick_ends: Instant::now() + tick,
            left: limit.saturating_sub(tick),
            grace: limit.clamp(MIN_GRACE, MAX_GRACE),
            extensions: 0,
        }
    }

    /// Resolves when the deadline is over. May be dropped and called again.
    pub async fn over(&mut self) {
        loop {
            sleep_until(self.tick_ends).await;
            let now = Instant::now();
            if now - self.tick_ends >= MIN_GAP {
                self.tick_ends = now;
                if self.left < self.grace && self.extensions < MAX_EXTENSIONS {
                    self.extensions += 1;
                    self.left = self.grace;
                }
            }
            if self.left.is_zero() {
                return;
            }
            let tick = self.left.min(TICK);
            self.tick_ends += tick;
            self.left = self.left.saturating_sub(tick);
        }
    }

    /// The output of `future`; `None` if the deadline is over before.
    pub async fn bound<T>(&mut self, future: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            output = future => Some(output),
            () = self.over() => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{future::pending, thread};

    use tokio::time::{advance, sleep};

    use super::*;

    /// Milliseconds until a deadline with this limit is over.
    async fn takes(limit: Duration) -> u128 {
        let start = Instant::now();
        ActiveDeadline::after(limit).over().await;
        start.elapsed().as_millis()
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_gap_it_is_a_deadline_like_any_other() {
        for ms in [0, 1, 999, 1_000, 1_001, 90_000, 86_400_000] {
            assert_eq!(takes(Duration::from_millis(ms)).await, ms.into());
        }
        let mut deadline = ActiveDeadline::after(Duration::from_secs(90));
        // However often it is bound.
        for _ in 0..89 {
            assert_eq!(deadline.bound(sleep(Duration::from_secs(1))).await, Some(()));
        }
        assert_eq!(deadline.bound(sleep(Duration::from_secs(2))).await, None);
        assert_eq!(
            ActiveDeadline::after(Duration::MAX).bound(sleep(Duration::from_hours(1))).await,
            Some(())
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_gap_counts_as_one_tick_and_leaves_a_grace() {
        let check = async |limit: u64, runs: u64, left: u64| {
            let mut deadline = ActiveDeadline::after(Duration::from_secs(limit));
            if runs > 0 {
                assert_eq!(deadline.bound(sleep(Duration::from_secs(runs))).await, Some(()));
            }
            // The process is stopped: no timer fires before all of them are over.
            advance(Duration::from_hours(1)).await;
            let start = Instant::now();
            assert_eq!(deadline.bound(pending::<()>()).await, None);
            assert_eq!(start.elapsed().as_secs(), left, "{limit} s, of which {runs} were over");
        };
        check(90, 10, 80).await;
        check(90, 80, 30).await;
        check(1, 0, 1).await;
        check(20, 19, 20).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_never_runs_well_gives_up_too() {
        let mut deadline = ActiveDeadline::after(Duration::from_mins(1));
        let mut gaps = 0;
        while deadline.bound(sleep(Duration::from_secs(5))).await.is_some() {
            advance(Duration::from_mins(1)).await;
            gaps += 1;
            assert!(gaps < 1_000, "it goes on for ever");
        }
        assert!(gaps > 10);
    }

    #[tokio::test]
    async fn what_is_there_behind_a_gap_is_taken() {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let mut deadline = ActiveDeadline::after(Duration::from_millis(50));
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(600));
            sender.send(7).unwrap();
        });
        // The only thread of this runtime is blocked, as in a stopped process.
        thread::sleep(Duration::from_millis(700));
        assert_eq!(deadline.bound(async { receiver.await.unwrap() }).await, Some(7));
    }
}
