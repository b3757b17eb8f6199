//! Verification of a run's expectations, between its final answer and its outcome. A run whose expectations all hold
//! completes. What misses for the first time is told to the model, which goes on; the second time the run fails.
//!
//! Invariant: a run with expectations is `completed` only in the append of a `run.verified` without a miss, about its last
//! answer.

use std::sync::Arc;

use crate::{
    model::{
        AssistantMessage, Body, CallId, ExpectationMiss, Outcome, OutcomeCause, OutcomeDetail,
        RUNTIME_TEXT_PREFIX, RunSpec, RunVerified, Timestamp,
    },
    mutants::{Mutant, mutant_enabled},
    turn::{
        Turn,
        active_run::{ActiveRun, LoopState},
        decision::DecisionBuilder,
    },
};

/// The run that is to be verified.
#[derive(Debug, Clone)]
pub struct UnverifiedRun {
    /// Its spec, with the expectations.
    pub spec: Arc<RunSpec>,
    /// The text of its answer.
    pub answer: Arc<str>,
    /// The start of the run.
    pub started_at: Timestamp,
}

impl ActiveRun {
    /// The model call of the final answer, if the run's expectations are to be checked before the run ends. An exhausted
    /// run and one that is being stopped end without a check, because they do not complete.
    pub(super) fn unverified_answer(&self) -> Option<CallId> {
        let may_complete = self.planned_end.is_none() && self.budget.exhausted.is_none();
        let is_wanted = may_complete && !self.spec.expects.is_empty() && self.has_final_answer();
        (is_wanted && !mutant_enabled(Mutant::SkipVerification)).then(|| self.model_call())
    }

    /// Whether the run ends after an answer that has not passed the check of its expectations.
    pub(super) fn has_unverified_text(&self, ended: &OutcomeDetail) -> bool {
        !self.spec.expects.is_empty() && ended.outcome != Outcome::Refused
    }

    /// Folds the first check with a miss: returns the answer of which the run goes on. `None` if the run ends with the
    /// check.
    fn on_verified(&mut self, verified: &RunVerified) -> Option<Arc<AssistantMessage>> {
        if verified.misses.is_empty() || self.unverified_answer() != Some(verified.call) {
            return None;
        }
        self.missed_checks += 1;
        let LoopState::Answered(answer) = &self.state else { return None };
        (self.missed_checks == 1).then(|| Arc::clone(answer))
    }
}

impl Turn {
    /// After the first check with a miss, starts a round that names what misses.
    pub(super) fn fold_verified(&mut self, verified: &RunVerified) {
        let Some(run) = &mut self.current else { return };
        let Some(answer) = run.on_verified(verified) else { return };
        self.history.end_with_answer(&answer);
        self.history.start_round(misses_text(&verified.misses));
        run.loop_guard.reset();
        run.start_iteration();
        let id = run.id;
        self.show_messages(id);
    }

    /// The run whose answer this call has given, if its expectations are to be checked now.
    pub fn unverified_run(&self, call: CallId) -> Option<UnverifiedRun> {
        let run = self.run().filter(|run| run.unverified_answer() == Some(call))?;
        let LoopState::Answered(answer) = &run.state else { return None };
        Some(UnverifiedRun {
            spec: Arc::clone(&run.spec),
            answer: answer.text.as_str().into(),
            started_at: run.clock.started.at,
        })
    }
}

impl DecisionBuilder {
    /// Reacts to the check of the expectations after the answer of `call`.
    pub(super) fn on_verified(&mut self, call: CallId, misses: &[ExpectationMiss]) {
        if self.run().and_then(ActiveRun::unverified_answer) != Some(call) {
            return;
        }
        self.record(Body::RunVerified(RunVerified { call, misses: misses.to_vec() }));
        if misses.is_empty() {
            self.end_run(OutcomeDetail { outcome: Outcome::Completed, cause: None });
        } else if self.run().is_some_and(|run| run.unverified_answer().is_some()) {
            let cause = OutcomeCause::Expectation { misses: misses.to_vec() };
            self.end_run(OutcomeDetail::with_cause(Outcome::Failed, cause));
        }
    }
}

/// The user message that tells the model what misses.
fn misses_text(misses: &[ExpectationMiss]) -> Arc<str> {
    let misses: Vec<String> = misses.iter().map(|miss| format!("- {miss}")).collect();
    format!(
        "{RUNTIME_TEXT_PREFIX}your answer does not count yet, because something that this task has to leave behind misses. \
         Mend it, then give your whole answer again. It is checked once more, and if something misses then, the task has \
         failed. What misses:]\n{}",
        misses.join("\n")
    )
    .into()
}
