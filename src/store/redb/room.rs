//! Room on the disk of the store, waited for: to whoever writes, a full disk is a slow one.

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

use hermod_actors::model::{NoRoom, Size};

use crate::space::is_full;

/// Time between two attempts.
const PAUSE: Duration = Duration::from_millis(500);

/// Shared by all that writes to one store. Only one thread waits; every other one is told of a full disk at once, so that
/// neither opening a store nor reading from it hangs.
#[derive(Debug, Default)]
pub(super) struct Room {
    state: Mutex<State>,
    ended: Condvar,
    /// See [`Room::is_held`].
    flushing: AtomicBool,
    #[cfg(test)]
    trips: super::full_disk_tests::Trips,
}

#[derive(Debug, Default)]
struct State {
    /// Who waits.
    writer: Option<ThreadId>,
    /// Nobody waits any more.
    is_over: bool,
    missing: Option<NoRoom>,
}

impl Room {
    /// One in which attempts find the disk full as they are told to.
    #[cfg(test)]
    pub(super) fn tripping(trips: super::full_disk_tests::Trips) -> Self {
        Self { trips, ..Self::default() }
    }

    /// From now on this thread waits for room.
    pub(super) fn wait_here(&self) {
        self.lock().writer = Some(thread::current().id());
    }

    /// Nobody waits any more: what finds no room fails.
    pub(super) fn give_up(&self) {
        self.lock().is_over = true;
        self.ended.notify_all();
    }

    /// What is waited for.
    pub(super) fn missing(&self) -> Option<NoRoom> {
        self.lock().missing.clone()
    }

    /// Does `flush`, during which [`Room::is_held`].
    pub(super) fn flushing<T>(&self, flush: impl FnOnce() -> T) -> T {
        self.flushing.store(true, Ordering::Release);
        let done = flush();
        self.flushing.store(false, Ordering::Release);
        done
    }

    /// Whether a reader may find parts of the engine's cache locked until there is room. Who must not be held up reads on
    /// another thread then.
    pub(super) fn is_held(&self) -> bool {
        self.flushing.load(Ordering::Acquire) || self.lock().missing.is_some()
    }

    /// Does what takes `wants` bytes for `path`, as often as there is no room for it; it must come to the same when it was
    /// done in part before.
    pub(super) fn find<T>(
        &self,
        (path, wants): (&Path, usize),
        mut attempt: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        loop {
            #[cfg(test)]
            let done = self.trips.around(&mut attempt);
            #[cfg(not(test))]
            let done = attempt();
            match done {
                Err(error) if is_full(&error) && self.pause((path, wants), &error) => {}
                Ok(done) => {
                    self.found();
                    return Ok(done);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits a while, and says whether it is to be tried again.
    fn pause(&self, (path, wants): (&Path, usize), error: &io::Error) -> bool {
        let mut state = self.lock();
        if state.writer != Some(thread::current().id()) || state.is_over {
            return false;
        }
        if state.missing.is_none() {
            let (path, wants) = (path.display().to_string(), wants as u64);
            let bytes = Size(wants);
            tracing::warn!(path, %bytes, %error, "the disk is full: all that is to be written waits for room on it");
            state.missing = Some(NoRoom { path, wants });
        }
        let over = self.ended.wait_timeout_while(state, self.pause_time(), |state| !state.is_over);
        let (state, _) = over.unwrap_or_else(PoisonError::into_inner);
        !state.is_over
    }

    #[cfg(not(test))]
    #[allow(clippy::unused_self)] // in tests it depends
    const fn pause_time(&self) -> Duration {
        PAUSE
    }

    #[cfg(test)]
    fn pause_time(&self) -> Duration {
        self.trips.pause().unwrap_or(PAUSE)
    }

    fn found(&self) {
        let mut state = self.lock();
        if state.writer == Some(thread::current().id())
            && let Some(NoRoom { path, .. }) = state.missing.take()
        {
            tracing::warn!(path, "there is room on the disk again: what waited is written");
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
