//! Circuit breaker of an endpoint or of a model with one credential, and the readiness that it reports. Deterministic:
//! the time is a parameter. `admissions.rs` combines the breakers of a provider; `provider/gate.rs` shares them between
//! sessions.

use crate::{
    model::{BreakerPolicy, BreakerState, Failure, FailureClass, Timestamp},
    policy::failure_scope::{FailureScope, failure_scope},
};

/// Longest cooldown in milliseconds: a reset time that a provider reports may come from a wrong clock or unit.
pub(super) const MAX_COOLDOWN_MS: u64 = 24 * 3_600_000;

/// Most milliseconds before the end of a cooldown at which a free probe begins, so that it takes the pass before a
/// call.
const FREE_PROBE_LEAD_MS: u64 = 1_000;

/// Circuit breaker: closed, it admits all attempts; open, none; half-open, one probe at a time until one is answered.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    state: BreakerPhase,
    /// How often it opened since the target last worked: the index into the policy's cooldowns.
    trips: u32,
    last_failure: Option<Failure>,
    /// True if a free probe has begun in this cooldown: each cooldown has at most one.
    had_free_probe: bool,
}

#[derive(Debug)]
enum BreakerPhase {
    Closed { failures: u32 },
    Open { from: Timestamp, until: Timestamp, source: CooldownSource, is_probing: bool },
}

impl Default for BreakerPhase {
    fn default() -> Self {
        Self::Closed { failures: 0 }
    }
}

/// The reason for a cooldown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CooldownSource {
    /// A reset time that the provider reported.
    Provider,
    /// Failures that this breaker counted.
    Breaker,
    /// The account's rate limiter.
    Limiter,
}

/// Permission for one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BreakerPass {
    /// An attempt beside others, admitted at this time.
    Ordinary(Timestamp),
    /// The only attempt while half-open.
    Probe,
}

/// Whether an attempt may start now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// An attempt may start.
    Ready,
    /// All first attempts are under way; the next may start after the first response.
    WarmingUp,
    /// A probe is in flight.
    Probing,
    /// No attempt before this time.
    Until(Timestamp, CooldownSource),
}

/// What an attempt's end tells the breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FailureWeight {
    /// Nothing about the target.
    None,
    /// The target works.
    Works,
    /// A failure that may have been chance: counted up to the threshold.
    Counts,
    /// A failure that opens at once; milliseconds of the cooldown, or `None` for the policy's cooldowns.
    Opens(Option<u64>),
}

impl Breaker {
    /// Whether an attempt may start now.
    pub(super) fn readiness(&self, now: Timestamp) -> Readiness {
        match self.state {
            // A clock that was set back does not prolong the cooldown.
            BreakerPhase::Open { from, until, source, .. } if from <= now && now < until => {
                Readiness::Until(until, source)
            }
            BreakerPhase::Open { is_probing: true, .. } => Readiness::Probing,
            BreakerPhase::Open { is_probing: false, .. } | BreakerPhase::Closed { .. } => Readiness::Ready,
        }
    }

    /// Admits an attempt, even against [`Breaker::readiness`]: the caller decides.
    pub(super) fn admit(&mut self, now: Timestamp) -> BreakerPass {
        let is_free = self.readiness(now) == Readiness::Ready;
        match &mut self.state {
            BreakerPhase::Open { is_probing, .. } if is_free => {
                *is_probing = true;
                BreakerPass::Probe
            }
            BreakerPhase::Open { .. } | BreakerPhase::Closed { .. } => BreakerPass::Ordinary(now),
        }
    }

    /// When a free probe is due, shortly before the cooldown ends. `None` if the breaker is not open, or if this
    /// cooldown had its free probe. Also `None` if it opened for a failure of which a connection tells nothing.
    pub(super) fn free_probe_at(&self, now: Timestamp) -> Option<Timestamp> {
        let failure = self.last_failure.as_ref().filter(|_| !self.had_free_probe)?;
        match self.state {
            BreakerPhase::Open { from, until, source: CooldownSource::Breaker, is_probing: false }
                if from <= now && now < until && may_be_unreachable(&failure.class) =>
            {
                let cooldown_ms = until.ms_since(from);
                Some(from.plus_ms(cooldown_ms - FREE_PROBE_LEAD_MS.min(cooldown_ms / 2)))
            }
            BreakerPhase::Open { .. } | BreakerPhase::Closed { .. } => None,
        }
    }

    /// Takes the probe's pass for a free probe; false if none is due.
    pub(super) fn begin_free_probe(&mut self, now: Timestamp) -> bool {
        let is_due = self.free_probe_at(now).is_some_and(|at| at <= now);
        if let BreakerPhase::Open { is_probing, .. } = &mut self.state
            && is_due
        {
            (*is_probing, self.had_free_probe) = (true, true);
        }
        is_due
    }

    /// Returns a pass whose attempt tells nothing about the target; true if it was the probe's.
    pub(crate) fn return_pass(&mut self, pass: BreakerPass) -> bool {
        match (&mut self.state, pass) {
            (BreakerPhase::Open { is_probing, .. }, BreakerPass::Probe) => {
                *is_probing = false;
                true
            }
            (BreakerPhase::Open { .. } | BreakerPhase::Closed { .. }, _) => false,
        }
    }

    /// The target begins to answer: closes, unless the attempt began before it opened. Earlier failures count until a
    /// complete answer, so answers that keep breaking off open it again. Returns true if this closes the breaker.
    pub(super) fn on_answer_start(&mut self, pass: BreakerPass, policy: &BreakerPolicy) -> bool {
        let closes = self.began_before_opening(pass) == Some(false);
        if closes {
            self.state = BreakerPhase::Closed { failures: policy.threshold.saturating_sub(1) };
        }
        closes
    }

    /// The target works: closes, unless the attempt began before it opened. Returns true if this closes the breaker.
    pub(crate) fn on_answer(&mut self, pass: BreakerPass) -> bool {
        let began_before = self.began_before_opening(pass);
        if began_before != Some(true) {
            *self = Self { last_failure: self.last_failure.take(), ..Self::default() };
        }
        began_before == Some(false)
    }

    /// Whether the attempt began before the breaker opened; `None` if the breaker is closed.
    fn began_before_opening(&self, pass: BreakerPass) -> Option<bool> {
        let BreakerPhase::Open { from, .. } = &self.state else { return None };
        Some(matches!(pass, BreakerPass::Ordinary(since) if since <= *from))
    }

    /// Closes the breaker and forgets all failures.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }

    /// Counts a failed attempt.
    pub(crate) fn on_failure(
        &mut self,
        pass: BreakerPass,
        failure: &Failure,
        now: Timestamp,
        policy: &BreakerPolicy,
    ) {
        let weight = failure_weight(&failure.class, policy);
        if matches!(weight, FailureWeight::Counts | FailureWeight::Opens(_)) {
            self.last_failure = Some(failure.clone());
        }
        match (weight, &mut self.state) {
            (FailureWeight::None, _) => drop(self.return_pass(pass)),
            (FailureWeight::Works, _) => drop(self.on_answer(pass)),
            (FailureWeight::Counts, BreakerPhase::Closed { failures })
                if *failures + 1 < policy.threshold =>
            {
                *failures += 1;
            }
            (FailureWeight::Counts, BreakerPhase::Closed { .. }) => self.open(failure, now, None, policy),
            (FailureWeight::Opens(ms), BreakerPhase::Closed { .. }) => self.open(failure, now, ms, policy),
            (FailureWeight::Counts | FailureWeight::Opens(_), BreakerPhase::Open { .. })
                if pass == BreakerPass::Probe =>
            {
                let ms = if let FailureWeight::Opens(ms) = weight { ms } else { None };
                self.open(failure, now, ms, policy);
            }
            // The attempt began before the breaker opened: only a later reset time is news.
            (FailureWeight::Counts | FailureWeight::Opens(_), BreakerPhase::Open { until, source, .. }) => {
                if let Some(ms) = failure.class.reset_in(now)
                    && now.plus_ms(ms.min(MAX_COOLDOWN_MS)) > *until
                {
                    (*until, *source) = (now.plus_ms(ms.min(MAX_COOLDOWN_MS)), CooldownSource::Provider);
                }
            }
        }
    }

    fn open(&mut self, failure: &Failure, now: Timestamp, cooldown_ms: Option<u64>, policy: &BreakerPolicy) {
        let step = usize::try_from(self.trips).unwrap_or(usize::MAX).min(policy.cooldowns_ms.len() - 1);
        self.trips = self.trips.saturating_add(1);
        let (ms, source) = match failure.class.reset_in(now) {
            Some(ms) => (ms.min(MAX_COOLDOWN_MS), CooldownSource::Provider),
            None => (cooldown_ms.unwrap_or(policy.cooldowns_ms[step]), CooldownSource::Breaker),
        };
        self.state = BreakerPhase::Open { from: now, until: now.plus_ms(ms), source, is_probing: false };
        self.had_free_probe = false;
    }

    /// The state as the public API reports it.
    pub(super) fn state(&self, now: Timestamp) -> BreakerState {
        match (&self.state, self.readiness(now)) {
            (BreakerPhase::Closed { .. }, _) => BreakerState::Closed,
            (BreakerPhase::Open { .. }, Readiness::Until(until, _)) => BreakerState::Open { until },
            (BreakerPhase::Open { .. }, Readiness::Ready | Readiness::WarmingUp | Readiness::Probing) => {
                BreakerState::HalfOpen
            }
        }
    }

    /// The last failure that opened the breaker or counted towards it.
    pub(super) const fn last_failure(&self) -> Option<&Failure> {
        self.last_failure.as_ref()
    }
}

/// Whether the failure may come from an endpoint that cannot be reached.
const fn may_be_unreachable(class: &FailureClass) -> bool {
    matches!(class, FailureClass::Network | FailureClass::Timeout { .. } | FailureClass::Server)
}

/// The weight of a failure of this class.
const fn failure_weight(class: &FailureClass, policy: &BreakerPolicy) -> FailureWeight {
    match (failure_scope(class), class) {
        (FailureScope::Cancelled | FailureScope::Local, _) => FailureWeight::None,
        (FailureScope::Request, _) => FailureWeight::Works,
        (FailureScope::Endpoint | FailureScope::ModelTransient, _) => FailureWeight::Counts,
        (FailureScope::Account, FailureClass::QuotaExhausted { .. }) => {
            FailureWeight::Opens(Some(policy.quota_ms))
        }
        (FailureScope::ModelPersistent, FailureClass::ModelNotFound) => {
            FailureWeight::Opens(Some(policy.not_found_ms))
        }
        (FailureScope::Account | FailureScope::ModelPersistent, _) => FailureWeight::Opens(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW_DOWN: FailureClass = FailureClass::RateLimited { retry_after_ms: None, reset_at: None };

    fn named(ms: u64) -> FailureClass {
        FailureClass::RateLimited { retry_after_ms: Some(ms), reset_at: None }
    }

    /// A step of a test, with its time in seconds.
    enum Step {
        Fails(FailureClass),
        Answers,
        /// An admitted attempt is dropped.
        GoesAway,
    }
    use Step::{Answers, Fails, GoesAway};

    /// Checks the readiness at second `at`, after these steps: each is an attempt that ends when it is admitted.
    fn check(steps: Vec<(i64, Step)>, at: i64, expect: Readiness) {
        let (mut breaker, policy) = (Breaker::default(), BreakerPolicy::default());
        let told = steps.len();
        for (seconds, step) in steps {
            let now = Timestamp(seconds * 1_000);
            let pass = breaker.admit(now);
            match step {
                Fails(class) => breaker.on_failure(pass, &Failure::new(class, "x"), now, &policy),
                Answers => drop(breaker.on_answer(pass)),
                GoesAway => drop(breaker.return_pass(pass)),
            }
        }
        assert_eq!(breaker.readiness(Timestamp(at * 1_000)), expect, "after {told} steps, at {at} s");
    }

    fn guessed(seconds: i64) -> Readiness {
        Readiness::Until(Timestamp(seconds * 1_000), CooldownSource::Breaker)
    }

    #[test]
    fn each_class_opens_it_for_its_own_time() {
        for class in [SLOW_DOWN, FailureClass::Auth, FailureClass::NotAnApi] {
            check(vec![(0, Fails(class))], 1, guessed(30));
        }
        check(vec![(0, Fails(FailureClass::QuotaExhausted { reset_at: None }))], 1, guessed(600));
        check(vec![(0, Fails(FailureClass::ModelNotFound))], 1, guessed(600));
        for class in [
            FailureClass::Server,
            FailureClass::Overloaded,
            FailureClass::Network,
            FailureClass::IncompleteStream,
        ] {
            check(vec![(0, Fails(class.clone())), (0, Fails(class.clone()))], 1, Readiness::Ready);
            let three = (0..3).map(|_| (0, Fails(class.clone()))).collect();
            check(three, 1, guessed(30));
        }
        for class in
            [FailureClass::InvalidRequest, FailureClass::Cancelled, FailureClass::Lost, FailureClass::NotSent]
        {
            check((0..9).map(|_| (0, Fails(class.clone()))).collect(), 1, Readiness::Ready);
        }
    }

    #[test]
    fn a_named_time_counts_and_a_mad_one_is_cut() {
        check(
            vec![(0, Fails(named(90_000)))],
            1,
            Readiness::Until(Timestamp(90_000), CooldownSource::Provider),
        );
        let reset_at = Some(Timestamp(7_000));
        let quota = FailureClass::QuotaExhausted { reset_at };
        check(vec![(0, Fails(quota))], 1, Readiness::Until(Timestamp(7_000), CooldownSource::Provider));
        let day = Readiness::Until(Timestamp(86_400_000), CooldownSource::Provider);
        check(vec![(0, Fails(named(u64::MAX)))], 1, day);
    }

    #[test]
    fn cooldowns_grow_until_an_answer() {
        let fail = |at| (at, Fails(SLOW_DOWN));
        check(vec![fail(0), fail(30)], 31, guessed(90));
        check(vec![fail(0), fail(30), fail(90)], 91, guessed(390));
        check(vec![fail(0), fail(30), fail(90), fail(390)], 391, guessed(690));
        check(vec![fail(0), fail(30), (90, Answers), fail(100)], 101, guessed(130));
    }

    #[test]
    fn a_failure_that_comes_late_does_not_stretch_it_and_a_named_time_does() {
        let fail = |at| (at, Fails(SLOW_DOWN));
        check(vec![fail(0), fail(1), fail(2)], 3, guessed(30));
        check(
            vec![fail(0), (1, Fails(named(50_000)))],
            3,
            Readiness::Until(Timestamp(51_000), CooldownSource::Provider),
        );
        check(vec![fail(0), (1, Fails(named(5_000)))], 3, guessed(30));
    }

    #[test]
    fn half_open_lets_one_through() {
        check(vec![(0, Fails(SLOW_DOWN))], 30, Readiness::Ready);
        check(vec![(0, Fails(SLOW_DOWN)), (30, GoesAway)], 30, Readiness::Ready);
        check(vec![(0, Fails(SLOW_DOWN)), (30, Fails(FailureClass::Cancelled))], 30, Readiness::Ready);
        check(vec![(0, Fails(SLOW_DOWN)), (30, Answers)], 30, Readiness::Ready);
        // One failure is enough then.
        check(vec![(0, Fails(SLOW_DOWN)), (30, Fails(FailureClass::Server))], 31, guessed(90));
        let mut breaker = Breaker::default();
        let (early, policy) = (breaker.admit(Timestamp(0)), BreakerPolicy::default());
        breaker.on_failure(early, &Failure::new(SLOW_DOWN, "x"), Timestamp(0), &policy);
        assert!(!breaker.on_answer(early), "whoever began before knows nothing of it");
        assert_eq!(breaker.admit(Timestamp(30_000)), BreakerPass::Probe);
        assert_eq!(breaker.readiness(Timestamp(30_000)), Readiness::Probing);
        assert_eq!(breaker.state(Timestamp(30_000)), BreakerState::HalfOpen);
    }

    /// Checks when the free probe of a breaker is due that these failures opened at 0 s, as seen at second `at`.
    fn check_free_probe(classes: &[FailureClass], at: i64, expect: Option<i64>) {
        let (mut breaker, policy) = (Breaker::default(), BreakerPolicy::default());
        for class in classes {
            let pass = breaker.admit(Timestamp(0));
            breaker.on_failure(pass, &Failure::new(class.clone(), "x"), Timestamp(0), &policy);
        }
        let due = breaker.free_probe_at(Timestamp(at * 1_000));
        assert_eq!(due, expect.map(|seconds| Timestamp(seconds * 1_000)), "{classes:?} at {at} s");
    }

    #[test]
    fn an_open_breaker_is_probed_before_its_cooldown_ends() {
        let timeout = FailureClass::Timeout { which: crate::model::Deadline::FirstEvent };
        for class in [FailureClass::Network, FailureClass::Server, timeout] {
            check_free_probe(&[const { FailureClass::Network }; 2], 1, None);
            let three = std::array::from_fn::<_, 3, _>(|_| class.clone());
            check_free_probe(&three, 0, Some(29));
            check_free_probe(&three, 29, Some(29));
            // From then on a call is the probe.
            check_free_probe(&three, 30, None);
            check_free_probe(&three, -1, None);
        }
        // A connection tells nothing about these, nor about a time that the provider named.
        for class in [
            SLOW_DOWN,
            named(90_000),
            FailureClass::Auth,
            FailureClass::Overloaded,
            FailureClass::IncompleteStream,
            FailureClass::QuotaExhausted { reset_at: None },
            FailureClass::ModelNotFound,
        ] {
            check_free_probe(&std::array::from_fn::<_, 3, _>(|_| class.clone()), 1, None);
        }
    }

    #[test]
    fn a_cooldown_has_one_free_probe_and_calls_wait_for_it() {
        let (mut breaker, mut policy) = (Breaker::default(), BreakerPolicy::default());
        policy.cooldowns_ms[0] = 300;
        let unreached = Failure::new(FailureClass::Network, "connection refused");
        for _ in 0..3 {
            breaker.on_failure(BreakerPass::Ordinary(Timestamp(0)), &unreached, Timestamp(0), &policy);
        }
        assert!(!breaker.begin_free_probe(Timestamp(149)), "half of a short cooldown passes first");
        assert!(breaker.begin_free_probe(Timestamp(150)));
        assert_eq!(breaker.free_probe_at(Timestamp(150)), None);
        assert_eq!(breaker.readiness(Timestamp(300)), Readiness::Probing);
        breaker.return_pass(BreakerPass::Probe);
        assert!(!breaker.begin_free_probe(Timestamp(200)), "it told nothing, and is not repeated");
        assert_eq!(breaker.readiness(Timestamp(300)), Readiness::Ready);
        // The next cooldown has a free probe of its own.
        let probe = breaker.admit(Timestamp(300));
        breaker.on_failure(probe, &unreached, Timestamp(300), &policy);
        assert_eq!(breaker.free_probe_at(Timestamp(301)), Some(Timestamp(59_300)));
    }

    #[test]
    fn a_clock_that_was_set_back_does_not_stretch_it() {
        check(vec![(1_000, Fails(SLOW_DOWN))], 10, Readiness::Ready);
    }
}
