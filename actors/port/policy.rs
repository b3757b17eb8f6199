//! Port of the policy: whether a tool call that a model has proposed may run, needs a person's approval, or is denied.

use std::{fmt::Debug, sync::Arc};

use serde_json::Value;

use super::BadArguments;
use crate::model::{AgentName, ApprovalNeed};

/// Judges every tool call before its admission. It belongs to the process: no spec of a run can loosen it.
pub trait CallPolicy: Debug + Send + Sync + 'static {
    /// Judges a call whose tool has accepted its arguments. Steps, memory and stack depth must be bounded for all
    /// arguments: a model writes them. May read a small file, and must do nothing slower.
    fn judge(&self, call: &ProposedCall<'_>) -> CallVerdict;
}

/// A call that a model has proposed, as its tool has accepted it.
#[derive(Debug, Clone, Copy)]
pub struct ProposedCall<'a> {
    /// The agent of the run.
    pub agent: &'a AgentName,
    /// The registered name of the tool.
    pub tool: &'a str,
    /// The arguments, a JSON object.
    pub arguments: &'a Value,
    /// The workspace of the run.
    pub workspace: &'a str,
}

/// The policy's verdict on a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallVerdict {
    /// The call may run.
    Allow,
    /// The call may run after a person's approval.
    Ask(Arc<ApprovalNeed>),
    /// The call may not run; the model reads why.
    Deny(BadArguments),
}

/// The policy that allows every call, for runtimes whose owner judges elsewhere, and for tests.
#[derive(Debug, Clone, Copy, Default)]
pub struct AllowAllCalls;

impl CallPolicy for AllowAllCalls {
    fn judge(&self, _: &ProposedCall<'_>) -> CallVerdict {
        CallVerdict::Allow
    }
}
