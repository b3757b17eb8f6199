//! Waits for space on the store's disk, so that a full disk only makes writes slow. Also tells what is waited for, and
//! whether a read would block.

use std::{
    io,
    path::Path,
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, ThreadId},
    time::Duration,
};

use hermod_actors::model::{ByteSize, DiskFull};

use crate::disk_space::is_full;

/// Time between two attempts.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// Shared by all writers to one store. Only one thread waits: all others get the error at once, so that opening and
/// reading never hang.
#[derive(Debug, Default)]
pub(super) struct DiskFullWait {
    state: Mutex<DiskFullState>,
    stopped: Condvar,
    /// A flush is under way: see [`DiskFullWait::may_block_readers`].
    flushing: AtomicBool,
    #[cfg(test)]
    trips: super::full_disk_tests::Trips,
}

#[derive(Debug, Default)]
struct DiskFullState {
    /// The thread that waits.
    writer: Option<ThreadId>,
    /// Waiting is over: errors are returned at once.
    has_stopped: bool,
    missing: Option<DiskFull>,
}

impl DiskFullWait {
    /// An instance whose attempts fail as the test plans it.
    #[cfg(test)]
    pub(super) fn tripping(trips: super::full_disk_tests::Trips) -> Self {
        Self { trips, ..Self::default() }
    }

    /// Makes this thread the one that waits for space.
    pub(super) fn wait_on_this_thread(&self) {
        self.lock().writer = Some(thread::current().id());
    }

    /// Ends all waiting: attempts that find the disk full fail.
    pub(super) fn stop_waiting(&self) {
        self.lock().has_stopped = true;
        self.stopped.notify_all();
    }

    /// The file and the bytes that are waited for.
    pub(super) fn missing(&self) -> Option<DiskFull> {
        self.lock().missing.clone()
    }

    /// Runs `flush`; meanwhile [`DiskFullWait::may_block_readers`] is true.
    pub(super) fn flushing<T>(&self, flush: impl FnOnce() -> T) -> T {
        self.flushing.store(true, Ordering::Release);
        let result = flush();
        self.flushing.store(false, Ordering::Release);
        result
    }

    /// Whether a read may block on the engine's cache until there is space. Async callers then read on another thread.
    pub(super) fn may_block_readers(&self) -> bool {
        self.flushing.load(Ordering::Acquire) || self.lock().missing.is_some()
    }

    /// Repeats `attempt`, which writes `needed` bytes to `path`, while the disk is full.
    /// `attempt` must be idempotent: an earlier one may have been done in part.
    pub(super) fn retry_until_space<T>(
        &self,
        path: &Path,
        needed: usize,
        mut attempt: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        loop {
            #[cfg(test)]
            let result = self.trips.around(&mut attempt);
            #[cfg(not(test))]
            let result = attempt();
            match result {
                Err(error) if is_full(&error) && self.pause(path, needed, &error) => {}
                Ok(result) => {
                    self.clear_missing();
                    return Ok(result);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits a while; returns whether to try again.
    fn pause(&self, path: &Path, needed: usize, error: &io::Error) -> bool {
        let mut state = self.lock();
        if state.writer != Some(thread::current().id()) || state.has_stopped {
            return false;
        }
        if state.missing.is_none() {
            let (path, needed) = (path.display().to_string(), needed as u64);
            let bytes = ByteSize(needed);
            tracing::warn!(path, %bytes, %error, "the disk is full: all that is to be written waits for room on it");
            state.missing = Some(DiskFull { path, needed_bytes: needed });
        }
        let woken = self.stopped.wait_timeout_while(state, self.pause_time(), |state| !state.has_stopped);
        let (state, _) = woken.unwrap_or_else(PoisonError::into_inner);
        !state.has_stopped
    }

    #[cfg(not(test))]
    #[allow(clippy::unused_self)] // in tests it depends
    const fn pause_time(&self) -> Duration {
        RETRY_DELAY
    }

    #[cfg(test)]
    fn pause_time(&self) -> Duration {
        self.trips.pause().unwrap_or(RETRY_DELAY)
    }

    fn clear_missing(&self) {
        let mut state = self.lock();
        if state.writer == Some(thread::current().id())
            && let Some(DiskFull { path, .. }) = state.missing.take()
        {
            tracing::warn!(path, "there is room on the disk again: what waited is written");
        }
    }

    fn lock(&self) -> MutexGuard<'_, DiskFullState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
