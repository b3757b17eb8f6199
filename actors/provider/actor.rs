//! Provider: the actor that counts the attempts at one endpoint and reports its status.

use std::{collections::BTreeMap, sync::Arc};

use ractor::{Actor, ActorProcessingErr, ActorRef};
use serde::{Deserialize, Serialize};

use crate::{
    inspect::Inspect,
    model::{BreakerState, CredentialId, Failure, ModelRef, RateLimits, Timestamp, UsageAnomaly},
    provider::Gate,
};

/// Status of a provider: counts since its actor started, and the current state of its breakers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderStatus {
    /// The provider's name.
    pub name: String,
    /// Attempts that were answered.
    pub answered: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Answers whose reported usage was rejected as implausible; included in `answered`.
    #[serde(default)]
    pub usage_anomalies: u64,
    /// The last of these anomalies.
    #[serde(default)]
    pub last_usage_anomaly: Option<UsageAnomaly>,
    /// The last failure.
    pub last_failure: Option<Failure>,
    /// The endpoint's breaker: opens when the endpoint cannot be reached.
    pub endpoint: BreakerState,
    /// Number of credentials.
    pub credentials: usize,
    /// The limits of each credential per minute.
    pub limits: RateLimits,
    /// Each model with each credential that was used, in order.
    pub models: Vec<ModelStatus>,
}

/// Status of one model with one credential.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelStatus {
    /// The model, as the provider names it.
    pub model: String,
    /// The credential.
    pub credential: CredentialId,
    /// The breaker of the model with this credential.
    pub breaker: BreakerState,
    /// Attempts that were answered.
    pub answered: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Answers whose reported usage was rejected as implausible.
    #[serde(default)]
    pub usage_anomalies: u64,
    /// The last failure that counted against it.
    pub last_failure: Option<Failure>,
}

/// The end of an attempt.
#[derive(Debug)]
pub(crate) struct AttemptReport {
    /// The model that was called.
    pub(crate) model: ModelRef,
    /// The credential of the call.
    pub(crate) credential: CredentialId,
    /// The result; for an answer, the anomaly of its usage.
    pub(crate) end: Result<Option<Box<UsageAnomaly>>, Failure>,
}

/// The messages of [`ProviderActor`].
#[derive(Debug)]
pub(crate) enum ProviderMsg {
    /// An attempt has ended.
    Report(AttemptReport),
    /// Inspects the state.
    Inspect(Inspect<ProviderState>),
}

#[derive(Debug)]
pub(crate) struct ProviderActor;

/// The counts and the gate of one provider.
#[derive(Debug)]
pub(crate) struct ProviderState {
    name: Arc<str>,
    gate: Arc<Gate>,
    last_failure: Option<Failure>,
    last_usage_anomaly: Option<UsageAnomaly>,
    counts: BTreeMap<(Arc<str>, CredentialId), AttemptCounts>,
}

/// The number of attempts by result.
#[derive(Debug, Clone, Copy, Default)]
struct AttemptCounts {
    answered: u64,
    failed: u64,
    /// Included in `answered`.
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

    /// The counts, and the current state of the breakers.
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
