use std::{collections::BTreeMap, sync::Arc};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::{
    model::{BreakerPolicy, Failure, FailureClass, ModelRef, NotAnswered, Timestamp, WhyNot},
    policy::{self, Candidate, Next, Standing, Visit, next},
    port::Provider as Endpoint,
    provider::{Admission, Gate},
};

/// Leave to make one attempt; given back when dropped.
#[derive(Debug)]
pub(crate) struct Lease {
    /// Who is to be asked, and what is told of it to the gate.
    pub(crate) admission: Admission,
    /// One of the calls that may be under way.
    pub(crate) permit: OwnedSemaphorePermit,
}

/// The gates of all providers, by name. It outlives the actors, so that nobody holds a reference across a restart.
#[derive(Debug)]
pub(crate) struct Leases {
    gates: BTreeMap<Arc<str>, Arc<Gate>>,
    changed: Arc<Notify>,
}

/// A permit of a provider that was waited for.
#[derive(Debug)]
pub(crate) struct Permit(pub(crate) Arc<str>, pub(crate) OwnedSemaphorePermit);

/// Until when a model is not asked, and why.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pause {
    pub(crate) until: Timestamp,
    pub(crate) reason: &'static str,
}

/// Why there is no lease at once.
#[derive(Debug)]
pub(crate) enum NoLease {
    /// All permits of that provider are taken; wait for one of these.
    Queue(Arc<str>, Arc<Semaphore>),
    /// Wait for a change; not longer than this, if it is known how long.
    Wait(Option<Pause>),
    /// Nobody can be asked before a time that a provider has named, if ever.
    Nobody(Vec<NotAnswered>),
}

impl Leases {
    /// Gates for these endpoints, each with so many calls at once.
    pub(crate) fn new(
        endpoints: impl IntoIterator<Item = (Arc<str>, Arc<dyn Endpoint>, usize)>,
        policy: BreakerPolicy,
    ) -> Self {
        let changed = Arc::new(Notify::new());
        let gate = |(name, endpoint, calls)| {
            (name, Arc::new(Gate::new(endpoint, calls, (policy, Arc::clone(&changed)))))
        };
        Self { gates: endpoints.into_iter().map(gate).collect(), changed }
    }

    /// Whom a question to this model is sent to.
    pub(crate) fn endpoint(&self, model: &ModelRef) -> Option<&Arc<dyn Endpoint>> {
        Some(&self.gates.get(model.provider())?.endpoint)
    }

    /// The gates, by the names of their providers.
    pub(crate) fn gates(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<Gate>)> {
        self.gates.iter()
    }

    /// The names of the providers.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.gates.keys()
    }

    /// Tells all who listen when somebody can be let through who could not be before, in the order in which they came.
    pub(crate) fn changes(&self) -> &Notify {
        &self.changed
    }

    /// A lease for the first link that can be asked now; whoever has to know by a time is told at once that nobody can be asked
    /// before it.
    pub(crate) fn seek(
        &self,
        candidates: &[Candidate],
        (now, by): (Timestamp, Option<Timestamp>),
        mut permit: Option<Permit>,
    ) -> Result<Lease, NoLease> {
        loop {
            let links: Vec<(Standing, Visit)> = candidates
                .iter()
                .map(|link| (self.standing_with(&link.model, now, permit.as_ref()), link.visit))
                .collect();
            let link = match next(&links).by(by) {
                Next::Lease(link) => &candidates[link],
                Next::Queue(link) => return Err(self.queue(&candidates[link].model)),
                Next::Wait(until) => {
                    return Err(NoLease::Wait(
                        until.map(|until| self.pause(candidates, &links, (until, now))),
                    ));
                }
                Next::Nobody => {
                    let skipped = candidates.iter().map(|link| self.skipped(&link.model, now));
                    return Err(NoLease::Nobody(skipped.collect()));
                }
            };
            if let Some(lease) = self.lease(link, now, &mut permit) {
                return Ok(lease);
            }
            // Else somebody was quicker, and the standings are others by now.
            if self.is_full(&link.model) {
                return Err(self.queue(&link.model));
            }
        }
    }

    fn lease(&self, link: &Candidate, now: Timestamp, permit: &mut Option<Permit>) -> Option<Lease> {
        let gate = self.gates.get(link.model.provider())?;
        let permit = permit.take_if(|Permit(provider, _)| *provider == *link.model.provider());
        let permit = permit.map(|Permit(_, permit)| permit);
        let (admission, permit) = gate.admit(link, now, permit)?;
        Some(Lease { admission, permit })
    }

    fn pause(
        &self,
        candidates: &[Candidate],
        links: &[(Standing, Visit)],
        (until, now): (Timestamp, Timestamp),
    ) -> Pause {
        let is_it = |(standing, _): &(Standing, Visit)| policy::until(*standing) == Some(until);
        let link = links.iter().position(is_it).and_then(|at| Some((candidates.get(at)?, links.get(at)?.0)));
        let reason = match link {
            Some((link, Standing::Held(_) | Standing::Shut(_))) => {
                self.gates.get(link.model.provider()).map(|gate| gate.why(&link.model, now))
            }
            Some((
                _,
                Standing::Free
                | Standing::Full
                | Standing::Paced(_)
                | Standing::Starting
                | Standing::Probing
                | Standing::Absent,
            ))
            | None => None,
        };
        Pause { until, reason: reason.unwrap_or("limits") }
    }

    /// When the first of these links that is closed can be asked again, if that is known.
    pub(crate) fn opens_at(&self, candidates: &[Candidate], now: Timestamp) -> Option<Timestamp> {
        candidates.iter().filter_map(|link| policy::until(self.standing(&link.model, now))).min()
    }

    fn is_full(&self, model: &ModelRef) -> bool {
        self.gates.get(model.provider()).is_some_and(|gate| gate.permits.available_permits() == 0)
    }

    fn queue(&self, model: &ModelRef) -> NoLease {
        match self.gates.get(model.provider()) {
            Some(gate) => NoLease::Queue(Arc::clone(model.provider()), Arc::clone(&gate.permits)),
            None => NoLease::Nobody(vec![self.skipped(model, Timestamp::default())]),
        }
    }

    /// How a link stands for whoever has this permit.
    fn standing_with(&self, model: &ModelRef, now: Timestamp, permit: Option<&Permit>) -> Standing {
        let standing = self.standing(model, now);
        let has_permit = permit.is_some_and(|Permit(provider, _)| *provider == *model.provider());
        if standing == Standing::Full && has_permit { Standing::Free } else { standing }
    }

    /// How a link stands.
    pub(crate) fn standing(&self, model: &ModelRef, now: Timestamp) -> Standing {
        self.gates.get(model.provider()).map_or(Standing::Absent, |gate| gate.standing(model.model(), now))
    }

    fn skipped(&self, model: &ModelRef, now: Timestamp) -> NotAnswered {
        if let Some(gate) = self.gates.get(model.provider()) {
            return gate.skipped(model, now);
        }
        let known = self.names().map(AsRef::as_ref).collect::<Vec<&str>>().join(", ");
        let failure = Failure::new(
            FailureClass::ModelNotFound,
            format!("no provider for `{model}` is configured here; there are: {known}"),
        );
        NotAnswered { model: model.clone(), why: WhyNot::Skipped { until: None, failure } }
    }

    /// Forgets every failure of a provider; says whether there is one of that name.
    pub(crate) fn reset(&self, provider: &str) -> bool {
        let gate = self.gates.get(provider);
        gate.into_iter().for_each(|gate| gate.reset());
        gate.is_some()
    }
}

#[cfg(test)]
mod tests {
    use futures::future::BoxFuture;

    use super::*;
    use crate::{
        model::{Answer, Message, ModelTraits, ToolSpec},
        policy::Visit,
        port::{Deltas, Encoder, Head, ModelRequest, Segments},
    };

    /// An adapter that nobody calls here.
    #[derive(Debug)]
    struct Silent;

    impl Encoder for Silent {
        fn head(&self, _: &str, _: &[ToolSpec]) -> Head {
            Head::default()
        }

        fn messages(&self, _: &[Message], _: &mut Segments) {}
    }

    impl Endpoint for Silent {
        fn encoder(&self, _: &str, _: &ModelTraits) -> Arc<dyn Encoder> {
            Arc::new(Self)
        }

        fn call<'a>(&'a self, _: ModelRequest, _: &'a dyn Deltas) -> BoxFuture<'a, Result<Answer, Failure>> {
            Box::pin(std::future::pending())
        }
    }

    /// Two providers `a` and `b` with one call each.
    fn leases() -> Leases {
        let endpoint = |name: &str| (name.into(), Arc::new(Silent) as Arc<dyn Endpoint>, 1);
        Leases::new([endpoint("a"), endpoint("b")], BreakerPolicy::default())
    }

    fn chain(links: &[(&str, Visit)]) -> Vec<Candidate> {
        let candidate = |(model, visit): &(&str, Visit)| Candidate {
            model: model.parse().unwrap(),
            visit: *visit,
            tokens: 0,
        };
        links.iter().map(candidate).collect()
    }

    /// Whom it would be, or why nobody.
    fn check(leases: &Leases, links: &[(&str, Visit)], at: i64, expect: &str) {
        let found = match leases.seek(&chain(links), (Timestamp(at), None), None) {
            Ok(lease) => lease.admission.model().to_string(),
            Err(NoLease::Queue(provider, _)) => format!("queue {provider}"),
            Err(NoLease::Wait(pause)) => {
                format!("wait {:?}", pause.map(|pause| (pause.until.0, pause.reason)))
            }
            Err(NoLease::Nobody(skipped)) => {
                skipped.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
            }
        };
        assert_eq!(found, expect, "{links:?} at {at}");
    }

    /// An attempt at this model fails at once, at the time 0.
    fn fail(leases: &Leases, model: &str, class: FailureClass) {
        let lease =
            leases.seek(&chain(&[(model, Visit::Again)]), (Timestamp(0), None), None).expect("it is free");
        lease.admission.end(Err(&Failure::new(class, "no")), Timestamp(0));
    }

    #[test]
    fn a_lease_is_for_the_first_that_can_be_asked() {
        use Visit::{Again, First};
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
        check(&leases, &[("a/m", Again)], 1, "a/m");
        check(&leases, &both, 30_000, "a/m");
        assert!(leases.reset("a"));
        check(&leases, &both, 1, "a/m");
        let reset = FailureClass::RateLimited { retry_after_ms: Some(90_000), reset_at: None };
        fail(&leases, "a/m", reset);
        let skipped = "skipped a/m (not asked until 1970-01-01T00:01:30Z: rate_limited: no)";
        check(&leases, &[("a/m", Again)], 1, skipped);
    }

    #[test]
    fn a_call_that_must_wait_for_room_waits_where_it_is() {
        use Visit::{Again, First};
        let leases = leases();
        let both = [("a/m", First), ("b/n", First)];
        for _ in 0..3 {
            fail(&leases, "a/held", FailureClass::Server);
        }
        let lease = leases.seek(&chain(&both), (Timestamp(1), None), None).expect("it is free");
        check(&leases, &both, 1, "queue a");
        // Whoever insists needs room too.
        check(&leases, &[("a/held", Again)], 1, "queue a");
        let Lease { permit, admission } = lease;
        drop(admission);
        let got = leases.seek(&chain(&both), (Timestamp(1), None), Some(Permit("a".into(), permit)));
        assert_eq!(got.expect("it has its permit").admission.model().to_string(), "a/m");
        check(&leases, &both, 1, "a/m");
    }

    #[test]
    fn one_lease_at_a_time_finds_out() {
        let endpoint = ("a".into(), Arc::new(Silent) as Arc<dyn Endpoint>, 9);
        let leases = Leases::new([endpoint], BreakerPolicy::default());
        fail(&leases, "a/m", FailureClass::Auth);
        let only = [("a/m", Visit::First)];
        let probe = leases.seek(&chain(&only), (Timestamp(30_000), None), None).expect("it is half-open");
        check(&leases, &only, 30_000, "wait None");
        drop(probe);
        check(&leases, &only, 30_000, "a/m");
        let probe = leases.seek(&chain(&only), (Timestamp(30_000), None), None).expect("it is half-open");
        probe.admission.answering();
        check(&leases, &only, 30_000, "a/m");
    }
}
