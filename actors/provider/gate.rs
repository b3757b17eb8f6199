//! Gate: admission control of one provider, shared by sessions and the provider's actor. It locks the state and
//! notifies waiters; the rules are in `policy/admissions.rs`. A [`GateAdmission`] is the permission for one attempt, by
//! which the attempt reports its end and renewed credentials. Also the free probe in flight.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::{
    model::{
        BreakerPolicy, BreakerState, CredentialId, Failure, FailureClass, ModelRef, RateInfo, Timestamp,
        UnansweredModel, UnansweredReason, Usage,
    },
    policy::{
        AdmissionTicket, Admissions, AttemptEnd, BreakerReport, Candidate, CooldownSource,
        CredentialRecovery, FailureScope, FreeProbeTicket, LinkAvailability, LinkVisit, Readiness,
        failure_scope,
    },
    port::ModelProvider as Endpoint,
    provider::ProviderMsg,
    supervisor::StableActorRef,
};

/// The admission control of one provider; sessions use it without a message to its actor.
#[derive(Debug)]
pub(crate) struct Gate {
    /// The adapter.
    pub(super) endpoint: Arc<dyn Endpoint>,
    /// One permit for each concurrent call.
    pub(super) permits: Arc<Semaphore>,
    /// Number of permits.
    calls: usize,
    /// Whether the adapter has a free probe.
    can_probe: bool,
    state: Mutex<GateState>,
    /// The provider's actor; closed if it was given up or the provider was removed.
    pub(crate) actor: StableActorRef<ProviderMsg>,
    /// Notified when waiting calls should look again: an attempt may be admitted that could not be before, or a probe
    /// has ended.
    changed: Arc<Notify>,
}

#[derive(Debug)]
struct GateState {
    admissions: Admissions,
    /// Credentials that were renewed and not accepted since.
    renewed: Vec<CredentialId>,
    /// Number of renewals of each credential.
    renewals: BTreeMap<CredentialId, u64>,
}

impl Gate {
    pub(super) fn new(
        endpoint: Arc<dyn Endpoint>,
        calls: usize,
        policy: BreakerPolicy,
        changed: Arc<Notify>,
    ) -> Self {
        let (strategy, credentials) = (endpoint.pool(), endpoint.credentials());
        let admissions = Admissions::new(policy, strategy, credentials, endpoint.limits());
        let state = Mutex::new(GateState { admissions, renewed: Vec::new(), renewals: BTreeMap::new() });
        let can_probe = endpoint.probe().is_some();
        let (permits, actor) = (Arc::new(Semaphore::new(calls)), StableActorRef::default());
        Self { endpoint, permits, calls, can_probe, state, actor, changed }
    }

    /// Whether this is the gate of this adapter with this number of permits.
    pub(super) fn is_of(&self, endpoint: &Arc<dyn Endpoint>, calls: usize) -> bool {
        Arc::ptr_eq(&self.endpoint, endpoint) && self.calls == calls
    }

    /// Whether the permit is one of this gate.
    pub(super) fn has_issued(&self, permit: &OwnedSemaphorePermit) -> bool {
        Arc::ptr_eq(&self.permits, permit.semaphore())
    }

    fn state(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Availability of the model for a call without a permit.
    pub(super) fn availability(&self, model: &str, now: Timestamp) -> LinkAvailability {
        match (self.state().admissions.readiness(model, now), self.permits.available_permits()) {
            (Readiness::Ready, 0) => LinkAvailability::AtCapacity,
            (readiness, _) => availability(readiness, now),
        }
    }

    /// The class of the last failure that counted against the model.
    pub(super) fn last_failure_class(&self, model: &ModelRef, now: Timestamp) -> &'static str {
        let state = self.state();
        state.admissions.last_failure(model.model(), now).map_or("closed", |failure| failure.class.name())
    }

    /// The reason why the model is not called.
    pub(super) fn unanswered(&self, model: &ModelRef, now: Timestamp) -> UnansweredModel {
        let state = self.state();
        let readiness = state.admissions.readiness(model.model(), now);
        let until = if let Readiness::Until(until, _) = readiness { Some(until) } else { None };
        let unknown = || Failure::new(FailureClass::Overloaded, "it is not asked now");
        let failure = state.admissions.last_failure(model.model(), now).cloned().unwrap_or_else(unknown);
        UnansweredModel { model: model.clone(), reason: UnansweredReason::Skipped { until, failure } }
    }

    /// Admits an attempt; `None` if the gate has changed since the link was chosen.
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
        let availability = availability(state.admissions.readiness(model.model(), now), now);
        let is_return =
            *visit == LinkVisit::Return && matches!(availability, LinkAvailability::BreakerOpen(_));
        if availability != LinkAvailability::Available && !is_return {
            return None;
        }
        let ticket = state.admissions.admit(model.model(), *tokens, now);
        let renewals = state.renewals.get(&ticket.credential).copied().unwrap_or(0);
        let (gate, model, credential) = (Arc::clone(self), model.clone(), ticket.credential);
        let admission = GateAdmission { gate, model, credential, ticket: Some(ticket), renewals };
        Some((admission, permit))
    }

    /// When the next free probe is due; `None` if no open breaker needs one, or the adapter has none.
    pub(super) fn free_probe_at(&self, now: Timestamp) -> Option<Timestamp> {
        self.can_probe.then(|| self.state().admissions.free_probe_at(now)).flatten()
    }

    /// Begins the free probe that is due.
    pub(super) fn begin_free_probe(self: &Arc<Self>, now: Timestamp) -> Option<FreeProbe> {
        let ticket = self.can_probe.then(|| self.state().admissions.begin_free_probe(now)).flatten()?;
        Some(FreeProbe { gate: Arc::clone(self), ticket: Some(ticket) })
    }

    /// The breaker states of the endpoint and its models.
    pub(super) fn breaker_reports(&self, now: Timestamp) -> (BreakerState, Vec<BreakerReport>) {
        self.state().admissions.breaker_reports(now)
    }

    /// Forgets every failure and every reported limit.
    pub(super) fn reset(&self) {
        let mut state = self.state();
        state.admissions.reset();
        state.renewed.clear();
        drop(state);
        self.changed.notify_waiters();
    }
}

/// Longest wait in milliseconds for an account's limiter; beyond it, the link counts as closed by its provider.
const MAX_LIMITER_WAIT_MS: u64 = 61_000;

fn availability(readiness: Readiness, now: Timestamp) -> LinkAvailability {
    match readiness {
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

/// Permission for one attempt at a model with a credential. The gate always learns the end: a drop reports one too.
#[derive(Debug)]
pub(crate) struct GateAdmission {
    gate: Arc<Gate>,
    /// The model to call.
    pub(crate) model: ModelRef,
    /// The credential for the call.
    pub(crate) credential: CredentialId,
    /// `None` after the end.
    ticket: Option<AdmissionTicket>,
    /// Number of renewals of the credential at the time of admission.
    renewals: u64,
}

impl GateAdmission {
    /// The gate.
    pub(crate) fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    /// The adapter for the call.
    pub(crate) fn endpoint(&self) -> &Arc<dyn Endpoint> {
        &self.gate.endpoint
    }

    /// The answer begins to arrive.
    pub(crate) fn on_answer_start(&self) {
        let Some(ticket) = self.ticket else { return };
        if self.gate.state().admissions.on_answer_start(self.model.model(), ticket) {
            self.gate.changed.notify_waiters();
        }
    }

    /// The provider reported the rest of the account's limits.
    pub(crate) fn on_rate_info(&self, info: RateInfo, now: Timestamp) {
        let Some(ticket) = self.ticket else { return };
        if self.gate.state().admissions.on_rate_info(ticket, info, now) {
            self.gate.changed.notify_waiters();
        }
    }

    /// Whether renewing a refused credential may help: not if it was just renewed and never accepted since. An attempt
    /// that began before the renewal was refused for the old credential.
    pub(crate) fn is_renewable(&self) -> bool {
        let state = self.gate.state();
        self.has_newer_credential(&state) || !state.renewed.contains(&self.credential)
    }

    /// Whether the credential was renewed after the attempt began.
    fn has_newer_credential(&self, state: &GateState) -> bool {
        state.renewals.get(&self.credential).is_some_and(|renewals| *renewals > self.renewals)
    }

    /// The credential was renewed: the refusal of the old one does not count.
    pub(crate) fn mark_renewed(mut self) {
        let mut state = self.gate.state();
        // A concurrent attempt may have recorded the renewal already.
        if !self.has_newer_credential(&state) {
            state.renewed.push(self.credential);
            *state.renewals.entry(self.credential).or_default() += 1;
        }
        drop(state);
        self.finish(AttemptEnd::Dropped, Timestamp::default());
    }

    /// The attempt has ended. Returns whether the same model can be called again at once with another credential.
    pub(crate) fn end(mut self, end: Result<Option<Usage>, &Failure>, now: Timestamp) -> CredentialRecovery {
        let credential = self.credential;
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
                let is_rotated =
                    failure_scope(&failure.class) == FailureScope::Account && others == Readiness::Ready;
                if is_rotated { CredentialRecovery::Rotated } else { CredentialRecovery::No }
            }
        }
    }

    fn finish(&mut self, end: AttemptEnd<'_>, now: Timestamp) {
        let Some(ticket) = self.ticket.take() else { return };
        if self.gate.state().admissions.on_attempt_end(self.model.model(), ticket, end, now) {
            self.gate.changed.notify_waiters();
        }
    }
}

impl Drop for GateAdmission {
    fn drop(&mut self) {
        self.finish(AttemptEnd::Dropped, Timestamp::default());
    }
}

/// A free probe in flight: calls wait for it when the cooldown is over. A drop ends it too, without a conclusion.
#[derive(Debug)]
pub(super) struct FreeProbe {
    gate: Arc<Gate>,
    /// `None` after the end.
    ticket: Option<FreeProbeTicket>,
}

impl FreeProbe {
    /// The adapter to probe.
    pub(super) fn endpoint(&self) -> &dyn Endpoint {
        &*self.gate.endpoint
    }

    /// The probe has ended: with a connection, without one, or (`None`) without telling.
    pub(super) fn finish(&mut self, reached: Option<Result<(), Failure>>, now: Timestamp) {
        let Some(ticket) = self.ticket.take() else { return };
        let reached = reached.as_ref().map(|reached| reached.as_ref().copied());
        self.gate.state().admissions.on_free_probe_end(ticket, reached, now);
        self.gate.changed.notify_waiters();
    }
}

impl Drop for FreeProbe {
    fn drop(&mut self) {
        self.finish(None, Timestamp::default());
    }
}
