//! The policy for retries of model calls: attempts per failure class, pauses, and waits for known resets.
//! `policy/retry.rs` applies it.

use serde::{Deserialize, Serialize};

use super::Attempt;

/// When a failed model call is retried on the same model, and when it falls back to the next model of the chain. Fields
/// that are not stored have their defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RetryPolicy {
    /// The first pause in milliseconds; it doubles with each attempt.
    #[serde(rename = "first_ms")]
    pub initial_pause_ms: u64,
    /// The maximum pause in milliseconds.
    #[serde(rename = "longest_ms")]
    pub max_pause_ms: u64,
    /// No pause may end later than this after the first attempt's start, in milliseconds. Waits for a known reset do
    /// not count.
    pub deadline_ms: u64,
    /// Maximum attempts per failure class without another available model.
    pub attempts: RetryAttempts,
    /// True if a refusal falls back to the next model of the chain, instead of ending the run.
    pub fallback_on_refusal: bool,
    /// Maximum attempts per failure class before a fallback to another available model. Also the limit for failures of
    /// an endpoint while no model call of the run was answered.
    pub fallback_after: RetryAttempts,
    /// The longest wait that a provider requests, in milliseconds, for which a call stays with a model while another
    /// one is available.
    pub short_wait_ms: u64,
    /// Maximum total wait of a call for known resets, in milliseconds, if no other model is available.
    pub wait_for_reset_max_ms: u64,
}

/// Maximum attempts of one call on one model, by failure class. Classes without a field have no limit here;
/// `policy/retry.rs` decides about them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RetryAttempts {
    /// The provider rejects too many requests.
    pub rate_limited: Attempt,
    /// The provider is overloaded.
    pub overloaded: Attempt,
    /// The provider has an internal error.
    pub server: Attempt,
    /// A deadline expired.
    pub timeout: Attempt,
    /// The provider cannot be reached.
    pub network: Attempt,
    /// The stream ended before the answer was complete.
    #[serde(rename = "cut")]
    pub incomplete_stream: Attempt,
    /// The call's task ended without a result, or the call was not sent.
    pub lost: Attempt,
}

impl RetryAttempts {
    /// The limits while another model is available.
    pub const FALLBACK_AFTER: Self = Self {
        rate_limited: 3,
        overloaded: 2,
        server: 3,
        timeout: 2,
        network: 3,
        incomplete_stream: 3,
        lost: 3,
    };
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            initial_pause_ms: 500,
            max_pause_ms: 30_000,
            deadline_ms: 1_800_000,
            attempts: RetryAttempts::default(),
            fallback_on_refusal: false,
            fallback_after: RetryAttempts::FALLBACK_AFTER,
            short_wait_ms: 5_000,
            wait_for_reset_max_ms: 21_600_000,
        }
    }
}

impl Default for RetryAttempts {
    /// The limits without another model: failures that may be transient are retried until the deadline.
    fn default() -> Self {
        Self {
            rate_limited: 100,
            overloaded: 100,
            server: 100,
            timeout: 100,
            network: 100,
            ..Self::FALLBACK_AFTER
        }
    }
}
