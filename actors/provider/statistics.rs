//! Statistics of a provider's attempts since its actor was started: the reports that it counts, and the provider's
//! status. The status joins the counts with the states of the breakers.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    model::{BreakerState, CredentialId, Failure, ModelRef, Timestamp, UsageAnomaly},
    provider::Gate,
};

/// Status of a provider: counts since its actor started, and the current state of its breakers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderStatus {
    /// The provider's name.
    pub name: String,
    /// The endpoint's breaker: opens when the endpoint cannot be reached.
    #[serde(rename = "breaker")]
    pub endpoint: BreakerState,
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
    #[serde(default)]
    pub usage_anomalies: u64,
    /// The last of these anomalies.
    pub last_usage_anomaly: Option<UsageAnomaly>,
    /// The last failure.
    pub last_failure: Option<Failure>,
    /// One entry for each credential of each model that was called, ordered by model, then credential.
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
    /// The last failure that the breaker counted.
    pub last_failure: Option<Failure>,
    /// Failed attempts by failure class.
    #[serde(default)]
    pub failures: BTreeMap<String, u64>,
    /// Mean milliseconds until an answer began to arrive, of the answered attempts.
    pub first_delta_ms: Option<u64>,
    /// Mean milliseconds until an answer was complete.
    pub answer_ms: Option<u64>,
    /// Output tokens in a second of the answered attempts that reported usage.
    pub output_tokens_per_second: Option<u64>,
}

/// The end of an attempt.
#[derive(Debug)]
pub(crate) struct AttemptReport {
    /// The model that was called.
    pub(crate) model: ModelRef,
    /// The credential of the call.
    pub(crate) credential: CredentialId,
    /// Milliseconds of the whole attempt.
    pub(crate) duration_ms: u64,
    /// The result.
    pub(crate) end: Result<AnswerReport, Failure>,
}

/// What the statistics count of an answer.
#[derive(Debug)]
pub(crate) struct AnswerReport {
    /// Milliseconds until it began to arrive; `None` if it came whole.
    pub(crate) first_delta_ms: Option<u64>,
    /// Output tokens, as far as the reported usage is plausible.
    pub(crate) output_tokens: Option<u64>,
    /// The anomaly of the reported usage.
    pub(crate) anomaly: Option<Box<UsageAnomaly>>,
}

/// The counts of one provider's attempts.
#[derive(Debug, Default)]
pub(super) struct ProviderStatistics {
    last_failure: Option<Failure>,
    last_usage_anomaly: Option<UsageAnomaly>,
    models: BTreeMap<(Arc<str>, CredentialId), AttemptCounts>,
}

/// The attempts at one model with one credential.
#[derive(Debug, Clone, Default)]
struct AttemptCounts {
    answered: u64,
    /// Included in `answered`.
    usage_anomalies: u64,
    failures: BTreeMap<String, u64>,
    /// Of the answers, in milliseconds.
    durations: Total,
    /// Of the answers, in milliseconds.
    first_deltas: Total,
    output_tokens: u64,
    /// Milliseconds of the answers with known output tokens.
    token_ms: u64,
}

/// A sum and the number of its summands.
#[derive(Debug, Clone, Copy, Default)]
struct Total {
    sum: u64,
    count: u64,
}

impl Total {
    const fn add(&mut self, value: u64) {
        self.sum = self.sum.saturating_add(value);
        self.count += 1;
    }

    const fn mean(self) -> Option<u64> {
        self.sum.checked_div(self.count)
    }
}

impl AttemptCounts {
    fn failed(&self) -> u64 {
        self.failures.values().sum()
    }

    fn output_tokens_per_second(&self) -> Option<u64> {
        self.output_tokens.saturating_mul(1_000).checked_div(self.token_ms)
    }
}

impl ProviderStatistics {
    /// Counts an attempt.
    pub(super) fn add(&mut self, provider: &str, report: AttemptReport) {
        let counts = self.models.entry((Arc::clone(report.model.model()), report.credential)).or_default();
        match report.end {
            Ok(answer) => {
                counts.answered += 1;
                counts.durations.add(report.duration_ms);
                counts.first_deltas.add(answer.first_delta_ms.unwrap_or(report.duration_ms));
                if let Some(tokens) = answer.output_tokens {
                    counts.output_tokens = counts.output_tokens.saturating_add(tokens);
                    counts.token_ms = counts.token_ms.saturating_add(report.duration_ms);
                }
                if let Some(anomaly) = answer.anomaly {
                    tracing::warn!(provider, %anomaly, "reported usage not believed");
                    counts.usage_anomalies += 1;
                    self.last_usage_anomaly = Some(*anomaly);
                }
            }
            Err(failure) => {
                tracing::debug!(provider, %failure, "attempt failed");
                *counts.failures.entry(failure.class.name().into()).or_default() += 1;
                self.last_failure = Some(failure);
            }
        }
    }

    /// The counts, and the current state of the breakers.
    pub(super) fn status(&self, name: &str, gate: &Gate, now: Timestamp) -> ProviderStatus {
        let (endpoint, reports) = gate.breaker_reports(now);
        let (credentials, limits) = (gate.endpoint.credentials(), gate.endpoint.limits());
        let models = reports.into_iter().map(|report| {
            let counts =
                self.models.get(&(Arc::clone(&report.model), report.credential)).cloned().unwrap_or_default();
            ModelStatus {
                model: report.model.as_ref().into(),
                credential: report.credential,
                breaker: report.state,
                answered: counts.answered,
                failed: counts.failed(),
                usage_anomalies: counts.usage_anomalies,
                last_failure: report.last_failure,
                first_delta_ms: counts.first_deltas.mean(),
                answer_ms: counts.durations.mean(),
                output_tokens_per_second: counts.output_tokens_per_second(),
                failures: counts.failures,
            }
        });
        ProviderStatus {
            name: name.into(),
            answered: self.models.values().map(|counts| counts.answered).sum(),
            failed: self.models.values().map(AttemptCounts::failed).sum(),
            usage_anomalies: self.models.values().map(|counts| counts.usage_anomalies).sum(),
            last_usage_anomaly: self.last_usage_anomaly,
            last_failure: self.last_failure.clone(),
            endpoint,
            credentials,
            requests_per_minute: limits.requests,
            tokens_per_minute: limits.tokens,
            models: models.collect(),
        }
    }
}
