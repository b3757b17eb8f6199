//! Rate limiter of one credential: configured limits and reported quotas. Deterministic: the time is a parameter.

use std::collections::{BTreeSet, VecDeque};

use crate::{
    model::{RateInfo, RateLimits, RateQuota, Timestamp},
    policy::breaker::MAX_COOLDOWN_MS,
};

/// Milliseconds of the window in which limits are counted. Longer than the provider's minute: the provider sees
/// requests later than they are sent, each with another delay.
const WINDOW_MS: u64 = 61_000;

/// Milliseconds added to a reset time that a provider reported: its clock differs from ours. An attempt a millisecond
/// before the reset is refused, with all attempts that waited for the reset. Without this, 6 of 406 requests were
/// refused, all of them at a reset.
const RESET_SLACK_MS: u64 = 100;

/// Keeps the attempts of all sessions with one credential within the configured limits (over any minute) and within the
/// quota that the provider reported. The tokens of an attempt are known when it has ended. Until then it counts with
/// the average; without an average, with its reservation.
#[derive(Debug, Default)]
pub(super) struct Limiter {
    limits: RateLimits,
    /// Attempts of the last window, the oldest first; empty without configured limits.
    attempts: VecDeque<LimitedAttempt>,
    /// Number of all attempts ever made.
    attempt_count: u64,
    requests: ReportedWindow,
    tokens: ReportedWindow,
    /// Tokens of an attempt, on average; `None` before the cost of the first one is known.
    average_tokens: Option<u64>,
    /// Tokens that the last attempt reserved.
    last_reserved: u64,
    /// Attempts without a response so far.
    unanswered: BTreeSet<u64>,
}

#[derive(Debug)]
struct LimitedAttempt {
    at: Timestamp,
    number: u64,
    /// Tokens that it reserved.
    reserved: u64,
    /// Tokens that it cost; `None` until it has ended.
    tokens: Option<u64>,
}

/// The quota that the provider reported, less what attempts have taken since.
#[derive(Debug, Default)]
struct ReportedWindow(Option<ReportedQuota>);

#[derive(Debug)]
struct ReportedQuota {
    remaining: u64,
    until: Timestamp,
    /// The quota at the beginning of the next window.
    limit: Option<u64>,
    /// The attempt whose response reported this quota.
    number: u64,
}

/// Identifies an attempt to its limiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LimiterSlot(u64);

impl Limiter {
    pub(super) fn new(limits: RateLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// When the next attempt fits the limits; `None` if it does now.
    pub(crate) fn ready_at(&self, now: Timestamp) -> Option<Timestamp> {
        let ready_times = [
            self.next_request(now),
            self.next_tokens(now),
            self.requests.next_opening(now, 1),
            self.tokens.next_opening(now, 1),
        ];
        ready_times.into_iter().flatten().max()
    }

    fn in_window(&self, now: Timestamp) -> impl DoubleEndedIterator<Item = &LimitedAttempt> + Clone {
        self.attempts.iter().filter(move |attempt| attempt.at <= now && now.ms_since(attempt.at) < WINDOW_MS)
    }

    fn next_request(&self, now: Timestamp) -> Option<Timestamp> {
        let limit = usize::try_from(self.limits.requests?.max(1)).unwrap_or(usize::MAX);
        // The attempt that must leave the window before the next one may start.
        let oldest = self.in_window(now).rev().nth(limit - 1)?;
        Some(oldest.at.plus_ms(WINDOW_MS))
    }

    fn next_tokens(&self, now: Timestamp) -> Option<Timestamp> {
        let limit = self.limits.tokens?;
        let available = limit.saturating_sub(self.expected_tokens());
        let mut used: u64 =
            self.in_window(now).map(|attempt| self.cost(attempt)).fold(0, u64::saturating_add);
        if used <= available {
            return None;
        }
        for attempt in self.in_window(now) {
            used = used.saturating_sub(self.cost(attempt));
            // A single attempt is always admitted, whatever it costs.
            if used <= available || used == 0 {
                return Some(attempt.at.plus_ms(WINDOW_MS));
            }
        }
        None
    }

    fn cost(&self, attempt: &LimitedAttempt) -> u64 {
        attempt.tokens.or(self.average_tokens).unwrap_or(attempt.reserved)
    }

    /// Tokens that the next attempt is expected to cost.
    fn expected_tokens(&self) -> u64 {
        self.average_tokens.unwrap_or(self.last_reserved)
    }

    /// Counts a new attempt that reserved `reserved` tokens.
    pub(super) fn acquire(&mut self, now: Timestamp, reserved: u64) -> LimiterSlot {
        while self.attempts.front().is_some_and(|first| first.at > now || now.ms_since(first.at) >= WINDOW_MS)
        {
            self.attempts.pop_front();
        }
        self.attempt_count += 1;
        self.last_reserved = reserved;
        if self.limits != RateLimits::default() {
            self.attempts.push_back(LimitedAttempt {
                at: now,
                number: self.attempt_count,
                reserved,
                tokens: None,
            });
        }
        self.unanswered.insert(self.attempt_count);
        self.requests.consume(now, self.attempt_count, 1);
        self.tokens.consume(now, self.attempt_count, self.expected_tokens());
        LimiterSlot(self.attempt_count)
    }

    /// Records what the attempt cost; 0 tokens if it has failed.
    pub(crate) fn record_cost(&mut self, slot: LimiterSlot, tokens: u64) {
        if tokens > 0 {
            let before = self.average_tokens.unwrap_or(tokens);
            self.average_tokens = Some(before.saturating_mul(7).saturating_add(tokens).div_ceil(8));
        }
        if let Some(attempt) = self.attempts.iter_mut().find(|attempt| attempt.number == slot.0) {
            attempt.tokens = Some(tokens);
        }
    }

    /// The response to this attempt reported what is left of the quota.
    pub(super) fn on_rate_info(&mut self, slot: LimiterSlot, info: RateInfo, now: Timestamp) {
        self.unanswered.remove(&slot.0);
        // It is unknown whether the provider has counted the attempts that have no response yet.
        let open = self.unanswered.len() as u64;
        // No vendor's window is longer than that: the clock or the unit of a later time is wrong.
        let soon = |quota: RateQuota| {
            let reset_at = quota.reset_at.plus_ms(RESET_SLACK_MS).min(now.plus_ms(MAX_COOLDOWN_MS));
            RateQuota { reset_at, ..quota }
        };
        self.requests.apply_report(slot, info.requests.map(soon), open);
        self.tokens.apply_report(slot, info.tokens.map(soon), open.saturating_mul(self.expected_tokens()));
    }

    /// The attempt has ended: a response that is still missing will not come.
    pub(super) fn on_attempt_end(&mut self, slot: LimiterSlot) {
        self.unanswered.remove(&slot.0);
    }

    /// Forgets the quotas that the provider reported.
    pub(crate) fn forget_reports(&mut self) {
        (self.requests, self.tokens) = (ReportedWindow::default(), ReportedWindow::default());
    }
}

impl ReportedWindow {
    fn next_opening(&self, now: Timestamp, least: u64) -> Option<Timestamp> {
        let Self(Some(quota)) = self else { return None };
        (now < quota.until && quota.remaining < least).then_some(quota.until)
    }

    fn consume(&mut self, now: Timestamp, number: u64, amount: u64) {
        let Self(Some(quota)) = self else { return };
        if now >= quota.until {
            let Some(limit) = quota.limit else {
                self.0 = None;
                return;
            };
            // Responses that are still to come belong to attempts of the window that is over.
            *quota =
                ReportedQuota { remaining: limit, until: now.plus_ms(WINDOW_MS), limit: Some(limit), number };
        }
        quota.remaining = quota.remaining.saturating_sub(amount);
    }

    /// `open` is the amount that the provider may not have counted yet.
    fn apply_report(&mut self, slot: LimiterSlot, report: Option<RateQuota>, open: u64) {
        let Some(RateQuota { remaining, reset_at, limit }) = report else { return };
        let mut quota = ReportedQuota {
            remaining: remaining.saturating_sub(open),
            until: reset_at,
            limit,
            number: slot.0,
        };
        match &self.0 {
            // A report of an earlier attempt about the same window may lower the quota that is left, but never raise
            // it.
            Some(known) if known.number > slot.0 && is_same_window(known.until, reset_at) => {
                quota.remaining = quota.remaining.min(known.remaining);
                quota.number = known.number;
            }
            Some(known) if known.number > slot.0 => return,
            Some(_) | None => {}
        }
        self.0 = Some(quota);
    }
}

/// Most milliseconds between two reported ends of one window; they differ by the delay of a response.
const SAME_WINDOW_MS: u64 = 250;

fn is_same_window(one: Timestamp, other: Timestamp) -> bool {
    one.ms_since(other).max(other.ms_since(one)) <= SAME_WINDOW_MS
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{prop_assert, proptest};

    use super::*;

    /// Makes attempts of this cost as fast as the limiter admits them, until `until`; returns their times.
    fn run(limiter: &mut Limiter, tokens: u64, until: i64) -> Vec<i64> {
        let (mut now, mut attempts) = (Timestamp(0), Vec::new());
        while now.0 < until {
            if let Some(later) = limiter.ready_at(now) {
                assert!(later > now, "it would be asked for ever");
                now = later;
                continue;
            }
            let slot = limiter.acquire(now, 0);
            limiter.record_cost(slot, tokens);
            attempts.push(now.0);
        }
        attempts
    }

    fn check(limits: RateLimits, tokens: u64, expect: &[i64]) {
        assert_eq!(run(&mut Limiter::new(limits), tokens, 130_000), expect, "{limits:?}, {tokens} each");
    }

    #[test]
    fn no_minute_has_more_than_the_limit() {
        let requests = |n| RateLimits { requests: Some(n), tokens: None };
        check(requests(2), 9, &[0, 0, 61_000, 61_000, 122_000, 122_000]);
        let tokens = |n| RateLimits { requests: None, tokens: Some(n) };
        check(tokens(100), 40, &[0, 0, 61_000, 61_000, 122_000, 122_000]);
        check(tokens(100), 400, &[0, 61_000, 122_000]);
        check(RateLimits { requests: Some(1), tokens: Some(100) }, 40, &[0, 61_000, 122_000]);
    }

    #[test]
    fn what_is_under_way_counts_as_the_average() {
        let mut limiter = Limiter::new(RateLimits { requests: None, tokens: Some(100) });
        let first = limiter.acquire(Timestamp(0), 100);
        limiter.record_cost(first, 30);
        limiter.acquire(Timestamp(1), 100);
        assert_eq!(limiter.ready_at(Timestamp(2)), None);
        limiter.acquire(Timestamp(2), 100);
        assert_eq!(limiter.ready_at(Timestamp(3)), Some(Timestamp(61_000)));
    }

    /// Checks how many attempts with this reservation are admitted at once, while no cost is known.
    fn check_first(most: u64, reserved: u64, expect: usize) {
        let mut limiter = Limiter::new(RateLimits { requests: None, tokens: Some(most) });
        let mut attempts = Vec::new();
        while attempts.len() < 20 && limiter.ready_at(Timestamp(0)).is_none() {
            attempts.push(limiter.acquire(Timestamp(0), reserved));
        }
        assert_eq!(attempts.len(), expect, "{most} tokens, {reserved} each");
        // The attempts cost less than they reserved.
        limiter.record_cost(attempts[0], 1);
        assert_eq!(limiter.ready_at(Timestamp(0)), None);
    }

    #[test]
    fn the_first_count_as_what_they_have_reserved() {
        check_first(100, 30, 3);
        check_first(100, 50, 2);
        check_first(100, 60, 1);
        check_first(100, 400, 1);
        check_first(100, 0, 20);
    }

    #[test]
    fn what_the_provider_says_is_left_is_kept() {
        let left = |remaining, limit| RateInfo {
            requests: Some(RateQuota { remaining, reset_at: Timestamp(5_000), limit }),
            tokens: None,
        };
        let mut limiter = Limiter::default();
        let (first, second) = (limiter.acquire(Timestamp(0), 0), limiter.acquire(Timestamp(0), 0));
        assert_eq!(limiter.ready_at(Timestamp(0)), None);
        // The provider has not counted the second attempt yet.
        limiter.on_rate_info(first, left(1, Some(2)), Timestamp(0));
        assert_eq!(limiter.ready_at(Timestamp(1)), Some(Timestamp(5_100)));
        limiter.on_rate_info(second, left(1, Some(2)), Timestamp(0));
        assert_eq!(limiter.ready_at(Timestamp(1)), None);
        let of_before = RateQuota { remaining: 0, reset_at: Timestamp(4_000), limit: Some(2) };
        limiter.on_rate_info(first, RateInfo { requests: Some(of_before), tokens: None }, Timestamp(0));
        assert_eq!(limiter.ready_at(Timestamp(1)), None, "old news of another window");
        limiter.acquire(Timestamp(2), 0);
        assert_eq!(limiter.ready_at(Timestamp(2)), Some(Timestamp(5_100)));
        // The next window has the full limit.
        assert_eq!(limiter.ready_at(Timestamp(5_099)), Some(Timestamp(5_100)));
        assert_eq!(limiter.ready_at(Timestamp(5_100)), None);
        limiter.acquire(Timestamp(5_100), 0);
        limiter.acquire(Timestamp(5_100), 0);
        assert_eq!(limiter.ready_at(Timestamp(5_101)), Some(Timestamp(66_100)));
    }

    /// Responses arrive in another order than the provider counts the requests.
    #[test]
    fn what_is_under_way_may_not_be_counted_yet() {
        let left = |remaining| {
            let requests = RateQuota { remaining, reset_at: Timestamp(5_000), limit: Some(3) };
            RateInfo { requests: Some(requests), tokens: None }
        };
        let mut limiter = Limiter::default();
        let slots = [0, 0, 0].map(|at| limiter.acquire(Timestamp(at), 0));
        // The provider counted the last attempt first.
        limiter.on_rate_info(slots[2], left(2), Timestamp(0));
        assert_eq!(limiter.ready_at(Timestamp(1)), Some(Timestamp(5_100)));
        limiter.on_rate_info(slots[0], left(1), Timestamp(0));
        limiter.on_attempt_end(slots[1]);
        assert_eq!(limiter.ready_at(Timestamp(1)), Some(Timestamp(5_100)), "late news raises nothing");
    }

    #[test]
    fn what_a_provider_says_has_bounds() {
        let mut limiter = Limiter::new(RateLimits { requests: None, tokens: Some(100) });
        let never = RateQuota { remaining: 0, reset_at: Timestamp(i64::MAX), limit: None };
        let slots = [limiter.acquire(Timestamp(0), 0), limiter.acquire(Timestamp(0), 0)];
        slots.into_iter().for_each(|slot| limiter.record_cost(slot, u64::MAX));
        assert_eq!(limiter.ready_at(Timestamp(0)), Some(Timestamp(61_000)));
        limiter.on_rate_info(slots[1], RateInfo { requests: Some(never), tokens: None }, Timestamp(0));
        assert_eq!(limiter.ready_at(Timestamp(0)), Some(Timestamp(86_400_000)));
        limiter.forget_reports();
        assert_eq!(limiter.ready_at(Timestamp(0)), Some(Timestamp(61_000)));
    }

    proptest! {
        #[test]
        fn no_minute_has_more_requests_than_the_limit(most in 1_u32..20, pauses in proptest::collection::vec(0_u64..20_000, 0..200)) {
            let mut limiter = Limiter::new(RateLimits { requests: Some(most), tokens: None });
            let (mut now, mut attempts) = (Timestamp(0), Vec::new());
            for pause in pauses {
                now = now.plus_ms(pause);
                if limiter.ready_at(now).is_none() {
                    limiter.acquire(now, 0);
                    attempts.push(now);
                }
            }
            for (at, first) in attempts.iter().enumerate() {
                let within = attempts[at..].iter().filter(|other| other.ms_since(*first) < 60_000).count();
                prop_assert!(within <= usize::try_from(most).unwrap());
            }
        }
    }
}
