//! The entries of a transcript: what a person reads of a run, in the order in which it happened.

use std::sync::Arc;

use hermod_actors::model::{
    CallId, CallStatus, Flaw, ModelRef, OutcomeDetail, RunId, Timestamp, Usage, rfc3339_time,
};
use serde::Serialize;

/// An entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Entry {
    /// When it happened.
    #[serde(with = "rfc3339_time")]
    pub(super) at: Timestamp,
    /// What happened.
    #[serde(flatten)]
    pub(super) content: Content,
}

/// The content of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "entry", rename_all = "snake_case")]
pub(super) enum Content {
    /// The task.
    Task {
        /// Its text.
        text: Arc<str>,
        /// Number of its images.
        images: usize,
    },
    /// An answer of a model.
    Answer {
        /// The iteration, from 1.
        iteration: u32,
        /// The model.
        model: Option<ModelRef>,
        /// Its text; empty if it only calls tools.
        text: String,
        /// What the model thought, if the provider returns it.
        #[serde(skip_serializing_if = "String::is_empty")]
        reasoning: String,
        /// Number of tool calls.
        calls: usize,
        /// What it used, if the provider reported it.
        usage: Option<Usage>,
        /// Active time of the attempt that answered.
        took_ms: Option<u64>,
        /// Why it is unusable as it is.
        #[serde(skip_serializing_if = "Option::is_none")]
        flaw: Option<Flaw>,
        /// The line of progress.
        #[serde(skip)]
        line: String,
    },
    /// A tool call, at its end.
    Call(Box<ToolCall>),
    /// A subagent has ended.
    Subagent {
        /// Its run.
        run: RunId,
        /// Its outcome.
        #[serde(flatten)]
        ended: OutcomeDetail,
        /// Its iterations.
        iterations: u32,
        /// What its model calls used.
        usage: Usage,
    },
    /// A message to the run under way.
    Message {
        /// Its text.
        text: Arc<str>,
    },
    /// A person was asked.
    Question {
        /// The call that waited.
        call: CallId,
        /// The question.
        text: String,
    },
    /// Any other step: a failure, a wait, a compaction, a decision, a limit.
    Step {
        /// The kind of its record.
        kind: &'static str,
        /// The step in words.
        text: String,
        /// Whether it is a failure.
        is_failure: bool,
    },
    /// The end of the run, or of a leg of it.
    End {
        /// Its outcome.
        #[serde(flatten)]
        ended: OutcomeDetail,
    },
}

/// A tool call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct ToolCall {
    /// The call.
    pub(super) call: CallId,
    /// The tool.
    pub(super) tool: String,
    /// Its arguments, as the model wrote them or a hook has replaced them.
    pub(super) arguments: String,
    /// How it ended; `None` if it has not.
    pub(super) status: Option<CallStatus>,
    /// The result, as the model reads it.
    pub(super) result: Arc<str>,
    /// Active time of the last attempt.
    pub(super) took_ms: Option<u64>,
    /// The whole output, if `result` is a part of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) artifact: Option<String>,
    /// The runs of the subagents that it started.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) subagents: Vec<RunId>,
}
