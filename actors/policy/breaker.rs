use crate::{
    model::{BreakerPolicy, BreakerState, Failure, FailureClass, Timestamp},
    policy::blame::{Blame, blame},
};

/// A provider that names a later time than this is asked again all the same, in milliseconds from now: a clock or a unit
/// may be wrong.
pub(super) const LONGEST: u64 = 24 * 3_600_000;

/// Whether something that has failed is asked again. Closed, it lets everybody through; open, nobody; then half-open, one
/// at a time until one is answered.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    state: State,
    /// How often it has opened since the last answer.
    trips: u32,
    last: Option<Failure>,
}

#[derive(Debug)]
enum State {
    Closed { failures: u32 },
    Open { from: Timestamp, until: Timestamp, why: Cooldown, probe: Probe },
}

impl Default for State {
    fn default() -> Self {
        Self::Closed { failures: 0 }
    }
}

/// Who says that it must not be earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cooldown {
    /// The provider.
    Named,
    /// Our own experience.
    Guessed,
    /// The account's limiter.
    Pace,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Probe {
    None,
    Out,
}

/// Leave to ask, given at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pass {
    /// As one of many.
    Ordinary(Timestamp),
    /// As the only one, to find out.
    Probe,
}

/// Whether somebody may ask now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gauge {
    /// Yes.
    Free,
    /// As soon as one of the first few has heard of it.
    Starting,
    /// Somebody finds out just now.
    Probing,
    /// Not before then.
    Until(Timestamp, Cooldown),
}

/// What an attempt's end says of what was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weight {
    /// Nothing.
    None,
    /// It works.
    Works,
    /// It may have failed by chance.
    Counts,
    /// It is no use to ask it again soon: for so long, or as long as the policy's ladder says.
    Opens(Option<u64>),
}

impl Breaker {
    /// Whether somebody may ask now.
    pub(crate) fn gauge(&self, now: Timestamp) -> Gauge {
        match self.state {
            // A clock that was set back does not stretch it.
            State::Open { from, until, why, .. } if from <= now && now < until => Gauge::Until(until, why),
            State::Open { probe: Probe::Out, .. } => Gauge::Probing,
            State::Open { probe: Probe::None, .. } | State::Closed { .. } => Gauge::Free,
        }
    }

    /// Lets somebody through; who insists, also against what [`Breaker::gauge`] says.
    pub(crate) fn pass(&mut self, now: Timestamp) -> Pass {
        let is_free = self.gauge(now) == Gauge::Free;
        match &mut self.state {
            State::Open { probe, .. } if is_free => {
                *probe = Probe::Out;
                Pass::Probe
            }
            State::Open { .. } | State::Closed { .. } => Pass::Ordinary(now),
        }
    }

    /// Whoever was let through comes back without having learnt anything. Says whether that frees the place of a probe.
    pub(crate) fn return_pass(&mut self, pass: Pass) -> bool {
        match (&mut self.state, pass) {
            (State::Open { probe, .. }, Pass::Probe) => {
                *probe = Probe::None;
                true
            }
            (State::Open { .. } | State::Closed { .. }, _) => false,
        }
    }

    /// It begins to answer: lets everybody through again, unless the attempt began before it opened. What has failed before is
    /// forgotten with a whole answer only, so what breaks off again and again opens it again. Says whether it was open.
    pub(crate) fn begins(&mut self, pass: Pass, policy: &BreakerPolicy) -> bool {
        match (&self.state, pass) {
            (State::Open { from, .. }, Pass::Ordinary(since)) if since <= *from => false,
            (State::Open { .. }, _) => {
                self.state = State::Closed { failures: policy.threshold.saturating_sub(1) };
                true
            }
            (State::Closed { .. }, _) => false,
        }
    }

    /// It works: closes it, unless the attempt began before it opened. Says whether it was open.
    pub(crate) fn answered(&mut self, pass: Pass) -> bool {
        let was_open = match (&self.state, pass) {
            (State::Open { from, .. }, Pass::Ordinary(since)) if since <= *from => return false,
            (State::Open { .. }, _) => true,
            (State::Closed { .. }, _) => false,
        };
        *self = Self { last: self.last.take(), ..Self::default() };
        was_open
    }

    /// Closes it and forgets everything.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }

    /// An attempt failed.
    pub(crate) fn failed(&mut self, pass: Pass, failure: &Failure, now: Timestamp, policy: &BreakerPolicy) {
        let weight = weight(&failure.class, policy);
        if matches!(weight, Weight::Counts | Weight::Opens(_)) {
            self.last = Some(failure.clone());
        }
        match (weight, &mut self.state) {
            (Weight::None, _) => drop(self.return_pass(pass)),
            (Weight::Works, _) => drop(self.answered(pass)),
            (Weight::Counts, State::Closed { failures }) if *failures + 1 < policy.threshold => {
                *failures += 1;
            }
            (Weight::Counts, State::Closed { .. }) => self.open(failure, now, (None, policy)),
            (Weight::Opens(ms), State::Closed { .. }) => self.open(failure, now, (ms, policy)),
            (Weight::Counts | Weight::Opens(_), State::Open { .. }) if pass == Pass::Probe => {
                let ms = if let Weight::Opens(ms) = weight { ms } else { None };
                self.open(failure, now, (ms, policy));
            }
            // It began before the breaker opened, and says nothing new, unless it knows a later time.
            (Weight::Counts | Weight::Opens(_), State::Open { until, why, .. }) => {
                if let Some(ms) = failure.class.reset_in(now)
                    && now.plus_ms(ms.min(LONGEST)) > *until
                {
                    (*until, *why) = (now.plus_ms(ms.min(LONGEST)), Cooldown::Named);
                }
            }
        }
    }

    fn open(&mut self, failure: &Failure, now: Timestamp, (own, policy): (Option<u64>, &BreakerPolicy)) {
        let rung = usize::try_from(self.trips).unwrap_or(usize::MAX).min(policy.cooldowns_ms.len() - 1);
        self.trips = self.trips.saturating_add(1);
        let (ms, why) = match failure.class.reset_in(now) {
            Some(ms) => (ms.min(LONGEST), Cooldown::Named),
            None => (own.unwrap_or(policy.cooldowns_ms[rung]), Cooldown::Guessed),
        };
        self.state = State::Open { from: now, until: now.plus_ms(ms), why, probe: Probe::None };
    }

    /// As others see it.
    pub(crate) fn state(&self, now: Timestamp) -> BreakerState {
        match (&self.state, self.gauge(now)) {
            (State::Closed { .. }, _) => BreakerState::Closed,
            (State::Open { .. }, Gauge::Until(until, _)) => BreakerState::Open { until },
            (State::Open { .. }, Gauge::Free | Gauge::Starting | Gauge::Probing) => BreakerState::HalfOpen,
        }
    }

    /// The last failure that was held against it.
    pub(crate) const fn last(&self) -> Option<&Failure> {
        self.last.as_ref()
    }
}

/// What a failure of this class says.
const fn weight(class: &FailureClass, policy: &BreakerPolicy) -> Weight {
    match (blame(class), class) {
        (Blame::Ended | Blame::Ours, _) => Weight::None,
        (Blame::Request, _) => Weight::Works,
        (Blame::Unreached | Blame::Passing, _) => Weight::Counts,
        (Blame::Account, FailureClass::QuotaExhausted { .. }) => Weight::Opens(Some(policy.quota_ms)),
        (Blame::Lasting, FailureClass::ModelNotFound) => Weight::Opens(Some(policy.not_found_ms)),
        (Blame::Account | Blame::Lasting, _) => Weight::Opens(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW_DOWN: FailureClass = FailureClass::RateLimited { retry_after_ms: None, reset_at: None };

    fn named(ms: u64) -> FailureClass {
        FailureClass::RateLimited { retry_after_ms: Some(ms), reset_at: None }
    }

    /// What happens to a breaker, each with the time in seconds.
    enum Step {
        Fails(FailureClass),
        Answers,
        /// Whoever was let through is dropped.
        GoesAway,
    }
    use Step::{Answers, Fails, GoesAway};

    /// Each step is an attempt that is let through and ends at the same time; then what holds at `at`.
    fn check(steps: Vec<(i64, Step)>, at: i64, expect: Gauge) {
        let (mut breaker, policy) = (Breaker::default(), BreakerPolicy::default());
        let told = steps.len();
        for (seconds, step) in steps {
            let now = Timestamp(seconds * 1_000);
            let pass = breaker.pass(now);
            match step {
                Fails(class) => breaker.failed(pass, &Failure::new(class, "x"), now, &policy),
                Answers => drop(breaker.answered(pass)),
                GoesAway => drop(breaker.return_pass(pass)),
            }
        }
        assert_eq!(breaker.gauge(Timestamp(at * 1_000)), expect, "after {told} steps, at {at} s");
    }

    fn guessed(seconds: i64) -> Gauge {
        Gauge::Until(Timestamp(seconds * 1_000), Cooldown::Guessed)
    }

    #[test]
    fn each_class_opens_it_for_its_own_time() {
        for class in [SLOW_DOWN, FailureClass::Auth, FailureClass::NotAnApi] {
            check(vec![(0, Fails(class))], 1, guessed(30));
        }
        check(vec![(0, Fails(FailureClass::QuotaExhausted { reset_at: None }))], 1, guessed(600));
        check(vec![(0, Fails(FailureClass::ModelNotFound))], 1, guessed(600));
        for class in
            [FailureClass::Server, FailureClass::Overloaded, FailureClass::Network, FailureClass::Cut]
        {
            check(vec![(0, Fails(class.clone())), (0, Fails(class.clone()))], 1, Gauge::Free);
            let three = (0..3).map(|_| (0, Fails(class.clone()))).collect();
            check(three, 1, guessed(30));
        }
        for class in
            [FailureClass::InvalidRequest, FailureClass::Cancelled, FailureClass::Lost, FailureClass::NotMade]
        {
            check((0..9).map(|_| (0, Fails(class.clone()))).collect(), 1, Gauge::Free);
        }
    }

    #[test]
    fn a_named_time_counts_and_a_mad_one_is_cut() {
        check(vec![(0, Fails(named(90_000)))], 1, Gauge::Until(Timestamp(90_000), Cooldown::Named));
        let reset_at = Some(Timestamp(7_000));
        let quota = FailureClass::QuotaExhausted { reset_at };
        check(vec![(0, Fails(quota))], 1, Gauge::Until(Timestamp(7_000), Cooldown::Named));
        let day = Gauge::Until(Timestamp(86_400_000), Cooldown::Named);
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
        check(vec![fail(0), (1, Fails(named(50_000)))], 3, Gauge::Until(Timestamp(51_000), Cooldown::Named));
        check(vec![fail(0), (1, Fails(named(5_000)))], 3, guessed(30));
    }

    #[test]
    fn half_open_lets_one_through() {
        check(vec![(0, Fails(SLOW_DOWN))], 30, Gauge::Free);
        check(vec![(0, Fails(SLOW_DOWN)), (30, GoesAway)], 30, Gauge::Free);
        check(vec![(0, Fails(SLOW_DOWN)), (30, Fails(FailureClass::Cancelled))], 30, Gauge::Free);
        check(vec![(0, Fails(SLOW_DOWN)), (30, Answers)], 30, Gauge::Free);
        // One failure is enough then.
        check(vec![(0, Fails(SLOW_DOWN)), (30, Fails(FailureClass::Server))], 31, guessed(90));
        let mut breaker = Breaker::default();
        let (early, policy) = (breaker.pass(Timestamp(0)), BreakerPolicy::default());
        breaker.failed(early, &Failure::new(SLOW_DOWN, "x"), Timestamp(0), &policy);
        assert!(!breaker.answered(early), "whoever began before knows nothing of it");
        assert_eq!(breaker.pass(Timestamp(30_000)), Pass::Probe);
        assert_eq!(breaker.gauge(Timestamp(30_000)), Gauge::Probing);
        assert_eq!(breaker.state(Timestamp(30_000)), BreakerState::HalfOpen);
    }

    #[test]
    fn a_clock_that_was_set_back_does_not_stretch_it() {
        check(vec![(1_000, Fails(SLOW_DOWN))], 10, Gauge::Free);
    }
}
