use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::{
    model::{
        BreakerPolicy, BreakerState, CredentialId, Failure, FailureClass, ModelRef, NotAnswered, RateInfo,
        RateLimits, Timestamp, Usage, WhyNot,
    },
    policy::{
        Admissions, Blame, Candidate, Cooldown, End, Gauge, Known, Otherwise, Standing, Ticket, Visit, blame,
    },
    port::Provider as Endpoint,
};

/// What sessions see of a provider without asking its actor: who is let through, and who is not.
#[derive(Debug)]
pub(crate) struct Gate {
    /// The adapter.
    pub(super) endpoint: Arc<dyn Endpoint>,
    /// One for each call that may be under way.
    pub(super) permits: Arc<Semaphore>,
    state: Mutex<State>,
    /// Told when somebody can be let through who could not be before.
    changed: Arc<Notify>,
}

#[derive(Debug)]
struct State {
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
        let state = Mutex::new(State { admissions, renewed: Vec::new(), renewals: BTreeMap::new() });
        Self { endpoint, permits: Arc::new(Semaphore::new(calls)), state, changed }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the model can be asked now, by somebody without a permit.
    pub(super) fn standing(&self, model: &str, now: Timestamp) -> Standing {
        match (self.state().admissions.gauge(model, now), self.permits.available_permits()) {
            (Gauge::Free, 0) => Standing::Full,
            (gauge, _) => standing(gauge, now),
        }
    }

    /// The class of the last failure that was held against the model.
    pub(super) fn why(&self, model: &ModelRef, now: Timestamp) -> &'static str {
        let state = self.state();
        state.admissions.last_failure(model.model(), now).map_or("closed", |failure| failure.class.name())
    }

    /// Why the model is not asked.
    pub(super) fn skipped(&self, model: &ModelRef, now: Timestamp) -> NotAnswered {
        let state = self.state();
        let until = match state.admissions.gauge(model.model(), now) {
            Gauge::Until(until, _) => Some(until),
            Gauge::Free | Gauge::Starting | Gauge::Probing => None,
        };
        let unknown = || Failure::new(FailureClass::Overloaded, "it is not asked now");
        let failure = state.admissions.last_failure(model.model(), now).cloned().unwrap_or_else(unknown);
        NotAnswered { model: model.clone(), why: WhyNot::Skipped { until, failure } }
    }

    /// Lets somebody through, if the gate has not changed meanwhile.
    pub(super) fn admit(
        self: &Arc<Self>,
        Candidate { model, visit, tokens }: &Candidate,
        now: Timestamp,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Option<(Admission, OwnedSemaphorePermit)> {
        let permit = match permit {
            Some(permit) => permit,
            None => Arc::clone(&self.permits).try_acquire_owned().ok()?,
        };
        let mut state = self.state();
        match (standing(state.admissions.gauge(model.model(), now), now), *visit) {
            (Standing::Free, _) | (Standing::Held(_), Visit::Again) => {}
            (Standing::Held(_), Visit::First)
            | (
                Standing::Full
                | Standing::Paced(_)
                | Standing::Starting
                | Standing::Probing
                | Standing::Shut(_)
                | Standing::Absent,
                _,
            ) => return None,
        }
        let ticket = state.admissions.pass((model.model(), *tokens), now);
        let renewals = state.renewals.get(&ticket.credential).copied().unwrap_or(0);
        let (gate, model, credential) = (Arc::clone(self), model.clone(), ticket.credential);
        let admission = Admission { gate, model, credential, ticket: Some(ticket), renewals };
        Some((admission, permit))
    }

    /// How many credentials the provider has, and what each may use up.
    pub(super) fn account(&self) -> (usize, RateLimits) {
        (self.endpoint.credentials(), self.endpoint.limits())
    }

    /// The endpoint's state and those of its models.
    pub(super) fn known(&self, now: Timestamp) -> (BreakerState, Vec<Known>) {
        self.state().admissions.known(now)
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
const PACE: u64 = 61_000;

fn standing(gauge: Gauge, now: Timestamp) -> Standing {
    match gauge {
        Gauge::Free => Standing::Free,
        Gauge::Starting => Standing::Starting,
        Gauge::Probing => Standing::Probing,
        Gauge::Until(until, Cooldown::Pace) if until.ms_since(now) <= PACE => Standing::Paced(until),
        Gauge::Until(until, Cooldown::Named | Cooldown::Pace) => Standing::Shut(until),
        Gauge::Until(until, Cooldown::Guessed) => Standing::Held(until),
    }
}

/// Leave to ask a model with a credential. The gate is told what came of it, by dropping it if by nothing else.
#[derive(Debug)]
pub(crate) struct Admission {
    gate: Arc<Gate>,
    model: ModelRef,
    credential: CredentialId,
    /// `None` once it has ended.
    ticket: Option<Ticket>,
    /// How often the credential had been renewed when it was given.
    renewals: u64,
}

impl Admission {
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
    pub(crate) fn answering(&self) {
        let Some(ticket) = self.ticket else { return };
        if self.gate.state().admissions.answering(self.model.model(), ticket) {
            self.gate.changed.notify_waiters();
        }
    }

    /// The provider says what is left of the account's limits.
    pub(crate) fn learn(&self, info: RateInfo, now: Timestamp) {
        let Some(ticket) = self.ticket else { return };
        if self.gate.state().admissions.learn(ticket, (info, now)) {
            self.gate.changed.notify_waiters();
        }
    }

    /// Whether a refused credential is worth renewing: not if it was just renewed and never accepted since. An attempt that
    /// began before that was refused for the old one.
    pub(crate) fn is_renewable(&self) -> bool {
        let credential = self.credential();
        let state = self.gate.state();
        self.is_late(&state, credential) || !state.renewed.contains(&credential)
    }

    /// Whether the credential was renewed since the attempt began.
    fn is_late(&self, state: &State, credential: CredentialId) -> bool {
        state.renewals.get(&credential).is_some_and(|renewals| *renewals > self.renewals)
    }

    /// The credential was renewed: what it failed of says nothing any more.
    pub(crate) fn renewed(mut self) {
        let credential = self.credential();
        let mut state = self.gate.state();
        // Those who come late have found it renewed.
        if !self.is_late(&state, credential) {
            state.renewed.push(credential);
            *state.renewals.entry(credential).or_default() += 1;
        }
        drop(state);
        self.tell(End::Dropped, Timestamp::default());
    }

    /// The attempt has ended. Says whether the same model can be asked at once in another way.
    pub(crate) fn end(mut self, end: Result<Option<Usage>, &Failure>, now: Timestamp) -> Otherwise {
        let credential = self.credential();
        match end {
            Ok(usage) => {
                self.gate.state().renewed.retain(|other| *other != credential);
                self.tell(End::Answered(usage.map(|usage| usage.total())), now);
                Otherwise::No
            }
            Err(failure) => {
                self.tell(End::Failed(failure), now);
                let others =
                    self.gate.state().admissions.gauge_without(self.model.model(), now, Some(credential));
                match others {
                    Gauge::Free if blame(&failure.class) == Blame::Account => Otherwise::Rotated,
                    Gauge::Free | Gauge::Starting | Gauge::Probing | Gauge::Until(..) => Otherwise::No,
                }
            }
        }
    }

    fn tell(&mut self, end: End<'_>, now: Timestamp) {
        let Some(ticket) = self.ticket.take() else { return };
        if self.gate.state().admissions.end(self.model.model(), ticket, (end, now)) {
            self.gate.changed.notify_waiters();
        }
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.tell(End::Dropped, Timestamp::default());
    }
}
