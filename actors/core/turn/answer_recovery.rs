//! Recovery from flawed answers: classifies an answer, counts flaws, joins partial answers, and builds the prompt that
//! the next request carries because of a flaw. Also the type of every transient prompt. `answer.rs` records what
//! follows.
//!
//! Invariant: the recovery state follows from the run's records, so a crash does not restart the recovery.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    model::{
        AssistantMessage, FinishReason, Flaw, ModelAnswer, ModelAnswered, ModelRef, ModelStarted, Outcome,
        OutcomeCause, OutcomeDetail, RUNTIME_TEXT_PREFIX, RunSpec,
    },
    policy::is_silent_reply,
    turn::input::{CallAdmission, CallRejection},
};

/// Answers whose calls all name unknown tools; the last of them ends the run.
const MAX_UNKNOWN_TOOLS: u32 = 3;
/// Repeats for arguments that are not JSON.
const MAX_MALFORMED: u32 = 2;
/// Repeats for answers whose calls were truncated.
const MAX_TRUNCATED: u32 = 4;
/// Continuations of a text that was truncated.
const MAX_CONTINUATIONS: u32 = 3;
/// Prompts to continue after an empty answer to a tool result.
const MAX_NUDGES: u32 = 1;
/// Prompts to continue from the reasoning of an answer without text.
const MAX_REASONING_ONLY: u32 = 2;
/// Repeats for an empty answer, for each link of the chain.
const MAX_EMPTY: u32 = 3;
/// Prompts to answer after `NO_REPLY` where an answer is due.
const MAX_SILENT: u32 = 1;

/// Most characters of the reasoning that a prompt quotes, from its end.
const MAX_REASONING_CHARS: usize = 8_000;

/// Tools that serve the model's own bookkeeping and do no work on the task itself. Text beside their calls may well be
/// the final answer.
const HOUSEKEEPING: [&str; 4] = ["memory", "session_search", "skill_manage", "todo"];

const NUDGE: &str = "[From the runtime, not from the user: your calls have returned, and your last answer was empty. Go on \
                     with the task: make the next call, or give your answer.]";
const CONTINUE: &str = "[From the runtime, not from the user: your answer was cut off by the limit of its length. Go on \
                        exactly where it stops; repeat nothing, and do not mention this.]";
const THOUGHT: &str =
    "[From the runtime, not from the user: you were thinking, and then said nothing. You thought:]";
const ANSWER_DUE: &str = "[From the runtime, not from the user: an answer is due here, and you gave none. Answer now, in text and \
                          without calls.]";
const GO_ON: &str = "[Go on from there: make the next call, or give your answer.]";

/// Verdict on an answer. Without a flaw and an end the answer is accepted, and its calls are made.
#[derive(Debug, Default)]
pub(super) struct AnswerVerdict {
    /// The answer's flaw.
    pub(super) flaw: Option<Flaw>,
    /// The link for the following calls, if it changes.
    pub(super) fallback: Option<usize>,
    /// The outcome, if the run ends with this answer.
    pub(super) ended: Option<OutcomeDetail>,
}

/// Text that one model call adds behind the view and that is in no record. It is the same in all attempts of the call,
/// unless the view is compacted between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransientPrompt {
    /// Partial text that the model is to continue: an assistant message behind the view. With it `prompt` is a user
    /// message of its own; without it `prompt` is appended to the view's last message.
    pub partial: Option<Arc<AssistantMessage>>,
    /// The runtime's text to the model.
    pub prompt: Arc<str>,
}

/// Recovery state of a run after flawed answers.
#[derive(Debug, Clone, Default)]
pub(super) struct AnswerRecovery {
    streaks: FlawStreaks,
    /// The joined partial answers that the model is to continue.
    parts: Option<Arc<AssistantMessage>>,
    prompt: Option<RecoveryPrompt>,
    /// Whether the view ends with the result of a tool.
    is_after_tool: bool,
    /// Text of the last answer with text and calls, if its calls and all later ones are of housekeeping tools. It
    /// becomes the final answer if an empty one follows.
    housekeeping_text: Option<Arc<str>>,
}

/// Flawed answers since the last answer without a flaw.
#[derive(Debug, Clone, Default)]
struct FlawStreaks {
    /// Number of answers by flaw; of the flaw `Empty` only those of the present link.
    counts: BTreeMap<Flaw, u32>,
    /// First link for the rest of the run: the earlier links gave no usable answer.
    link: usize,
}

/// The kind of prompt that the next request carries behind the view.
#[derive(Debug, Clone)]
enum RecoveryPrompt {
    Nudge,
    ContinueReasoning(Arc<str>),
    Continue,
    /// The request forbids calls.
    AnswerDue,
}

impl AnswerVerdict {
    fn flawed(flaw: Flaw) -> Self {
        Self { flaw: Some(flaw), ..Self::default() }
    }

    fn ends(outcome: Outcome) -> Self {
        Self { ended: Some(OutcomeDetail { outcome, cause: None }), ..Self::default() }
    }

    fn fails(cause: OutcomeCause) -> Self {
        Self { ended: Some(OutcomeDetail::with_cause(Outcome::Failed, cause)), ..Self::default() }
    }
}

impl AnswerRecovery {
    /// Classifies the answer to `started`. A truncated answer never completes a run, and a truncated call never runs.
    pub(super) fn classify(
        &self,
        answer: &ModelAnswer,
        admissions: &[CallAdmission],
        started: &ModelStarted,
        spec: &RunSpec,
    ) -> AnswerVerdict {
        let streaks = &self.streaks;
        let has_calls = !answer.message.calls.is_empty();
        let next = || next_link(&started.model, &spec.chain);
        match answer.finish {
            FinishReason::Refused => match next() {
                Some(link) if spec.limits.retry.fallback_on_refusal => {
                    AnswerVerdict { fallback: Some(link), ..AnswerVerdict::flawed(Flaw::Refused) }
                }
                Some(_) | None => AnswerVerdict::ends(Outcome::Refused),
            },
            FinishReason::Length if has_calls && streaks.of(Flaw::Truncated) < MAX_TRUNCATED => {
                AnswerVerdict::flawed(Flaw::Truncated)
            }
            FinishReason::Length if !has_calls && is_blank(&answer.message.text) => {
                AnswerVerdict::fails(OutcomeCause::ReasoningOnly { max_tokens: started.max_tokens })
            }
            FinishReason::Length if !has_calls && streaks.of(Flaw::Partial) < MAX_CONTINUATIONS => {
                AnswerVerdict::flawed(Flaw::Partial)
            }
            FinishReason::Length => AnswerVerdict::fails(OutcomeCause::Truncated),
            FinishReason::Stop | FinishReason::ToolCalls if has_calls => streaks.classify_calls(admissions),
            FinishReason::Stop | FinishReason::ToolCalls if is_blank(&answer.message.text) => {
                self.classify_empty(&answer.message.reasoning, next())
            }
            FinishReason::Stop | FinishReason::ToolCalls
                if spec.must_answer && self.is_first_silence(&answer.message.text) =>
            {
                AnswerVerdict::flawed(Flaw::Silent)
            }
            FinishReason::Stop | FinishReason::ToolCalls => AnswerVerdict::ends(Outcome::Completed),
        }
    }

    fn classify_empty(&self, reasoning: &str, next_link: Option<usize>) -> AnswerVerdict {
        let Self { streaks, parts, is_after_tool, housekeeping_text: earlier, .. } = self;
        // Parts of a text are newer than the housekeeping text.
        if earlier.is_some() && parts.is_none() {
            return AnswerVerdict::ends(Outcome::Completed);
        }
        if *is_after_tool && parts.is_none() && streaks.of(Flaw::EmptyAfterTool) < MAX_NUDGES {
            return AnswerVerdict::flawed(Flaw::EmptyAfterTool);
        }
        if !is_blank(reasoning) && streaks.of(Flaw::ReasoningOnly) < MAX_REASONING_ONLY {
            return AnswerVerdict::flawed(Flaw::ReasoningOnly);
        }
        if streaks.of(Flaw::Empty) < MAX_EMPTY {
            return AnswerVerdict::flawed(Flaw::Empty);
        }
        match next_link {
            Some(link) => AnswerVerdict { fallback: Some(link), ..AnswerVerdict::flawed(Flaw::Empty) },
            None => AnswerVerdict::fails(OutcomeCause::EmptyAnswer),
        }
    }
}

impl AnswerRecovery {
    /// Whether the whole text is `NO_REPLY`, and the model has not been asked for an answer yet.
    fn is_first_silence(&self, text: &str) -> bool {
        self.parts.is_none() && is_silent_reply(text) && self.streaks.of(Flaw::Silent) < MAX_SILENT
    }

    /// Whether the next request, or the one under way, asks for an answer without calls.
    pub(super) const fn is_answer_due(&self) -> bool {
        matches!(self.prompt, Some(RecoveryPrompt::AnswerDue))
    }
}

impl FlawStreaks {
    /// Classifies an answer with calls. After `MAX_MALFORMED` repeats malformed arguments are accepted as they are.
    fn classify_calls(&self, admissions: &[CallAdmission]) -> AnswerVerdict {
        let has = |fault: CallRejection| move |plan: &CallAdmission| matches!(plan, CallAdmission::Reject { rejection: f, .. } if *f == fault);
        if self.of(Flaw::Malformed) < MAX_MALFORMED && admissions.iter().any(has(CallRejection::Malformed)) {
            return AnswerVerdict::flawed(Flaw::Malformed);
        }
        if !admissions.iter().all(has(CallRejection::UnknownTool)) {
            return AnswerVerdict::default();
        }
        let too_often = self.of(Flaw::UnknownTools) + 1 >= MAX_UNKNOWN_TOOLS;
        let ended = too_often.then(|| OutcomeDetail::with_cause(Outcome::Failed, OutcomeCause::UnknownTool));
        AnswerVerdict { ended, ..AnswerVerdict::flawed(Flaw::UnknownTools) }
    }

    fn of(&self, flaw: Flaw) -> u32 {
        self.counts.get(&flaw).copied().unwrap_or(0)
    }

    fn count(&mut self, flaw: Option<Flaw>, fallback: Option<usize>) {
        match flaw {
            None => self.counts.clear(),
            Some(flaw) => *self.counts.entry(flaw).or_default() += 1,
        }
        if let Some(link) = fallback {
            self.link = link;
            self.counts.remove(&Flaw::Empty);
        }
    }
}

impl AnswerRecovery {
    /// Folds an answer and returns the message for the conversation; `None` if the answer is discarded or kept as a
    /// part, and the model is called again.
    pub(super) fn on_answer(&mut self, answered: &ModelAnswered) -> Option<Arc<AssistantMessage>> {
        self.streaks.count(answered.flaw, answered.fallback);
        match answered.flaw {
            Some(Flaw::Partial) => {
                self.parts = Some(self.joined_answer(&answered.message));
                self.prompt = Some(RecoveryPrompt::Continue);
            }
            Some(Flaw::Silent) => self.prompt = Some(RecoveryPrompt::AnswerDue),
            // The prompt for an answer stands until one is given.
            Some(Flaw::EmptyAfterTool | Flaw::ReasoningOnly) if self.is_answer_due() => {}
            Some(Flaw::EmptyAfterTool) => self.prompt = Some(RecoveryPrompt::Nudge),
            Some(Flaw::ReasoningOnly) => {
                self.prompt = Some(RecoveryPrompt::ContinueReasoning(
                    reasoning_tail(&answered.message.reasoning).into(),
                ));
            }
            Some(Flaw::Malformed | Flaw::Truncated | Flaw::Empty | Flaw::Refused) => {}
            None | Some(Flaw::UnknownTools) => {
                let whole = self.joined_answer(&answered.message);
                (self.parts, self.prompt) = (None, None);
                return Some(whole);
            }
        }
        None
    }

    /// Notes that the calls of an answer have their results.
    pub(super) fn on_tool_results<'a>(&mut self, text: &str, mut tools: impl Iterator<Item = &'a str>) {
        self.is_after_tool = true;
        if !tools.all(|tool| HOUSEKEEPING.contains(&tool)) {
            self.housekeeping_text = None;
        } else if !is_blank(text) {
            self.housekeeping_text = Some(text.into());
        }
    }

    /// Truncated answers since the last answer without a flaw.
    pub(super) fn truncated_answers(&self) -> u32 {
        self.streaks.of(Flaw::Truncated) + self.streaks.of(Flaw::Partial)
    }

    /// The first link of the next call.
    pub(super) const fn link(&self) -> usize {
        self.streaks.link
    }

    /// The answer joined to the parts that it continues; for an empty answer, the earlier housekeeping text.
    fn joined_answer(&self, answer: &Arc<AssistantMessage>) -> Arc<AssistantMessage> {
        let is_empty = answer.calls.is_empty() && is_blank(&answer.text);
        match (&self.parts, &self.housekeeping_text) {
            (Some(parts), _) => Arc::new(joined(parts, answer)),
            (None, Some(earlier)) if is_empty => {
                Arc::new(AssistantMessage { text: earlier.to_string(), ..AssistantMessage::default() })
            }
            (None, _) => Arc::clone(answer),
        }
    }

    /// The prompt that the next request carries for the recovery.
    pub(super) fn transient_prompt(&self) -> Option<TransientPrompt> {
        let prompt: Arc<str> = match self.prompt.as_ref()? {
            RecoveryPrompt::Nudge => NUDGE.into(),
            RecoveryPrompt::Continue => CONTINUE.into(),
            RecoveryPrompt::AnswerDue => ANSWER_DUE.into(),
            RecoveryPrompt::ContinueReasoning(thoughts) => {
                let then = if self.parts.is_some() { CONTINUE } else { GO_ON };
                format!("{THOUGHT}\n<thoughts>\n{thoughts}\n</thoughts>\n{then}").into()
            }
        };
        debug_assert!(prompt.starts_with(RUNTIME_TEXT_PREFIX), "{prompt}");
        Some(TransientPrompt { partial: self.parts.clone(), prompt })
    }
}

/// The next link of the chain after that of `model`, if there is one.
fn next_link(model: &ModelRef, chain: &[ModelRef]) -> Option<usize> {
    let at = chain.iter().position(|link| link == model)?;
    Some(at + 1).filter(|link| *link < chain.len())
}

fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

fn joined(parts: &AssistantMessage, next: &AssistantMessage) -> AssistantMessage {
    let between = if parts.reasoning.is_empty() || next.reasoning.is_empty() { "" } else { "\n\n" };
    AssistantMessage {
        text: format!("{}{}", parts.text, next.text),
        reasoning: format!("{}{between}{}", parts.reasoning, next.reasoning),
        calls: next.calls.clone(),
        // A provider's opaque data belongs to its own answer, so a joined message has none.
        opaque: None,
    }
}

/// The last characters of `text`, at most `MAX_REASONING_CHARS`.
fn reasoning_tail(text: &str) -> &str {
    let start = text.char_indices().rev().nth(MAX_REASONING_CHARS - 1).map_or(0, |(start, _)| start);
    &text[start..]
}
