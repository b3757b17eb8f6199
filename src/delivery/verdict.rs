//! What becomes of a message after an attempt: it is delivered, it is tried again after a pause, or it is dead. Pure.

use std::time::Duration;

use hermod_actors::model::{Delivery, DeliveryState, Timestamp};

/// The longest pause that a receiver may ask for.
const MAX_ASKED_PAUSE: Duration = Duration::from_hours(1);

/// The result of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendResult {
    /// The target has the message.
    Delivered,
    /// It may take the message later.
    Temporary {
        /// The reason.
        why: String,
        /// The pause that it asks for.
        pause: Option<Duration>,
    },
    /// It will never take the message.
    Permanent {
        /// The reason.
        why: String,
    },
}

/// How often and how long a message is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DeliveryLimits {
    pub(super) attempts: u32,
    pub(super) max_age: Duration,
    /// The time limit of one attempt.
    pub(super) timeout: Duration,
    pub(super) first_pause: Duration,
    pub(super) longest_pause: Duration,
}

/// The delivery after an attempt that has ended now. `chance` decides the jitter of the pause.
pub(super) fn after_attempt(
    delivery: Delivery,
    attempt: SendResult,
    limits: &DeliveryLimits,
    (now, chance): (Timestamp, u8),
) -> Delivery {
    let attempts = delivery.attempts.saturating_add(1);
    let tried = Delivery { attempts, next_at: None, ..delivery };
    let dead = |why: String| Delivery {
        state: DeliveryState::Dead,
        error: Some(why.into()),
        ended_at: Some(now),
        ..tried.clone()
    };
    match attempt {
        SendResult::Delivered => {
            Delivery { state: DeliveryState::Delivered, error: None, ended_at: Some(now), ..tried }
        }
        SendResult::Permanent { why } => dead(why),
        SendResult::Temporary { why, .. } if attempts >= limits.attempts => {
            dead(format!("{why}; given up after {attempts} attempts"))
        }
        // Not the first one: the clock of a machine that has just started may have been wrong.
        SendResult::Temporary { why, .. } if attempts > 1 && is_too_old(&tried, limits, now) => {
            dead(format!("{why}; given up, as it is too old"))
        }
        SendResult::Temporary { why, pause: asked } => {
            let asked = asked.unwrap_or_default().min(MAX_ASKED_PAUSE);
            let pause = jittered(pause_after(attempts, limits), chance).max(asked);
            let ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
            Delivery { error: Some(why.into()), next_at: Some(now.plus_ms(ms)), ..tried }
        }
    }
}

/// The time until the next attempt. `planned` is what is left of the pause by the monotonic clock, if this process has made
/// the last attempt: the wall clock may have been set back since. No pause is longer than all that may be planned.
pub(super) fn wait_before(
    next_at: Option<Timestamp>,
    now: Timestamp,
    planned: Option<Duration>,
    limits: &DeliveryLimits,
) -> Duration {
    let wall = Duration::from_millis(next_at.map_or(0, |next_at| next_at.ms_since(now)));
    wall.min(planned.unwrap_or_else(|| limits.longest_pause.max(MAX_ASKED_PAUSE)))
}

fn is_too_old(delivery: &Delivery, limits: &DeliveryLimits, now: Timestamp) -> bool {
    Duration::from_millis(now.ms_since(delivery.since)) >= limits.max_age
}

/// The pause after this many failures, without jitter.
fn pause_after(failures: u32, limits: &DeliveryLimits) -> Duration {
    let factor = 2_u32.saturating_pow(failures.saturating_sub(1));
    limits.first_pause.saturating_mul(factor).min(limits.longest_pause)
}

/// Between half of the pause and all of it, so that targets of one receiver do not come back at once.
fn jittered(pause: Duration, chance: u8) -> Duration {
    pause / 2 + pause.mul_f64(f64::from(chance) / 510.0)
}

#[cfg(test)]
mod tests {
    use hermod_actors::model::{CallId, OutboxContent, OutboxMessage, RunId, SessionId};

    use super::*;

    const LIMITS: DeliveryLimits = DeliveryLimits {
        attempts: 4,
        max_age: Duration::from_mins(10),
        timeout: Duration::from_secs(1),
        first_pause: Duration::from_secs(10),
        longest_pause: Duration::from_secs(30),
    };
    const MINUTE: i64 = 60_000;
    const DAY: i64 = 86_400_000;

    fn delivery(attempts: u32) -> Delivery {
        let call = CallId { run: RunId::from_bits(2), iteration: 1, n: 1 };
        let message = OutboxMessage {
            id: OutboxMessage::id_of_call(call),
            target: "ops".into(),
            session: SessionId::from_bits(1),
            run: call.run,
            created_at: Timestamp(0),
            content: OutboxContent::Message {
                call,
                text: "hello".into(),
                attachments: std::sync::Arc::default(),
            },
        };
        Delivery { attempts, ..Delivery::new(message) }
    }

    /// Checks the state, the attempts, the seconds of the pause, and a part of the error after an attempt of a message that
    /// has failed `before` times.
    #[track_caller]
    fn check(
        (before, at): (u32, i64),
        attempt: SendResult,
        chance: u8,
        (state, pause, error): (DeliveryState, Option<i64>, Option<&str>),
    ) {
        let now = Timestamp(at);
        let after = after_attempt(delivery(before), attempt, &LIMITS, (now, chance));
        assert_eq!((after.state, after.attempts), (state, before + 1));
        assert_eq!(after.next_at, pause.map(|seconds| Timestamp(at + seconds * 1_000)));
        assert_eq!(after.ended_at, (state != DeliveryState::Pending).then_some(now));
        let shown = after.error.as_deref().unwrap_or_default();
        assert!(error.map_or(after.error.is_none(), |part| shown.contains(part)), "{shown}");
        assert_eq!(after.message, delivery(0).message, "the message stays as it is");
    }

    #[test]
    fn a_message_is_tried_until_it_is_delivered_or_dead() {
        use DeliveryState::{Dead, Delivered, Pending};
        let temporary = |pause: Option<u64>| SendResult::Temporary {
            why: "status 503".into(),
            pause: pause.map(Duration::from_secs),
        };
        let permanent = SendResult::Permanent { why: "status 404".into() };
        check((0, 5), SendResult::Delivered, 0, (Delivered, None, None));
        check((3, 5), SendResult::Delivered, 0, (Delivered, None, None));
        check((0, 5), permanent, 0, (Dead, None, Some("status 404")));
        // The pause doubles up to the longest; half of it is jitter.
        check((0, 5), temporary(None), 0, (Pending, Some(5), Some("status 503")));
        check((0, 5), temporary(None), 255, (Pending, Some(10), Some("status 503")));
        check((1, 5), temporary(None), 255, (Pending, Some(20), Some("status 503")));
        check((2, 5), temporary(None), 255, (Pending, Some(30), Some("status 503")));
        // The receiver may ask for a longer one, within a limit.
        check((0, 5), temporary(Some(1)), 255, (Pending, Some(10), Some("status 503")));
        check((0, 5), temporary(Some(60)), 255, (Pending, Some(60), Some("status 503")));
        check((0, 5), temporary(Some(86_400)), 255, (Pending, Some(3_600), Some("status 503")));
        check((3, 5), temporary(None), 0, (Dead, None, Some("given up after 4 attempts")));
        check((1, 10 * MINUTE), temporary(None), 0, (Dead, None, Some("too old")));
        check((0, 10 * MINUTE), temporary(None), 255, (Pending, Some(10), Some("status 503")));
        check((0, 10 * MINUTE), SendResult::Delivered, 0, (Delivered, None, None));
    }

    #[test]
    fn a_clock_that_is_set_back_holds_up_nothing() {
        let check = |next_at: Option<i64>, planned: Option<u64>, expect: u64| {
            let (next_at, planned) = (next_at.map(Timestamp), planned.map(Duration::from_millis));
            let wait = wait_before(next_at, Timestamp(1_000), planned, &LIMITS);
            assert_eq!(wait, Duration::from_millis(expect), "{next_at:?} {planned:?}");
        };
        check(None, None, 0);
        check(Some(500), None, 0);
        check(Some(6_000), None, 5_000);
        check(Some(6_000), Some(5_000), 5_000);
        // Set back by a day; and set forward.
        check(Some(DAY), Some(4_000), 4_000);
        check(Some(500), Some(4_000), 0);
        // By another process: at most the longest pause that a receiver may ask for.
        check(Some(DAY), None, 3_600_000);
    }
}
