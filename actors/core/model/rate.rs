//! Rate limits of an account: the configured ones, and what a response reports.

use serde::{Deserialize, Serialize};

use super::Timestamp;

/// Configured limits of an account per minute, over all sessions; `None` means unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RateLimits {
    /// Requests per minute.
    pub requests: Option<u32>,
    /// Tokens per minute, read and written.
    pub tokens: Option<u64>,
}

/// The remaining limits of an account that a response reports; absent ones are unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RateInfo {
    /// Remaining requests.
    pub requests: Option<RateQuota>,
    /// Remaining tokens.
    pub tokens: Option<RateQuota>,
}

/// One reported limit of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateQuota {
    /// The remaining amount.
    pub remaining: u64,
    /// Time at which the window ends and the full amount is available again.
    pub reset_at: Timestamp,
    /// The full amount, if known.
    pub limit: Option<u64>,
}
