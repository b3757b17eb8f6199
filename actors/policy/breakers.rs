use std::{collections::BTreeMap, sync::Arc};

use crate::{
    model::{BreakerPolicy, BreakerState, CredentialId, Failure, PoolStrategy, Timestamp},
    policy::{
        breaker::{Breaker, Cooldown, Gauge, Pass, is_of_endpoint, says_something},
        pool::pick,
    },
};

/// The breakers of one provider: one for the endpoint as a whole, which only connections count for, and one for each
/// model with each credential. So a model's failures are held against that model alone.
#[derive(Debug)]
pub(crate) struct Breakers {
    policy: BreakerPolicy,
    strategy: PoolStrategy,
    endpoint: Breaker,
    models: BTreeMap<Arc<str>, Vec<Breaker>>,
    /// Attempts under way with each credential.
    used: Vec<u32>,
    last: Option<usize>,
}

/// Leave to ask a model with a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket {
    /// Which one.
    pub(crate) credential: CredentialId,
    endpoint: Pass,
    model: Pass,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy)]
pub(crate) enum End<'a> {
    /// With an answer.
    Answered,
    /// So.
    Failed(&'a Failure),
    /// Without a word.
    Dropped,
}

/// What is known of a model with a credential.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub(crate) model: Arc<str>,
    pub(crate) credential: CredentialId,
    pub(crate) state: BreakerState,
    pub(crate) last: Option<Failure>,
}

impl Breakers {
    /// All closed, with so many credentials (one at least).
    pub(crate) fn new(policy: BreakerPolicy, strategy: PoolStrategy, credentials: usize) -> Self {
        Self {
            policy,
            strategy,
            endpoint: Breaker::default(),
            models: BTreeMap::new(),
            used: vec![0; credentials.max(1)],
            last: None,
        }
    }

    /// Whether somebody may ask the model now, with whichever credential.
    pub(crate) fn gauge(&self, model: &str, now: Timestamp) -> Gauge {
        self.gauge_without(model, now, None)
    }

    /// Likewise, but with another credential than this.
    pub(crate) fn gauge_without(&self, model: &str, now: Timestamp, not: Option<CredentialId>) -> Gauge {
        let endpoint = self.endpoint.gauge(now);
        if endpoint != Gauge::Free {
            return endpoint;
        }
        let of_one =
            |at: usize| self.models.get(model).map_or(Gauge::Free, |breakers| breakers[at].gauge(now));
        let gauges = (0..self.used.len()).filter(|at| not != Some(CredentialId(*at))).map(of_one);
        let best = gauges.min_by_key(|gauge| match gauge {
            Gauge::Free => (0, Timestamp::default()),
            Gauge::Probing => (1, Timestamp::default()),
            Gauge::Until(until, _) => (2, *until),
        });
        best.unwrap_or(Gauge::Until(Timestamp(i64::MAX), Cooldown::Guessed))
    }

    /// Lets somebody ask the model, with the credential that is to be used next.
    pub(crate) fn pass(&mut self, model: &Arc<str>, now: Timestamp) -> Ticket {
        let (count, used) = (self.used.len(), &self.used);
        let breakers = self
            .models
            .entry(Arc::clone(model))
            .or_insert_with(|| std::iter::repeat_with(Breaker::default).take(count).collect());
        let seats = |lets: &dyn Fn(Gauge) -> bool| -> Vec<Option<u32>> {
            breakers
                .iter()
                .zip(used)
                .map(|(breaker, used)| lets(breaker.gauge(now)).then_some(*used))
                .collect()
        };
        let free = pick(self.strategy, &seats(&|gauge| gauge == Gauge::Free), self.last);
        // Whoever comes although none is free insists on what is only a guess.
        let guessed = |gauge| matches!(gauge, Gauge::Until(_, Cooldown::Guessed));
        let at = free.or_else(|| pick(self.strategy, &seats(&guessed), self.last)).unwrap_or(0);
        self.last = Some(at);
        self.used[at] += 1;
        let (endpoint, model) = (self.endpoint.pass(now), breakers[at].pass(now));
        Ticket { credential: CredentialId(at), endpoint, model }
    }

    /// An attempt begins to be answered. Says whether others can be let through who could not be before.
    pub(crate) fn answering(&mut self, model: &str, ticket: Ticket) -> bool {
        let at = ticket.credential.0;
        let of_model = self.models.get_mut(model).is_some_and(|breakers| breakers[at].answered(ticket.model));
        self.endpoint.answered(ticket.endpoint) | of_model
    }

    /// An attempt has ended. Says whether others can be let through who could not be before.
    pub(crate) fn end(&mut self, model: &str, ticket: Ticket, (end, now): (End<'_>, Timestamp)) -> bool {
        let at = ticket.credential.0;
        self.used[at] = self.used[at].saturating_sub(1);
        let Some(of_model) = self.models.get_mut(model).map(|breakers| &mut breakers[at]) else {
            return false;
        };
        match end {
            End::Answered => self.endpoint.answered(ticket.endpoint) | of_model.answered(ticket.model),
            End::Failed(failure) if is_of_endpoint(&failure.class) => {
                self.endpoint.failed(ticket.endpoint, failure, now, &self.policy);
                of_model.return_pass(ticket.model)
            }
            End::Failed(failure) if says_something(&failure.class) => {
                of_model.failed(ticket.model, failure, now, &self.policy);
                // Somebody was there to say no.
                self.endpoint.answered(ticket.endpoint) | (of_model.gauge(now) == Gauge::Free)
            }
            End::Failed(_) | End::Dropped => {
                self.endpoint.return_pass(ticket.endpoint) | of_model.return_pass(ticket.model)
            }
        }
    }

    /// Why the model is not asked now, as far as is known.
    pub(crate) fn last_failure(&self, model: &str, now: Timestamp) -> Option<&Failure> {
        if self.endpoint.gauge(now) != Gauge::Free {
            return self.endpoint.last();
        }
        self.models.get(model)?.iter().find_map(Breaker::last)
    }

    /// Forgets every failure.
    pub(crate) fn reset(&mut self) {
        self.endpoint.reset();
        self.models.values_mut().flatten().for_each(Breaker::reset);
    }

    /// The endpoint's own state, and that of each model with each credential that was ever asked.
    pub(crate) fn known(&self, now: Timestamp) -> (BreakerState, Vec<Known>) {
        let known = |(model, breakers): (&Arc<str>, &Vec<Breaker>)| {
            let one = |(at, breaker): (usize, &Breaker)| Known {
                model: Arc::clone(model),
                credential: CredentialId(at),
                state: breaker.state(now),
                last: breaker.last().cloned(),
            };
            breakers.iter().enumerate().map(one).collect::<Vec<_>>()
        };
        (self.endpoint.state(now), self.models.iter().flat_map(known).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Deadline, FailureClass};

    const SLOW_DOWN: FailureClass = FailureClass::RateLimited { retry_after_ms: None, reset_at: None };

    fn fail(breakers: &mut Breakers, model: &str, class: FailureClass) -> CredentialId {
        let (model, now): (Arc<str>, _) = (model.into(), Timestamp(0));
        let ticket = breakers.pass(&model, now);
        breakers.end(&model, ticket, (End::Failed(&Failure::new(class, "x")), now));
        ticket.credential
    }

    /// After these failures of `a`, whether it and another model of the same provider can be asked.
    fn check(classes: &[FailureClass], a: bool, b: bool) {
        let mut breakers = Breakers::new(BreakerPolicy::default(), PoolStrategy::FillFirst, 1);
        for class in classes {
            fail(&mut breakers, "a", class.clone());
        }
        let free = |model| breakers.gauge(model, Timestamp(0)) == Gauge::Free;
        assert_eq!((free("a"), free("b")), (a, b), "{classes:?}");
    }

    #[test]
    fn a_failure_is_held_against_what_failed() {
        check(&[SLOW_DOWN], false, true);
        check(&[FailureClass::ModelNotFound], false, true);
        check(&[FailureClass::Auth], false, true);
        check(&[const { FailureClass::Server }; 3], false, true);
        check(&[const { FailureClass::Network }; 2], true, true);
        check(&[const { FailureClass::Network }; 3], false, false);
        check(&[const { FailureClass::Timeout { which: Deadline::Connect } }; 3], false, false);
        check(&[const { FailureClass::Timeout { which: Deadline::Gap } }; 3], false, true);
        // It was reached in between.
        check(
            &[FailureClass::Network, FailureClass::Network, FailureClass::Server, FailureClass::Network],
            true,
            true,
        );
    }

    #[test]
    fn a_credential_that_fails_gives_way_to_the_next() {
        let mut breakers = Breakers::new(BreakerPolicy::default(), PoolStrategy::FillFirst, 3);
        let used: Vec<_> = (0..3).map(|_| fail(&mut breakers, "a", FailureClass::Auth).0).collect();
        assert_eq!(used, [0, 1, 2]);
        assert!(matches!(breakers.gauge("a", Timestamp(0)), Gauge::Until(_, Cooldown::Guessed)));
        assert_eq!(breakers.gauge("b", Timestamp(0)), Gauge::Free);
        breakers.reset();
        assert_eq!(breakers.gauge("a", Timestamp(0)), Gauge::Free);
    }

    #[test]
    fn attempts_under_way_are_counted() {
        let mut breakers = Breakers::new(BreakerPolicy::default(), PoolStrategy::LeastUsed, 2);
        let (model, now): (Arc<str>, _) = ("a".into(), Timestamp(0));
        let tickets: Vec<_> = (0..4).map(|_| breakers.pass(&model, now)).collect();
        assert_eq!(tickets.iter().map(|ticket| ticket.credential.0).collect::<Vec<_>>(), [0, 1, 0, 1]);
        breakers.end(&model, tickets[1], (End::Answered, now));
        breakers.end(&model, tickets[3], (End::Dropped, now));
        assert_eq!(breakers.pass(&model, now).credential, CredentialId(1));
    }

    #[test]
    fn a_probe_that_begins_to_be_answered_lets_the_others_in() {
        let mut breakers = Breakers::new(BreakerPolicy::default(), PoolStrategy::FillFirst, 1);
        let (model, later): (Arc<str>, _) = ("a".into(), Timestamp(30_000));
        fail(&mut breakers, "a", SLOW_DOWN);
        let probe = breakers.pass(&model, later);
        assert_eq!(breakers.gauge("a", later), Gauge::Probing);
        assert!(breakers.answering("a", probe));
        assert_eq!(breakers.gauge("a", later), Gauge::Free);
        assert!(!breakers.end("a", probe, (End::Answered, later)), "it was known before");
    }
}
