use serde::{Deserialize, Serialize};

use super::{Failure, ModelRef, Timestamp};

/// For how long a model that fails is not asked, unless its provider says when it will answer again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerPolicy {
    /// Failures in a row that open the breaker, of those that do not open it at once.
    pub threshold: u32,
    /// How long it stays open the first, the second and every further time in a row, in milliseconds.
    pub cooldowns_ms: [u64; 3],
    /// How long after the account was found used up.
    pub quota_ms: u64,
    /// How long after the provider did not know the model.
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

/// Whether something is asked, after what became of earlier attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum BreakerState {
    /// It is.
    #[default]
    Closed,
    /// It is not, until then.
    Open {
        /// Until when.
        until: Timestamp,
    },
    /// One attempt at a time is made, until one is answered.
    HalfOpen,
}

/// A model of the chain that did not answer a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnansweredModel {
    /// The model.
    pub model: ModelRef,
    /// Why.
    #[serde(flatten)]
    pub reason: UnansweredReason,
}

/// See [`UnansweredModel`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum UnansweredReason {
    /// It was asked and failed.
    Tried {
        /// So many times.
        attempts: u32,
        /// The last time because of this.
        failure: Failure,
    },
    /// It was not asked.
    Skipped {
        /// Until then it is not; absent if it never is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
        /// Because of this, which an earlier call met.
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
