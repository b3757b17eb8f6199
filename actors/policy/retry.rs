use sha2::{Digest, Sha256};

use crate::model::{Attempt, CallId, Deadline, Failure, FailureClass};

/// When a failed model call is tried again at the same provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RetryPolicy {
    /// The first pause, in milliseconds; it doubles from attempt to attempt.
    pub(crate) first_ms: u64,
    /// The longest pause.
    pub(crate) longest_ms: u64,
    /// From the first attempt's start no pause reaches beyond this.
    pub(crate) deadline_ms: u64,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { first_ms: 500, longest_ms: 30_000, deadline_ms: 1_800_000 }
    }
}

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
        if times >= attempts(&failure.class) {
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
const fn attempts(class: &FailureClass) -> Attempt {
    match class {
        FailureClass::RateLimited { .. } | FailureClass::Overloaded => 8,
        FailureClass::Server
        | FailureClass::Network
        | FailureClass::Cut
        | FailureClass::Timeout { .. }
        | FailureClass::Lost
        | FailureClass::Interrupted => 3,
        FailureClass::NotAnApi
        | FailureClass::Auth
        | FailureClass::QuotaExhausted { .. }
        | FailureClass::ContextTooLong { .. }
        | FailureClass::InvalidRequest
        | FailureClass::ContentRefused
        | FailureClass::ModelNotFound
        | FailureClass::Cancelled => 1,
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
    fn what_cannot_help_is_not_tried_again() {
        for class in [FailureClass::Auth, FailureClass::InvalidRequest, FailureClass::Cancelled] {
            check(class, 1, 0, |p| p.is_none());
        }
        check(FailureClass::Lost, 1, 0, |p| p == Some(0));
        check(FailureClass::Lost, 3, 0, |p| p.is_none());
        check(FailureClass::Interrupted, 1_000, 9_000_000, |p| p == Some(0));
    }
}
