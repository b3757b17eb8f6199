//! Compaction of views: policy, positions in the history, and record bodies of compactions and summaries. Also the
//! parts of a request that cannot be made short enough.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use super::{
    Attempt, CallId, HookedSummary, ModelProfile, ModelRef, ModelStarted, RunId, SessionId, Usage,
    UsageAnomaly,
};

/// The compaction of a run's view, resolved when the run is accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompactionPolicy {
    /// Models for summaries, in order; if empty, the oldest part is dropped without a summary.
    pub chain: Vec<ModelRef>,
    /// Profiles of the models, in the same order; a model without an entry has no known properties.
    #[serde(rename = "traits", default, skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<ModelProfile>,
    /// Share of the context window above which the view is compacted, in percent.
    pub trigger: u8,
    /// Number of last messages that stay unchanged, if they are short enough.
    pub protect_last: u32,
    /// True if a summary is made in the background, before the run must wait for one.
    pub ahead: bool,
}

/// The models of an aside, resolved when the run is accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuxiliaryChain {
    /// The models, in order; not empty.
    pub chain: Vec<ModelRef>,
    /// Profiles of the models, in the same order; a model without an entry has no known properties.
    #[serde(rename = "traits", default, skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<ModelProfile>,
}

/// A position in a session's conversation: `round` whole rounds and `step` steps of the next round precede it. A round
/// is a user message and all that follows until its answer. A step is an answer with tool calls and their results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash, Serialize, Deserialize)]
pub struct HistoryPosition {
    /// Number of whole rounds before the position.
    pub round: u32,
    /// Number of steps before the position in the round after them.
    pub step: u32,
}

/// The method by which a view was compacted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum CompactionMethod {
    /// Long results of old calls were elided.
    Elided,
    /// A summary replaced the oldest part.
    Summarised,
    /// A summary replaced the oldest part; it took several calls, because the part did not fit into one.
    Chunked,
    /// The oldest part was dropped without a summary.
    Dropped,
}

impl CompactionMethod {
    /// The public name.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The view of a session is shorter from this record on. Nothing is deleted: the journal keeps the earlier records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextCompacted {
    /// The run under way.
    pub run: RunId,
    /// The id of the conversation from here on.
    pub lineage: SessionId,
    /// The method.
    #[serde(rename = "by")]
    pub method: CompactionMethod,
    /// The end of the compacted part.
    #[serde(rename = "to")]
    pub end: HistoryPosition,
    /// The text that replaces the part: a summary, or a notice that it was dropped; absent for
    /// [`CompactionMethod::Elided`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<Arc<str>>,
    /// Estimated tokens of the request before the compaction.
    #[serde(rename = "before")]
    pub tokens_before: u64,
    /// Estimated tokens of the request after the compaction.
    #[serde(rename = "after")]
    pub tokens_after: u64,
    /// Time that the run waited for the compaction, in milliseconds of active time.
    pub waited_ms: u64,
}

/// An attempt of a summary call may start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SummaryStarted {
    /// The fields of a started model call.
    #[serde(flatten)]
    pub started: Arc<ModelStarted>,
    /// The end of the part that this call summarises.
    #[serde(rename = "upto")]
    pub call_end: HistoryPosition,
    /// The end of the part that all calls for this summary cover.
    #[serde(rename = "to")]
    pub summary_end: HistoryPosition,
    /// What hooks have decided about the summary, if some were asked for this attempt. It holds for later attempts too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hooks: Option<Arc<HookedSummary>>,
}

/// Fields of [`Body::SummaryAnswered`], also of [`Body::AsideAnswered`].
///
/// [`Body::SummaryAnswered`]: super::Body::SummaryAnswered
/// [`Body::AsideAnswered`]: super::Body::AsideAnswered
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AsideAnswered {
    /// The call.
    pub call: CallId,
    /// The attempt that answered.
    pub attempt: Attempt,
    /// The summary, the title, or the entries of a memory flush; empty if the answer is unusable.
    pub text: Arc<str>,
    /// Why the answer is unusable; absent if it is usable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unusable: Option<AsideDefect>,
    /// Index of the chain's link for later calls, from 0, if it changes; one past the last means none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback: Option<usize>,
    /// The usage, if the provider reported a plausible one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Why the reported usage does not count; the whole reservation is then spent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anomaly: Option<Box<UsageAnomaly>>,
}

/// Why an answer of an aside is unusable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AsideDefect {
    /// The answer is empty.
    Empty,
    /// The answer exceeds the maximum length.
    TooLong,
    /// The answer is not in the form that was asked for.
    Malformed,
}

impl AsideDefect {
    /// A description for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Empty => "it says nothing",
            Self::TooLong => "it is too long",
            Self::Malformed => "it is not in the form that was asked for",
        }
    }
}

/// The parts of a request that cannot be shortened enough, in estimated tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextBreakdown {
    /// Maximum of the request: the window less the minimum for the answer.
    pub limit: u64,
    /// The context window, if it is configured, listed or observed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// The minimum reserved for the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<u64>,
    /// The system prompt.
    pub system: u64,
    /// The tool specifications.
    pub tools: u64,
    /// The present user message with the text that replaces earlier content.
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
