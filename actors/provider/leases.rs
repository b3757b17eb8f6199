//! Leases: chooses a link of a chain and admits the attempt at its gate. Keeps the gates of all providers, and
//! exchanges them. Waits for nothing: `session/lease_wait.rs` does.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, PoisonError, RwLock},
};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::{
    model::{BreakerPolicy, Failure, FailureClass, ModelRef, Timestamp, UnansweredModel, UnansweredReason},
    policy::{self, Candidate, LinkAvailability, LinkChoice, LinkVisit, choose_link},
    port::ModelProvider as Endpoint,
    provider::{Gate, GateAdmission},
};

/// Permission to make one attempt; returned when dropped.
#[derive(Debug)]
pub(crate) struct Lease {
    /// The admission: the model to call, and the report to its gate.
    pub(crate) admission: GateAdmission,
    /// The permit for a concurrent call.
    pub(crate) permit: OwnedSemaphorePermit,
}

/// The gates of all providers, by name. They outlive the actors, so that sessions keep no reference across a restart.
#[derive(Debug)]
pub(crate) struct Leases {
    gates: RwLock<Gates>,
    changed: Arc<Notify>,
    policy: BreakerPolicy,
}

type Gates = BTreeMap<Arc<str>, Arc<Gate>>;

/// An endpoint with its name, and the bound of its concurrent calls.
type NamedEndpoint = (Arc<str>, Arc<dyn Endpoint>, usize);

/// Until when a model is not called, and why.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WaitHint {
    pub(crate) until: Timestamp,
    pub(crate) reason: &'static str,
}

/// Why there is no lease at once.
#[derive(Debug)]
pub(crate) enum LeaseUnavailable {
    /// All permits of a provider are taken: wait for one of these.
    Queue(Arc<Semaphore>),
    /// Wait for a change, at most until this time, if it is known.
    Wait(Option<WaitHint>),
    /// No link may be called soon enough: each is not configured, is closed by its provider, or opens after the
    /// deadline.
    NoneAvailable(Vec<UnansweredModel>),
}

impl Leases {
    /// Gates for these endpoints.
    pub(crate) fn new(endpoints: impl IntoIterator<Item = NamedEndpoint>, policy: BreakerPolicy) -> Self {
        let leases = Self { gates: RwLock::default(), changed: Arc::new(Notify::new()), policy };
        leases.replace(endpoints);
        leases
    }

    /// Exchanges the endpoints, or tells why all are refused. An endpoint with the same adapter and bound keeps its
    /// gate. Calls under way keep the gate of their lease; calls that wait for a gate that is gone choose another link.
    pub(crate) fn exchange(&self, endpoints: Vec<NamedEndpoint>) -> Result<(), String> {
        check(&endpoints)?;
        self.replace(endpoints);
        self.changed.notify_waiters();
        Ok(())
    }

    fn replace(&self, endpoints: impl IntoIterator<Item = NamedEndpoint>) {
        let mut gates = self.gates.write().unwrap_or_else(PoisonError::into_inner);
        let gate = |(name, endpoint, calls): NamedEndpoint| {
            let same = gates.get(&name).filter(|gate| gate.is_of(&endpoint, calls)).cloned();
            let new = || Arc::new(Gate::new(endpoint, calls, self.policy, Arc::clone(&self.changed)));
            (name, same.unwrap_or_else(new))
        };
        *gates = endpoints.into_iter().map(gate).collect();
    }

    /// The gates, by the names of their providers.
    pub(crate) fn gates(&self) -> Gates {
        self.gates.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The gate of the model's provider.
    pub(crate) fn gate(&self, model: &ModelRef) -> Option<Arc<Gate>> {
        self.gates.read().unwrap_or_else(PoisonError::into_inner).get(model.provider()).cloned()
    }

    /// The adapter for this model.
    pub(crate) fn endpoint(&self, model: &ModelRef) -> Option<Arc<dyn Endpoint>> {
        Some(Arc::clone(&self.gate(model)?.endpoint))
    }

    /// Notified when waiting calls should look again: an attempt may be admitted that could not be before, a probe has
    /// ended, or the providers were exchanged.
    pub(crate) fn changes(&self) -> &Notify {
        &self.changed
    }

    /// Leases the first link that is available now. With `deadline`, fails at once if no link will be available
    /// before that time.
    pub(crate) fn try_lease(
        &self,
        candidates: &[Candidate],
        (now, deadline): (Timestamp, Option<Timestamp>),
        mut permit: Option<OwnedSemaphorePermit>,
    ) -> Result<Lease, LeaseUnavailable> {
        loop {
            let links: Vec<(LinkAvailability, LinkVisit)> = candidates
                .iter()
                .map(|link| (self.availability_with(&link.model, now, permit.as_ref()), link.visit))
                .collect();
            let link = match choose_link(&links).before_deadline(deadline) {
                LinkChoice::Lease(link) => &candidates[link],
                LinkChoice::Queue(link) => return Err(self.queue_for(&candidates[link].model)),
                LinkChoice::Wait(until) => {
                    return Err(LeaseUnavailable::Wait(
                        until.map(|until| self.wait_hint(candidates, &links, (until, now))),
                    ));
                }
                LinkChoice::Unavailable => {
                    let skipped = candidates.iter().map(|link| self.unanswered(&link.model, now));
                    return Err(LeaseUnavailable::NoneAvailable(skipped.collect()));
                }
            };
            if let Some(lease) = self.admit(link, now, &mut permit) {
                return Ok(lease);
            }
            // Otherwise a concurrent call was faster, and the availabilities have changed.
            if self.is_full(&link.model) {
                return Err(self.queue_for(&link.model));
            }
        }
    }

    fn admit(
        &self,
        link: &Candidate,
        now: Timestamp,
        permit: &mut Option<OwnedSemaphorePermit>,
    ) -> Option<Lease> {
        let gate = self.gate(&link.model)?;
        let permit = permit.take_if(|permit| gate.has_issued(permit));
        let (admission, permit) = gate.admit(link, now, permit)?;
        Some(Lease { admission, permit })
    }

    fn wait_hint(
        &self,
        candidates: &[Candidate],
        links: &[(LinkAvailability, LinkVisit)],
        (until, now): (Timestamp, Timestamp),
    ) -> WaitHint {
        let mut links = candidates.iter().zip(links);
        let link = links.find(|(_, (link, _))| policy::available_from(*link) == Some(until));
        let closed = link.filter(|(_, (link, _))| !matches!(link, LinkAvailability::RateLimited(_)));
        let reason =
            closed.and_then(|(link, _)| Some(self.gate(&link.model)?.last_failure_class(&link.model, now)));
        WaitHint { until, reason: reason.unwrap_or("limits") }
    }

    /// When the first closed link of these opens, if that is known.
    pub(crate) fn next_opening(&self, candidates: &[Candidate], now: Timestamp) -> Option<Timestamp> {
        candidates.iter().filter_map(|link| policy::available_from(self.availability(&link.model, now))).min()
    }

    fn is_full(&self, model: &ModelRef) -> bool {
        self.gate(model).is_some_and(|gate| gate.permits.available_permits() == 0)
    }

    fn queue_for(&self, model: &ModelRef) -> LeaseUnavailable {
        match self.gate(model) {
            Some(gate) => LeaseUnavailable::Queue(Arc::clone(&gate.permits)),
            None => LeaseUnavailable::NoneAvailable(vec![self.unanswered(model, Timestamp::default())]),
        }
    }

    /// Availability of a link for a call that has this permit.
    fn availability_with(
        &self,
        model: &ModelRef,
        now: Timestamp,
        permit: Option<&OwnedSemaphorePermit>,
    ) -> LinkAvailability {
        let Some(gate) = self.gate(model) else { return LinkAvailability::NotConfigured };
        let availability = gate.availability(model.model(), now);
        let has_permit = permit.is_some_and(|permit| gate.has_issued(permit));
        if availability == LinkAvailability::AtCapacity && has_permit {
            LinkAvailability::Available
        } else {
            availability
        }
    }

    /// Availability of a link.
    pub(crate) fn availability(&self, model: &ModelRef, now: Timestamp) -> LinkAvailability {
        self.availability_with(model, now, None)
    }

    fn unanswered(&self, model: &ModelRef, now: Timestamp) -> UnansweredModel {
        if let Some(gate) = self.gate(model) {
            return gate.unanswered(model, now);
        }
        let known = self.gates().into_keys().collect::<Vec<_>>().join(", ");
        let failure = Failure::new(
            FailureClass::ModelNotFound,
            format!("no provider for `{model}` is configured here; there are: {known}"),
        );
        UnansweredModel { model: model.clone(), reason: UnansweredReason::Skipped { until: None, failure } }
    }

    /// Forgets every failure of a provider; false if there is none of that name.
    pub(crate) fn reset(&self, provider: &str) -> bool {
        let gate = self.gates().remove(provider);
        gate.inspect(|gate| gate.reset()).is_some()
    }
}

/// Checks the names and bounds of endpoints.
fn check(endpoints: &[NamedEndpoint]) -> Result<(), String> {
    let mut names = BTreeSet::new();
    for (name, _, calls) in endpoints {
        ModelRef::new(Arc::clone(name), "any").map_err(|error| error.to_string())?;
        if !names.insert(name) {
            return Err(format!("`{name}` is there twice; give each provider a name of its own"));
        }
        if !(1..=Semaphore::MAX_PERMITS).contains(calls) {
            let max = Semaphore::MAX_PERMITS;
            return Err(format!("`{name}` may have {calls} concurrent calls; give a number from 1 to {max}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use futures::future::BoxFuture;

    use super::*;
    use crate::{
        model::{Message, ModelAnswer, ModelProfile, ToolSpec},
        policy::LinkVisit,
        port::{DeltaSink, EncodedHead, Encoder, MessageBuffer, ModelRequest},
    };

    /// An adapter that is never called in these tests.
    #[derive(Debug)]
    struct Silent;

    impl Encoder for Silent {
        fn head(&self, _: &str, _: &[ToolSpec]) -> EncodedHead {
            EncodedHead::default()
        }

        fn messages(&self, _: &[Message], _: &mut MessageBuffer) {}
    }

    impl Endpoint for Silent {
        fn encoder(&self, _: &str, _: &ModelProfile) -> Arc<dyn Encoder> {
            Arc::new(Self)
        }

        fn call<'a>(
            &'a self,
            _: ModelRequest,
            _: &'a dyn DeltaSink,
        ) -> BoxFuture<'a, Result<ModelAnswer, Failure>> {
            Box::pin(std::future::pending())
        }
    }

    /// Two providers `a` and `b` with one call each.
    fn leases() -> Leases {
        let endpoint = |name: &str| (name.into(), Arc::new(Silent) as Arc<dyn Endpoint>, 1);
        Leases::new([endpoint("a"), endpoint("b")], BreakerPolicy::default())
    }

    fn chain(links: &[(&str, LinkVisit)]) -> Vec<Candidate> {
        let candidate = |(model, visit): &(&str, LinkVisit)| Candidate {
            model: model.parse().unwrap(),
            visit: *visit,
            tokens: 0,
        };
        links.iter().map(candidate).collect()
    }

    /// Checks the model that is leased, or why none is.
    fn check(leases: &Leases, links: &[(&str, LinkVisit)], at: i64, expect: &str) {
        let found = match leases.try_lease(&chain(links), (Timestamp(at), None), None) {
            Ok(lease) => lease.admission.model.to_string(),
            Err(LeaseUnavailable::Queue(permits)) => {
                let gates = leases.gates().into_iter();
                let of: Vec<_> = gates.filter(|(_, gate)| Arc::ptr_eq(&gate.permits, &permits)).collect();
                format!("queue {}", of[0].0)
            }
            Err(LeaseUnavailable::Wait(pause)) => {
                format!("wait {:?}", pause.map(|pause| (pause.until.0, pause.reason)))
            }
            Err(LeaseUnavailable::NoneAvailable(skipped)) => {
                skipped.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
            }
        };
        assert_eq!(found, expect, "{links:?} at {at}");
    }

    /// Fails an attempt at this model at time 0.
    fn fail(leases: &Leases, model: &str, class: FailureClass) {
        let lease = leases
            .try_lease(&chain(&[(model, LinkVisit::Return)]), (Timestamp(0), None), None)
            .expect("it is free");
        lease.admission.end(Err(&Failure::new(class, "no")), Timestamp(0));
    }

    #[test]
    fn a_lease_is_for_the_first_that_can_be_asked() {
        use LinkVisit::{First, Return};
        let leases = leases();
        let both = [("a/m", First), ("b/n", First)];
        check(&leases, &both, 0, "a/m");
        let unknown =
            "skipped x/y (model_not_found: no provider for `x/y` is configured here; there are: a, b)";
        check(&leases, &[("x/y", First)], 0, unknown);
        check(&leases, &[("x/y", First), ("b/n", First)], 0, "b/n");
        fail(&leases, "a/m", FailureClass::Auth);
        check(&leases, &both, 1, "b/n");
        check(&leases, &[("a/other", First)], 1, "a/other");
        check(&leases, &[("a/m", First)], 1, "wait Some((30000, \"auth\"))");
        check(&leases, &[("a/m", Return)], 1, "a/m");
        check(&leases, &both, 30_000, "a/m");
        assert!(leases.reset("a"));
        check(&leases, &both, 1, "a/m");
        let reset = FailureClass::RateLimited { retry_after_ms: Some(90_000), reset_at: None };
        fail(&leases, "a/m", reset);
        let skipped = "skipped a/m (not asked until 1970-01-01T00:01:30Z: rate_limited: no)";
        check(&leases, &[("a/m", Return)], 1, skipped);
    }

    #[test]
    fn a_call_that_must_wait_for_room_waits_where_it_is() {
        use LinkVisit::{First, Return};
        let leases = leases();
        let both = [("a/m", First), ("b/n", First)];
        for _ in 0..3 {
            fail(&leases, "a/held", FailureClass::Server);
        }
        let lease = leases.try_lease(&chain(&both), (Timestamp(1), None), None).expect("it is free");
        check(&leases, &both, 1, "queue a");
        // A returning call needs a permit too.
        check(&leases, &[("a/held", Return)], 1, "queue a");
        let Lease { permit, admission } = lease;
        drop(admission);
        let got = leases.try_lease(&chain(&both), (Timestamp(1), None), Some(permit));
        assert_eq!(got.expect("it has its permit").admission.model.to_string(), "a/m");
        check(&leases, &both, 1, "a/m");
    }

    #[test]
    fn a_permit_of_an_exchanged_gate_is_no_permit_of_the_next() {
        let leases = leases();
        let only = chain(&[("a/m", LinkVisit::First)]);
        let lease = || leases.try_lease(&only, (Timestamp(0), None), None);
        let Lease { permit: old, .. } = lease().expect("it is free");
        let new = || vec![("a".into(), Arc::new(Silent) as Arc<dyn Endpoint>, 2)];
        leases.exchange(new()).expect("it is valid");
        let under_way = [lease().expect("it is free"), lease().expect("there are two")];
        let refused = leases.try_lease(&only, (Timestamp(0), None), Some(old));
        assert!(matches!(refused, Err(LeaseUnavailable::Queue(_))), "{refused:?}");
        drop(under_way);
    }

    #[test]
    fn one_lease_at_a_time_finds_out() {
        let endpoint = ("a".into(), Arc::new(Silent) as Arc<dyn Endpoint>, 9);
        let leases = Leases::new([endpoint], BreakerPolicy::default());
        fail(&leases, "a/m", FailureClass::Auth);
        let only = [("a/m", LinkVisit::First)];
        let probe =
            leases.try_lease(&chain(&only), (Timestamp(30_000), None), None).expect("it is half-open");
        check(&leases, &only, 30_000, "wait None");
        drop(probe);
        check(&leases, &only, 30_000, "a/m");
        let probe =
            leases.try_lease(&chain(&only), (Timestamp(30_000), None), None).expect("it is half-open");
        probe.admission.on_answer_start();
        check(&leases, &only, 30_000, "a/m");
    }
}
