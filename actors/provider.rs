//! Provider: the control plane of one endpoint. It never makes or awaits a call: sessions own the tasks of their calls,
//! and take leases at the gate that the actor sets.

use std::{collections::BTreeMap, sync::Arc};

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    look::Look,
    model::{Failure, FailureClass, ModelRef},
    port::Provider as Endpoint,
};

/// What sessions see of a provider without asking it.
#[derive(Debug)]
pub(crate) struct Gate {
    /// The adapter.
    pub(crate) endpoint: Arc<dyn Endpoint>,
    /// One for each call that may be under way.
    pub(crate) permits: Arc<Semaphore>,
}

/// Leave to make one attempt; given back when dropped.
#[derive(Debug)]
pub(crate) struct Lease {
    /// Who is to be asked.
    pub(crate) model: ModelRef,
    /// The adapter that asks.
    pub(crate) endpoint: Arc<dyn Endpoint>,
    _permit: OwnedSemaphorePermit,
}

/// The gates of all providers, by name. It outlives the actors, so that nobody holds a reference across a restart.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    gates: BTreeMap<Arc<str>, Gate>,
}

/// Why there is no lease at once.
#[derive(Debug)]
pub(crate) enum NoLease {
    /// All permits are taken; wait for one of these.
    Busy(Arc<Semaphore>),
    /// There will be none.
    Never(Failure),
}

impl Leases {
    /// Gates for these endpoints, each with so many calls at once.
    pub(crate) fn new(endpoints: impl IntoIterator<Item = (Arc<str>, Arc<dyn Endpoint>, usize)>) -> Self {
        let gate =
            |(name, endpoint, calls)| (name, Gate { endpoint, permits: Arc::new(Semaphore::new(calls)) });
        Self { gates: endpoints.into_iter().map(gate).collect() }
    }

    /// The names of the providers.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.gates.keys()
    }

    /// A lease for the first link of the chain, if one is free now.
    pub(crate) fn try_lease(&self, chain: &[ModelRef]) -> Result<Lease, NoLease> {
        let (model, gate) = self.first(chain)?;
        match Arc::clone(&gate.permits).try_acquire_owned() {
            Ok(permit) => {
                Ok(Lease { model: model.clone(), endpoint: Arc::clone(&gate.endpoint), _permit: permit })
            }
            Err(_) => Err(NoLease::Busy(Arc::clone(&gate.permits))),
        }
    }

    /// A lease for the first link of the chain with a permit that was waited for.
    pub(crate) fn lease(&self, chain: &[ModelRef], permit: OwnedSemaphorePermit) -> Result<Lease, NoLease> {
        let (model, gate) = self.first(chain)?;
        Ok(Lease { model: model.clone(), endpoint: Arc::clone(&gate.endpoint), _permit: permit })
    }

    fn first<'a>(&'a self, chain: &'a [ModelRef]) -> Result<(&'a ModelRef, &'a Gate), NoLease> {
        let link = chain.first().and_then(|model| Some((model, self.gates.get(&model.provider)?)));
        link.ok_or_else(|| {
            let known = self.names().map(AsRef::as_ref).collect::<Vec<&str>>().join(", ");
            let asked = chain.first().map_or_else(|| "an empty chain".into(), ToString::to_string);
            NoLease::Never(Failure::new(
                FailureClass::ModelNotFound,
                format!("no provider for `{asked}` is configured here; there are: {known}"),
            ))
        })
    }
}

/// What a provider has seen since its actor began.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProviderStatus {
    /// Its name.
    pub name: String,
    /// Attempts that were answered.
    pub answered: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// The last failure.
    pub last_failure: Option<Failure>,
}

/// The messages of [`Provider`].
#[derive(Debug)]
pub(crate) enum ProviderMsg {
    /// An attempt ended.
    Report(Result<(), Failure>),
    /// What has been seen.
    Look(Look<ProviderStatus>),
}

/// The actor.
#[derive(Debug)]
pub(crate) struct Provider;

impl Actor for Provider {
    type Msg = ProviderMsg;
    type State = ProviderStatus;
    type Arguments = Arc<str>;

    async fn pre_start(
        &self,
        _me: ActorRef<ProviderMsg>,
        name: Arc<str>,
    ) -> Result<ProviderStatus, ActorProcessingErr> {
        Ok(ProviderStatus { name: name.as_ref().into(), ..ProviderStatus::default() })
    }

    async fn handle(
        &self,
        _me: ActorRef<ProviderMsg>,
        message: ProviderMsg,
        status: &mut ProviderStatus,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            ProviderMsg::Report(Ok(())) => status.answered += 1,
            ProviderMsg::Report(Err(failure)) => {
                tracing::debug!(provider = status.name, %failure, "attempt failed");
                status.failed += 1;
                status.last_failure = Some(failure);
            }
            ProviderMsg::Look(look) => look.at(status)?,
        }
        Ok(())
    }
}
