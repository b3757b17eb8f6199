use serde::{Deserialize, Serialize};

use super::Attempt;

/// When a failed model call is tried again at the same provider. What a stored one does not say is the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RetryPolicy {
    /// The first pause, in milliseconds; it doubles from attempt to attempt.
    pub first_ms: u64,
    /// The longest pause.
    pub longest_ms: u64,
    /// From the first attempt's start no pause reaches beyond this.
    pub deadline_ms: u64,
    /// How many attempts a failure is worth.
    pub attempts: RetryAttempts,
    /// Whether a refusal asks the next model of the chain, instead of ending the run.
    pub fallback_on_refusal: bool,
}

/// Attempts of one call by the class of failure; what is not here is not tried again.
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
    pub cut: Attempt,
    /// The task of the call dies.
    pub lost: Attempt,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            first_ms: 500,
            longest_ms: 30_000,
            deadline_ms: 1_800_000,
            attempts: RetryAttempts::default(),
            fallback_on_refusal: false,
        }
    }
}

impl Default for RetryAttempts {
    fn default() -> Self {
        Self { rate_limited: 8, overloaded: 8, server: 3, timeout: 3, network: 3, cut: 3, lost: 3 }
    }
}

impl RetryPolicy {
    /// Whether it is the default, which is not stored.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
