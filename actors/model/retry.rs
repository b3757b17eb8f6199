use serde::{Deserialize, Serialize};

use super::Attempt;

/// When a failed model call is tried again at the same model, and when the next one of the chain is asked. What a stored
/// one does not say is the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RetryPolicy {
    /// The first pause, in milliseconds; it doubles from attempt to attempt.
    #[serde(rename = "first_ms")]
    pub initial_pause_ms: u64,
    /// The longest pause.
    #[serde(rename = "longest_ms")]
    pub max_pause_ms: u64,
    /// From the first attempt's start no pause reaches beyond this; waits for a known reset are not counted.
    pub deadline_ms: u64,
    /// How many attempts a failure is worth if there is no other model to ask.
    pub attempts: RetryAttempts,
    /// Whether a refusal asks the next model of the chain, instead of ending the run.
    pub fallback_on_refusal: bool,
    /// How many it is worth if there is.
    pub fallback_after: RetryAttempts,
    /// A provider that asks for a longer wait than this is left for the next model, if there is one.
    pub short_wait_ms: u64,
    /// How long a call waits, in all, for resets whose time is known, if there is no other model to ask.
    pub wait_for_reset_max_ms: u64,
}

/// Attempts of one call at one model by the class of failure; what is not here is not tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RetryAttempts {
    /// The provider is asked too often.
    pub rate_limited: Attempt,
    /// It has too much to do.
    pub overloaded: Attempt,
    /// It fails inside.
    pub server: Attempt,
    /// It is late.
    pub timeout: Attempt,
    /// It cannot be reached.
    pub network: Attempt,
    /// Its answer breaks off.
    #[serde(rename = "cut")]
    pub incomplete_stream: Attempt,
    /// The task of the call dies.
    pub lost: Attempt,
}

impl RetryAttempts {
    /// With another model to ask.
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
    /// Without another model to ask: what may pass by itself is tried until the deadline.
    fn default() -> Self {
        Self {
            rate_limited: 100,
            overloaded: 100,
            server: 100,
            timeout: 100,
            network: 100,
            incomplete_stream: 3,
            lost: 3,
        }
    }
}

impl RetryPolicy {
    /// Whether it is the default, which is not stored.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
