//! What all asides decide alike: the record that starts an attempt, what follows from a failure, and the record of an
//! answer.

use std::sync::Arc;

use crate::{
    model::{
        Amounts, AsideAnswered, AsideDefect, AsideJob, AttemptId, Dimension, Failure, FailureClass, Hash,
        ModelAnswer, ModelFailed, ModelProfile, ModelRef, ModelStarted, RunSpec,
    },
    policy::{FailureScope, failure_scope, validate_usage, with_validated_usage},
    turn::{
        Input,
        active_run::ActiveRun,
        aside_call::{AsideCall, max_attempts},
        decision::DecisionBuilder,
        estimates,
        history::IMAGE_BYTES,
        model_failure::link_failure,
    },
};

/// Attempts at a model that fails, or whose answers are unusable, before the next model is called.
const MAX_MODEL_TRIES: u32 = 2;
/// Attempts at a model after failures that are not the model's fault, for each class of failure.
const MAX_LOCAL_TRIES: u32 = 3;
/// Pause before another attempt, in milliseconds.
const RETRY_DELAY_MS: u64 = 1_000;

/// What the request of an aside contains.
#[derive(Debug, Clone, Copy)]
pub(in crate::turn) struct AsideContent<'a> {
    /// The system prompt.
    pub(in crate::turn) prompt: &'a str,
    /// The text of the user message.
    pub(in crate::turn) text: &'a str,
    /// Number of images in the user message.
    pub(in crate::turn) images: usize,
}

/// The attempt of an aside that an input is about.
#[expect(clippy::wildcard_enum_match_arm, reason = "other inputs are about no call to a model")]
fn aside_input(input: &Input) -> Option<(AttemptId, AsideJob)> {
    let id = match input {
        Input::Leased { id, .. }
        | Input::SummaryLeased { id, .. }
        | Input::NoLease { id, .. }
        | Input::ModelFailed { id, .. } => *id,
        Input::Answered { started, .. } => started.id(),
        _ => return None,
    };
    Some((id, id.call.job()?))
}

impl DecisionBuilder {
    /// Handles an input about an aside; false for any other input.
    #[expect(clippy::wildcard_enum_match_arm, reason = "other inputs are about no call to a model")]
    pub(in crate::turn) fn on_aside_input(&mut self, input: &Input) -> bool {
        let Some((id, job)) = aside_input(input) else { return false };
        match input {
            Input::SummaryLeased { model, hooks, .. } => self.start_summary(id, model, hooks.as_ref()),
            Input::Leased { model, .. } => self.start_aside(id, job, model),
            // No model can be called now. An aside is not worth a wait, so it is given up.
            Input::NoLease { skipped, .. } => {
                let failure = skipped.first().map(link_failure).cloned();
                let none = || Failure::new(FailureClass::NotSent, "there is no model to ask");
                self.give_up_aside(id, failure.unwrap_or_else(none));
            }
            Input::Answered { started, answer, .. } => self.on_aside_answer(job, started, answer),
            Input::ModelFailed { failure, .. } => self.on_aside_failure(id, failure),
            _ => {}
        }
        // The view may have grown by a description, or may be summarised now.
        self.compact_if_needed();
        true
    }

    fn start_aside(&mut self, id: AttemptId, job: AsideJob, model: &ModelRef) {
        match job {
            AsideJob::Summary => self.start_summary(id, model, None),
            AsideJob::Title => self.start_title(id, model),
            AsideJob::Vision => self.start_vision(id, model),
            AsideJob::Memory => self.start_flush(id, model),
        }
    }

    fn on_aside_answer(&mut self, job: AsideJob, started: &ModelStarted, answer: &ModelAnswer) {
        match job {
            AsideJob::Summary => self.on_summary_answer(started, answer),
            AsideJob::Title => self.on_title_answer(started, answer),
            AsideJob::Vision => self.on_vision_answer(started, answer),
            AsideJob::Memory => self.on_flush_answer(started, answer),
        }
    }

    /// Reacts to a failed attempt of an aside: another attempt, the next model, or none.
    pub(in crate::turn) fn on_aside_failure(&mut self, id: AttemptId, failure: &Failure) {
        match id.call.job() {
            Some(AsideJob::Summary) => self.on_summary_failure(id, failure),
            Some(AsideJob::Title) => self.on_title_failure(id, failure),
            Some(AsideJob::Vision) => self.on_vision_failure(id, failure),
            Some(AsideJob::Memory) => self.on_flush_failure(id, failure),
            None => {}
        }
    }

    /// Gives up the wanted attempt of an aside, and with it the aside.
    pub(in crate::turn) fn give_up_aside(&mut self, id: AttemptId, failure: Failure) {
        match id.call.job() {
            Some(AsideJob::Summary) => self.give_up_summary(id, failure),
            Some(AsideJob::Title) => self.give_up_title(id, failure),
            Some(AsideJob::Vision) => self.give_up_vision(id, failure),
            Some(AsideJob::Memory) => self.give_up_flush(id, failure),
            None => {}
        }
    }

    /// Cancels the started asides of the run, because it needs them no more.
    pub(in crate::turn) fn cancel_asides(&mut self) {
        self.cancel_flush();
        self.cancel_summary();
        self.cancel_vision();
    }

    /// The start of an attempt with this request. `max_tokens` bounds the answer.
    pub(in crate::turn) fn aside_start(
        &self,
        AttemptId { call, attempt }: AttemptId,
        (spec, model): (&RunSpec, &ModelRef),
        content: AsideContent<'_>,
        max_tokens: u64,
    ) -> ModelStarted {
        let AsideContent { prompt, text, images } = content;
        let bytes = (prompt.len() + text.len() + images * IMAGE_BYTES) as u64;
        let likely = self.turn.observations.density(spec, model).tokens(bytes);
        let input = likely.saturating_add(likely / 4);
        let ModelProfile { max_output, price, .. } = spec.profile_of(model);
        let output = max_output.unwrap_or(u64::MAX).min(max_tokens);
        let known = price.filter(|price| price.holds_for(likely));
        let reserved = Amounts {
            tokens: Some(input.saturating_add(output)),
            usd: estimates::cost_ceiling(spec, &self.turn, known, (input, output)),
            ..Amounts::default()
        };
        ModelStarted {
            call,
            attempt,
            model: model.clone(),
            view_seq: self.turn.last,
            request_hash: Hash::of(text.as_bytes()),
            bytes,
            images: images as u64,
            max_tokens: output,
            prefix: None,
            reserved,
            period: self.turn.period(self.now.at),
            price,
            incarnation: self.turn.incarnation,
        }
    }

    /// The end of the started attempt with this failure: another attempt follows, the next model, or none.
    pub(in crate::turn) fn aside_failed(
        &self,
        call: &AsideCall,
        started: &ModelStarted,
        chain: &[ModelRef],
        failure: &Failure,
    ) -> ModelFailed {
        let (model, attempts) = (&started.model, &call.attempts);
        let failures = attempts.failure_count(model, &failure.class) + 1;
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
        let next = attempts.remaining_links(chain).find(|(_, link)| *link != model).map(|(link, _)| link);
        let fallback = next.filter(|_| retry_ms.is_none());
        let retry_at = retry_ms.or(fallback.map(|_| 0)).map(|ms| self.now.at.plus_ms(ms));
        let is_last = started.call.job().is_some_and(|job| started.attempt >= max_attempts(job));
        let (fallback, retry_at) = if is_last { (None, None) } else { (fallback, retry_at) };
        let failure = with_validated_usage(started, failure.clone());
        ModelFailed { fallback, ..ModelFailed::new(started.id(), failure, retry_at) }
    }
}

/// The record of an answer that was checked. An unusable one leads to another attempt, and after `MAX_MODEL_TRIES` to
/// the next model.
pub(in crate::turn) fn aside_answered(
    call: &AsideCall,
    chain: &[ModelRef],
    (started, answer): (&ModelStarted, &ModelAnswer),
    checked: Result<Arc<str>, AsideDefect>,
) -> AsideAnswered {
    let (text, unusable) = checked.map_or_else(|defect| ("".into(), Some(defect)), |text| (text, None));
    let link = chain.iter().position(|link| *link == started.model).unwrap_or(0);
    let fallback = (unusable.is_some() && call.unusable_answers + 1 >= MAX_MODEL_TRIES).then_some(link + 1);
    let (usage, anomaly) = validate_usage(started, &answer.message, answer.usage);
    let (call, attempt) = (started.call, started.attempt);
    AsideAnswered { call, attempt, text, unusable, fallback, usage, anomaly }
}

/// Why the budget does not suffice for an aside of a run, called `what`. One may reserve at most a third of the
/// remaining budget, so that the call that needs it and the grace call still fit.
pub(in crate::turn) fn aside_refusal(run: &ActiveRun, reserved: &Amounts, what: &str) -> Option<String> {
    let [tokens, usd] = [Dimension::Tokens, Dimension::Usd].map(|dimension| {
        let left = run.budget_left(dimension)?;
        let needs = reserved.get(dimension).unwrap_or(0);
        (needs > left / 3).then(|| format!("the run's {} do not suffice for {what}", dimension.name()))
    });
    tokens.or(usd)
}
