//! Decides about the calls for summaries: their start, what follows from answers and failures, and when the summary is
//! given up.

use std::sync::Arc;

use super::{prompt, request_hash};
use crate::{
    model::{
        Amounts, AttemptId, Body, Dimension, Failure, FailureClass, HookedSummary, ModelAnswer, ModelFailed,
        ModelProfile, ModelRef, ModelStarted, SummaryAnswered, SummaryDefect, SummaryStarted, TokenDensity,
        UnansweredModel,
    },
    policy::{FailureScope, failure_scope, validate_usage, with_validated_usage},
    turn::{
        Input, active_run::ActiveRun, compaction_state::CompactionNeed, decision::DecisionBuilder, estimates,
        model_failure::link_failure,
    },
};

/// Attempts at a model that fails, or whose answers are no usable summaries, before the next model is called.
const MAX_MODEL_TRIES: u32 = 2;
/// Attempts at a model after failures that are not the model's fault, for each class of failure.
const MAX_LOCAL_TRIES: u32 = 3;
/// Pause before another attempt, in milliseconds.
const RETRY_DELAY_MS: u64 = 1_000;

impl DecisionBuilder {
    /// Handles an input about a summary call; false for any other input.
    #[expect(clippy::wildcard_enum_match_arm, reason = "other inputs are about no summary")]
    pub(in crate::turn) fn on_summary_input(&mut self, input: &Input) -> bool {
        match input {
            Input::Leased { id, model } if id.call.is_summary() => self.start_summary(*id, model, None),
            Input::SummaryLeased { id, model, hooks } => self.start_summary(*id, model, hooks.as_ref()),
            Input::NoLease { id, skipped } if id.call.is_summary() => self.on_no_summary_lease(*id, skipped),
            Input::Answered { started, answer, .. } if started.call.is_summary() => {
                self.on_summary_answer(started, answer);
            }
            Input::ModelFailed { id, failure, .. } if id.call.is_summary() => {
                self.on_summary_failure(*id, failure);
            }
            _ => return false,
        }
        true
    }

    fn start_summary(&mut self, id: AttemptId, model: &ModelRef, hooks: Option<&Arc<HookedSummary>>) {
        let AttemptId { call, attempt } = id;
        let Some(run) = self.run().filter(|run| run.is_summary_wanted(id) && self.may_start()) else {
            return;
        };
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
        let bytes = (prompt.len() + text.len()) as u64;
        let likely = density.tokens(bytes);
        let input = likely.saturating_add(likely / 4);
        let ModelProfile { max_output, price, .. } = run.spec.profile_of(model);
        let output = max_output.unwrap_or(u64::MAX).min(limits.summary_tokens);
        let known = price.filter(|price| price.holds_for(likely));
        let reserved = Amounts {
            tokens: Some(input.saturating_add(output)),
            usd: estimates::cost_ceiling(run, &self.turn, known, (input, output)),
            ..Amounts::default()
        };
        if let Some(why) = summary_refusal(run, &reserved) {
            let failure = Failure::new(FailureClass::NotSent, why);
            return self.give_up_summary(id, failure);
        }
        let started = ModelStarted {
            call,
            attempt,
            model: model.clone(),
            view_seq: self.turn.last,
            request_hash: request_hash(&prompt, &text),
            bytes,
            images: 0,
            max_tokens: output,
            prefix: None,
            reserved,
            period: self.turn.period(self.now.at),
            price,
            incarnation: self.turn.incarnation,
        };
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
    fn on_summary_answer(&mut self, started: &ModelStarted, answer: &ModelAnswer) {
        let (call, attempt) = (started.call, started.attempt);
        let Some(run) = self.run().filter(|_| self.is_summarising(started.id())) else {
            return self.on_late_answer(started, answer);
        };
        let text = answer.message.text.trim();
        let unusable = summary_defect(text, started);
        let links = run.spec.compaction.as_deref().map_or(&[][..], |policy| &policy.chain);
        let link = links.iter().position(|link| *link == started.model).unwrap_or(0);
        let fallback = (unusable.is_some() && run.compaction.unusable_answers + 1 >= MAX_MODEL_TRIES)
            .then_some(link + 1);
        let text = if unusable.is_some() { "" } else { text };
        let (usage, anomaly) = validate_usage(started, &answer.message, answer.usage);
        self.record(Body::SummaryAnswered(SummaryAnswered {
            call,
            attempt,
            text: text.into(),
            unusable,
            fallback,
            usage,
            anomaly,
        }));
    }

    /// Reacts to a failed attempt at a summary: another attempt, the next model, or no summary.
    pub(in crate::turn) fn on_summary_failure(&mut self, id: AttemptId, failure: &Failure) {
        let Some(run) = self.run().filter(|_| self.is_summarising(id)) else { return };
        let call = &run.compaction.call;
        let Some(started) = call.started() else { return };
        let model = &started.model;
        let failures = call.failure_count(model, &failure.class) + 1;
        let retry_ms = match (failure_scope(&failure.class), &failure.class) {
            (_, FailureClass::Interrupted) => Some(0),
            (FailureScope::Local, _)
            | (_, FailureClass::OutputCap { .. } | FailureClass::ContextTooLong { .. }) => {
                (failures < MAX_LOCAL_TRIES).then_some(0)
            }
            (FailureScope::Endpoint | FailureScope::ModelTransient, _) => {
                (failures < MAX_MODEL_TRIES).then_some(RETRY_DELAY_MS)
            }
            (
                FailureScope::Cancelled
                | FailureScope::Request
                | FailureScope::ModelPersistent
                | FailureScope::Account,
                _,
            ) => None,
        };
        let chain = run.spec.compaction.as_deref().map_or(&[][..], |policy| &policy.chain);
        let next = call.remaining_links(chain).find(|(_, link)| *link != model).map(|(link, _)| link);
        let fallback = next.filter(|_| retry_ms.is_none());
        let retry_at = retry_ms.or(fallback.map(|_| 0)).map(|ms| self.now.at.plus_ms(ms));
        let failure = with_validated_usage(started, failure.clone());
        let failed = ModelFailed { fallback, ..ModelFailed::new(id, failure, retry_at) };
        self.record(Body::SummaryFailed(failed));
    }

    /// Reacts to a missing lease: no model can be called for a summary now. A run does not wait for one: the summary is
    /// given up.
    fn on_no_summary_lease(&mut self, id: AttemptId, skipped: &[UnansweredModel]) {
        let failure = skipped.first().map(link_failure).cloned();
        let failure =
            failure.unwrap_or_else(|| Failure::new(FailureClass::NotSent, "there is no model to ask"));
        self.give_up_summary(id, failure);
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

/// Why the answer's text is unusable as a summary.
pub fn summary_defect(text: &str, started: &ModelStarted) -> Option<SummaryDefect> {
    // The density of requests says nothing about what a model writes, so the default density applies.
    let max_bytes = usize::try_from(TokenDensity::GUESS.bytes(started.max_tokens)).unwrap_or(usize::MAX);
    match text.trim().len() {
        0 => Some(SummaryDefect::Empty),
        length if length > max_bytes.saturating_mul(2) => Some(SummaryDefect::TooLong),
        _ => None,
    }
}

/// Why the budget does not suffice for a summary. One may reserve at most a third of the remaining budget, so that the
/// call that needs it and the grace call still fit.
fn summary_refusal(run: &ActiveRun, reserved: &Amounts) -> Option<String> {
    let [tokens, usd] = [Dimension::Tokens, Dimension::Usd].map(|dimension| {
        let left = run.budget_left(dimension)?;
        let needs = reserved.get(dimension).unwrap_or(0);
        (needs > left / 3).then(|| format!("the run's {} do not suffice for a summary", dimension.name()))
    });
    tokens.or(usd)
}
