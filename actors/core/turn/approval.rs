//! Approvals of tool calls by a person: requests before a start, the answers to all requests, and their expiry. A call
//! in doubt asks through `in_doubt.rs`. A run that only waits for a person is parked: it holds no permit, and its clocks
//! stand still.

use std::sync::Arc;

use crate::{
    model::{
        ApprovalAnswered, ApprovalDecision, ApprovalNeed, ApprovalRequested, ApprovalScope, Body, CallEnd,
        CallId, CallStatus, DecisionSource, PersonAnswer, RetryReason,
    },
    mutants::{Mutant, mutant_enabled},
    policy::{
        clarify::{CLARIFY, parse_clarify},
        parse_arguments,
    },
    turn::{
        active_run::ActiveRun,
        decision::DecisionBuilder,
        tool_calls::{ActiveToolCall, ParkedCall, ToolCallState},
    },
};

impl DecisionBuilder {
    /// Parks an admitted call until a person has approved it, unless such calls are approved for the run. A call that a
    /// person has denied before in this run is not asked about again.
    pub(super) fn request_approval(&mut self, call: CallId, need: &ApprovalNeed) {
        let Some(run) = self.run() else { return };
        if self.call(call).is_some_and(|call| run.decisions.has_denied(call)) {
            return self.end_call(call.attempt(0), denied_end(Some(DecisionSource::Person), "", false));
        }
        if run.decisions.has_approved(&need.allow_rules) || mutant_enabled(Mutant::StartUnapproved) {
            return;
        }
        let expires_at = self.now.at.plus_ms(run.spec.in_doubt.approval_timeout_ms);
        let ApprovalNeed { rules, allow_rules, question } = need.clone();
        let wants_text = false;
        let request =
            ApprovalRequested { call, attempt: 0, question, rules, allow_rules, wants_text, expires_at };
        self.record(Body::ApprovalRequested(request));
    }

    /// Parks the admitted calls of `clarify`: each is a question of the model to a person.
    pub(super) fn ask_questions(&mut self) {
        let is_ready = |call: &&ActiveToolCall| *call.tool == *CLARIFY && call.is_admitted();
        while let Some(run) =
            self.run().filter(|run| run.planned_end.is_none() && run.budget.exhausted.is_none())
            && let Some(call) = run.tool_calls().iter().find(is_ready).map(|call| call.id)
        {
            let expires_at = self.now.at.plus_ms(run.spec.in_doubt.approval_timeout_ms);
            match parse_arguments(run.arguments(call)).ok().and_then(|given| parse_clarify(&given).ok()) {
                Some(question) => {
                    let (rules, allow_rules) = (Vec::new(), Vec::new());
                    let (question, wants_text) = (question.to_string(), true);
                    let request = ApprovalRequested {
                        call,
                        attempt: 0,
                        question,
                        rules,
                        allow_rules,
                        wants_text,
                        expires_at,
                    };
                    self.record(Body::ApprovalRequested(request));
                }
                // Another version has admitted the call.
                None => {
                    self.end_call(call.attempt(0), CallEnd::not_started("ask again with other arguments"));
                }
            }
        }
    }

    /// Whether this answer fits an open request for the call. Only a question of the model is answered with text.
    pub fn may_answer(&self, call: CallId, answer: &PersonAnswer) -> bool {
        let is_fit = |parked: Arc<ParkedCall>| match answer {
            PersonAnswer::Allow(_) => !parked.request.wants_text,
            PersonAnswer::Text(_) => parked.request.wants_text,
            PersonAnswer::Deny => true,
        };
        self.open_approval(call).is_some_and(is_fit)
    }

    /// The open approval request for a call. An expired one is not open, even before its answer is recorded.
    fn open_approval(&self, call: CallId) -> Option<Arc<ParkedCall>> {
        let parked = self.run().map(ActiveRun::parked_tool_calls).unwrap_or_default();
        parked
            .into_iter()
            .find(|parked| parked.request.call == call && parked.request.expires_at > self.now.at)
    }

    /// Reacts to a person's answer; one that does not fit has no effect. An approval that goes beyond the call also
    /// answers the other requests of the run that its rules cover.
    pub(super) fn on_person_answer(&mut self, call: CallId, answer: &PersonAnswer) {
        let Some(parked) = self.open_approval(call).filter(|_| self.may_answer(call, answer)) else { return };
        match answer {
            PersonAnswer::Deny => self.end_parked(&parked, Some(DecisionSource::Person), ""),
            PersonAnswer::Text(text) => {
                self.allow(&parked, ApprovalScope::Once);
                self.end_call(call.attempt(0), CallEnd::new(CallStatus::Ok, Arc::clone(text)));
            }
            PersonAnswer::Allow(scope) => {
                self.allow(&parked, *scope);
                self.allow_covered(*scope);
            }
        }
    }

    /// Allows the calls that wait for a person and that the approvals of the run cover.
    fn allow_covered(&mut self, scope: ApprovalScope) {
        for other in self.run().map(ActiveRun::parked_tool_calls).unwrap_or_default() {
            let is_open = other.request.expires_at > self.now.at;
            if is_open && self.run().is_some_and(|run| run.decisions.has_approved(&other.request.allow_rules))
            {
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
            None => denied_end(by, why, parked.request.wants_text),
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
fn denied_end(by: Option<DecisionSource>, why: &str, wants_text: bool) -> CallEnd {
    let (error, hint) = match by {
        None => return CallEnd::not_started(why),
        Some(DecisionSource::Person) if wants_text => (
            "no answer: the person does not want to answer this",
            "decide yourself what fits the task best, and say in your answer what you assumed",
        ),
        Some(DecisionSource::Expiry) if wants_text => (
            "no answer: nobody has answered in time",
            "decide yourself what fits the task best, and say in your answer what you assumed",
        ),
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
