//! Decides what follows a failed attempt of a model call: a retry after a pause, another model, or failure. Pure:
//! jitter comes from a hash. `failover.rs` chooses the other model.

use sha2::{Digest, Sha256};

use crate::{
    model::{Attempt, AttemptId, Failure, FailureClass, RetryAttempts, RetryPolicy, Timestamp},
    policy::failure_scope::{FailureScope, failure_scope},
};

/// The call's history at the time when an attempt fails.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AttemptHistory {
    /// Failures of this class at this model, including this one.
    pub(crate) failures_of_class: u32,
    /// Active time since the first attempt started, without waits for known resets.
    pub(crate) elapsed_ms: u64,
    /// Milliseconds of waits for known resets.
    pub waited_ms: u64,
    /// Whether an earlier model call of the run was answered. If none was, an unreachable endpoint is likely configured
    /// wrongly.
    pub(crate) was_answered: bool,
    /// The current time.
    pub at: Timestamp,
    /// Another link of the chain that can take the call.
    pub fallback: FallbackAvailability,
    /// Whether the same link can be called at once with another credential.
    pub recovery: CredentialRecovery,
}

/// Whether the call could use another model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FallbackAvailability {
    /// Another model is available, as far as is known.
    Available,
    /// Another model is available, but not before this time.
    AvailableFrom(Timestamp),
    /// There is no other model.
    Unavailable,
}

/// Whether the same model can be called again at once with another credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CredentialRecovery {
    /// No.
    #[default]
    No,
    /// The credential was renewed.
    Renewed,
    /// Another credential takes its place.
    Rotated,
}

/// The decision after a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetryDecision {
    /// Call the same model again, after this many milliseconds.
    RetryAfterMs(u64),
    /// Give up this model for this call; another may be called.
    Fallback,
    /// Fail the call: no model can help.
    Fail,
}

/// How often a call that requested too much output is retried with less.
const MAX_LOWERED_TRIES: u32 = 3;

/// Most credentials that one call tries one after the other.
const MAX_ROTATIONS: u32 = 32;

impl RetryPolicy {
    /// Decides what follows a failed attempt.
    pub(crate) fn decide_retry(
        &self,
        id: AttemptId,
        failure: &Failure,
        history: AttemptHistory,
    ) -> RetryDecision {
        let class = &failure.class;
        let AttemptHistory { fallback, recovery, .. } = history;
        // A crash of this process tells nothing about the provider. Other rules end runs that keep crashing their
        // process.
        if *class == FailureClass::Interrupted {
            return RetryDecision::RetryAfterMs(0);
        }
        if matches!(class, FailureClass::OutputCap { .. }) && history.failures_of_class <= MAX_LOWERED_TRIES {
            return RetryDecision::RetryAfterMs(0);
        }
        if !may_fall_back(class) {
            return RetryDecision::Fail;
        }
        let renewed = recovery == CredentialRecovery::Renewed && history.failures_of_class == 1;
        if renewed || (recovery == CredentialRecovery::Rotated && history.failures_of_class <= MAX_ROTATIONS)
        {
            return RetryDecision::RetryAfterMs(0);
        }
        let backoff = self.backoff(id, history.failures_of_class);
        let mut pause = match fallback {
            FallbackAvailability::Available => self.pause_with_fallback(class, history, backoff),
            FallbackAvailability::AvailableFrom(_) | FallbackAvailability::Unavailable => {
                self.pause_without_fallback(class, history, backoff)
            }
        };
        if let FallbackAvailability::AvailableFrom(until) = fallback
            && class.reset_in(history.at).is_some()
        {
            pause = pause.map(|ms| ms.min(until.ms_since(history.at)));
        }
        match (pause, class) {
            (Some(_), FailureClass::Lost | FailureClass::NotSent) => RetryDecision::RetryAfterMs(0),
            (Some(ms), _) => RetryDecision::RetryAfterMs(ms),
            (None, _) => RetryDecision::Fallback,
        }
    }

    /// The pause before a retry while another model is available; `None` to fall back.
    fn pause_with_fallback(
        &self,
        class: &FailureClass,
        history: AttemptHistory,
        backoff: u64,
    ) -> Option<u64> {
        let reset = class.reset_in(history.at);
        let is_worth_waiting = match failure_scope(class) {
            FailureScope::Endpoint | FailureScope::ModelTransient | FailureScope::Local => true,
            FailureScope::Account => {
                let is_short = reset.is_some_and(|ms| ms <= self.short_wait_ms);
                matches!(class, FailureClass::RateLimited { .. }) && is_short
            }
            FailureScope::Cancelled | FailureScope::Request | FailureScope::ModelPersistent => false,
        };
        let pause = backoff.max(reset.unwrap_or(0));
        let fits = history.failures_of_class < max_attempts(&self.fallback_after, class)
            && history.elapsed_ms.saturating_add(pause) <= self.deadline_ms;
        (is_worth_waiting && fits).then_some(pause)
    }

    /// The pause before a retry without another model, up to the deadline or a known reset; `None` to give up.
    fn pause_without_fallback(
        &self,
        class: &FailureClass,
        history: AttemptHistory,
        backoff: u64,
    ) -> Option<u64> {
        if let Some(ms) = class.reset_in(history.at) {
            let pause = backoff.max(ms);
            return self.may_wait(history.waited_ms, pause).then_some(pause);
        }
        let is_misconfigured = !history.was_answered && failure_scope(class) == FailureScope::Endpoint;
        let attempts = if is_misconfigured { &self.fallback_after } else { &self.attempts };
        let fits = history.failures_of_class < max_attempts(attempts, class)
            && history.elapsed_ms.saturating_add(backoff) <= self.deadline_ms;
        fits.then_some(backoff)
    }

    /// Whether a call that waited `waited_ms` for known resets may wait `more_ms` longer.
    pub(crate) const fn may_wait(&self, waited_ms: u64, more_ms: u64) -> bool {
        waited_ms.saturating_add(more_ms) <= self.wait_for_reset_max_ms
    }

    /// The pause before a call returns to a model that it left for another; `None` beyond its limits.
    pub(crate) fn pause_before_return(
        &self,
        id: AttemptId,
        class: &FailureClass,
        history: AttemptHistory,
    ) -> Option<u64> {
        let pause = self.backoff(id, id.attempt);
        let fits = match class.reset_is_known() {
            true => self.may_wait(history.waited_ms, pause),
            false => history.elapsed_ms.saturating_add(pause) <= self.deadline_ms,
        };
        fits.then_some(pause)
    }

    /// The pause after the `failures`th failure. Half of it is jitter from a hash of the call: a replay draws the same.
    fn backoff(&self, id: AttemptId, failures: u32) -> u64 {
        let doubled = self
            .initial_pause_ms
            .saturating_mul(1_u64 << failures.saturating_sub(1).min(20))
            .min(self.max_pause_ms);
        doubled / 2 + doubled / 2 * jitter(id) / 256
    }
}

/// Whether the cause of a failure of this class may go away by itself.
pub(crate) fn is_transient(class: &FailureClass) -> bool {
    match (failure_scope(class), class) {
        (FailureScope::Endpoint | FailureScope::ModelTransient, _)
        | (FailureScope::Account, FailureClass::RateLimited { .. }) => true,
        (FailureScope::Account, _) => class.reset_is_known(),
        _ => false,
    }
}

/// Most attempts at one model that fail with this class.
const fn max_attempts(attempts: &RetryAttempts, class: &FailureClass) -> Attempt {
    match class {
        FailureClass::RateLimited { .. } => attempts.rate_limited,
        FailureClass::Overloaded => attempts.overloaded,
        FailureClass::Server => attempts.server,
        FailureClass::Timeout { .. } => attempts.timeout,
        FailureClass::Network => attempts.network,
        FailureClass::IncompleteStream => attempts.incomplete_stream,
        FailureClass::Lost | FailureClass::NotSent | FailureClass::Interrupted => attempts.lost,
        FailureClass::NotAnApi
        | FailureClass::Auth
        | FailureClass::QuotaExhausted { .. }
        | FailureClass::ContextTooLong { .. }
        | FailureClass::OutputCap { .. }
        | FailureClass::InvalidRequest
        | FailureClass::ContentRefused
        | FailureClass::ModelNotFound
        | FailureClass::Cancelled => 1,
    }
}

/// Whether another model may succeed. An error of the request remains at every model, and a refusal is an answer.
const fn may_fall_back(class: &FailureClass) -> bool {
    !matches!(failure_scope(class), FailureScope::Request | FailureScope::Cancelled)
}

/// Deterministic jitter, 0..=255.
fn jitter(AttemptId { call, attempt }: AttemptId) -> u64 {
    let mut hasher = Sha256::new();
    hasher.update(call.run.bits().to_le_bytes());
    hasher.update(call.iteration.to_le_bytes());
    hasher.update(attempt.to_le_bytes());
    u64::from(hasher.finalize()[0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{CallId, Deadline, RunId};

    const CALL: CallId = CallId { run: RunId::from_bits(5), iteration: 1, n: 0 };
    const NOW: Timestamp = Timestamp(1_000_000);

    fn past(times: u32) -> AttemptHistory {
        AttemptHistory {
            failures_of_class: times,
            elapsed_ms: 0,
            waited_ms: 0,
            was_answered: true,
            at: NOW,
            fallback: FallbackAvailability::Available,
            recovery: CredentialRecovery::No,
        }
    }

    fn after(class: FailureClass, past: AttemptHistory, fallback: FallbackAvailability) -> RetryDecision {
        let failure = Failure::new(class, "x");
        RetryPolicy::default().decide_retry(
            AttemptId { call: CALL, attempt: past.failures_of_class },
            &failure,
            AttemptHistory { fallback, ..past },
        )
    }

    fn limited(retry_after_ms: u64) -> FailureClass {
        FailureClass::RateLimited { retry_after_ms: Some(retry_after_ms), reset_at: None }
    }

    /// Checks the number of attempts at one model, with and without another available model.
    fn check(class: FailureClass, with: u32, without: u32) {
        for (fallback, expect) in
            [(FallbackAvailability::Available, with), (FallbackAvailability::Unavailable, without)]
        {
            let again =
                |times| matches!(after(class.clone(), past(times), fallback), RetryDecision::RetryAfterMs(_));
            let attempts = (1..200).find(|times| !again(*times)).unwrap_or(200);
            assert_eq!(attempts, expect, "{class:?}, {fallback:?}");
        }
    }

    #[test]
    fn each_class_has_its_patience() {
        let slow_down = FailureClass::RateLimited { retry_after_ms: None, reset_at: None };
        check(slow_down, 1, 100);
        check(limited(5_000), 3, 200);
        check(limited(5_001), 1, 200);
        check(FailureClass::QuotaExhausted { reset_at: None }, 1, 1);
        check(FailureClass::QuotaExhausted { reset_at: Some(NOW.plus_ms(60_000)) }, 1, 200);
        check(FailureClass::Overloaded, 2, 100);
        check(FailureClass::Timeout { which: Deadline::FirstEvent }, 2, 100);
        check(FailureClass::Server, 3, 100);
        check(FailureClass::Network, 3, 100);
        check(FailureClass::IncompleteStream, 3, 3);
        check(FailureClass::Lost, 3, 3);
        check(FailureClass::NotSent, 3, 3);
        check(FailureClass::Interrupted, 200, 200);
        for class in [
            FailureClass::Auth,
            FailureClass::ModelNotFound,
            FailureClass::NotAnApi,
            FailureClass::InvalidRequest,
            FailureClass::ContentRefused,
            FailureClass::ContextTooLong { limit: None },
            FailureClass::Cancelled,
        ] {
            check(class, 1, 1);
        }
    }

    #[test]
    fn who_was_never_reached_is_given_up_sooner() {
        for (class, first, later) in [
            (FailureClass::Network, 3, 100),
            (FailureClass::Timeout { which: Deadline::Connect }, 2, 100),
            (FailureClass::Timeout { which: Deadline::FirstEvent }, 100, 100),
            (FailureClass::Server, 100, 100),
        ] {
            for (was_answered, expect) in [(false, first), (true, later)] {
                let past = |times| AttemptHistory { was_answered, ..past(times) };
                let again = |times| {
                    matches!(
                        after(class.clone(), past(times), FallbackAvailability::Unavailable),
                        RetryDecision::RetryAfterMs(_)
                    )
                };
                assert_eq!((1..200).find(|times| !again(*times)), Some(expect), "{class:?}, {was_answered}");
            }
        }
    }

    #[test]
    fn what_is_wrong_with_the_request_asks_nobody_else() {
        for class in [FailureClass::InvalidRequest, FailureClass::ContentRefused, FailureClass::Cancelled] {
            assert_eq!(after(class, past(1), FallbackAvailability::Available), RetryDecision::Fail);
        }
        assert_eq!(
            after(FailureClass::Auth, past(1), FallbackAvailability::Unavailable),
            RetryDecision::Fallback
        );
    }

    fn check_pause(
        class: FailureClass,
        past: AttemptHistory,
        fallback: FallbackAvailability,
        bounds: Option<(u64, u64)>,
    ) {
        match (after(class.clone(), past, fallback), bounds) {
            (RetryDecision::RetryAfterMs(ms), Some((least, most))) if (least..=most).contains(&ms) => {}
            (RetryDecision::Fallback, None) => {}
            (found, _) => panic!("{class:?} after {past:?}: {found:?}, expected {bounds:?}"),
        }
    }

    #[test]
    fn pauses_grow_and_keep_their_bounds() {
        let alone = FallbackAvailability::Unavailable;
        check_pause(FailureClass::Server, past(1), alone, Some((250, 500)));
        check_pause(FailureClass::Server, past(2), alone, Some((500, 1_000)));
        check_pause(FailureClass::Overloaded, past(7), alone, Some((15_000, 30_000)));
        let late = AttemptHistory { elapsed_ms: 1_799_900, ..past(1) };
        check_pause(FailureClass::Overloaded, late, alone, None);
        check_pause(FailureClass::Lost, past(1), alone, Some((0, 0)));
        check_pause(FailureClass::NotSent, past(1), alone, Some((0, 0)));
    }

    #[test]
    fn a_known_reset_is_waited_for_beyond_the_deadline_and_not_for_ever() {
        const HOURS: u64 = 3_600_000;
        let alone = FallbackAvailability::Unavailable;
        let late = AttemptHistory { elapsed_ms: 9_000_000, ..past(1) };
        check_pause(limited(20_000), late, alone, Some((20_000, 20_000)));
        check_pause(limited(6 * HOURS), past(1), alone, Some((6 * HOURS, 6 * HOURS)));
        check_pause(limited(6 * HOURS + 1), past(1), alone, None);
        check_pause(limited(2 * HOURS), AttemptHistory { waited_ms: 5 * HOURS, ..past(3) }, alone, None);
        let soon = FallbackAvailability::AvailableFrom(NOW.plus_ms(7_000));
        check_pause(limited(90_000), past(1), soon, Some((7_000, 7_000)));
        let reset_at =
            FailureClass::RateLimited { retry_after_ms: None, reset_at: Some(NOW.plus_ms(90_000)) };
        check_pause(reset_at, past(1), alone, Some((90_000, 90_000)));
    }

    #[test]
    fn another_credential_is_tried_before_another_model() {
        let auth = Failure::new(FailureClass::Auth, "x");
        let with = |times, recovery| {
            RetryPolicy::default().decide_retry(
                AttemptId { call: CALL, attempt: times },
                &auth,
                AttemptHistory { recovery, ..past(times) },
            )
        };
        assert_eq!(with(1, CredentialRecovery::Renewed), RetryDecision::RetryAfterMs(0));
        assert_eq!(
            with(2, CredentialRecovery::Renewed),
            RetryDecision::Fallback,
            "a renewed one is tried once"
        );
        assert_eq!(with(2, CredentialRecovery::Rotated), RetryDecision::RetryAfterMs(0));
        assert_eq!(with(33, CredentialRecovery::Rotated), RetryDecision::Fallback);
    }

    #[test]
    fn the_attempts_are_settings() {
        let attempts = RetryAttempts { server: 1, network: 5, ..RetryAttempts::default() };
        let policy = RetryPolicy { attempts, ..RetryPolicy::default() };
        let tried_again = |class, times| {
            let after = policy.decide_retry(
                AttemptId { call: CALL, attempt: times },
                &Failure::new(class, "x"),
                AttemptHistory { fallback: FallbackAvailability::Unavailable, ..past(times) },
            );
            matches!(after, RetryDecision::RetryAfterMs(_))
        };
        assert!(!tried_again(FailureClass::Server, 1));
        assert!(tried_again(FailureClass::Network, 4) && !tried_again(FailureClass::Network, 5));
    }
}
