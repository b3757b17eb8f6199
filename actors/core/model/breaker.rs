//! Data about circuit breakers: their policy, their public state, and why models did not answer a call. The breaker
//! itself is `policy/breaker.rs`.

use serde::{Deserialize, Serialize};

use super::{Failure, ModelRef, Timestamp, rfc3339_time};

/// The policy of a circuit breaker. A reset time that the provider reports takes precedence over the cooldowns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerPolicy {
    /// Consecutive failures that open the breaker, unless a failure opens it at once.
    pub threshold: u32,
    /// Cooldown after the first, second and every further opening in a row, in milliseconds.
    pub cooldowns_ms: [u64; 3],
    /// Cooldown after the account's quota was used up, in milliseconds.
    pub quota_ms: u64,
    /// Cooldown after the provider did not know the model, in milliseconds.
    pub not_found_ms: u64,
}

impl Default for BreakerPolicy {
    fn default() -> Self {
        Self {
            threshold: 3,
            cooldowns_ms: [30_000, 60_000, 300_000],
            quota_ms: 600_000,
            not_found_ms: 600_000,
        }
    }
}

/// The state of a circuit breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum BreakerState {
    /// Requests pass.
    #[default]
    Closed,
    /// Requests are refused until a time.
    Open {
        /// End of the cooldown.
        #[serde(with = "rfc3339_time")]
        until: Timestamp,
    },
    /// One probe at a time passes, until one is answered.
    HalfOpen,
}

/// A model of the chain that did not answer a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnansweredModel {
    /// The model.
    pub model: ModelRef,
    /// Why it did not answer.
    #[serde(flatten)]
    pub reason: UnansweredReason,
}

/// Why a model of the chain did not answer a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum UnansweredReason {
    /// The model was called and failed.
    Tried {
        /// Number of failed attempts.
        attempts: u32,
        /// The failure of the last attempt.
        failure: Failure,
    },
    /// The model was not called.
    Skipped {
        /// The time until which the model is not called; absent if it is not known, or if it never comes.
        #[serde(skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
        /// Why the model was not called: the failure of an earlier call, or one made for this purpose, such as a missing
        /// price.
        failure: Failure,
    },
}

impl std::fmt::Display for UnansweredModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let model = &self.model;
        match &self.reason {
            UnansweredReason::Tried { attempts: 1, failure } => write!(f, "tried {model} ({failure})"),
            UnansweredReason::Tried { attempts, failure } => {
                write!(f, "tried {model} {attempts} times ({failure})")
            }
            UnansweredReason::Skipped { until: Some(until), failure } => {
                write!(f, "skipped {model} (not asked until {until}: {failure})")
            }
            UnansweredReason::Skipped { until: None, failure } => write!(f, "skipped {model} ({failure})"),
        }
    }
}
