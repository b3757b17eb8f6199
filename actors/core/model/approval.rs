//! Approvals of tool calls, before their start or in doubt: policies, requests, decisions and their scope. Also the
//! reasons for another attempt.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Attempt, CallId, Timestamp};

/// The action for a call in doubt: one that must not be repeated silently, was started, and whose end is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InDoubtAction {
    /// The model reads that the call is in doubt and can check the effects itself.
    #[default]
    Tell,
    /// A person decides whether the call is repeated; until then the run is parked.
    Ask,
    /// The call is repeated, up to three attempts in all; then the model reads that it is in doubt.
    Retry,
}

/// The policy of a run for calls in doubt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct InDoubtPolicy {
    /// The action.
    #[serde(rename = "then")]
    pub action: InDoubtAction,
    /// Milliseconds until an unanswered request counts as denied.
    #[serde(rename = "patience_ms")]
    pub approval_timeout_ms: u64,
}

impl Default for InDoubtPolicy {
    fn default() -> Self {
        Self { action: InDoubtAction::default(), approval_timeout_ms: 24 * 60 * 60 * 1_000 }
    }
}

/// Fields of [`Body::ApprovalRequested`](super::Body::ApprovalRequested). This wait does not count towards limits of
/// time if nothing else of the run is under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalRequested {
    /// The call; it identifies the request.
    pub call: CallId,
    /// The attempt in doubt; 0 for a call that has not started.
    pub attempt: Attempt,
    /// The known facts and the question, as text for a person.
    pub question: String,
    /// The names of the policy's rules that ask. Empty for a call in doubt.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub rules: Vec<Arc<str>>,
    /// The rules that would allow this call from now on; see [`ApprovalNeed::allow_rules`].
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub allow_rules: Vec<Arc<str>>,
    /// Whether the request is a question of the model, which a person answers with text.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub wants_text: bool,
    /// Time at which the request expires and counts as denied.
    pub expires_at: Timestamp,
}

/// Why the policy wants a person's approval before a call starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalNeed {
    /// The names of the rules that ask, sorted and without duplicates.
    pub rules: Vec<Arc<str>>,
    /// The rules that would allow this call from now on, in the syntax of `policy.allow`. Empty if no rule can.
    pub allow_rules: Vec<Arc<str>>,
    /// What the call does and why it needs an approval, as text for a person.
    pub question: String,
}

/// A call that waits for an approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingApproval {
    /// The request for the approval.
    pub request: ApprovalRequested,
    /// The time of the request.
    pub since: Timestamp,
}

/// Fields of [`Body::ApprovalAnswered`](super::Body::ApprovalAnswered).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalAnswered {
    /// The call.
    pub call: CallId,
    /// The decision.
    #[serde(rename = "verdict")]
    pub decision: ApprovalDecision,
    /// The source of the decision.
    pub by: DecisionSource,
    /// How far the decision goes.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub scope: ApprovalScope,
}

/// A person's answer to an approval request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PersonAnswer {
    /// The call may start, or be repeated.
    Allow(ApprovalScope),
    /// The call must not start, or not be repeated.
    Deny,
    /// The answer to a question of the model.
    Text(Arc<str>),
}

impl From<ApprovalDecision> for PersonAnswer {
    fn from(decision: ApprovalDecision) -> Self {
        match decision {
            ApprovalDecision::Allow => Self::Allow(ApprovalScope::Once),
            ApprovalDecision::Deny => Self::Deny,
        }
    }
}

/// How far a person's approval goes.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    Default,
    Serialize,
    Deserialize,
    strum::Display,
    strum::EnumString,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ApprovalScope {
    /// It is about this call only.
    #[default]
    Once,
    /// It allows such calls for the rest of the run.
    Run,
    /// It allows such calls in every run: the rules were made durable before this decision.
    Always,
}

/// The decision about a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalDecision {
    /// The call may start, or be repeated.
    #[strum(serialize = "allowed")]
    Allow,
    /// The call must not start, or not be repeated.
    #[strum(serialize = "denied")]
    Deny,
}

/// The source of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecisionSource {
    /// A person decided.
    Person,
    /// The request expired and counts as denied.
    Expiry,
}

/// Why an attempt of a tool call is followed by another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetryReason {
    /// The attempt's end is unknown, and the call may be repeated.
    #[default]
    Lost,
    /// The process ended, and the call may be repeated.
    Interrupted,
    /// The attempt was never started and never will be.
    #[serde(rename = "never_begun")]
    NeverStarted,
    /// The attempt is in doubt, and the call is repeated regardless of its effects.
    InDoubt,
}
