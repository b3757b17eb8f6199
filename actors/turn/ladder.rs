//! Answers that are not plain: what becomes of one, and what the next request says because of it.
//!
//! Invariant: how far down the ladder a run is follows from its records, so a crash on the way does not begin it anew.

use std::sync::Arc;

use crate::{
    model::{
        Answer, AssistantMessage, Cause, Ended, FROM_RUNTIME, Finish, Flaw, Hash, Hasher, ModelAnswered,
        Outcome,
    },
    policy::is_housekeeping,
    turn::{
        Fault, Plan, Turn,
        run::{Phase, Run, Step},
    },
};

/// The answer that makes so many in a row all of whose calls name tools that do not exist ends the run.
const UNKNOWN_TOOLS: u32 = 3;
/// How often the model is asked again for arguments that are JSON.
const MALFORMED: u32 = 2;
/// How often it is asked again for calls that were cut off.
const TRUNCATED: u32 = 4;
/// How often it is asked to continue a text that was cut off.
const PARTS: u32 = 3;
/// How often it is told to go on after a tool.
const NUDGES: u32 = 1;
/// How often it is asked to go on from its reasoning.
const THOUGHTS: u32 = 2;
/// How often each link of the chain is asked again for an answer that is not empty.
const EMPTY: u32 = 3;

/// Characters of the reasoning that the model is asked to go on from: its end.
const SHOWN: usize = 8_000;

const NUDGE: &str = "[From the runtime, not from the user: your calls have returned, and your last answer was empty. Go on \
                     with the task: make the next call, or give your answer.]";
const CONTINUE: &str = "[From the runtime, not from the user: your answer was cut off by the limit of its length. Go on \
                        exactly where it stops; repeat nothing, and do not mention this.]";
const THOUGHT: &str =
    "[From the runtime, not from the user: you were thinking, and then said nothing. You thought:]";
const GO_ON: &str = "[Go on from there: make the next call, or give your answer.]";

/// What becomes of an answer. Neither a flaw that asks again nor an end: it is taken, and its calls are made.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    /// What is wrong with it.
    pub(super) flaw: Option<Flaw>,
    /// The link that is asked from now on, if that is another one.
    pub(super) fallback: Option<usize>,
    /// How the run ends with it.
    pub(super) ended: Option<Ended>,
}

/// What a request says behind the view, and no record does. Retries of a call say the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Postscript {
    /// What the model has said of the text that is to be continued: an assistant message behind the view. With it
    /// `prompt` is a user message of its own; without it `prompt` stands inside of the view's last message.
    pub(crate) partial: Option<Arc<AssistantMessage>>,
    /// What is asked of the model.
    pub(crate) prompt: Arc<str>,
}

/// What the answers of a run that were not plain have left behind.
#[derive(Debug, Clone, Default)]
pub(super) struct Ladder {
    row: Row,
    /// The parts of a text that is to be continued, as one.
    parts: Option<Arc<AssistantMessage>>,
    prompt: Option<Prompt>,
    /// Whether the last thing in the view is the result of a tool.
    acted: bool,
    /// What was said with calls, if only housekeeping was done with them and since.
    earlier: Option<Arc<str>>,
}

/// How many answers in a row had which flaw; one without any ends the row.
#[derive(Debug, Clone, Copy, Default)]
struct Row {
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
enum Prompt {
    Nudge,
    GoOnFrom(Arc<str>),
    Continue,
}

impl Verdict {
    fn flawed(flaw: Flaw) -> Self {
        Self { flaw: Some(flaw), ..Self::default() }
    }

    fn ends(outcome: Outcome) -> Self {
        Self { ended: Some(Ended { outcome, cause: None }), ..Self::default() }
    }

    fn fails(cause: Cause) -> Self {
        Self { ended: Some(Ended::because(Outcome::Failed, cause)), ..Self::default() }
    }
}

impl Run {
    /// What becomes of the answer to the call under way. What was cut off is never an answer, and a call that was cut
    /// off never runs.
    pub(super) fn judge(&self, answer: &Answer, plans: &[Plan]) -> Verdict {
        let row = &self.ladder.row;
        let acts = !answer.message.calls.is_empty();
        match answer.finish {
            Finish::Refused => self.refused(),
            Finish::Length if acts && row.truncated < TRUNCATED => Verdict::flawed(Flaw::Truncated),
            Finish::Length if !acts && is_blank(&answer.message.text) => {
                let max_tokens = self.asking().map_or(0, |started| started.max_tokens);
                Verdict::fails(Cause::OnlyThought { max_tokens })
            }
            Finish::Length if !acts && row.parts < PARTS => Verdict::flawed(Flaw::Partial),
            Finish::Length => Verdict::fails(Cause::Truncated),
            Finish::Stop | Finish::ToolCalls if acts => row.calls(plans),
            Finish::Stop | Finish::ToolCalls if is_blank(&answer.message.text) => self.empty(answer),
            Finish::Stop | Finish::ToolCalls => Verdict::ends(Outcome::Completed),
        }
    }

    fn refused(&self) -> Verdict {
        match self.behind() {
            Some(link) if self.spec.limits.retry.fallback_on_refusal => {
                Verdict { fallback: Some(link), ..Verdict::flawed(Flaw::Refused) }
            }
            Some(_) | None => Verdict::ends(Outcome::Refused),
        }
    }

    fn empty(&self, answer: &Answer) -> Verdict {
        let Ladder { row, parts, acted, earlier, .. } = &self.ladder;
        // Parts of a text are newer than what was said before them.
        if earlier.is_some() && parts.is_none() {
            return Verdict::ends(Outcome::Completed);
        }
        if *acted && parts.is_none() && row.nudges < NUDGES {
            return Verdict::flawed(Flaw::EmptyAfterTool);
        }
        if !is_blank(&answer.message.reasoning) && row.thoughts < THOUGHTS {
            return Verdict::flawed(Flaw::OnlyThought);
        }
        if row.empty < EMPTY {
            return Verdict::flawed(Flaw::Empty);
        }
        match self.behind() {
            Some(link) => Verdict { fallback: Some(link), ..Verdict::flawed(Flaw::Empty) },
            None => Verdict::fails(Cause::EmptyAnswer),
        }
    }

    /// The link behind the one that is asked, if there is one.
    fn behind(&self) -> Option<usize> {
        let asked = &self.asking()?.model;
        let at = self.spec.chain.iter().position(|link| link == asked)?;
        Some(at + 1).filter(|link| *link < self.spec.chain.len())
    }
}

impl Row {
    /// What becomes of an answer that asks for calls. What was asked for often enough is taken as it is.
    fn calls(&self, plans: &[Plan]) -> Verdict {
        let has =
            |fault: Fault| move |plan: &Plan| matches!(plan, Plan::Refuse { fault: f, .. } if *f == fault);
        if self.malformed < MALFORMED && plans.iter().any(has(Fault::Malformed)) {
            return Verdict::flawed(Flaw::Malformed);
        }
        if !plans.iter().all(has(Fault::UnknownTool)) {
            return Verdict::default();
        }
        let too_often = self.unknown + 1 >= UNKNOWN_TOOLS;
        let ended = too_often.then(|| Ended::because(Outcome::Failed, Cause::UnknownTool));
        Verdict { ended, ..Verdict::flawed(Flaw::UnknownTools) }
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
            Some(Flaw::OnlyThought) => self.thoughts += 1,
            Some(Flaw::Empty) => self.empty += 1,
            Some(Flaw::Refused) => {}
        }
        if let Some(link) = fallback {
            self.link = link;
            self.empty = 0;
        }
    }
}

impl Ladder {
    /// Takes an answer in. What the conversation goes on with; `None` if the model is asked again.
    pub(super) fn take(&mut self, answered: &ModelAnswered) -> Option<Arc<AssistantMessage>> {
        self.row.count(answered.flaw, answered.fallback);
        match answered.flaw {
            Some(Flaw::Partial) => {
                self.parts = Some(self.whole(&answered.message));
                self.prompt = Some(Prompt::Continue);
            }
            Some(Flaw::EmptyAfterTool) => self.prompt = Some(Prompt::Nudge),
            Some(Flaw::OnlyThought) => {
                self.prompt = Some(Prompt::GoOnFrom(end_of(&answered.message.reasoning).into()));
            }
            Some(Flaw::Malformed | Flaw::Truncated | Flaw::Empty | Flaw::Refused) => {}
            None | Some(Flaw::UnknownTools) => {
                let whole = self.whole(&answered.message);
                (self.parts, self.prompt) = (None, None);
                return Some(whole);
            }
        }
        None
    }

    /// Calls of an answer have their results.
    pub(super) fn acted<'a>(&mut self, text: &str, mut tools: impl Iterator<Item = &'a str>) {
        self.acted = true;
        if !tools.all(is_housekeeping) {
            self.earlier = None;
        } else if !is_blank(text) {
            self.earlier = Some(text.into());
        }
    }

    /// How many answers in a row were cut off.
    pub(super) const fn cut_off(&self) -> u32 {
        self.row.truncated + self.row.parts
    }

    /// The link that the next call begins with.
    pub(super) const fn link(&self) -> usize {
        self.row.link
    }

    /// An answer behind the parts that it continues; of one that says nothing, what was said earlier.
    fn whole(&self, answer: &Arc<AssistantMessage>) -> Arc<AssistantMessage> {
        let says_nothing = answer.calls.is_empty() && is_blank(&answer.text);
        match (&self.parts, &self.earlier) {
            (Some(parts), _) => Arc::new(joined(parts, answer)),
            (None, Some(earlier)) if says_nothing => {
                Arc::new(AssistantMessage { text: earlier.to_string(), ..AssistantMessage::default() })
            }
            (None, _) => Arc::clone(answer),
        }
    }

    /// What the next request says of them.
    pub(super) fn postscript(&self) -> Option<Postscript> {
        let prompt: Arc<str> = match self.prompt.as_ref()? {
            Prompt::Nudge => NUDGE.into(),
            Prompt::Continue => CONTINUE.into(),
            Prompt::GoOnFrom(thoughts) => {
                let then = if self.parts.is_some() { CONTINUE } else { GO_ON };
                format!("{THOUGHT}\n<thoughts>\n{thoughts}\n</thoughts>\n{then}").into()
            }
        };
        debug_assert!(prompt.starts_with(FROM_RUNTIME), "{prompt}");
        Some(Postscript { partial: self.parts.clone(), prompt })
    }
}

impl Turn {
    /// What the request of the call that is wanted or under way says behind the view; `None` if there is nothing to say.
    pub(crate) fn postscript(&self) -> Option<Postscript> {
        let Phase::Running(run) = &self.phase else { return None };
        match &run.step {
            Step::Asking(asking) => run.postscript(asking, self.current_pressure()),
            Step::Acting(_) | Step::Said(_) => None,
        }
    }

    /// The hash of the view with its postscript.
    pub(super) fn request_hash(&self) -> Hash {
        let view = self.history.hash();
        let Some(Postscript { partial, prompt }) = self.postscript() else { return view };
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
            .postscript()
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
fn end_of(text: &str) -> &str {
    let start = text.char_indices().rev().nth(SHOWN - 1).map_or(0, |(start, _)| start);
    &text[start..]
}
