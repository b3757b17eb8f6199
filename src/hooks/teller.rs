//! Tells one observer of events: with pauses after failures, and again of what was given up when it works again.

use std::{sync::Arc, time::Duration};

use serde_json::Value;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{
    hook::Hook,
    observer_pace::{AfterFailure, ObserverPace},
};

/// The longest pause that the end of the process waits for.
const MAX_FINAL_PAUSE: Duration = Duration::from_millis(500);

/// Tells one observer of events.
pub(super) struct Teller {
    hook: Arc<Hook>,
    /// Fires when the process ends.
    finishing: CancellationToken,
    pace: ObserverPace,
    /// The events that were given up since the last success, at most those that disable the hook.
    given_up: Vec<Value>,
    /// Whether the hook was disabled since the last success.
    was_disabled: bool,
}

/// What came of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// The hook has taken it, and what was given up before.
    Yes,
    /// It was given up for now.
    GivenUp,
    /// The hook is disabled. It is to be told of everything since its last success, when that pause is over.
    Disabled,
    /// The process ends, and the hook is in a long pause.
    Ending,
}

impl Teller {
    pub(super) const fn new(hook: Arc<Hook>, finishing: CancellationToken) -> Self {
        let pace = ObserverPace::new();
        Self { hook, finishing, pace, given_up: Vec::new(), was_disabled: false }
    }

    /// Whether the hook has taken all that it was told of.
    pub(super) const fn is_even(&self) -> bool {
        self.given_up.is_empty() && !self.was_disabled
    }

    /// Tells of an event, several times if need be.
    pub(super) async fn tell(&mut self, event: Value) -> Told {
        loop {
            if !self.pause().await {
                return Told::Ending;
            }
            if self.hook.tell(&event).await.is_ok() {
                self.recover().await;
                return Told::Yes;
            }
            match self.pace.on_failure() {
                AfterFailure::Again => {}
                AfterFailure::GiveUp => {
                    self.hook.skip_event();
                    self.given_up.push(event);
                    return Told::GivenUp;
                }
                AfterFailure::Disable => {
                    if !self.was_disabled {
                        self.hook.skip_event();
                        tracing::error!(hook = %self.hook.name, "an observer is disabled for a while");
                    }
                    self.hook.disable();
                    self.was_disabled = true;
                    // They are read from the feed again.
                    self.given_up.clear();
                    return Told::Disabled;
                }
            }
        }
    }

    /// Pauses after failures. False if the process ends meanwhile.
    async fn pause(&mut self) -> bool {
        let pause = self.pace.pause();
        if pause.is_zero() {
            return true;
        }
        self.hook.note_pause(pause);
        tokio::select! {
            () = sleep(pause) => true,
            () = self.hook.enabled() => {
                self.pace.on_success();
                true
            }
            () = self.finishing.cancelled(), if pause > MAX_FINAL_PAUSE => false,
        }
    }

    /// The hook works: tells it of what was given up, once. What fails now is given up for good.
    async fn recover(&mut self) {
        self.pace.on_success();
        let mut failed = 0;
        for event in std::mem::take(&mut self.given_up) {
            failed += u64::from(self.hook.tell(&event).await.is_err());
        }
        self.hook.recover(failed);
        self.was_disabled = false;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use serde_json::json;
    use tokio::time::Instant;

    use super::*;
    use crate::{hooks::observer_pace::MAX_GIVEN_UP, view::HookStateView};

    /// A teller whose hook succeeds if this says so about the number of an event, and what it has taken.
    fn teller(
        is_ok: impl Fn(u64) -> bool + Send + Sync + 'static,
    ) -> (Teller, Arc<Hook>, Arc<Mutex<Vec<u64>>>) {
        let taken = Arc::<Mutex<Vec<u64>>>::default();
        let kept = Arc::clone(&taken);
        let hook = Hook::scripted(&["run_end"], move |bytes| {
            let event: Value = serde_json::from_slice(bytes).unwrap();
            let n = event["n"].as_u64().unwrap();
            if !is_ok(n) {
                return Err("out of order".to_owned());
            }
            kept.lock().unwrap().push(n);
            Ok(Vec::new())
        });
        (Teller::new(Arc::clone(&hook), CancellationToken::new()), hook, taken)
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_of_minutes_loses_nothing() {
        let start = Instant::now();
        let (mut teller, hook, taken) = teller(move |_| start.elapsed() > Duration::from_mins(4));
        let mut n = 0;
        while !teller.is_even() || n == 0 {
            n += 1;
            assert_ne!(teller.tell(json!({ "n": n })).await, Told::Disabled, "after {:?}", start.elapsed());
        }
        let mut taken = taken.lock().unwrap().clone();
        taken.sort_unstable();
        assert_eq!(taken, (1..=n).collect::<Vec<_>>());
        assert!(n > 2, "no event was given up meanwhile");
        let view = hook.view();
        assert_eq!((view.state, view.skipped, view.retry_in_s), (Some(HookStateView::Ready), 0, None));
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_that_always_fails_is_given_up_for_good() {
        let (start, (mut teller, hook, taken)) = (Instant::now(), teller(|n| n != 1));
        for n in 0..4 {
            let expected = if n == 1 { Told::GivenUp } else { Told::Yes };
            assert_eq!(teller.tell(json!({ "n": n })).await, expected);
        }
        assert_eq!((taken.lock().unwrap().as_slice(), teller.is_even()), (&[0, 2, 3][..], true));
        let view = hook.view();
        assert_eq!((view.skipped, view.calls, view.failures), (1, 7, 4));
        assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_hook_that_only_fails_is_disabled_and_tried_seldom_until_it_is_enabled() {
        let start = Instant::now();
        let works = Arc::<Mutex<bool>>::default();
        let now = Arc::clone(&works);
        let (mut teller, hook, taken) = teller(move |_| *now.lock().unwrap());
        let mut given_up = 1;
        while teller.tell(json!({ "n": given_up })).await == Told::GivenUp {
            assert_eq!(hook.view().state, Some(HookStateView::Failing));
            given_up += 1;
        }
        assert_eq!(given_up, u64::from(MAX_GIVEN_UP));
        assert!(start.elapsed() > Duration::from_mins(5), "{:?}", start.elapsed());
        assert_eq!((hook.view().state, hook.view().skipped), (Some(HookStateView::Disabled), given_up));
        for _ in 0..2 {
            let (calls, before) = (hook.view().calls, Instant::now());
            assert_eq!(teller.tell(json!({ "n": 1 })).await, Told::Disabled);
            assert_eq!((hook.view().calls, before.elapsed()), (calls + 1, Duration::from_mins(30)));
        }
        let before = Instant::now();
        let enable = async {
            sleep(Duration::from_secs(5)).await;
            let view = hook.view();
            assert_eq!((view.state, view.retry_in_s), (Some(HookStateView::Disabled), Some(1_796)));
            *works.lock().unwrap() = true;
            hook.enable();
        };
        let (told, ()) = tokio::join!(teller.tell(json!({ "n": 1 })), enable);
        assert_eq!((told, before.elapsed(), teller.is_even()), (Told::Yes, Duration::from_secs(5), true));
        assert_eq!(*taken.lock().unwrap(), [1]);
        let view = hook.view();
        assert_eq!((view.state, view.skipped, view.retry_in_s), (Some(HookStateView::Ready), 0, None));
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_the_process_waits_for_no_long_pause() {
        let (mut teller, _, _) = teller(|_| false);
        teller.finishing.cancel();
        let start = Instant::now();
        while teller.tell(json!({ "n": 1 })).await != Told::Ending {}
        assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
        assert!(!teller.is_even());
    }
}
