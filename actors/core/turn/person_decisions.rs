//! What a person has decided for the rest of a run: the fold of the answers to its approval requests.

use std::{collections::BTreeSet, sync::Arc};

use crate::{
    model::{ApprovalAnswered, ApprovalDecision, ApprovalScope, DecisionSource, Hash},
    turn::tool_calls::{ActiveToolCall, ToolCallState},
};

/// What a person has decided for the rest of a run.
#[derive(Debug, Clone, Default)]
pub(super) struct PersonDecisions {
    /// The rules of approvals that go beyond their call.
    approved_rules: BTreeSet<Arc<str>>,
    /// The tools and arguments of denied calls.
    denied: BTreeSet<(Arc<str>, Hash)>,
}

impl PersonDecisions {
    /// Whether a person has approved such calls for the run.
    pub(super) fn has_approved(&self, allow_rules: &[Arc<str>]) -> bool {
        !allow_rules.is_empty() && allow_rules.iter().all(|rule| self.approved_rules.contains(rule))
    }

    /// Whether a person has denied an equal call of the run.
    pub(super) fn has_denied(&self, call: &ActiveToolCall) -> bool {
        call.arguments.is_some_and(|hash| self.denied.contains(&(Arc::clone(&call.tool), hash)))
    }

    /// Folds an answer to the request about `call`, which is still parked.
    pub(super) fn apply(&mut self, answered: &ApprovalAnswered, call: &ActiveToolCall) {
        let ToolCallState::Parked(parked) = &call.state else { return };
        match (answered.decision, answered.by) {
            (ApprovalDecision::Allow, _) if answered.scope == ApprovalScope::Once => {}
            (ApprovalDecision::Allow, _) => {
                self.approved_rules.extend(parked.request.allow_rules.iter().cloned());
            }
            (ApprovalDecision::Deny, DecisionSource::Person) if parked.started_at.is_none() => {
                self.denied.extend(call.arguments.map(|hash| (Arc::clone(&call.tool), hash)));
            }
            (ApprovalDecision::Deny, DecisionSource::Person | DecisionSource::Expiry) => {}
        }
    }
}
