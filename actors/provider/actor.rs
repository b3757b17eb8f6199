use std::{collections::BTreeMap, sync::Arc};

use ractor::{Actor, ActorProcessingErr, ActorRef};
use serde::{Deserialize, Serialize};

use crate::{
    look::Look,
    model::{BreakerState, CredentialId, Failure, ModelRef, RateLimits, Timestamp},
    provider::Gate,
};

/// What a provider has seen since its actor began, and who is let through to it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderStatus {
    /// Its name.
    pub name: String,
    /// Attempts that were answered.
    pub answered: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// The last failure.
    pub last_failure: Option<Failure>,
    /// Whether the endpoint is asked at all: opened when it cannot be reached.
    pub endpoint: BreakerState,
    /// How many credentials it has.
    pub credentials: usize,
    /// What each of them may use up within a minute.
    pub limits: RateLimits,
    /// Each model with each credential that was asked, in order.
    pub models: Vec<ModelStatus>,
}

/// See [`ProviderStatus::models`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelStatus {
    /// The model, as the provider names it.
    pub model: String,
    /// The credential.
    pub credential: CredentialId,
    /// Whether it is asked.
    pub breaker: BreakerState,
    /// Attempts that were answered.
    pub answered: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// The last failure that was held against it.
    pub last_failure: Option<Failure>,
}

/// How an attempt ended.
#[derive(Debug)]
pub(crate) struct Report {
    /// Who was asked.
    pub(crate) model: ModelRef,
    /// With what.
    pub(crate) credential: CredentialId,
    /// How it ended.
    pub(crate) end: Result<(), Failure>,
}

/// The messages of [`Provider`].
#[derive(Debug)]
pub(crate) enum ProviderMsg {
    /// An attempt ended.
    Report(Report),
    /// What has been seen.
    Look(Look<State>),
}

/// The actor.
#[derive(Debug)]
pub(crate) struct Provider;

/// Its state.
#[derive(Debug)]
pub(crate) struct State {
    name: Arc<str>,
    gate: Arc<Gate>,
    last_failure: Option<Failure>,
    /// Attempts that were answered and that failed.
    counts: BTreeMap<(Arc<str>, CredentialId), (u64, u64)>,
}

impl Actor for Provider {
    type Msg = ProviderMsg;
    type State = State;
    type Arguments = (Arc<str>, Arc<Gate>);

    async fn pre_start(
        &self,
        _me: ActorRef<ProviderMsg>,
        (name, gate): Self::Arguments,
    ) -> Result<State, ActorProcessingErr> {
        Ok(State { name, gate, last_failure: None, counts: BTreeMap::new() })
    }

    async fn handle(
        &self,
        _me: ActorRef<ProviderMsg>,
        message: ProviderMsg,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            ProviderMsg::Report(report) => state.count(report),
            ProviderMsg::Look(look) => look.at(state)?,
        }
        Ok(())
    }
}

impl State {
    fn count(&mut self, report: Report) {
        let (answered, failed) = self.counts.entry((report.model.model, report.credential)).or_default();
        match report.end {
            Ok(()) => *answered += 1,
            Err(failure) => {
                tracing::debug!(provider = %self.name, %failure, "attempt failed");
                *failed += 1;
                self.last_failure = Some(failure);
            }
        }
    }

    /// What it has seen, and who is let through now.
    pub(crate) fn status(&self, now: Timestamp) -> ProviderStatus {
        let (endpoint, known) = self.gate.known(now);
        let (credentials, limits) = self.gate.account();
        let models = known.into_iter().map(|known| {
            let key = (Arc::clone(&known.model), known.credential);
            let (answered, failed) = self.counts.get(&key).copied().unwrap_or_default();
            ModelStatus {
                model: known.model.as_ref().into(),
                credential: known.credential,
                breaker: known.state,
                answered,
                failed,
                last_failure: known.last,
            }
        });
        ProviderStatus {
            name: self.name.as_ref().into(),
            answered: self.counts.values().map(|(answered, _)| answered).sum(),
            failed: self.counts.values().map(|(_, failed)| failed).sum(),
            last_failure: self.last_failure.clone(),
            endpoint,
            credentials,
            limits,
            models: models.collect(),
        }
    }
}
