use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::{
    model::{
        BreakerPolicy, BreakerState, CredentialId, Failure, FailureClass, ModelRef, RateInfo, RateLimits,
        Timestamp, UnansweredModel, UnansweredReason, Usage,
    },
    policy::{
        AdmissionTicket, Admissions, AttemptEnd, BreakerReport, Candidate, CooldownSource,
        CredentialRecovery, FailureScope, LinkAvailability, LinkVisit, Readiness, failure_scope,
    },
    port::ModelProvider as Endpoint,
};

/// What sessions see of a provider without asking its actor: who is let through, and who is not.
#[derive(Debug)]
pub(crate) struct Gate {
    /// The adapter.
    pub(super) endpoint: Arc<dyn Endpoint>,
    /// One for each call that may be under way.
    pub(super) permits: Arc<Semaphore>,
    state: Mutex<GateState>,
    /// Told when somebody can be let through who could not be before.
    changed: Arc<Notify>,
}

#[derive(Debug)]
struct GateState {
    admissions: Admissions,
    /// Credentials that were renewed and have not been accepted since.
    renewed: Vec<CredentialId>,
    /// How often each credential was renewed.
    renewals: BTreeMap<CredentialId, u64>,
}

impl Gate {
    pub(super) fn new(
        endpoint: Arc<dyn Endpoint>,
        calls: usize,
        (policy, changed): (BreakerPolicy, Arc<Notify>),
    ) -> Self {
        let pool = (endpoint.pool(), endpoint.credentials());
        let admissions = Admissions::new(policy, pool, endpoint.limits());
        let state = Mutex::new(GateState { admissions, renewed: Vec::new(), renewals: BTreeMap::new() });
        Self { endpoint, permits: Arc::new(Semaphore::new(calls)), state, changed }
    }

    fn state(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the model can be asked now, by somebody without a permit.
    pub(super) fn availability(&self, model: &str, now: Timestamp) -> LinkAvailability {
        match (self.state().admissions.readiness(model, now), self.permits.available_permits()) {
            (Readiness::Ready, 0) => LinkAvailability::AtCapacity,
            (gauge, _) => availability(gauge, now),
        }
    }

    /// The class of the last failure that was held against the model.
    pub(super) fn last_failure_class(&self, model: &ModelRef, now: Timestamp) -> &'static str {
        let state = self.state();
        state.admissions.last_failure(model.model(), now).map_or("closed", |failure| failure.class.name())
    }

    /// Why the model is not asked.
    pub(super) fn unanswered(&self, model: &ModelRef, now: Timestamp) -> UnansweredModel {
        let state = self.state();
        let until = match state.admissions.readiness(model.model(), now) {
            Readiness::Until(until, _) => Some(until),
            Readiness::Ready | Readiness::WarmingUp | Readiness::Probing => None,
        };
        let unknown = || Failure::new(FailureClass::Overloaded, "it is not asked now");
        let failure = state.admissions.last_failure(model.model(), now).cloned().unwrap_or_else(unknown);
        UnansweredModel { model: model.clone(), reason: UnansweredReason::Skipped { until, failure } }
    }

    /// Lets somebody through, if the gate has not changed meanwhile.
    pub(super) fn admit(
        self: &Arc<Self>,
        Candidate { model, visit, tokens }: &Candidate,
        now: Timestamp,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Option<(GateAdmission, OwnedSemaphorePermit)> {
        let permit = match permit {
            Some(permit) => permit,
            None => Arc::clone(&self.permits).try_acquire_owned().ok()?,
        };
        let mut state = self.state();
        match (availability(state.admissions.readiness(model.model(), now), now), *visit) {
            (LinkAvailability::Available, _) | (LinkAvailability::BreakerOpen(_), LinkVisit::Return) => {}
            (LinkAvailability::BreakerOpen(_), LinkVisit::First)
            | (
                LinkAvailability::AtCapacity
                | LinkAvailability::RateLimited(_)
                | LinkAvailability::WarmingUp
                | LinkAvailability::Probing
                | LinkAvailability::ClosedByProvider(_)
                | LinkAvailability::NotConfigured,
                _,
            ) => return None,
        }
        let ticket = state.admissions.admit((model.model(), *tokens), now);
        let renewals = state.renewals.get(&ticket.credential).copied().unwrap_or(0);
        let (gate, model, credential) = (Arc::clone(self), model.clone(), ticket.credential);
        let admission = GateAdmission { gate, model, credential, ticket: Some(ticket), renewals };
        Some((admission, permit))
    }

    /// How many credentials the provider has, and what each may use up.
    pub(super) fn credentials_and_limits(&self) -> (usize, RateLimits) {
        (self.endpoint.credentials(), self.endpoint.limits())
    }

    /// The endpoint's state and those of its models.
    pub(super) fn breaker_reports(&self, now: Timestamp) -> (BreakerState, Vec<BreakerReport>) {
        self.state().admissions.breaker_reports(now)
    }

    /// Forgets every failure.
    pub(super) fn reset(&self) {
        let mut state = self.state();
        state.admissions.reset();
        state.renewed.clear();
        drop(state);
        self.changed.notify_waiters();
    }
}

/// Room in an account's limits is waited for so long; what is further away is as good as shut, in milliseconds.
const MAX_LIMITER_WAIT_MS: u64 = 61_000;

fn availability(gauge: Readiness, now: Timestamp) -> LinkAvailability {
    match gauge {
        Readiness::Ready => LinkAvailability::Available,
        Readiness::WarmingUp => LinkAvailability::WarmingUp,
        Readiness::Probing => LinkAvailability::Probing,
        Readiness::Until(until, CooldownSource::Limiter) if until.ms_since(now) <= MAX_LIMITER_WAIT_MS => {
            LinkAvailability::RateLimited(until)
        }
        Readiness::Until(until, CooldownSource::Provider | CooldownSource::Limiter) => {
            LinkAvailability::ClosedByProvider(until)
        }
        Readiness::Until(until, CooldownSource::Breaker) => LinkAvailability::BreakerOpen(until),
    }
}

/// Leave to ask a model with a credential. The gate is told what came of it, by dropping it if by nothing else.
#[derive(Debug)]
pub(crate) struct GateAdmission {
    gate: Arc<Gate>,
    model: ModelRef,
    credential: CredentialId,
    /// `None` once it has ended.
    ticket: Option<AdmissionTicket>,
    /// How often the credential had been renewed when it was given.
    renewals: u64,
}

impl GateAdmission {
    /// Who is to be asked.
    pub(crate) const fn model(&self) -> &ModelRef {
        &self.model
    }

    /// The adapter that asks.
    pub(crate) fn endpoint(&self) -> &Arc<dyn Endpoint> {
        &self.gate.endpoint
    }

    /// What to ask it with.
    pub(crate) const fn credential(&self) -> CredentialId {
        self.credential
    }

    /// The answer begins to come in.
    pub(crate) fn on_answer_start(&self) {
        let Some(ticket) = self.ticket else { return };
        if self.gate.state().admissions.on_answer_start(self.model.model(), ticket) {
            self.gate.changed.notify_waiters();
        }
    }

    /// The provider says what is left of the account's limits.
    pub(crate) fn on_rate_info(&self, info: RateInfo, now: Timestamp) {
        let Some(ticket) = self.ticket else { return };
        if self.gate.state().admissions.on_rate_info(ticket, (info, now)) {
            self.gate.changed.notify_waiters();
        }
    }

    /// Whether a refused credential is worth renewing: not if it was just renewed and never accepted since. An attempt that
    /// began before that was refused for the old one.
    pub(crate) fn is_renewable(&self) -> bool {
        let credential = self.credential();
        let state = self.gate.state();
        self.has_newer_credential(&state, credential) || !state.renewed.contains(&credential)
    }

    /// Whether the credential was renewed since the attempt began.
    fn has_newer_credential(&self, state: &GateState, credential: CredentialId) -> bool {
        state.renewals.get(&credential).is_some_and(|renewals| *renewals > self.renewals)
    }

    /// The credential was renewed: what it failed of says nothing any more.
    pub(crate) fn mark_renewed(mut self) {
        let credential = self.credential();
        let mut state = self.gate.state();
        // Those who come late have found it renewed.
        if !self.has_newer_credential(&state, credential) {
            state.renewed.push(credential);
            *state.renewals.entry(credential).or_default() += 1;
        }
        drop(state);
        self.finish(AttemptEnd::Dropped, Timestamp::default());
    }

    /// The attempt has ended. Says whether the same model can be asked at once in another way.
    pub(crate) fn end(mut self, end: Result<Option<Usage>, &Failure>, now: Timestamp) -> CredentialRecovery {
        let credential = self.credential();
        match end {
            Ok(usage) => {
                self.gate.state().renewed.retain(|other| *other != credential);
                self.finish(AttemptEnd::Answered(usage.map(|usage| usage.total())), now);
                CredentialRecovery::No
            }
            Err(failure) => {
                self.finish(AttemptEnd::Failed(failure), now);
                let others =
                    self.gate.state().admissions.readiness_without(self.model.model(), now, Some(credential));
                match others {
                    Readiness::Ready if failure_scope(&failure.class) == FailureScope::Account => {
                        CredentialRecovery::Rotated
                    }
                    Readiness::Ready | Readiness::WarmingUp | Readiness::Probing | Readiness::Until(..) => {
                        CredentialRecovery::No
                    }
                }
            }
        }
    }

    fn finish(&mut self, end: AttemptEnd<'_>, now: Timestamp) {
        let Some(ticket) = self.ticket.take() else { return };
        if self.gate.state().admissions.on_attempt_end(self.model.model(), ticket, (end, now)) {
            self.gate.changed.notify_waiters();
        }
    }
}

impl Drop for GateAdmission {
    fn drop(&mut self) {
        self.finish(AttemptEnd::Dropped, Timestamp::default());
    }
}
