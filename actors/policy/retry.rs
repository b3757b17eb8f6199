use sha2::{Digest, Sha256};

use crate::{
    model::{Attempt, CallId, Failure, FailureClass, RetryAttempts, RetryPolicy, Timestamp},
    policy::blame::{Blame, blame},
};

/// What this call has been through when an attempt fails.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Past {
    /// Attempts at this model that have failed in this way, with this one.
    pub(crate) times: u32,
    /// Active time since the first attempt started, without waits for known resets.
    pub(crate) spent_ms: u64,
    /// What was waited for known resets.
    pub(crate) waited_ms: u64,
    /// Whether the run had an answer before.
    pub(crate) contact: Contact,
    /// The time.
    pub(crate) at: Timestamp,
}

/// Whether a run has reached a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Contact {
    /// It was answered.
    Made,
    /// It never was: who cannot be reached then is likely not where the configuration says.
    None,
}

/// Whom else the call could ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Elsewhere {
    /// Another model, as far as is known.
    Somebody,
    /// Another one, but not before then.
    Later(Timestamp),
    /// Nobody.
    Nobody,
}

/// Whether the same model can be asked at once in another way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Otherwise {
    /// It cannot.
    #[default]
    No,
    /// Its credential has been renewed.
    Renewed,
    /// With another credential.
    Rotated,
}

/// What follows a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    /// The same model is asked again, after so many milliseconds.
    Again(u64),
    /// This call does not ask it again; another may be asked.
    GiveUp,
    /// It is no use to ask anybody.
    End,
}

/// How often a call that asked for too much output is made again with less.
const LOWERED: u32 = 3;

/// More credentials than this are not tried one after the other in one call.
const ROTATIONS: u32 = 32;

impl RetryPolicy {
    /// What follows a failed attempt.
    pub(crate) fn after(
        &self,
        (call, attempt): (CallId, Attempt),
        failure: &Failure,
        past: Past,
        (elsewhere, otherwise): (Elsewhere, Otherwise),
    ) -> After {
        let class = &failure.class;
        // Whoever dies with the process says nothing of the provider: a run that keeps killing its process is counted
        // elsewhere.
        if *class == FailureClass::Interrupted {
            return After::Again(0);
        }
        if matches!(class, FailureClass::OutputCap { .. }) && past.times <= LOWERED {
            return After::Again(0);
        }
        if !falls_back(class) {
            return After::End;
        }
        let renewed = otherwise == Otherwise::Renewed && past.times == 1;
        if renewed || (otherwise == Otherwise::Rotated && past.times <= ROTATIONS) {
            return After::Again(0);
        }
        let again = match elsewhere {
            Elsewhere::Somebody => self.with_another(class, past, self.backoff((call, attempt), past.times)),
            Elsewhere::Later(_) | Elsewhere::Nobody => {
                self.alone(class, past, self.backoff((call, attempt), past.times))
            }
        };
        let again = match (again, elsewhere) {
            (Some(ms), Elsewhere::Later(until)) if class.reset_in(past.at).is_some() => {
                Some(ms.min(until.ms_since(past.at)))
            }
            (again, Elsewhere::Somebody | Elsewhere::Later(_) | Elsewhere::Nobody) => again,
        };
        match (again, class) {
            (Some(_), FailureClass::Lost | FailureClass::NotMade) => After::Again(0),
            (Some(ms), _) => After::Again(ms),
            (None, _) => After::GiveUp,
        }
    }

    /// Patience where another model could answer instead.
    fn with_another(&self, class: &FailureClass, past: Past, backoff: u64) -> Option<u64> {
        let reset = class.reset_in(past.at);
        let stays = match (blame(class), class) {
            (Blame::Account, FailureClass::RateLimited { .. }) => {
                reset.is_some_and(|ms| ms <= self.short_wait_ms)
            }
            (Blame::Unreached | Blame::Passing | Blame::Ours, _) => true,
            (Blame::Ended | Blame::Request | Blame::Lasting | Blame::Account, _) => false,
        };
        let pause = backoff.max(reset.unwrap_or(0));
        let fits = past.times < worth(&self.fallback_after, class)
            && past.spent_ms.saturating_add(pause) <= self.deadline_ms;
        (stays && fits).then_some(pause)
    }

    /// Patience where nobody could: until the deadline, or until a known reset.
    fn alone(&self, class: &FailureClass, past: Past, backoff: u64) -> Option<u64> {
        if let Some(ms) = class.reset_in(past.at) {
            let pause = backoff.max(ms);
            return self.may_wait(past.waited_ms, pause).then_some(pause);
        }
        let attempts = match past.contact {
            Contact::None if blame(class) == Blame::Unreached => &self.fallback_after,
            Contact::None | Contact::Made => &self.attempts,
        };
        let fits =
            past.times < worth(attempts, class) && past.spent_ms.saturating_add(backoff) <= self.deadline_ms;
        fits.then_some(backoff)
    }

    /// Whether a call that has waited so long for known resets may wait so much longer.
    pub(crate) const fn may_wait(&self, waited_ms: u64, more_ms: u64) -> bool {
        waited_ms.saturating_add(more_ms) <= self.wait_for_reset_max_ms
    }

    /// The pause before a call comes back to a model that it has left for another; `None` beyond its patience.
    pub(crate) fn pause_before_return(
        &self,
        (call, attempt): (CallId, Attempt),
        class: &FailureClass,
        past: Past,
    ) -> Option<u64> {
        let pause = self.backoff((call, attempt), attempt);
        let fits = match class.reset_is_known() {
            true => self.may_wait(past.waited_ms, pause),
            false => past.spent_ms.saturating_add(pause) <= self.deadline_ms,
        };
        fits.then_some(pause)
    }

    /// The pause after the `times`th failure. Half of it is jitter, drawn from the call's own name: a seed replays.
    fn backoff(&self, (call, attempt): (CallId, Attempt), times: u32) -> u64 {
        let doubled =
            self.first_ms.saturating_mul(1_u64 << times.saturating_sub(1).min(20)).min(self.longest_ms);
        doubled / 2 + doubled / 2 * jitter(call, attempt) / 256
    }
}

/// Whether what failed so may be over after a while, without anybody's doing.
pub(crate) fn may_pass(class: &FailureClass) -> bool {
    match (blame(class), class) {
        (Blame::Unreached | Blame::Passing, _) | (Blame::Account, FailureClass::RateLimited { .. }) => true,
        (Blame::Account, _) => class.reset_is_known(),
        (Blame::Ended | Blame::Ours | Blame::Request | Blame::Lasting, _) => false,
    }
}

/// How many attempts a failure of this class is worth.
const fn worth(worth: &RetryAttempts, class: &FailureClass) -> Attempt {
    match class {
        FailureClass::RateLimited { .. } => worth.rate_limited,
        FailureClass::Overloaded => worth.overloaded,
        FailureClass::Server => worth.server,
        FailureClass::Timeout { .. } => worth.timeout,
        FailureClass::Network => worth.network,
        FailureClass::Cut => worth.cut,
        FailureClass::Lost | FailureClass::NotMade | FailureClass::Interrupted => worth.lost,
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
const fn falls_back(class: &FailureClass) -> bool {
    match blame(class) {
        Blame::Unreached | Blame::Passing | Blame::Lasting | Blame::Account | Blame::Ours => true,
        Blame::Request | Blame::Ended => false,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Deadline, RunId};

    const CALL: CallId = CallId { run: RunId::from_bits(5), iteration: 1, n: 0 };
    const NOW: Timestamp = Timestamp(1_000_000);

    fn past(times: u32) -> Past {
        Past { times, spent_ms: 0, waited_ms: 0, contact: Contact::Made, at: NOW }
    }

    fn after(class: FailureClass, past: Past, elsewhere: Elsewhere) -> After {
        let failure = Failure::new(class, "x");
        RetryPolicy::default().after((CALL, past.times), &failure, past, (elsewhere, Otherwise::No))
    }

    fn limited(retry_after_ms: u64) -> FailureClass {
        FailureClass::RateLimited { retry_after_ms: Some(retry_after_ms), reset_at: None }
    }

    /// How many attempts a failure is worth with another model to ask, and without.
    fn check(class: FailureClass, with: u32, without: u32) {
        for (elsewhere, expect) in [(Elsewhere::Somebody, with), (Elsewhere::Nobody, without)] {
            let again = |times| matches!(after(class.clone(), past(times), elsewhere), After::Again(_));
            let attempts = (1..200).find(|times| !again(*times)).unwrap_or(200);
            assert_eq!(attempts, expect, "{class:?}, {elsewhere:?}");
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
        check(FailureClass::Cut, 3, 3);
        check(FailureClass::Lost, 3, 3);
        check(FailureClass::NotMade, 3, 3);
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
            for (contact, expect) in [(Contact::None, first), (Contact::Made, later)] {
                let past = |times| Past { contact, ..past(times) };
                let again =
                    |times| matches!(after(class.clone(), past(times), Elsewhere::Nobody), After::Again(_));
                assert_eq!((1..200).find(|times| !again(*times)), Some(expect), "{class:?}, {contact:?}");
            }
        }
    }

    #[test]
    fn what_is_wrong_with_the_request_asks_nobody_else() {
        for class in [FailureClass::InvalidRequest, FailureClass::ContentRefused, FailureClass::Cancelled] {
            assert_eq!(after(class, past(1), Elsewhere::Somebody), After::End);
        }
        assert_eq!(after(FailureClass::Auth, past(1), Elsewhere::Nobody), After::GiveUp);
    }

    fn check_pause(class: FailureClass, past: Past, elsewhere: Elsewhere, bounds: Option<(u64, u64)>) {
        match (after(class.clone(), past, elsewhere), bounds) {
            (After::Again(ms), Some((least, most))) if (least..=most).contains(&ms) => {}
            (After::GiveUp, None) => {}
            (found, _) => panic!("{class:?} after {past:?}: {found:?}, expected {bounds:?}"),
        }
    }

    #[test]
    fn pauses_grow_and_keep_their_bounds() {
        let alone = Elsewhere::Nobody;
        check_pause(FailureClass::Server, past(1), alone, Some((250, 500)));
        check_pause(FailureClass::Server, past(2), alone, Some((500, 1_000)));
        check_pause(FailureClass::Overloaded, past(7), alone, Some((15_000, 30_000)));
        let late = Past { spent_ms: 1_799_900, ..past(1) };
        check_pause(FailureClass::Overloaded, late, alone, None);
        check_pause(FailureClass::Lost, past(1), alone, Some((0, 0)));
        check_pause(FailureClass::NotMade, past(1), alone, Some((0, 0)));
    }

    #[test]
    fn a_known_reset_is_waited_for_beyond_the_deadline_and_not_for_ever() {
        const HOURS: u64 = 3_600_000;
        let alone = Elsewhere::Nobody;
        let late = Past { spent_ms: 9_000_000, ..past(1) };
        check_pause(limited(20_000), late, alone, Some((20_000, 20_000)));
        check_pause(limited(6 * HOURS), past(1), alone, Some((6 * HOURS, 6 * HOURS)));
        check_pause(limited(6 * HOURS + 1), past(1), alone, None);
        check_pause(limited(2 * HOURS), Past { waited_ms: 5 * HOURS, ..past(3) }, alone, None);
        let soon = Elsewhere::Later(NOW.plus_ms(7_000));
        check_pause(limited(90_000), past(1), soon, Some((7_000, 7_000)));
        let reset_at =
            FailureClass::RateLimited { retry_after_ms: None, reset_at: Some(NOW.plus_ms(90_000)) };
        check_pause(reset_at, past(1), alone, Some((90_000, 90_000)));
    }

    #[test]
    fn another_credential_is_tried_before_another_model() {
        let auth = Failure::new(FailureClass::Auth, "x");
        let with = |times, otherwise| {
            let context = (Elsewhere::Somebody, otherwise);
            RetryPolicy::default().after((CALL, times), &auth, past(times), context)
        };
        assert_eq!(with(1, Otherwise::Renewed), After::Again(0));
        assert_eq!(with(2, Otherwise::Renewed), After::GiveUp, "a renewed one is tried once");
        assert_eq!(with(2, Otherwise::Rotated), After::Again(0));
        assert_eq!(with(33, Otherwise::Rotated), After::GiveUp);
    }

    #[test]
    fn the_attempts_are_settings() {
        let attempts = RetryAttempts { server: 1, network: 5, ..RetryAttempts::default() };
        let policy = RetryPolicy { attempts, ..RetryPolicy::default() };
        let tried_again = |class, times| {
            let alone = (Elsewhere::Nobody, Otherwise::No);
            let after = policy.after((CALL, times), &Failure::new(class, "x"), past(times), alone);
            matches!(after, After::Again(_))
        };
        assert!(!tried_again(FailureClass::Server, 1));
        assert!(tried_again(FailureClass::Network, 4) && !tried_again(FailureClass::Network, 5));
    }
}
