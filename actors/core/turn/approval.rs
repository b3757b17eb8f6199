//! Approvals of tool calls by a person: requests before a start, the answers to all requests, and their expiry. A call
//! in doubt asks through `in_doubt.rs`. A run that only waits for a person is parked: it holds no permit, and its clocks
//! stand still.

use std::sync::Arc;

use crate::{
    model::{
        ApprovalAnswered, ApprovalDecision, ApprovalNeed, ApprovalRequested, ApprovalScope, Body, CallEnd,
        CallId, CallStatus, DecisionSource, RetryReason,
    },
    mutants::{Mutant, mutant_enabled},
    turn::{
        active_run::ActiveRun,
        decision::DecisionBuilder,
        tool_calls::{ParkedCall, ToolCallState},
    },
};

impl ActiveRun {
    /// Whether a person has approved such calls for this run.
    pub(super) fn has_approved(&self, allow_rules: &[Arc<str>]) -> bool {
        !allow_rules.is_empty() && allow_rules.iter().all(|rule| self.approved_rules.contains(rule))
    }

    /// Folds an answer to a request of this run. Called before the calls of the answer fold it.
    pub(super) fn on_approval_answered(&mut self, answered: &ApprovalAnswered) {
        if answered.decision == ApprovalDecision::Deny || answered.scope == ApprovalScope::Once {
            return;
        }
        let parked = self.parked_tool_calls().into_iter().find(|parked| parked.request.call == answered.call);
        let rules = parked.map(|parked| parked.request.allow_rules.clone()).unwrap_or_default();
        self.approved_rules.extend(rules);
    }
}

impl DecisionBuilder {
    /// Parks an admitted call until a person has approved it, unless such calls are approved for the run.
    pub(super) fn request_approval(&mut self, call: CallId, need: &ApprovalNeed) {
        let Some(run) = self.run() else { return };
        if run.has_approved(&need.allow_rules) || mutant_enabled(Mutant::StartUnapproved) {
            return;
        }
        let expires_at = self.now.at.plus_ms(run.spec.in_doubt.approval_timeout_ms);
        let ApprovalNeed { rules, allow_rules, question } = need.clone();
        let request = ApprovalRequested { call, attempt: 0, question, rules, allow_rules, expires_at };
        self.record(Body::ApprovalRequested(request));
    }

    /// Whether an approval request for this call is open.
    pub fn needs_approval(&self, call: CallId) -> bool {
        self.open_approval(call).is_some()
    }

    /// The open approval request for a call. An expired one is not open, even before its answer is recorded.
    fn open_approval(&self, call: CallId) -> Option<Arc<ParkedCall>> {
        let parked = self.run().map(ActiveRun::parked_tool_calls).unwrap_or_default();
        parked
            .into_iter()
            .find(|parked| parked.request.call == call && parked.request.expires_at > self.now.at)
    }

    /// Reacts to a person's decision. One that goes beyond the call also answers the other requests of the run that its
    /// rules cover.
    pub(super) fn on_approval(&mut self, call: CallId, decision: ApprovalDecision, scope: ApprovalScope) {
        let Some(parked) = self.open_approval(call) else { return };
        if decision == ApprovalDecision::Deny {
            return self.end_parked(&parked, Some(DecisionSource::Person), "");
        }
        self.allow(&parked, scope);
        let others = self.run().map(ActiveRun::parked_tool_calls).unwrap_or_default();
        for other in others {
            let is_open = other.request.expires_at > self.now.at;
            if is_open && self.run().is_some_and(|run| run.has_approved(&other.request.allow_rules)) {
                self.allow(&other, scope);
            }
        }
    }

    fn allow(&mut self, parked: &ParkedCall, scope: ApprovalScope) {
        let (call, attempt) = (parked.request.call, parked.request.attempt);
        let (decision, by) = (ApprovalDecision::Allow, DecisionSource::Person);
        self.record(Body::ApprovalAnswered(ApprovalAnswered { call, decision, by, scope }));
        if parked.started_at.is_some() {
            self.record_loss(call.attempt(attempt), RetryReason::InDoubt);
        }
    }

    /// Ends the calls whose approval requests have expired.
    pub(super) fn expire_approvals(&mut self) {
        for parked in self.run().map(ActiveRun::parked_tool_calls).unwrap_or_default() {
            if parked.request.expires_at <= self.now.at {
                self.end_parked(&parked, Some(DecisionSource::Expiry), "");
            }
        }
    }

    /// Ends a parked call without starting or repeating it: by a decision, or because its run starts no more calls
    /// (`why`).
    pub(super) fn end_parked(&mut self, parked: &ParkedCall, by: Option<DecisionSource>, why: &str) {
        let call = parked.request.call;
        if let Some(by) = by {
            let (decision, scope) = (ApprovalDecision::Deny, ApprovalScope::Once);
            self.record(Body::ApprovalAnswered(ApprovalAnswered { call, decision, by, scope }));
        }
        let end = match parked.started_at {
            Some(since) => self.in_doubt_end(call, since, by),
            None => denied_end(by, why),
        };
        self.end_call(call.attempt(parked.request.attempt), end);
    }

    /// The calls that wait for a person before their first start.
    pub(super) fn unstarted_parked_calls(&self) -> Vec<CallId> {
        let calls = self.run().map_or(&[][..], ActiveRun::tool_calls).iter();
        let is_unstarted = |state: &ToolCallState| matches!(state, ToolCallState::Parked(parked) if parked.started_at.is_none());
        calls.filter(|call| !call.may_have_run && is_unstarted(&call.state)).map(|call| call.id).collect()
    }
}

/// The result that the model reads for a call that waited for a person and does not start.
fn denied_end(by: Option<DecisionSource>, why: &str) -> CallEnd {
    let (error, hint) = match by {
        None => return CallEnd::not_started(why),
        Some(DecisionSource::Person) => (
            "the operator was asked and has denied this call: it was not started",
            "do not try it in another form; go on without it, or say in your answer what needs it",
        ),
        Some(DecisionSource::Expiry) => (
            "the operator was asked and has not answered in time, which counts as a no: the call was not started",
            "go on without it, or say in your answer what needs it",
        ),
    };
    CallEnd::error(CallStatus::NotStarted, error, None, hint)
}
