//! Tracks the running handlers of actors, except those of Root and of the providers. A handler takes microseconds. One
//! that does not return blocks its actor and one of the process's threads for ever, and nothing else would show it.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use serde::{Deserialize, Serialize};

use crate::{
    lock,
    model::{SessionId, Timestamp},
    port::Clock,
};

/// Milliseconds after which a handler counts as stalled.
pub(crate) const STALL_LIMIT_MS: u64 = 3_000;

/// The running handlers, each with its start.
#[derive(Debug)]
pub(crate) struct HandlerWatch {
    clock: Arc<dyn Clock>,
    running: Mutex<RunningHandlers>,
}

#[derive(Debug, Default)]
struct RunningHandlers {
    /// Number of handlers so far.
    count: u64,
    handlers: BTreeMap<u64, HandlerEntry>,
}

#[derive(Debug, Clone, Copy)]
struct HandlerEntry {
    actor: &'static str,
    session: Option<SessionId>,
    since_ms: u64,
}

/// A handler that has not returned for some time. It blocks its actor and a thread of the process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StalledHandler {
    /// Number of the handler in this process: the same number is the same stall.
    #[serde(skip)]
    pub number: u64,
    /// The kind of its actor, as in the supervision tree.
    pub actor: Cow<'static, str>,
    /// The session of its actor, if it has one.
    pub session: Option<SessionId>,
    /// When the handler started.
    pub since: Timestamp,
    /// Milliseconds since then.
    #[serde(skip)]
    pub ms: u64,
}

/// Tracks a running handler until it is dropped.
#[derive(Debug)]
pub(crate) struct RunningHandler {
    watch: Arc<HandlerWatch>,
    number: u64,
}

impl HandlerWatch {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { clock, running: Mutex::default() })
    }

    /// A handler of this actor starts.
    pub(crate) fn enter(self: &Arc<Self>, actor: &'static str, session: Option<SessionId>) -> RunningHandler {
        let entry = HandlerEntry { actor, session, since_ms: self.clock.monotonic_ms() };
        let mut running = lock(&self.running);
        running.count += 1;
        let number = running.count;
        running.handlers.insert(number, entry);
        RunningHandler { watch: Arc::clone(self), number }
    }

    /// The handlers that have run for `limit_ms` or longer, the oldest first.
    pub(crate) fn stalled(&self, limit_ms: u64) -> Vec<StalledHandler> {
        let (now_ms, at) = (self.clock.monotonic_ms(), self.clock.at());
        let running = lock(&self.running);
        let all = running.handlers.iter().map(|(number, entry)| {
            let ms = now_ms.saturating_sub(entry.since_ms);
            let since = Timestamp(at.0.saturating_sub_unsigned(ms));
            StalledHandler { number: *number, actor: entry.actor.into(), session: entry.session, since, ms }
        });
        all.filter(|handler| handler.ms >= limit_ms).collect()
    }
}

impl Drop for RunningHandler {
    fn drop(&mut self) {
        lock(&self.watch.running).handlers.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;

    use super::*;
    use crate::doubles::VirtualClock;

    #[tokio::test(start_paused = true)]
    async fn a_handler_that_does_not_come_back_is_seen_with_its_session_and_since_when() {
        let clock = Arc::new(VirtualClock::new(1));
        let watch = HandlerWatch::new(Arc::<VirtualClock>::clone(&clock));
        let (session, since) = (SessionId::from_bits(7), clock.at());
        let stuck = watch.enter("Session", Some(session));
        advance(Duration::from_secs(2)).await;
        drop(watch.enter("SessionSupervisor", None));
        let later = watch.enter("Persistence", None);
        advance(Duration::from_secs(3)).await;
        let expected =
            StalledHandler { number: 1, actor: "Session".into(), session: Some(session), since, ms: 5_000 };
        assert_eq!(watch.stalled(4_000), [expected]);
        assert_eq!(watch.stalled(3_000).len(), 2);
        assert_eq!(watch.stalled(5_001), []);
        drop((stuck, later));
        assert_eq!(watch.stalled(0), []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_handler_that_panics_has_come_back() {
        let watch = HandlerWatch::new(Arc::new(VirtualClock::new(1)));
        let of_handler = Arc::clone(&watch);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            let _running = of_handler.enter("Session", None);
            panic!("struck");
        }));
        assert!(panicked.is_err());
        assert_eq!(watch.stalled(0), []);
    }
}
