//! Views of providers: those that the owner calls, the configured ones, and the results of test calls.

use std::collections::BTreeMap;

use hermod_actors::{
    ModelStatus, ProviderStatus,
    model::{BreakerState, CredentialId, Failure as CallFailure, PoolStrategy, Timestamp, UsageAnomaly},
};
use serde::{Deserialize, Serialize};

use super::encoding;

/// A provider that the owner of the store can call: what its attempts came to, and whether it is called now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderView {
    /// The provider's name.
    pub name: String,
    /// The endpoint's breaker: opens when the endpoint cannot be reached.
    pub breaker: BreakerView,
    /// Number of credentials.
    pub credentials: usize,
    /// Requests per minute that each credential may use; `None` without a limit.
    pub requests_per_minute: Option<u32>,
    /// Tokens per minute that each credential may use; `None` without a limit.
    pub tokens_per_minute: Option<u64>,
    /// Attempts that were answered.
    pub answered: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Answers whose reported usage was rejected as implausible; included in `answered`.
    pub usage_anomalies: u64,
    /// The last of these anomalies.
    pub last_usage_anomaly: Option<UsageAnomaly>,
    /// The last failure.
    pub last_failure: Option<CallFailure>,
    /// One entry for each credential of each model that was called, ordered by model, then by credential.
    pub models: Vec<ModelBreakerView>,
}

/// The result of a test call to a provider: `{name, model, credential, from, outcome, took_ms, message}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProviderProbeView {
    /// The provider's name.
    pub name: String,
    /// The model that was called; `None` if none is known.
    pub model: Option<String>,
    /// The credential, counted from 0; `None` if no call was made.
    pub credential: Option<CredentialId>,
    /// The source of the credential.
    pub from: Option<String>,
    /// `answered`, `not_asked` if the provider cannot be called, or the class of the failure.
    pub outcome: &'static str,
    /// Duration of the call in milliseconds; `None` if no call was made.
    pub took_ms: Option<u64>,
    /// Why there is no answer; `None` if there is one.
    pub message: Option<String>,
}

impl ProviderProbeView {
    /// A provider that cannot be called, with the reason.
    pub fn not_called(name: &str, model: Option<&str>, reason: String) -> Self {
        Self {
            name: name.to_owned(),
            model: model.map(str::to_owned),
            credential: None,
            from: None,
            outcome: "not_asked",
            took_ms: None,
            message: Some(reason),
        }
    }

    /// A call to a model of a provider, and its end.
    pub fn called(name: &str, model: &str, end: Result<(), CallFailure>) -> Self {
        let (outcome, message) = match end {
            Ok(()) => (Self::ANSWERED, None),
            Err(failure) => (failure.class.name(), Some(failure.message)),
        };
        Self { outcome, message, ..Self::not_called(name, Some(model), String::new()) }
    }

    const ANSWERED: &str = "answered";

    /// True if the call was answered.
    pub fn is_answered(&self) -> bool {
        self.outcome == Self::ANSWERED
    }
}

/// One model of a provider with one credential.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelBreakerView {
    /// The model, as the provider names it.
    pub model: String,
    /// The credential, counted from 0.
    pub credential: CredentialId,
    /// The breaker of the model with this credential.
    pub breaker: BreakerView,
    /// Attempts that were answered.
    pub answered: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Answers whose reported usage was rejected as implausible.
    pub usage_anomalies: u64,
    /// The last failure that the breaker counted.
    pub last_failure: Option<CallFailure>,
    /// Failed attempts by failure class.
    #[serde(default)]
    pub failures: BTreeMap<String, u64>,
    /// Mean milliseconds until an answer began to arrive; `None` without an answer.
    #[serde(default)]
    pub first_delta_ms: Option<u64>,
    /// Mean milliseconds until an answer was complete.
    #[serde(default)]
    pub answer_ms: Option<u64>,
    /// Output tokens in a second of answers that reported usage.
    #[serde(default)]
    pub output_tokens_per_second: Option<u64>,
}

/// The state of a circuit breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum BreakerView {
    /// Requests pass.
    Closed,
    /// Requests are refused until a time.
    Open {
        /// End of the cooldown.
        #[serde(with = "encoding::time")]
        until: Timestamp,
    },
    /// One probe at a time passes.
    HalfOpen,
}

impl From<BreakerState> for BreakerView {
    fn from(state: BreakerState) -> Self {
        match state {
            BreakerState::Closed => Self::Closed,
            BreakerState::Open { until } => Self::Open { until },
            BreakerState::HalfOpen => Self::HalfOpen,
        }
    }
}

impl From<ProviderStatus> for ProviderView {
    fn from(status: ProviderStatus) -> Self {
        Self {
            name: status.name,
            breaker: status.endpoint.into(),
            credentials: status.credentials,
            requests_per_minute: status.limits.requests,
            tokens_per_minute: status.limits.tokens,
            answered: status.answered,
            failed: status.failed,
            usage_anomalies: status.usage_anomalies,
            last_usage_anomaly: status.last_usage_anomaly,
            last_failure: status.last_failure,
            models: status.models.into_iter().map(ModelBreakerView::from).collect(),
        }
    }
}

impl From<ModelStatus> for ModelBreakerView {
    fn from(status: ModelStatus) -> Self {
        Self {
            model: status.model,
            credential: status.credential,
            breaker: status.breaker.into(),
            answered: status.answered,
            failed: status.failed,
            usage_anomalies: status.usage_anomalies,
            last_failure: status.last_failure,
            failures: status.failures,
            first_delta_ms: status.first_delta_ms,
            answer_ms: status.answer_ms,
            output_tokens_per_second: status.output_tokens_per_second,
        }
    }
}

/// A provider that is configured or found in the environment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConfiguredProviderView {
    /// The provider's name.
    pub name: String,
    /// The base URL, without credentials.
    pub base_url: String,
    /// The wire format.
    pub wire: &'static str,
    /// The credentials, by reference.
    pub credentials: Vec<CredentialView>,
    /// How a credential is chosen.
    pub pool: PoolStrategy,
    /// Requests per minute that each credential may use; `None` without a limit.
    pub requests_per_minute: Option<u32>,
    /// Tokens per minute that each credential may use; `None` without a limit.
    pub tokens_per_minute: Option<u64>,
    /// The default model; `None` without one.
    pub model: Option<String>,
    /// The context window of the default model, in tokens; `None` if it is not known.
    pub window: Option<u64>,
    /// Whether the price of the default model is known.
    pub priced: bool,
    /// Limit of concurrent calls.
    pub calls: u32,
    /// Where the provider was found.
    pub from: &'static str,
}

/// A reference to a credential.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CredentialView {
    /// Where the credential is read, such as `env:NAME`.
    pub from: String,
    /// Why it cannot be read; `None` if it can.
    pub error: Option<String>,
}
