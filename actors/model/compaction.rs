use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{Attempt, CallId, ModelProfile, ModelRef, ModelStarted, RunId, SessionId, Usage, UsageAnomaly};

/// How the view of a run is kept short, resolved when it is accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompactionPolicy {
    /// Who is asked for summaries, in order; without anybody the oldest is left out without one.
    pub chain: Vec<ModelRef>,
    /// What is known of each of them, in the same order; nothing of those for which there is no entry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[serde(rename = "traits")]
    pub profiles: Vec<ModelProfile>,
    /// Over which share of the model's window the view is compressed, in percent.
    pub trigger: u8,
    /// The messages at the end that stay as they are, if they are short enough.
    pub protect_last: u32,
    /// Whether a summary is made while the run goes on, before it has to wait for one.
    pub ahead: bool,
}

/// A place in a session's conversation: before it lie so many rounds, and so many steps of the next one. A round is what
/// a user said and all that was done about it, a step an answer with the results of its calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash, Serialize, Deserialize)]
pub struct HistoryPosition {
    /// Whole rounds.
    pub round: u32,
    /// Steps of the round behind them.
    pub step: u32,
}

/// What was done to a view that was too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompactionMethod {
    /// Long results of old calls were left out.
    Elided,
    /// What is oldest was replaced by a summary.
    Summarised,
    /// Likewise, by several calls: it did not fit into one.
    Chunked,
    /// What is oldest was left out without a summary.
    Dropped,
}

impl CompactionMethod {
    /// The public name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Elided => "elided",
            Self::Summarised => "summarised",
            Self::Chunked => "chunked",
            Self::Dropped => "dropped",
        }
    }
}

/// The view of a session is shorter from here on. Nothing is deleted: what was before stands in the same journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextCompacted {
    /// The run under way.
    pub run: RunId,
    /// The id of the conversation as it goes on.
    pub lineage: SessionId,
    /// How.
    #[serde(rename = "by")]
    pub method: CompactionMethod,
    /// Up to where.
    #[serde(rename = "to")]
    pub end: HistoryPosition,
    /// What stands for what was left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<Arc<str>>,
    /// The estimated tokens of the request before.
    #[serde(rename = "before")]
    pub tokens_before: u64,
    /// And behind it.
    #[serde(rename = "after")]
    pub tokens_after: u64,
    /// What the run has waited for it, in milliseconds of active time.
    pub waited_ms: u64,
}

/// A model may be asked for a summary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SummaryStarted {
    /// The attempt.
    #[serde(flatten)]
    pub started: Arc<ModelStarted>,
    /// Up to where this call summarises.
    #[serde(rename = "upto")]
    pub call_end: HistoryPosition,
    /// Up to where all calls for this summary do.
    #[serde(rename = "to")]
    pub summary_end: HistoryPosition,
}

/// A model has answered with a summary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SummaryAnswered {
    /// The call.
    pub call: CallId,
    /// The attempt that answered.
    pub attempt: Attempt,
    /// What it said.
    pub text: Arc<str>,
    /// Why that is no summary; absent if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unusable: Option<SummaryDefect>,
    /// The link of the chain that is asked from now on, counted from 0, if that is another one; behind the last, nobody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<usize>,
    /// What it used, if the provider said and can be believed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Why what the provider said of its usage does not count: then all that was reserved is spent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anomaly: Option<Box<UsageAnomaly>>,
}

/// Why an answer is no summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SummaryDefect {
    /// It says nothing.
    Empty,
    /// It is longer than it may be.
    TooLong,
}

impl SummaryDefect {
    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Empty => "it says nothing",
            Self::TooLong => "it is too long",
        }
    }
}

/// What a request consists of that cannot be made short enough, in estimated tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextBreakdown {
    /// What the request may have: the window without what is left for the answer.
    pub limit: u64,
    /// What the model can read and write in one call, by what is known or was found out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// What is left for the answer at least.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<u64>,
    /// The system prompt.
    pub system: u64,
    /// What is said of the tools.
    pub tools: u64,
    /// The present request, with what stands for earlier ones.
    pub request: u64,
    /// The last answer and the results of its calls.
    pub last: u64,
}

impl fmt::Display for ContextBreakdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, window, output, system, tools, request, last } = self;
        let sum = system.saturating_add(*tools).saturating_add(*request).saturating_add(*last);
        let fit = match window.zip(*output) {
            Some((window, output)) => format!(
                "{limit} fit (a window of {window} less {output} for the answer, and nothing kept back for a compression)"
            ),
            None => format!("{limit} fit"),
        };
        if sum > *limit {
            write!(f, "irreducible: the request cannot be made shorter than {sum} tokens, and {fit}")?;
        } else {
            write!(
                f,
                "irreducible: the provider refuses the request as too long; it cannot be made shorter than about {sum} \
                 tokens, and by what is known of the model {fit}"
            )?;
        }
        write!(
            f,
            ": system prompt {system}, tools {tools}, the present request {request}, the last answer with its results {last}; \
             shorten the largest of them, or take a model with a larger window"
        )
    }
}
