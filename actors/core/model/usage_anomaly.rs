//! Reported token usage that cannot be true: its kinds, and the report itself. `policy/billing.rs` decides.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Usage;

/// Why a provider's reported usage cannot be true.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum UsageAnomalyKind {
    /// A count is negative, fractional, above 2^53, or not a number.
    InvalidCount,
    /// The tokens read from the cache and written to it exceed all tokens read by more than is plausible.
    PartsBeyondWhole,
    /// The tokens read exceed what the request can contain.
    InputBeyondRequest,
    /// Zero tokens were reported as read of a request with text.
    NoInput,
    /// The tokens written exceed both the requested maximum and what the answer can contain.
    OutputBeyondLimit,
}

/// A reported usage that cannot be true: recorded but not counted. The attempt is charged its reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageAnomaly {
    /// Why it cannot be true.
    pub kind: UsageAnomalyKind,
    /// The reported counts; 0 for a count that could not be read.
    pub reported: Usage,
}

impl fmt::Display for UsageAnomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Usage { input_tokens, cached_tokens, cache_write_tokens, is_invalid, .. } = self.reported;
        let (kind, written) = (self.kind, self.reported.output_total());
        let unread = if is_invalid { "; a count was no whole number" } else { "" };
        write!(
            f,
            "{kind} ({input_tokens} tokens read, of these {cached_tokens} from the cache and {cache_write_tokens} to it, \
             {written} written{unread})"
        )
    }
}
