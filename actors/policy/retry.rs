use sha2::{Digest, Sha256};

use crate::model::{Attempt, CallId, Deadline, Failure, FailureClass, RetryAttempts, RetryPolicy};

impl RetryPolicy {
    /// The pause before the attempt after `attempt`, in milliseconds; `None` if there is none. `times` attempts of the
    /// call have failed in this way, and the session has been alive for `spent_ms` since the first one started.
    pub(crate) fn pause(
        &self,
        (call, attempt): (CallId, Attempt),
        failure: &Failure,
        times: u32,
        spent_ms: u64,
    ) -> Option<u64> {
        // Whoever dies with the process says nothing of the provider: a run that keeps killing its process is counted
        // elsewhere.
        if failure.class == FailureClass::Interrupted {
            return Some(0);
        }
        if times >= attempts(&self.attempts, &failure.class) {
            return None;
        }
        let doubled =
            self.first_ms.saturating_mul(1_u64 << times.saturating_sub(1).min(20)).min(self.longest_ms);
        let floor = match &failure.class {
            FailureClass::RateLimited { retry_after_ms, .. } => retry_after_ms.unwrap_or(0),
            FailureClass::Lost | FailureClass::Interrupted => return Some(0),
            FailureClass::Overloaded
            | FailureClass::Server
            | FailureClass::Timeout { .. }
            | FailureClass::Network
            | FailureClass::Cut
            | FailureClass::NotAnApi
            | FailureClass::Auth
            | FailureClass::QuotaExhausted { .. }
            | FailureClass::ContextTooLong { .. }
            | FailureClass::OutputCap { .. }
            | FailureClass::InvalidRequest
            | FailureClass::ContentRefused
            | FailureClass::ModelNotFound
            | FailureClass::Cancelled => 0,
        };
        // Half of the pause is jitter, drawn from the call's own name: a seed replays.
        let pause = (doubled / 2 + doubled / 2 * jitter(call, attempt) / 256).max(floor);
        (spent_ms.saturating_add(pause) <= self.deadline_ms).then_some(pause)
    }
}

/// How many attempts a failure of this class is worth.
const fn attempts(worth: &RetryAttempts, class: &FailureClass) -> Attempt {
    match class {
        FailureClass::RateLimited { .. } => worth.rate_limited,
        FailureClass::Overloaded => worth.overloaded,
        FailureClass::Server => worth.server,
        FailureClass::Timeout { .. } => worth.timeout,
        FailureClass::Network => worth.network,
        FailureClass::Cut => worth.cut,
        FailureClass::Lost | FailureClass::Interrupted => worth.lost,
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

/// Whether another model may answer where this one could not. What is wrong with the request stays wrong, and a refusal
/// is an answer.
pub(crate) const fn falls_back(class: &FailureClass) -> bool {
    match class {
        FailureClass::RateLimited { .. }
        | FailureClass::Overloaded
        | FailureClass::Server
        | FailureClass::Timeout { .. }
        | FailureClass::Network
        | FailureClass::Cut
        | FailureClass::NotAnApi
        | FailureClass::Auth
        | FailureClass::QuotaExhausted { .. }
        | FailureClass::ModelNotFound
        | FailureClass::Lost => true,
        FailureClass::ContextTooLong { .. }
        | FailureClass::OutputCap { .. }
        | FailureClass::InvalidRequest
        | FailureClass::ContentRefused
        | FailureClass::Cancelled
        | FailureClass::Interrupted => false,
    }
}

/// 0..=255.
fn jitter(call: CallId, attempt: Attempt) -> u64 {
    let mut hasher = Sha256::new();
    hasher.update(call.run.bits().to_le_bytes());
    hasher.update(call.iteration.to_le_bytes());
    hasher.update(attempt.to_le_bytes());
    u64::from(hasher.finalize()[0])
}

/// What a failed attempt must be taken to have cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Billing {
    /// The provider turned it away before any work.
    Nothing,
    /// It may have been worked on: all that was reserved counts as spent.
    Everything,
}

/// What a failure of this class must be taken to have cost.
pub(crate) const fn billing(class: &FailureClass) -> Billing {
    match class {
        FailureClass::RateLimited { .. }
        | FailureClass::Overloaded
        | FailureClass::Auth
        | FailureClass::QuotaExhausted { .. }
        | FailureClass::ContextTooLong { .. }
        | FailureClass::OutputCap { .. }
        | FailureClass::InvalidRequest
        | FailureClass::ModelNotFound
        | FailureClass::NotAnApi
        | FailureClass::Timeout { which: Deadline::Connect } => Billing::Nothing,
        FailureClass::Server
        | FailureClass::Timeout { which: Deadline::FirstEvent | Deadline::Gap | Deadline::Call }
        | FailureClass::Network
        | FailureClass::Cut
        | FailureClass::ContentRefused
        | FailureClass::Cancelled
        | FailureClass::Lost
        | FailureClass::Interrupted => Billing::Everything,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::RunId;

    fn check(class: FailureClass, times: u32, spent_ms: u64, expected: impl Fn(Option<u64>) -> bool) {
        let call = CallId { run: RunId::from_bits(5), iteration: 1, n: 0 };
        let failure = Failure::new(class.clone(), "x");
        let pause = RetryPolicy::default().pause((call, times), &failure, times, spent_ms);
        assert!(expected(pause), "{class:?}, failed {times} times: {pause:?}");
    }

    #[test]
    fn pauses_grow_and_keep_their_bounds() {
        check(FailureClass::Server, 1, 0, |p| p.is_some_and(|ms| (250..=500).contains(&ms)));
        check(FailureClass::Server, 2, 0, |p| p.is_some_and(|ms| (500..=1_000).contains(&ms)));
        check(FailureClass::Server, 3, 0, |p| p.is_none());
        check(FailureClass::Overloaded, 7, 0, |p| p.is_some_and(|ms| (15_000..=30_000).contains(&ms)));
        check(FailureClass::Overloaded, 1, 1_799_900, |p| p.is_none());
    }

    #[test]
    fn a_retry_after_is_the_floor() {
        let class = FailureClass::RateLimited { retry_after_ms: Some(20_000), reset_at: None };
        check(class, 1, 0, |p| p == Some(20_000));
    }

    #[test]
    fn each_class_has_its_own_number_of_attempts() {
        let attempts = RetryAttempts { server: 1, network: 5, ..RetryAttempts::default() };
        let policy = RetryPolicy { attempts, ..RetryPolicy::default() };
        let call = CallId { run: RunId::from_bits(5), iteration: 1, n: 0 };
        let tried_again =
            |class, times| policy.pause((call, times), &Failure::new(class, "x"), times, 0).is_some();
        assert!(!tried_again(FailureClass::Server, 1));
        assert!(tried_again(FailureClass::Network, 4) && !tried_again(FailureClass::Network, 5));
        assert!(tried_again(FailureClass::Cut, 2) && !tried_again(FailureClass::Cut, 3));
    }

    #[test]
    fn what_cannot_help_is_not_tried_again() {
        for class in [FailureClass::Auth, FailureClass::InvalidRequest, FailureClass::Cancelled] {
            check(class, 1, 0, |p| p.is_none());
        }
        check(FailureClass::Lost, 1, 0, |p| p == Some(0));
        check(FailureClass::Lost, 3, 0, |p| p.is_none());
        check(FailureClass::Interrupted, 1_000, 9_000_000, |p| p == Some(0));
    }
}
