//! Decides about the calls for summaries: their start, what follows from answers and failures, and when the summary is
//! given up.

use std::sync::Arc;

use super::{prompt, request_hash};
use crate::{
    model::{
        AsideDefect, AttemptId, Body, Failure, FailureClass, HookedSummary, ModelAnswer, ModelFailed,
        ModelRef, ModelStarted, SummaryStarted, TokenDensity,
    },
    turn::{
        active_run::ActiveRun,
        aside::{AsideContent, aside_answered, aside_refusal},
        compaction_state::CompactionNeed,
        decision::DecisionBuilder,
    },
};

impl DecisionBuilder {
    /// Starts an attempt by this model, with what hooks have decided about its prompt.
    pub(in crate::turn) fn start_summary(
        &mut self,
        id: AttemptId,
        model: &ModelRef,
        hooks: Option<&Arc<HookedSummary>>,
    ) {
        let Some(run) = self.run().filter(|run| run.is_summary_wanted(id) && self.may_start()) else {
            return;
        };
        if self.turn.waits_for_flush(run) {
            return;
        }
        let compacting = &run.compaction;
        let (CompactionNeed::Now(to) | CompactionNeed::Soon(to)) = self.turn.need(run) else { return };
        let Some(limits) = self.turn.context_budget(run) else { return };
        let density = self.turn.observations.density(&run.spec, model);
        let bytes = density.bytes(self.turn.chunk_tokens(run, model, limits.summary_tokens));
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let from = self.turn.summary_end(compacting);
        let (transcript, call_end) = self.turn.history.transcript(from, to, bytes);
        let text = self.turn.summary_input(compacting, &transcript);
        let prompt = prompt(hooks.or(compacting.hooks.as_ref()));
        let content = AsideContent { prompt: &prompt, text: &text, images: 0 };
        let started = self.aside_start(id, (&run.spec, model), content, limits.summary_tokens);
        let started = ModelStarted { request_hash: request_hash(&prompt, &text), ..started };
        if let Some(why) = aside_refusal(run, &started.reserved, "a summary") {
            let failure = Failure::new(FailureClass::NotSent, why);
            return self.give_up_summary(id, failure);
        }
        self.record(Body::SummaryStarted(Box::new(SummaryStarted {
            started: Arc::new(started),
            call_end,
            summary_end: to,
            hooks: hooks.cloned(),
        })));
    }

    /// Whether this attempt at a summary is under way.
    fn is_summarising(&self, id: AttemptId) -> bool {
        let started = self.run().and_then(|run| run.compaction.call.started());
        started.is_some_and(|started| started.id() == id)
    }

    /// Reacts to an answer. An unusable one leads to another attempt, and after `MAX_MODEL_TRIES` to the next model.
    pub(in crate::turn) fn on_summary_answer(&mut self, started: &ModelStarted, answer: &ModelAnswer) {
        let Some(run) = self.run().filter(|_| self.is_summarising(started.id())) else {
            return self.on_late_answer(started, answer);
        };
        let text = answer.message.text.trim();
        let checked = summary_defect(text, started).map_or_else(|| Ok(text.into()), Err);
        let answered = aside_answered(&run.compaction.call, summarisers(run), (started, answer), checked);
        self.record(Body::SummaryAnswered(answered));
    }

    /// Reacts to a failed attempt at a summary: another attempt, the next model, or no summary.
    pub(in crate::turn) fn on_summary_failure(&mut self, id: AttemptId, failure: &Failure) {
        let Some(run) = self.run().filter(|_| self.is_summarising(id)) else { return };
        let Some(started) = run.compaction.call.started() else { return };
        let failed = self.aside_failed(&run.compaction.call, started, summarisers(run), failure);
        self.record(Body::SummaryFailed(failed));
    }

    /// Gives up the wanted attempt and with it the summary.
    pub(in crate::turn) fn give_up_summary(&mut self, id: AttemptId, failure: Failure) {
        if self.run().is_some_and(|run| run.is_summary_wanted(id)) && self.may_start() {
            self.record(Body::SummaryFailed(ModelFailed::new(id, failure, None)));
        }
    }

    /// Cancels the started summary attempt, because its run needs no summary any more.
    pub(in crate::turn) fn cancel_summary(&mut self) {
        let Some(started) = self.run().and_then(|run| run.compaction.call.started()) else { return };
        let id = started.id();
        let failure = self.cancelled_failure(id, "its run needs no summary any more");
        self.record(Body::SummaryFailed(ModelFailed::new(id, failure, None)));
    }
}

/// The models for summaries of a run.
fn summarisers(run: &ActiveRun) -> &[ModelRef] {
    run.spec.compaction.as_deref().map_or(&[], |policy| &policy.chain)
}

/// Why the answer's text is unusable as a summary.
pub fn summary_defect(text: &str, started: &ModelStarted) -> Option<AsideDefect> {
    // The density of requests says nothing about what a model writes, so the default density applies.
    let max_bytes = usize::try_from(TokenDensity::GUESS.bytes(started.max_tokens)).unwrap_or(usize::MAX);
    match text.trim().len() {
        0 => Some(AsideDefect::Empty),
        length if length > max_bytes.saturating_mul(2) => Some(AsideDefect::TooLong),
        _ => None,
    }
}
