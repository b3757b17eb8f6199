//! Decides the start of each attempt of a model call, and what follows from its answer. That is a flaw, the end of the
//! run, or the admission of its tool calls. Failures are in `model_failure.rs`. The task of the call is in
//! `session/model_task.rs`.

use std::sync::Arc;

use crate::{
    model::{
        Amounts, AssistantMessage, AttemptId, Body, CallAdmitted, CallEnd, CallId, EffectClass, Flaw,
        ModelAnswer, ModelAnswered, ModelLate, ModelRef, ModelStarted, Outcome, Usage,
    },
    mutants::{Mutant, mutant_enabled},
    policy::validate_usage,
    turn::{
        CallAdmission, active_run::ActiveRun, answer_recovery::AnswerVerdict, decision::DecisionBuilder,
        estimates, tool_calls::ToolCallState,
    },
};

impl DecisionBuilder {
    /// Starts an attempt of the model call with the present view.
    pub(super) fn start_model_call(&mut self, id: AttemptId, model: &ModelRef) {
        let AttemptId { call, attempt } = id;
        let Some(run) = self.run().filter(|run| run.is_wanted(id) && self.may_start()) else { return };
        if self.turn.waits_for_description(run) {
            return;
        }
        if let Some(refusal) = estimates::grace_refusal(run, &self.turn, model) {
            self.exhaust(refusal);
            // The lease may serve the grace call instead.
            return self.start_model_call(id, model);
        }
        let estimate = estimates::estimate(run, &self.turn, attempt, model);
        let started = ModelStarted {
            call,
            attempt,
            model: model.clone(),
            view_seq: self.turn.last,
            request_hash: self.turn.request_hash(),
            bytes: estimates::request_bytes(run, &self.turn) as u64,
            images: self.turn.history.images as u64,
            max_tokens: estimate.max_tokens,
            prefix: self.turn.prefix_change(model),
            reserved: estimate.reserved,
            period: self.turn.period(self.now.at),
            price: run.spec.profile_of(model).price,
            incarnation: self.turn.incarnation,
        };
        self.record(Body::ModelStarted(Arc::new(started)));
    }

    /// Whether this attempt of the model call is under way.
    pub(super) fn is_current_attempt(&self, id: AttemptId) -> bool {
        self.run().and_then(ActiveRun::model_started).is_some_and(|started| started.id() == id)
    }

    /// Reacts to the answer of an attempt. `admissions` are the executor's verdicts on its tool calls.
    pub(super) fn on_answer(
        &mut self,
        started: &ModelStarted,
        answer: &ModelAnswer,
        admissions: &[CallAdmission],
    ) {
        if !self.is_current_attempt(started.id()) {
            return self.on_late_answer(started, answer);
        }
        if self.is_in_grace() {
            return self.on_grace_answer(started, answer);
        }
        // Where an answer is due the request forbids calls.
        let is_due = self.run().is_some_and(|run| run.answer_recovery.is_answer_due());
        let without_calls = is_due.then(|| without_calls(answer));
        let (allowed, admissions) = without_calls.as_ref().map_or((answer, admissions), |text| (text, &[]));
        let Some(AnswerVerdict { flaw, fallback, ended }) =
            self.run().map(|run| run.answer_recovery.classify(allowed, admissions, started, &run.spec))
        else {
            return;
        };
        let mut answered = ModelAnswered { flaw, fallback, ..accepted_answer(started, answer) };
        if let Some(ModelAnswer { message, .. }) = without_calls {
            answered.message = Arc::new(message);
        }
        self.record(Body::ModelAnswered(Box::new(answered)));
        if flaw.is_some_and(Flaw::asks_again) {
            return;
        }
        if let Some(ended) = ended {
            // A final answer ends the run only after all subagents have ended and the model has read their results.
            // Expectations are checked before it.
            let is_complete = |run: &ActiveRun| run.has_final_answer() && run.unverified_answer().is_none();
            if ended.outcome != Outcome::Completed || self.run().is_some_and(is_complete) {
                self.end_run(ended);
            }
            return;
        }
        self.record_admissions(started.call, admissions);
        self.skip_for_messages();
    }

    /// Reacts to an answer whose attempt was given up: drops its content and books its real cost. Until now everything
    /// reserved counted as spent.
    pub(super) fn on_late_answer(&mut self, started: &ModelStarted, answer: &ModelAnswer) {
        let (call, attempt) = (started.call, started.attempt);
        let (usage, anomaly) = validate_usage(started, &answer.message, answer.usage);
        if let Some(usage) = usage {
            let nano_usd = started.price.and_then(|price| price.cost(&usage));
            let booked = Amounts {
                tokens: started.reserved.tokens,
                usd: started.reserved.usd.filter(|_| nano_usd.is_some()),
                ..Amounts::default()
            };
            let usage = if mutant_enabled(Mutant::DropLateUsage) { Usage::default() } else { usage };
            self.record(Body::ModelLate(ModelLate {
                call,
                attempt,
                usage,
                usd: nano_usd,
                booked,
                period: started.period,
                anomaly: None,
            }));
        } else if anomaly.is_some() {
            let (usage, booked) = (Usage::default(), Amounts::default());
            let late = ModelLate { call, attempt, usage, usd: None, booked, period: None, anomaly };
            self.record(Body::ModelLate(late));
        }
    }

    /// Records the admission of each tool call of the answer, or the end of a rejected one. A repetition of an earlier
    /// `once` call gets that call's result.
    fn record_admissions(&mut self, model_call: CallId, admissions: &[CallAdmission]) {
        for (admission, n) in admissions.iter().zip(1..) {
            let call = CallId { n, ..model_call };
            let earlier = admissions.iter().zip(1..n);
            let same_as =
                earlier.filter(|(earlier, _)| is_duplicate_once(earlier, admission)).map(|(_, n)| n).next();
            match admission {
                CallAdmission::Admit { tool, intent, arguments, approval, hooks } => {
                    self.record(Body::CallAdmitted(CallAdmitted {
                        call,
                        tool: Arc::clone(tool),
                        effect: intent.effect,
                        access: intent.access.clone(),
                        detached: intent.detached,
                        polls: intent.polls,
                        arguments: *arguments,
                        same_as,
                        hooks: hooks.clone(),
                    }));
                    match (same_as, approval) {
                        (Some(n), _) => self.end_like(call, CallId { n, ..model_call }),
                        (None, Some(need)) => self.request_approval(call, need),
                        (None, None) => {}
                    }
                }
                CallAdmission::Reject { end, .. } => self.end_call(call.attempt(0), end.clone()),
            }
        }
    }

    /// Ends a call like its equal `first`, if that has ended already: a person denied it before in the run.
    fn end_like(&mut self, call: CallId, first: CallId) {
        let state = self.call(first).map(|first| first.state.clone());
        if let Some(ToolCallState::Ended(end)) = state {
            self.end_call(call.attempt(0), CallEnd::clone(&end));
        }
    }
}

/// The record of an answer without a flaw.
pub(super) fn accepted_answer(started: &ModelStarted, answer: &ModelAnswer) -> ModelAnswered {
    let (usage, anomaly) = validate_usage(started, &answer.message, answer.usage);
    ModelAnswered {
        call: started.call,
        attempt: started.attempt,
        message: Arc::new(answer.message.clone()),
        finish: answer.finish,
        flaw: None,
        fallback: None,
        usage,
        anomaly,
    }
}

/// The answer without its calls, which were not allowed.
fn without_calls(answer: &ModelAnswer) -> ModelAnswer {
    let message = AssistantMessage { calls: Vec::new(), ..answer.message.clone() };
    ModelAnswer { message, ..answer.clone() }
}

/// Whether two tool calls are equal and their effect must not happen twice. What hooks say of them does not count, only
/// the arguments that they leave.
fn is_duplicate_once(one: &CallAdmission, other: &CallAdmission) -> bool {
    let call = |admission: &CallAdmission| match admission {
        CallAdmission::Admit { tool, intent, arguments, approval, hooks: _ } => {
            Some((Arc::clone(tool), intent.clone(), *arguments, approval.clone()))
        }
        CallAdmission::Reject { .. } => None,
    };
    matches!(one, CallAdmission::Admit { intent, .. } if intent.effect == EffectClass::Once)
        && call(one) == call(other)
}
