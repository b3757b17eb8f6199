//! The decisions of a provider's gate: breakers, rate limiters and credentials together. Deterministic: the time is a
//! parameter. Permits and waiting are in `provider/gate.rs`.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    model::{
        BreakerPolicy, BreakerState, CredentialId, Failure, PoolStrategy, RateInfo, RateLimits, Timestamp,
    },
    policy::{
        breaker::{Breaker, BreakerPass, CooldownSource, Readiness},
        credential_pool::pick,
        failure_scope::{FailureScope, failure_scope},
        limiter::{Limiter, LimiterSlot},
    },
};

/// Admission control of one provider: which model may be called now, and with which credential.
///
/// - One breaker for the endpoint counts only connections.
/// - One breaker for each model with each credential: a model's failures count against that model alone.
/// - One limiter for each credential counts all models and all sessions.
#[derive(Debug)]
pub struct Admissions {
    policy: BreakerPolicy,
    strategy: PoolStrategy,
    endpoint: Breaker,
    models: BTreeMap<Arc<str>, Vec<Breaker>>,
    /// One per credential.
    limiters: Vec<Limiter>,
    /// Attempts under way with each credential.
    in_flight: Vec<u32>,
    /// For each credential: whether the provider has ever responded to it.
    has_responded: Vec<bool>,
    last_used: Option<usize>,
}

/// Permission for one attempt at a model with a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdmissionTicket {
    /// The credential to use.
    pub credential: CredentialId,
    endpoint: BreakerPass,
    model: BreakerPass,
    slot: LimiterSlot,
}

/// The passes that a free probe has taken: of the endpoint, and of models by credential.
#[derive(Debug)]
pub struct FreeProbeTicket {
    endpoint: bool,
    models: Vec<(Arc<str>, usize)>,
}

/// The end of an attempt.
#[derive(Debug, Clone, Copy)]
pub enum AttemptEnd<'a> {
    /// Answered; the tokens that the answer cost, if known.
    Answered(Option<u64>),
    /// Failed with this failure.
    Failed(&'a Failure),
    /// Dropped without an answer or a failure.
    Dropped,
}

/// State of the breaker of one model with one credential.
#[derive(Debug, Clone)]
pub struct BreakerReport {
    /// The model's name at its provider.
    pub model: Arc<str>,
    /// The credential.
    pub credential: CredentialId,
    /// The breaker's state.
    pub state: BreakerState,
    /// The failure that opened the breaker or counts towards it.
    pub last_failure: Option<Failure>,
}

impl Admissions {
    /// All breakers closed, with `credentials` credentials (at least one); `limits` apply to each of them.
    pub fn new(
        policy: BreakerPolicy,
        strategy: PoolStrategy,
        credentials: usize,
        limits: RateLimits,
    ) -> Self {
        let credentials = credentials.max(1);
        Self {
            policy,
            strategy,
            endpoint: Breaker::default(),
            models: BTreeMap::new(),
            limiters: std::iter::repeat_with(|| Limiter::new(limits)).take(credentials).collect(),
            in_flight: vec![0; credentials],
            has_responded: vec![false; credentials],
            last_used: None,
        }
    }

    /// Whether an attempt at the model may start now, with any credential.
    pub fn readiness(&self, model: &str, now: Timestamp) -> Readiness {
        self.readiness_without(model, now, None)
    }

    /// Readiness of the model with any credential except `excluded`.
    pub fn readiness_without(
        &self,
        model: &str,
        now: Timestamp,
        excluded: Option<CredentialId>,
    ) -> Readiness {
        let endpoint = self.endpoint.readiness(now);
        if !matches!(endpoint, Readiness::Ready | Readiness::Until(_, CooldownSource::Breaker)) {
            return endpoint;
        }
        let of_one = |at: usize| {
            let breaker = self
                .models
                .get(model)
                .map_or(Readiness::Ready, |breakers: &Vec<Breaker>| breakers[at].readiness(now));
            match (breaker, self.limiters[at].ready_at(now)) {
                (Readiness::Ready, Some(until)) => Readiness::Until(until, CooldownSource::Limiter),
                // No attempt exceeds the account's limits. But a failed credential is not waited for while others
                // answer.
                (Readiness::Until(held, CooldownSource::Breaker), Some(until)) => {
                    Readiness::Until(held.max(until), CooldownSource::Provider)
                }
                (Readiness::Ready, None) if !may_start(self.has_responded[at], self.in_flight[at]) => {
                    Readiness::WarmingUp
                }
                (readiness, _) => readiness,
            }
        };
        let by_credential =
            (0..self.in_flight.len()).filter(|at| excluded != Some(CredentialId(*at))).map(of_one);
        let best = by_credential.min_by_key(|readiness| match readiness {
            Readiness::Ready => (0, Timestamp::default()),
            Readiness::WarmingUp => (1, Timestamp::default()),
            Readiness::Probing => (2, Timestamp::default()),
            Readiness::Until(until, _) => (3, *until),
        });
        let best = best.unwrap_or(Readiness::Until(Timestamp(i64::MAX), CooldownSource::Breaker));
        match (endpoint, best) {
            (Readiness::Ready, best) => best,
            (
                Readiness::Until(held, _),
                Readiness::Until(until, CooldownSource::Provider | CooldownSource::Limiter),
            ) => Readiness::Until(held.max(until), CooldownSource::Provider),
            (endpoint, _) => endpoint,
        }
    }

    /// Admits an attempt at the model that reserved `tokens` tokens, with the credential that the pool picks. Succeeds
    /// even if [`Self::readiness`] is not `Ready`: the caller decides.
    pub fn admit(&mut self, model: &Arc<str>, tokens: u64, now: Timestamp) -> AdmissionTicket {
        let (count, used, limiters, responded) =
            (self.in_flight.len(), &self.in_flight, &self.limiters, &self.has_responded);
        let breakers = self
            .models
            .entry(Arc::clone(model))
            .or_insert_with(|| std::iter::repeat_with(Breaker::default).take(count).collect());
        let seats = |lets: &dyn Fn(Readiness) -> bool| -> Vec<Option<u32>> {
            breakers
                .iter()
                .zip(used)
                .zip(limiters)
                .map(|((breaker, used), limiter)| {
                    (lets(breaker.readiness(now)) && limiter.ready_at(now).is_none()).then_some(*used)
                })
                .collect()
        };
        let mut free = seats(&|readiness| readiness == Readiness::Ready);
        for (seat, responded) in free.iter_mut().zip(responded) {
            *seat = seat.filter(|used| may_start(*responded, *used));
        }
        let free = pick(self.strategy, &free, self.last_used);
        // No credential is ready, and the caller insists. A cooldown that is only an estimate excludes none.
        let guessed = |readiness| !matches!(readiness, Readiness::Until(_, CooldownSource::Provider));
        let at = free.or_else(|| pick(self.strategy, &seats(&guessed), self.last_used)).unwrap_or(0);
        self.last_used = Some(at);
        self.in_flight[at] += 1;
        let (endpoint, model) = (self.endpoint.admit(now), breakers[at].admit(now));
        AdmissionTicket {
            credential: CredentialId(at),
            endpoint,
            model,
            slot: self.limiters[at].acquire(now, tokens),
        }
    }

    /// The answer to an attempt begins. Returns true if attempts may be admitted that could not be before.
    pub fn on_answer_start(&mut self, model: &str, ticket: AdmissionTicket) -> bool {
        let at = ticket.credential.0;
        let policy = &self.policy;
        let of_model = self
            .models
            .get_mut(model)
            .is_some_and(|breakers| breakers[at].on_answer_start(ticket.model, policy));
        self.endpoint.on_answer(ticket.endpoint) | of_model | self.mark_responded(at)
    }

    /// The provider responded to this credential. Returns true for the first response.
    fn mark_responded(&mut self, at: usize) -> bool {
        !std::mem::replace(&mut self.has_responded[at], true)
    }

    /// An attempt has ended. Returns true if waiting calls should look again: attempts may be admitted that could not
    /// be before, or a probe has failed and its breaker names another time.
    pub fn on_attempt_end(
        &mut self,
        model: &str,
        ticket: AdmissionTicket,
        end: AttemptEnd<'_>,
        now: Timestamp,
    ) -> bool {
        let at = ticket.credential.0;
        let waited = !may_start(self.has_responded[at], self.in_flight[at]);
        self.in_flight[at] = self.in_flight[at].saturating_sub(1);
        let responded = match end {
            AttemptEnd::Answered(_) => self.mark_responded(at),
            AttemptEnd::Failed(failure) => match failure_scope(&failure.class) {
                FailureScope::Request
                | FailureScope::ModelTransient
                | FailureScope::ModelPersistent
                | FailureScope::Account => self.mark_responded(at),
                FailureScope::Cancelled | FailureScope::Local | FailureScope::Endpoint => waited,
            },
            AttemptEnd::Dropped => waited,
        };
        // Calls that wait for a probe learn from its failure how much longer to wait.
        let refused = matches!(end, AttemptEnd::Failed(_))
            && [ticket.endpoint, ticket.model].contains(&BreakerPass::Probe);
        self.release_limiter_slot(ticket, end, now)
            | self.update_breakers(model, ticket, end, now)
            | responded
            | refused
    }

    /// Books the end of an attempt with the limiter. Returns true if the limiter is ready earlier than before.
    fn release_limiter_slot(&mut self, ticket: AdmissionTicket, end: AttemptEnd<'_>, now: Timestamp) -> bool {
        let limiter = &mut self.limiters[ticket.credential.0];
        let before = limiter.ready_at(now);
        match end {
            AttemptEnd::Answered(Some(tokens)) => limiter.record_cost(ticket.slot, tokens),
            AttemptEnd::Failed(failure) if failure_scope(&failure.class).counts_against_provider() => {
                limiter.record_cost(ticket.slot, 0);
            }
            // The cost is not known: the attempt keeps counting with the average.
            AttemptEnd::Answered(None) | AttemptEnd::Failed(_) | AttemptEnd::Dropped => {}
        }
        limiter.on_attempt_end(ticket.slot);
        limiter.ready_at(now) < before
    }

    /// Reports the end of an attempt to the breakers. Returns true if attempts may be admitted that could not be
    /// before.
    fn update_breakers(
        &mut self,
        model: &str,
        ticket: AdmissionTicket,
        end: AttemptEnd<'_>,
        now: Timestamp,
    ) -> bool {
        let at = ticket.credential.0;
        let Some(of_model) = self.models.get_mut(model).map(|breakers| &mut breakers[at]) else {
            return false;
        };
        match end {
            AttemptEnd::Answered(_) => {
                self.endpoint.on_answer(ticket.endpoint) | of_model.on_answer(ticket.model)
            }
            AttemptEnd::Failed(failure) if failure_scope(&failure.class) == FailureScope::Endpoint => {
                self.endpoint.on_failure(ticket.endpoint, failure, now, &self.policy);
                of_model.return_pass(ticket.model)
            }
            AttemptEnd::Failed(failure) if failure_scope(&failure.class).counts_against_provider() => {
                of_model.on_failure(ticket.model, failure, now, &self.policy);
                // The endpoint responded, even if with a refusal.
                self.endpoint.on_answer(ticket.endpoint) | (of_model.readiness(now) == Readiness::Ready)
            }
            AttemptEnd::Failed(_) | AttemptEnd::Dropped => {
                self.endpoint.return_pass(ticket.endpoint) | of_model.return_pass(ticket.model)
            }
        }
    }

    /// The provider reported what is left of the account's limits. Returns true if attempts may be admitted that could
    /// not be before.
    pub fn on_rate_info(&mut self, ticket: AdmissionTicket, info: RateInfo, now: Timestamp) -> bool {
        let limiter = &mut self.limiters[ticket.credential.0];
        let was_closed = limiter.ready_at(now).is_some();
        limiter.on_rate_info(ticket.slot, info, now);
        let opened = was_closed && limiter.ready_at(now).is_none();
        opened | self.mark_responded(ticket.credential.0)
    }

    /// When the next free probe is due; `None` if no open breaker needs one.
    pub fn free_probe_at(&self, now: Timestamp) -> Option<Timestamp> {
        let models = self.models.values().flatten();
        std::iter::once(&self.endpoint).chain(models).filter_map(|breaker| breaker.free_probe_at(now)).min()
    }

    /// Takes the passes of all breakers whose free probe is due; `None` if there is none.
    pub fn begin_free_probe(&mut self, now: Timestamp) -> Option<FreeProbeTicket> {
        let endpoint = self.endpoint.begin_free_probe(now);
        let mut models = Vec::new();
        for (model, breakers) in &mut self.models {
            let begun =
                breakers.iter_mut().enumerate().filter_map(|(at, it)| it.begin_free_probe(now).then_some(at));
            models.extend(begun.map(|at| (Arc::clone(model), at)));
        }
        (endpoint || !models.is_empty()).then_some(FreeProbeTicket { endpoint, models })
    }

    /// A free probe has ended: with a connection, without one, or (`None`) without telling. A connection closes the
    /// endpoint's breaker, which counts only connections. It does not tell that a model answers: the trial of a model
    /// is still a call. Without a connection all breakers of the ticket open again.
    pub fn on_free_probe_end(
        &mut self,
        ticket: FreeProbeTicket,
        reached: Option<Result<(), &Failure>>,
        now: Timestamp,
    ) {
        let is_telling = |reached: &Result<(), &Failure>| match reached {
            Ok(()) => true,
            Err(failure) => failure_scope(&failure.class) == FailureScope::Endpoint,
        };
        let (reached, policy) = (reached.filter(is_telling), &self.policy);
        let end = |breaker: &mut Breaker| match reached {
            Some(Err(failure)) => breaker.on_failure(BreakerPass::Probe, failure, now, policy),
            Some(Ok(())) | None => drop(breaker.return_pass(BreakerPass::Probe)),
        };
        match reached {
            Some(Ok(())) if ticket.endpoint => drop(self.endpoint.on_answer(BreakerPass::Probe)),
            Some(_) | None if ticket.endpoint => end(&mut self.endpoint),
            Some(_) | None => {}
        }
        for (model, at) in ticket.models {
            self.models.get_mut(&model).and_then(|breakers| breakers.get_mut(at)).into_iter().for_each(end);
        }
    }

    /// Why the model is not called now, as far as is known.
    pub fn last_failure(&self, model: &str, now: Timestamp) -> Option<&Failure> {
        if self.endpoint.readiness(now) != Readiness::Ready {
            return self.endpoint.last_failure();
        }
        self.models.get(model)?.iter().find_map(Breaker::last_failure)
    }

    /// Forgets every failure and every reported limit.
    pub fn reset(&mut self) {
        self.limiters.iter_mut().for_each(Limiter::forget_reports);
        self.endpoint.reset();
        self.models.values_mut().flatten().for_each(Breaker::reset);
    }

    /// The state of the endpoint's breaker, and of each model that was ever called, with every credential.
    pub fn breaker_reports(&self, now: Timestamp) -> (BreakerState, Vec<BreakerReport>) {
        let reports = |(model, breakers): (&Arc<str>, &Vec<Breaker>)| {
            let report = |(at, breaker): (usize, &Breaker)| BreakerReport {
                model: Arc::clone(model),
                credential: CredentialId(at),
                state: breaker.state(now),
                last_failure: breaker.last_failure().cloned(),
            };
            breakers.iter().enumerate().map(report).collect::<Vec<_>>()
        };
        (self.endpoint.state(now), self.models.iter().flat_map(reports).collect())
    }
}

/// Concurrent attempts with a credential before the provider's first response to it, which may report limits.
const MAX_CALLS_BEFORE_FIRST_RESPONSE: u32 = 8;

const fn may_start(responded: bool, used: u32) -> bool {
    responded || used < MAX_CALLS_BEFORE_FIRST_RESPONSE
}

#[cfg(test)]
#[path = "admissions_tests.rs"]
mod tests;
