use std::{collections::BTreeMap, sync::Arc};

use crate::{
    model::{
        BreakerPolicy, BreakerState, CredentialId, Failure, PoolStrategy, RateInfo, RateLimits, Timestamp,
    },
    policy::{
        blame::{Blame, blame},
        breaker::{Breaker, Cooldown, Gauge, Pass},
        limiter::{Limiter, Place},
        pool::pick,
    },
};

/// Who may ask which model of one provider, and with which credential. There is a breaker for the endpoint as a whole, for
/// which only connections count, and one for each model with each credential, so that a model's failures are held against
/// that model alone; and a limiter for each credential, whatever the model and the session.
#[derive(Debug)]
pub(crate) struct Admissions {
    policy: BreakerPolicy,
    strategy: PoolStrategy,
    endpoint: Breaker,
    models: BTreeMap<Arc<str>, Vec<Breaker>>,
    /// Of each credential.
    limiters: Vec<Limiter>,
    /// Attempts under way with each credential.
    used: Vec<u32>,
    /// Whether the provider has ever said anything to each of them.
    heard: Vec<bool>,
    last: Option<usize>,
}

/// Leave to ask a model with a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket {
    /// Which one.
    pub(crate) credential: CredentialId,
    endpoint: Pass,
    model: Pass,
    place: Place,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy)]
pub(crate) enum End<'a> {
    /// With an answer that has cost so many tokens, if that is known.
    Answered(Option<u64>),
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

impl Admissions {
    /// All breakers closed, with so many credentials (one at least) that have these limits each.
    pub(crate) fn new(
        policy: BreakerPolicy,
        (strategy, credentials): (PoolStrategy, usize),
        limits: RateLimits,
    ) -> Self {
        let credentials = credentials.max(1);
        Self {
            policy,
            strategy,
            endpoint: Breaker::default(),
            models: BTreeMap::new(),
            limiters: std::iter::repeat_with(|| Limiter::new(limits)).take(credentials).collect(),
            used: vec![0; credentials],
            heard: vec![false; credentials],
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
        if !matches!(endpoint, Gauge::Free | Gauge::Until(_, Cooldown::Guessed)) {
            return endpoint;
        }
        let of_one = |at: usize| {
            let breaker =
                self.models.get(model).map_or(Gauge::Free, |breakers: &Vec<Breaker>| breakers[at].gauge(now));
            match (breaker, self.limiters[at].ready_at(now)) {
                (Gauge::Free, Some(until)) => Gauge::Until(until, Cooldown::Pace),
                // Nobody insists against the account's limits; but who has failed is not waited for while others answer.
                (Gauge::Until(held, Cooldown::Guessed), Some(until)) => {
                    Gauge::Until(held.max(until), Cooldown::Named)
                }
                (Gauge::Free, None) if !may_begin(self.heard[at], self.used[at]) => Gauge::Starting,
                (gauge, _) => gauge,
            }
        };
        let gauges = (0..self.used.len()).filter(|at| not != Some(CredentialId(*at))).map(of_one);
        let best = gauges.min_by_key(|gauge| match gauge {
            Gauge::Free => (0, Timestamp::default()),
            Gauge::Starting => (1, Timestamp::default()),
            Gauge::Probing => (2, Timestamp::default()),
            Gauge::Until(until, _) => (3, *until),
        });
        let best = best.unwrap_or(Gauge::Until(Timestamp(i64::MAX), Cooldown::Guessed));
        match (endpoint, best) {
            (Gauge::Free, best) => best,
            (Gauge::Until(held, _), Gauge::Until(until, Cooldown::Named | Cooldown::Pace)) => {
                Gauge::Until(held.max(until), Cooldown::Named)
            }
            (endpoint, _) => endpoint,
        }
    }

    /// Lets somebody ask the model, with the credential that is to be used next, who has reserved so many tokens.
    pub(crate) fn pass(&mut self, (model, tokens): (&Arc<str>, u64), now: Timestamp) -> Ticket {
        let (count, used, limiters, heard) = (self.used.len(), &self.used, &self.limiters, &self.heard);
        let breakers = self
            .models
            .entry(Arc::clone(model))
            .or_insert_with(|| std::iter::repeat_with(Breaker::default).take(count).collect());
        let seats = |lets: &dyn Fn(Gauge) -> bool| -> Vec<Option<u32>> {
            breakers
                .iter()
                .zip(used)
                .zip(limiters)
                .map(|((breaker, used), limiter)| {
                    (lets(breaker.gauge(now)) && limiter.ready_at(now).is_none()).then_some(*used)
                })
                .collect()
        };
        let mut free = seats(&|gauge| gauge == Gauge::Free);
        for (seat, heard) in free.iter_mut().zip(heard) {
            *seat = seat.filter(|used| may_begin(*heard, *used));
        }
        let free = pick(self.strategy, &free, self.last);
        // Whoever comes although none is free insists on what is only a guess.
        let guessed = |gauge| !matches!(gauge, Gauge::Until(_, Cooldown::Named));
        let at = free.or_else(|| pick(self.strategy, &seats(&guessed), self.last)).unwrap_or(0);
        self.last = Some(at);
        self.used[at] += 1;
        let (endpoint, model) = (self.endpoint.pass(now), breakers[at].pass(now));
        Ticket { credential: CredentialId(at), endpoint, model, place: self.limiters[at].take(now, tokens) }
    }

    /// An attempt begins to be answered. Says whether others can be let through who could not be before.
    pub(crate) fn answering(&mut self, model: &str, ticket: Ticket) -> bool {
        let at = ticket.credential.0;
        let policy = &self.policy;
        let of_model =
            self.models.get_mut(model).is_some_and(|breakers| breakers[at].begins(ticket.model, policy));
        self.endpoint.answered(ticket.endpoint) | of_model | self.hear(at)
    }

    /// The provider has said something to whoever came with this credential.
    fn hear(&mut self, at: usize) -> bool {
        !std::mem::replace(&mut self.heard[at], true)
    }

    /// An attempt has ended. Says whether others can be let through who could not be before.
    pub(crate) fn end(&mut self, model: &str, ticket: Ticket, (end, now): (End<'_>, Timestamp)) -> bool {
        let at = ticket.credential.0;
        let waited = !may_begin(self.heard[at], self.used[at]);
        self.used[at] = self.used[at].saturating_sub(1);
        let heard = match end {
            End::Answered(_) => self.hear(at),
            End::Failed(failure) => match blame(&failure.class) {
                Blame::Request | Blame::Passing | Blame::Lasting | Blame::Account => self.hear(at),
                Blame::Ended | Blame::Ours | Blame::Unreached => waited,
            },
            End::Dropped => waited,
        };
        // Who waits for a probe learns from its failure until when to wait.
        let refused = matches!(end, End::Failed(_)) && [ticket.endpoint, ticket.model].contains(&Pass::Probe);
        self.settle(ticket, (end, now)) | self.of_breakers(model, ticket, (end, now)) | heard | refused
    }

    /// What the end of an attempt says to the limiter. Says whether there is room earlier than before.
    fn settle(&mut self, ticket: Ticket, (end, now): (End<'_>, Timestamp)) -> bool {
        let limiter = &mut self.limiters[ticket.credential.0];
        let before = limiter.ready_at(now);
        match end {
            End::Answered(Some(tokens)) => limiter.settle(ticket.place, tokens),
            End::Failed(failure) if blame(&failure.class).says_something() => limiter.settle(ticket.place, 0),
            // What it has cost is not known: as much as the others.
            End::Answered(None) | End::Failed(_) | End::Dropped => {}
        }
        limiter.ended(ticket.place);
        limiter.ready_at(now) < before
    }

    /// What the end of an attempt says to the breakers.
    fn of_breakers(&mut self, model: &str, ticket: Ticket, (end, now): (End<'_>, Timestamp)) -> bool {
        let at = ticket.credential.0;
        let Some(of_model) = self.models.get_mut(model).map(|breakers| &mut breakers[at]) else {
            return false;
        };
        match end {
            End::Answered(_) => self.endpoint.answered(ticket.endpoint) | of_model.answered(ticket.model),
            End::Failed(failure) if blame(&failure.class) == Blame::Unreached => {
                self.endpoint.failed(ticket.endpoint, failure, now, &self.policy);
                of_model.return_pass(ticket.model)
            }
            End::Failed(failure) if blame(&failure.class).says_something() => {
                of_model.failed(ticket.model, failure, now, &self.policy);
                // Somebody was there to say no.
                self.endpoint.answered(ticket.endpoint) | (of_model.gauge(now) == Gauge::Free)
            }
            End::Failed(_) | End::Dropped => {
                self.endpoint.return_pass(ticket.endpoint) | of_model.return_pass(ticket.model)
            }
        }
    }

    /// The provider has said what is left of the account's limits. Says whether others can be let through who could not be
    /// before.
    pub(crate) fn learn(&mut self, ticket: Ticket, (info, now): (RateInfo, Timestamp)) -> bool {
        let limiter = &mut self.limiters[ticket.credential.0];
        let was_closed = limiter.ready_at(now).is_some();
        limiter.learn(ticket.place, (info, now));
        let opened = was_closed && limiter.ready_at(now).is_none();
        opened | self.hear(ticket.credential.0)
    }

    /// Why the model is not asked now, as far as is known.
    pub(crate) fn last_failure(&self, model: &str, now: Timestamp) -> Option<&Failure> {
        if self.endpoint.gauge(now) != Gauge::Free {
            return self.endpoint.last();
        }
        self.models.get(model)?.iter().find_map(Breaker::last)
    }

    /// Forgets every failure, and what the provider has said of its limits.
    pub(crate) fn reset(&mut self) {
        self.limiters.iter_mut().for_each(Limiter::forget);
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

/// Attempts that are made at once with a credential to which the provider has never said anything: it may have limits that
/// are told with its first response.
const FIRST: u32 = 8;

const fn may_begin(heard: bool, used: u32) -> bool {
    heard || used < FIRST
}

#[cfg(test)]
#[path = "admissions_tests.rs"]
mod tests;
