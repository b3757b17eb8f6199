use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Attempt, CallId, Timestamp};

/// What is done about a call that must not be repeated silently, had begun, and whose end nobody saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InDoubtAction {
    /// The model is told, and looks for itself.
    #[default]
    Tell,
    /// A person is asked whether it is to be made again; the run is parked until then.
    Ask,
    /// It is made again, at most three times.
    Retry,
}

/// How a run deals with calls in doubt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct InDoubtPolicy {
    /// What is done.
    #[serde(rename = "then")]
    pub action: InDoubtAction,
    /// For how long a person is waited for, in milliseconds; then the answer is no.
    #[serde(rename = "patience_ms")]
    pub approval_timeout_ms: u64,
}

impl Default for InDoubtPolicy {
    fn default() -> Self {
        Self { action: InDoubtAction::default(), approval_timeout_ms: 24 * 60 * 60 * 1_000 }
    }
}

impl InDoubtPolicy {
    /// Whether nothing was said about it.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// See [`Body::ApprovalRequested`](super::Body::ApprovalRequested). What is waited does not count for limits of time, if
/// nothing else of the run is under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalRequested {
    /// The call that a person is to decide about; it names the question.
    pub call: CallId,
    /// Its attempt that is in doubt.
    pub attempt: Attempt,
    /// What is known, and what is asked.
    pub question: String,
    /// When nobody is waited for any more; the answer is no then.
    pub expires_at: Timestamp,
}

/// See [`Body::ApprovalAnswered`](super::Body::ApprovalAnswered).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalAnswered {
    /// The call.
    pub call: CallId,
    /// Whether it may be made.
    #[serde(rename = "verdict")]
    pub decision: ApprovalDecision,
    /// Who says so.
    pub by: DecisionSource,
}

/// An answer to a request for approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalDecision {
    /// It may.
    Allow,
    /// It may not.
    Deny,
}

impl fmt::Display for ApprovalDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allow => "allowed",
            Self::Deny => "denied",
        })
    }
}

/// Who answers a request for approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecisionSource {
    /// Somebody.
    Person,
    /// Nobody did in time.
    Expiry,
}

/// Why an attempt of a tool call is followed by another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetryReason {
    /// Its end was not seen, and it may be repeated.
    #[default]
    Lost,
    /// The process ended, and it may be repeated.
    Interrupted,
    /// It was never begun, and never will be.
    #[serde(rename = "never_begun")]
    NeverStarted,
    /// It is in doubt, and is to be repeated whatever it did.
    InDoubt,
}

impl RetryReason {
    #[allow(clippy::trivially_copy_pass_by_ref)] // serde hands a reference
    pub(super) fn is_lost(&self) -> bool {
        *self == Self::Lost
    }
}
