//! A thread that reports actor handlers that do not return; it ends none of them. It is none of the runtime's threads,
//! so it detects a handler that blocks all of them. The limits of tasks are in `actors/session/watchdog.rs`.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{Builder, JoinHandle, park_timeout},
    time::Duration,
};

use hermod_actors::{HealthProbe, StalledHandler, port::Clock as _};

use crate::clock::SystemClock;

/// Pause between two checks.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// After a longer interval the process itself was suspended, so that check says nothing about handlers.
const MAX_POLL_INTERVAL_MS: u64 = 2_500;

/// The watchdog thread; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct HandlerWatchdog {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl HandlerWatchdog {
    /// Starts to watch the handlers of a runtime, and passes a line to `report` for each stalled one.
    pub(crate) fn start(health: HealthProbe, report: impl Fn(String) + Send + 'static) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let is_ended = Arc::clone(&ended);
        let watch = move || {
            let (clock, mut reported) = (SystemClock::default(), BTreeSet::new());
            while !is_ended.load(Ordering::Relaxed) {
                let start_ms = clock.monotonic_ms();
                park_timeout(POLL_INTERVAL);
                if clock.monotonic_ms() - start_ms < MAX_POLL_INTERVAL_MS {
                    new_stalls(&health.stalled_handlers(), &mut reported).for_each(&report);
                }
            }
        };
        let thread = Builder::new().name("hermod-watchdog".to_owned()).spawn(watch);
        let thread = thread.map_err(|error| tracing::warn!(%error, "handlers are not watched over")).ok();
        Self { ended, thread }
    }
}

impl Drop for HandlerWatchdog {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        // The thread may run one more check; the drop does not wait for it.
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
        }
    }
}

/// Lines for stalled handlers that are not reported yet, one per stall.
fn new_stalls<'a>(
    stalled: &'a [StalledHandler],
    reported: &'a mut BTreeSet<u64>,
) -> impl Iterator<Item = String> + 'a {
    reported.retain(|number| stalled.iter().any(|handler| handler.number == *number));
    stalled.iter().filter(|handler| reported.insert(handler.number)).map(|handler| {
        let StalledHandler { actor, session, since, ms, .. } = handler;
        tracing::warn!(%actor, session = ?session, %since, ms, "a handler does not come back");
        let suffix = session.map_or_else(String::new, |session| format!(" of session {session}"));
        format!("stalled   the {actor} handler{suffix} has not come back since {since} ({} s)", ms / 1_000)
    })
}

#[cfg(test)]
mod tests {
    use hermod_actors::model::{SessionId, Timestamp};

    use super::*;

    #[test]
    fn a_stall_is_reported_once() {
        let stalled = |number, ms| StalledHandler {
            number,
            actor: "Session".into(),
            session: Some(SessionId::from_bits(1)),
            since: Timestamp(0),
            ms,
        };
        let mut reported = BTreeSet::new();
        let mut lines = |stalled: &[StalledHandler]| new_stalls(stalled, &mut reported).collect::<Vec<_>>();
        let line = "stalled   the Session handler of session 00000000000000000000000001 has not come back since \
                    1970-01-01T00:00:00Z (3 s)";
        assert_eq!(lines(&[stalled(7, 3_000)]), [line]);
        assert_eq!(lines(&[stalled(7, 4_000)]), [""; 0]);
        assert_eq!(lines(&[stalled(7, 5_000), stalled(9, 3_100)]).len(), 1);
        assert_eq!(lines(&[]), [""; 0]);
        assert_eq!(lines(&[stalled(10, 3_000)]).len(), 1);
    }
}
