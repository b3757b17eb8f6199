//! Answers that are not plain: what becomes of one, and what the next request says because of it.
//!
//! Invariant: how far down the ladder a run is follows from its records, so a crash on the way does not begin it anew.

use std::sync::Arc;

use crate::{
    model::{
        AssistantMessage, FinishReason, Flaw, Hash, Hasher, ModelAnswer, ModelAnswered, Outcome,
        OutcomeCause, OutcomeDetail, RUNTIME_TEXT_PREFIX,
    },
    policy::is_housekeeping,
    turn::{
        CallAdmission, CallRejection, Turn,
        active_run::{ActiveRun, CurrentRun, LoopState},
    },
};

/// The answer that makes so many in a row all of whose calls name tools that do not exist ends the run.
const MAX_UNKNOWN_TOOLS: u32 = 3;
/// How often the model is asked again for arguments that are JSON.
const MAX_MALFORMED: u32 = 2;
/// How often it is asked again for calls that were cut off.
const MAX_TRUNCATED: u32 = 4;
/// How often it is asked to continue a text that was cut off.
const MAX_CONTINUATIONS: u32 = 3;
/// How often it is told to go on after a tool.
const MAX_NUDGES: u32 = 1;
/// How often it is asked to go on from its reasoning.
const MAX_REASONING_ONLY: u32 = 2;
/// How often each link of the chain is asked again for an answer that is not empty.
const MAX_EMPTY: u32 = 3;

/// Characters of the reasoning that the model is asked to go on from: its end.
const MAX_REASONING_CHARS: usize = 8_000;

const NUDGE: &str = "[From the runtime, not from the user: your calls have returned, and your last answer was empty. Go on \
                     with the task: make the next call, or give your answer.]";
const CONTINUE: &str = "[From the runtime, not from the user: your answer was cut off by the limit of its length. Go on \
                        exactly where it stops; repeat nothing, and do not mention this.]";
const THOUGHT: &str =
    "[From the runtime, not from the user: you were thinking, and then said nothing. You thought:]";
const GO_ON: &str = "[Go on from there: make the next call, or give your answer.]";

/// What becomes of an answer. Neither a flaw that asks again nor an end: it is taken, and its calls are made.
#[derive(Debug, Default)]
pub(super) struct AnswerVerdict {
    /// What is wrong with it.
    pub(super) flaw: Option<Flaw>,
    /// The link that is asked from now on, if that is another one.
    pub(super) fallback: Option<usize>,
    /// How the run ends with it.
    pub(super) ended: Option<OutcomeDetail>,
}

/// What a request says behind the view, and no record does. Retries of a call say the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TransientPrompt {
    /// What the model has said of the text that is to be continued: an assistant message behind the view. With it
    /// `prompt` is a user message of its own; without it `prompt` stands inside of the view's last message.
    pub(crate) partial: Option<Arc<AssistantMessage>>,
    /// What is asked of the model.
    pub(crate) prompt: Arc<str>,
}

/// What the answers of a run that were not plain have left behind.
#[derive(Debug, Clone, Default)]
pub(super) struct AnswerRecovery {
    streaks: FlawStreaks,
    /// The parts of a text that is to be continued, as one.
    parts: Option<Arc<AssistantMessage>>,
    prompt: Option<RecoveryPrompt>,
    /// Whether the last thing in the view is the result of a tool.
    is_after_tool: bool,
    /// What was said with calls, if only housekeeping was done with them and since.
    housekeeping_text: Option<Arc<str>>,
}

/// How many answers in a row had which flaw; one without any ends the row.
#[derive(Debug, Clone, Copy, Default)]
struct FlawStreaks {
    unknown: u32,
    malformed: u32,
    truncated: u32,
    parts: u32,
    nudges: u32,
    thoughts: u32,
    /// By the link that is asked now.
    empty: u32,
    /// The link that the rest of the run begins with: those before it have given no answer.
    link: usize,
}

/// What the model is asked for beside the view.
#[derive(Debug, Clone)]
enum RecoveryPrompt {
    Nudge,
    ContinueReasoning(Arc<str>),
    Continue,
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

impl ActiveRun {
    /// What becomes of the answer to the call under way. What was cut off is never an answer, and a call that was cut
    /// off never runs.
    pub(super) fn classify_answer(&self, answer: &ModelAnswer, plans: &[CallAdmission]) -> AnswerVerdict {
        let row = &self.answer_recovery.streaks;
        let acts = !answer.message.calls.is_empty();
        match answer.finish {
            FinishReason::Refused => self.classify_refusal(),
            FinishReason::Length if acts && row.truncated < MAX_TRUNCATED => {
                AnswerVerdict::flawed(Flaw::Truncated)
            }
            FinishReason::Length if !acts && is_blank(&answer.message.text) => {
                let max_tokens = self.model_started().map_or(0, |started| started.max_tokens);
                AnswerVerdict::fails(OutcomeCause::ReasoningOnly { max_tokens })
            }
            FinishReason::Length if !acts && row.parts < MAX_CONTINUATIONS => {
                AnswerVerdict::flawed(Flaw::Partial)
            }
            FinishReason::Length => AnswerVerdict::fails(OutcomeCause::Truncated),
            FinishReason::Stop | FinishReason::ToolCalls if acts => row.classify_calls(plans),
            FinishReason::Stop | FinishReason::ToolCalls if is_blank(&answer.message.text) => {
                self.classify_empty(answer)
            }
            FinishReason::Stop | FinishReason::ToolCalls => AnswerVerdict::ends(Outcome::Completed),
        }
    }

    fn classify_refusal(&self) -> AnswerVerdict {
        match self.next_link() {
            Some(link) if self.spec.limits.retry.fallback_on_refusal => {
                AnswerVerdict { fallback: Some(link), ..AnswerVerdict::flawed(Flaw::Refused) }
            }
            Some(_) | None => AnswerVerdict::ends(Outcome::Refused),
        }
    }

    fn classify_empty(&self, answer: &ModelAnswer) -> AnswerVerdict {
        let AnswerRecovery { streaks: row, parts, is_after_tool: acted, housekeeping_text: earlier, .. } =
            &self.answer_recovery;
        // Parts of a text are newer than what was said before them.
        if earlier.is_some() && parts.is_none() {
            return AnswerVerdict::ends(Outcome::Completed);
        }
        if *acted && parts.is_none() && row.nudges < MAX_NUDGES {
            return AnswerVerdict::flawed(Flaw::EmptyAfterTool);
        }
        if !is_blank(&answer.message.reasoning) && row.thoughts < MAX_REASONING_ONLY {
            return AnswerVerdict::flawed(Flaw::ReasoningOnly);
        }
        if row.empty < MAX_EMPTY {
            return AnswerVerdict::flawed(Flaw::Empty);
        }
        match self.next_link() {
            Some(link) => AnswerVerdict { fallback: Some(link), ..AnswerVerdict::flawed(Flaw::Empty) },
            None => AnswerVerdict::fails(OutcomeCause::EmptyAnswer),
        }
    }

    /// The link behind the one that is asked, if there is one.
    fn next_link(&self) -> Option<usize> {
        let asked = &self.model_started()?.model;
        let at = self.spec.chain.iter().position(|link| link == asked)?;
        Some(at + 1).filter(|link| *link < self.spec.chain.len())
    }
}

impl FlawStreaks {
    /// What becomes of an answer that asks for calls. What was asked for often enough is taken as it is.
    fn classify_calls(&self, plans: &[CallAdmission]) -> AnswerVerdict {
        let has = |fault: CallRejection| move |plan: &CallAdmission| matches!(plan, CallAdmission::Reject { rejection: f, .. } if *f == fault);
        if self.malformed < MAX_MALFORMED && plans.iter().any(has(CallRejection::Malformed)) {
            return AnswerVerdict::flawed(Flaw::Malformed);
        }
        if !plans.iter().all(has(CallRejection::UnknownTool)) {
            return AnswerVerdict::default();
        }
        let too_often = self.unknown + 1 >= MAX_UNKNOWN_TOOLS;
        let ended = too_often.then(|| OutcomeDetail::with_cause(Outcome::Failed, OutcomeCause::UnknownTool));
        AnswerVerdict { ended, ..AnswerVerdict::flawed(Flaw::UnknownTools) }
    }

    /// Counts one more answer.
    fn count(&mut self, flaw: Option<Flaw>, fallback: Option<usize>) {
        match flaw {
            None => *self = Self { link: self.link, ..Self::default() },
            Some(Flaw::UnknownTools) => self.unknown += 1,
            Some(Flaw::Malformed) => self.malformed += 1,
            Some(Flaw::Truncated) => self.truncated += 1,
            Some(Flaw::Partial) => self.parts += 1,
            Some(Flaw::EmptyAfterTool) => self.nudges += 1,
            Some(Flaw::ReasoningOnly) => self.thoughts += 1,
            Some(Flaw::Empty) => self.empty += 1,
            Some(Flaw::Refused) => {}
        }
        if let Some(link) = fallback {
            self.link = link;
            self.empty = 0;
        }
    }
}

impl AnswerRecovery {
    /// Takes an answer in. What the conversation goes on with; `None` if the model is asked again.
    pub(super) fn on_answer(&mut self, answered: &ModelAnswered) -> Option<Arc<AssistantMessage>> {
        self.streaks.count(answered.flaw, answered.fallback);
        match answered.flaw {
            Some(Flaw::Partial) => {
                self.parts = Some(self.joined_answer(&answered.message));
                self.prompt = Some(RecoveryPrompt::Continue);
            }
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

    /// Calls of an answer have their results.
    pub(super) fn on_tool_results<'a>(&mut self, text: &str, mut tools: impl Iterator<Item = &'a str>) {
        self.is_after_tool = true;
        if !tools.all(is_housekeeping) {
            self.housekeeping_text = None;
        } else if !is_blank(text) {
            self.housekeeping_text = Some(text.into());
        }
    }

    /// How many answers in a row were cut off.
    pub(super) const fn truncated_answers(&self) -> u32 {
        self.streaks.truncated + self.streaks.parts
    }

    /// The link that the next call begins with.
    pub(super) const fn link(&self) -> usize {
        self.streaks.link
    }

    /// An answer behind the parts that it continues; of one that says nothing, what was said earlier.
    fn joined_answer(&self, answer: &Arc<AssistantMessage>) -> Arc<AssistantMessage> {
        let says_nothing = answer.calls.is_empty() && is_blank(&answer.text);
        match (&self.parts, &self.housekeeping_text) {
            (Some(parts), _) => Arc::new(joined(parts, answer)),
            (None, Some(earlier)) if says_nothing => {
                Arc::new(AssistantMessage { text: earlier.to_string(), ..AssistantMessage::default() })
            }
            (None, _) => Arc::clone(answer),
        }
    }

    /// What the next request says of them.
    pub(super) fn transient_prompt(&self) -> Option<TransientPrompt> {
        let prompt: Arc<str> = match self.prompt.as_ref()? {
            RecoveryPrompt::Nudge => NUDGE.into(),
            RecoveryPrompt::Continue => CONTINUE.into(),
            RecoveryPrompt::ContinueReasoning(thoughts) => {
                let then = if self.parts.is_some() { CONTINUE } else { GO_ON };
                format!("{THOUGHT}\n<thoughts>\n{thoughts}\n</thoughts>\n{then}").into()
            }
        };
        debug_assert!(prompt.starts_with(RUNTIME_TEXT_PREFIX), "{prompt}");
        Some(TransientPrompt { partial: self.parts.clone(), prompt })
    }
}

impl Turn {
    /// What the request of the call that is wanted or under way says behind the view; `None` if there is nothing to say.
    pub(crate) fn transient_prompt(&self) -> Option<TransientPrompt> {
        let CurrentRun::Running(run) = &self.current else { return None };
        match &run.state {
            LoopState::CallingModel(asking) => run.transient_prompt(asking, self.current_pressure()),
            LoopState::RunningTools(_) | LoopState::Answered(_) => None,
        }
    }

    /// The hash of the view with its postscript.
    pub(super) fn request_hash(&self) -> Hash {
        let view = self.history.hash();
        let Some(TransientPrompt { partial, prompt }) = self.transient_prompt() else { return view };
        let mut hasher = Hasher::default();
        hasher.part(view.as_bytes());
        if let Some(AssistantMessage { text, reasoning, .. }) = partial.as_deref() {
            hasher.part(text.as_bytes());
            hasher.part(reasoning.as_bytes());
        }
        hasher.part(prompt.as_bytes());
        hasher.finish()
    }

    /// The bytes of the view with its postscript, without what the wire format adds.
    pub(super) fn request_bytes(&self) -> usize {
        let partial = |message: &AssistantMessage| message.text.len() + message.reasoning.len();
        let postscript = self
            .transient_prompt()
            .map_or(0, |post| post.prompt.len() + post.partial.as_deref().map_or(0, partial));
        self.history.bytes() + postscript
    }
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
        // The parts were made apart: what one of them came with would not stand where it stood.
        opaque: None,
    }
}

/// The last characters, so many as are shown.
fn reasoning_tail(text: &str) -> &str {
    let start = text.char_indices().rev().nth(MAX_REASONING_CHARS - 1).map_or(0, |(start, _)| start);
    &text[start..]
}
