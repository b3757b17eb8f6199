use serde::{Deserialize, Serialize};

use super::Timestamp;

/// What an account may use up within a minute, over all sessions; `None` without a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RateLimits {
    /// Requests.
    pub requests: Option<u32>,
    /// Tokens, read and written.
    pub tokens: Option<u64>,
}

/// What a provider says of an account's limits with a response. What is absent is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RateInfo {
    /// Requests.
    pub requests: Option<RateQuota>,
    /// Tokens.
    pub tokens: Option<RateQuota>,
}

/// See [`RateInfo`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateQuota {
    /// How many are left.
    pub remaining: u64,
    /// When it is all there again.
    pub reset_at: Timestamp,
    /// How many that is, if known.
    pub limit: Option<u64>,
}
