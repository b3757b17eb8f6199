use std::{collections::BTreeMap, sync::Arc};

use ractor::{Actor, ActorProcessingErr, ActorRef};
use serde::{Deserialize, Serialize};

use crate::{
    inspect::Inspect,
    model::{BreakerState, CredentialId, Failure, ModelRef, RateLimits, Timestamp, UsageAnomaly},
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
    /// Answers whose reported usage was not believed, of those that were answered.
    #[serde(default)]
    pub usage_anomalies: u64,
    /// The last of these usages.
    #[serde(default)]
    pub last_usage_anomaly: Option<UsageAnomaly>,
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
    /// Answers whose reported usage was not believed.
    #[serde(default)]
    pub usage_anomalies: u64,
    /// The last failure that was held against it.
    pub last_failure: Option<Failure>,
}

/// How an attempt ended.
#[derive(Debug)]
pub(crate) struct AttemptReport {
    /// Who was asked.
    pub(crate) model: ModelRef,
    /// With what.
    pub(crate) credential: CredentialId,
    /// How it ended; of an answer, why its usage is not believed.
    pub(crate) end: Result<Option<Box<UsageAnomaly>>, Failure>,
}

/// The messages of [`ProviderActor`].
#[derive(Debug)]
pub(crate) enum ProviderMsg {
    /// An attempt ended.
    Report(AttemptReport),
    /// What has been seen.
    Inspect(Inspect<ProviderState>),
}

/// The actor.
#[derive(Debug)]
pub(crate) struct ProviderActor;

/// Its state.
#[derive(Debug)]
pub(crate) struct ProviderState {
    name: Arc<str>,
    gate: Arc<Gate>,
    last_failure: Option<Failure>,
    last_usage_anomaly: Option<UsageAnomaly>,
    counts: BTreeMap<(Arc<str>, CredentialId), AttemptCounts>,
}

/// How many attempts ended how.
#[derive(Debug, Clone, Copy, Default)]
struct AttemptCounts {
    answered: u64,
    failed: u64,
    /// Of those that were answered.
    usage_anomalies: u64,
}

impl Actor for ProviderActor {
    type Msg = ProviderMsg;
    type State = ProviderState;
    type Arguments = (Arc<str>, Arc<Gate>);

    async fn pre_start(
        &self,
        _me: ActorRef<ProviderMsg>,
        (name, gate): Self::Arguments,
    ) -> Result<ProviderState, ActorProcessingErr> {
        Ok(ProviderState {
            name,
            gate,
            last_failure: None,
            last_usage_anomaly: None,
            counts: BTreeMap::new(),
        })
    }

    async fn handle(
        &self,
        _me: ActorRef<ProviderMsg>,
        message: ProviderMsg,
        state: &mut ProviderState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            ProviderMsg::Report(report) => state.count(report),
            ProviderMsg::Inspect(look) => look.run(state)?,
        }
        Ok(())
    }
}

impl ProviderState {
    fn count(&mut self, report: AttemptReport) {
        let counts = self.counts.entry((Arc::clone(report.model.model()), report.credential)).or_default();
        match report.end {
            Ok(anomaly) => {
                counts.answered += 1;
                if let Some(anomaly) = anomaly {
                    tracing::warn!(provider = %self.name, %anomaly, "reported usage not believed");
                    counts.usage_anomalies += 1;
                    self.last_usage_anomaly = Some(*anomaly);
                }
            }
            Err(failure) => {
                tracing::debug!(provider = %self.name, %failure, "attempt failed");
                counts.failed += 1;
                self.last_failure = Some(failure);
            }
        }
    }

    /// What it has seen, and who is let through now.
    pub(crate) fn status(&self, now: Timestamp) -> ProviderStatus {
        let (endpoint, known) = self.gate.breaker_reports(now);
        let (credentials, limits) = self.gate.credentials_and_limits();
        let models = known.into_iter().map(|known| {
            let key = (Arc::clone(&known.model), known.credential);
            let counts = self.counts.get(&key).copied().unwrap_or_default();
            ModelStatus {
                model: known.model.as_ref().into(),
                credential: known.credential,
                breaker: known.state,
                answered: counts.answered,
                failed: counts.failed,
                usage_anomalies: counts.usage_anomalies,
                last_failure: known.last_failure,
            }
        });
        ProviderStatus {
            name: self.name.as_ref().into(),
            answered: self.counts.values().map(|counts| counts.answered).sum(),
            failed: self.counts.values().map(|counts| counts.failed).sum(),
            usage_anomalies: self.counts.values().map(|counts| counts.usage_anomalies).sum(),
            last_usage_anomaly: self.last_usage_anomaly,
            last_failure: self.last_failure.clone(),
            endpoint,
            credentials,
            limits,
            models: models.collect(),
        }
    }
}
