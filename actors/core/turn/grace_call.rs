//! The end of a run's budget: the warning when little is left, the reaction to a refused reservation, and the grace
//! call. Also composes the transient prompt of every request, of which the warning is a part.
//!
//! Invariant: after the record `run.exhausted` the run starts nothing but the grace call. Whatever its result, the outcome
//! names the reservation that was refused first.

use std::sync::Arc;

use crate::{
    model::{
        AssistantMessage, AttemptId, Body, BudgetRefusal, CallEnd, CallId, Dimension, Failure, FailureClass,
        ModelAnswer, ModelAnswered, ModelFailed, ModelStarted, Outcome, OutcomeCause, OutcomeDetail,
        RUNTIME_TEXT_PREFIX, RunExhausted, RunId, SessionTime,
    },
    turn::{
        DueAction,
        active_run::{ActiveRun, LoopState},
        answer::accepted_answer,
        answer_recovery::TransientPrompt,
        decision::DecisionBuilder,
        model_call::ModelCallState,
        run_budget::RefusedReservation,
    },
};

/// The dimensions in which a run spends by its own calls.
const OWN_DIMENSIONS: [Dimension; 4] =
    [Dimension::Iterations, Dimension::Tokens, Dimension::Usd, Dimension::ToolCalls];

impl DecisionBuilder {
    /// Reacts to a reservation that does not fit. An aside is given up. Another call waits if the limit is of a period
    /// that ends soon enough; else it exhausts the run, so that the grace call follows. A run without an answer, or in its grace call, ends; started calls keep their results.
    pub(super) fn on_refused_reservation(&mut self, refused: &RefusedReservation) {
        let acquired: Vec<_> =
            self.turn.due(self.now).iter().filter_map(DueAction::acquired_attempt).collect();
        if self.run().is_none() {
            return self.refuse_title(&refused.refusal);
        }
        let another = self.is_of_another(refused);
        let is_meant = |run: &&ActiveRun| !another && !acquired.is_empty() && refused.concerns(run.id);
        let Some(run) = self.run().filter(is_meant) else { return };
        let refusal = refused.refusal.clone();
        if let Some(id) = acquired.iter().find(|id| id.call.is_aside()) {
            self.give_up_aside(*id, Failure::new(FailureClass::NotSent, refusal.to_string()));
            return self.compact_if_needed();
        }
        if run.budget.exhausted.is_some() {
            self.end_exhausted();
        } else if let Some(waiting) = self.wait_for_period(&refusal) {
            self.record(Body::ModelWaiting(waiting));
        } else if run.has_answered() && OWN_DIMENSIONS.contains(&refusal.dimension) {
            self.exhaust(refusal);
        } else {
            self.wind_down(exhausted_end(refusal));
        }
    }

    /// Whether the refused account is that of another run of this session.
    pub(super) fn is_of_another(&self, RefusedReservation { refusal, .. }: &RefusedReservation) -> bool {
        let current = self.run().map(|run| run.id.into());
        current != Some(refusal.account)
            && self.turn.accepted.contains(&RunId::from_bits(refusal.account.bits()))
    }

    /// Records that the budget is used up. Calls that have not started end, and so do calls that wait for a person. When the
    /// running calls have ended, the grace call is due.
    pub(super) fn exhaust(&mut self, refusal: BudgetRefusal) {
        let Some(run) = self.run().filter(|run| run.planned_end.is_none()) else { return };
        let (id, parked) = (run.id, run.parked_tool_calls());
        let unstarted: Vec<CallId> = run.unstarted_calls().collect();
        let hint = format!("the run's budget is used up: {refusal}");
        self.cancel_asides();
        self.record(Body::RunExhausted(RunExhausted { run: id, refusal }));
        for call in unstarted {
            self.end_call(call.attempt(0), CallEnd::not_started(&hint));
        }
        for parked in parked {
            self.end_parked(&parked, None, &hint);
        }
    }

    /// See [`ActiveRun::is_in_grace`]; false without a run.
    pub(super) fn is_in_grace(&self) -> bool {
        self.run().is_some_and(ActiveRun::is_in_grace)
    }

    /// Reacts to the answer of the grace call. The request forbids tool calls; if the answer has some they are dropped,
    /// and its text counts.
    pub(super) fn on_grace_answer(&mut self, started: &ModelStarted, answer: &ModelAnswer) {
        let message = Arc::new(AssistantMessage { calls: Vec::new(), ..answer.message.clone() });
        let answered = ModelAnswered { message, ..accepted_answer(started, answer) };
        self.record(Body::ModelAnswered(Box::new(answered)));
        self.end_exhausted();
    }

    /// Whether a failed request for an answer without calls is made again, without tools.
    pub(super) fn may_repeat_without_tools(&self, failure: &Failure) -> bool {
        let Some(run) = self.run().filter(|run| run.answer_recovery.is_answer_due()) else { return false };
        run.offers_tools() && !run.spec.tools.is_empty() && refuses_tool_choice(&failure.class)
    }

    /// Reacts to a failure of the grace call. The call is repeated, without tools, only if the provider may have
    /// refused the request for `tool_choice`.
    pub(super) fn on_grace_failure(&mut self, id: AttemptId, failure: &Failure) {
        let offered = self.turn.offers_tools() && self.run().is_some_and(|run| !run.spec.tools.is_empty());
        let is_again = offered && refuses_tool_choice(&failure.class);
        let retry_at = is_again.then_some(self.now.at);
        self.record(Body::ModelFailed(ModelFailed::new(id, failure.clone(), retry_at)));
        if !is_again {
            self.end_exhausted();
        }
    }

    pub(super) fn end_exhausted(&mut self) {
        if let Some(refusal) = self.run().and_then(|run| run.budget.exhausted.clone()) {
            self.end_run(exhausted_end(refusal));
        }
    }
}

/// Whether the failure may be a refusal of `tool_choice`. A gateway without a server that accepts it may report
/// `ModelNotFound`.
const fn refuses_tool_choice(class: &FailureClass) -> bool {
    matches!(class, FailureClass::InvalidRequest | FailureClass::ModelNotFound)
}

const fn exhausted_end(refusal: BudgetRefusal) -> OutcomeDetail {
    OutcomeDetail { outcome: Outcome::BudgetExhausted, cause: Some(OutcomeCause::Limit { refusal }) }
}

impl ActiveRun {
    /// Folds `run.exhausted`. A model call that has had an attempt is given up, because the grace call is a call of its
    /// own.
    pub(super) fn on_exhausted(&mut self, exhausted: &RunExhausted, now: SessionTime) {
        self.budget.exhausted = Some(exhausted.refusal.clone());
        if self.model_call_state().is_some_and(|call| call.since.is_some()) {
            self.end_pause(now);
            self.repeat_view();
        }
    }

    /// Whether the next request, or the one under way, has the run's tools. Only a request that forbids calls has none,
    /// after a provider's refusal of `tool_choice`.
    pub(super) fn offers_tools(&self) -> bool {
        let Some(call) = self.model_call_state() else { return true };
        let is_refused = call.last_failure().is_some_and(|failure| refuses_tool_choice(&failure.class));
        !self.forbids_calls() || !is_refused
    }

    /// Whether the next request, or the one under way, forbids calls.
    pub(super) const fn forbids_calls(&self) -> bool {
        self.budget.exhausted.is_some() || self.answer_recovery.is_answer_due()
    }

    /// Whether the call that is wanted, under way or answered is the grace call.
    pub(super) const fn is_in_grace(&self) -> bool {
        self.budget.exhausted.is_some() && !matches!(self.state, LoopState::RunningTools(_))
    }

    /// Whether a model call of an earlier iteration or leg was made, or this iteration's call is answered.
    pub(super) const fn has_answered(&self) -> bool {
        self.iteration.saturating_sub(self.budget.skipped_numbers) > 1
            || !matches!(self.state, LoopState::CallingModel(_))
    }

    /// Why the run starts no further tool call; `None` if it may.
    pub(super) const fn closing_reason(&self) -> Option<&'static str> {
        match (&self.planned_end, &self.budget.exhausted) {
            (Some(_), _) => Some("the run was stopped"),
            (None, Some(_)) => Some("the run's budget is used up"),
            (None, None) => None,
        }
    }

    /// The next model call, not started yet, with the budget warning that all its attempts show.
    pub(super) fn next_call(&self) -> ModelCallState {
        ModelCallState { warning: self.budget_warning(), ..ModelCallState::new(self.answer_recovery.link()) }
    }

    /// The transient prompt of a request: of answer recovery, of the budget, and of context pressure. `pressure` is the
    /// text about context pressure.
    pub(super) fn transient_prompt(
        &self,
        call: &ModelCallState,
        pressure: Option<Arc<str>>,
    ) -> Option<TransientPrompt> {
        let recovery = self.answer_recovery.transient_prompt();
        let budget = match &self.budget.exhausted {
            Some(refusal) => Some(grace_prompt(refusal, self.id)),
            None => match (&call.warning, pressure) {
                (Some(warning), Some(pressure)) => Some(format!("{warning}\n\n{pressure}").into()),
                (warning, pressure) => warning.clone().or(pressure),
            },
        };
        let Some(budget) = budget else { return recovery };
        // In the grace call a prompt of answer recovery is kept only if there is a partial text to continue.
        let recovery =
            recovery.filter(|recovery| self.budget.exhausted.is_none() || recovery.partial.is_some());
        Some(match recovery {
            Some(TransientPrompt { partial, prompt }) => {
                TransientPrompt { partial, prompt: format!("{prompt}\n\n{budget}").into() }
            }
            None => TransientPrompt { partial: None, prompt: budget },
        })
    }

    /// The warning about limits that are used to 80 % or more. Iterations include the one that begins, and must exceed
    /// 80 %.
    fn budget_warning(&self) -> Option<Arc<str>> {
        let near = OWN_DIMENSIONS.into_iter().filter_map(|dimension| {
            let limit = self.budget_limit(dimension)?;
            let (used, is_near) = match dimension {
                Dimension::Iterations => {
                    let used = u64::from(self.iteration);
                    (used, used.saturating_mul(5) > limit.saturating_mul(4))
                }
                Dimension::Tokens | Dimension::Usd | Dimension::ToolCalls | Dimension::Children => {
                    let used = self.budget.spent.get(dimension).unwrap_or(0);
                    (used, used.saturating_mul(5) >= limit.saturating_mul(4))
                }
            };
            is_near.then(|| format!("{} of {}", dimension.display(used), format_amount(dimension, limit)))
        });
        let near: Vec<String> = near.collect();
        let warning = || {
            format!(
                "{RUNTIME_TEXT_PREFIX}little is left of this run's budget. Used, with this call: {}. Wrap up: finish what matters \
                 most, begin nothing new, and give your answer.]",
                near.join(", ")
            )
        };
        (!near.is_empty()).then(|| warning().into())
    }
}

/// The prompt of the grace call.
fn grace_prompt(refusal: &BudgetRefusal, run: RunId) -> Arc<str> {
    let limit = format_amount(refusal.dimension, refusal.limit);
    let whose =
        if refusal.account == run.into() { "its limit" } else { "a limit that it shares with others" };
    format!(
        "{RUNTIME_TEXT_PREFIX}the budget of this run is used up: {whose} of {limit} is reached. No call will be made any more. \
         Answer now, in text: what was done, the result so far, and what is left to do.]"
    )
    .into()
}

/// An amount with its unit, as text for the model.
fn format_amount(dimension: Dimension, amount: u64) -> String {
    let unit = match dimension {
        Dimension::Iterations => " iteration",
        Dimension::Tokens => " token",
        Dimension::Usd => return dimension.display(amount).to_string(),
        Dimension::ToolCalls => " tool call",
        Dimension::Children => " live subagent",
    };
    format!("{amount}{unit}{}", if amount == 1 { "" } else { "s" })
}
