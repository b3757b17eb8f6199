//! The types of events for watchers. An event is a record, follows from one, or is a piece of a stream that is not
//! durable. No action depends on events. `runtime/event_projection.rs` derives events from records.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use super::{Attempt, CallId, CallStatus, Durable, OutcomeDetail, Record, RunId, Seq, SessionId, Timestamp};

/// An event for watchers: a durable record, what follows from one, or a stream delta that is not durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionEvent {
    /// The session.
    pub session: SessionId,
    /// The run of the event; `None` if it concerns the session.
    pub run: Option<RunId>,
    /// The last record that a watcher has seen completely after this event; to resume, watch from the next one.
    pub seq: Seq,
    /// The content of the event.
    pub body: EventBody,
}

/// The content of a [`SessionEvent`]. Events derived from a record precede the record. Only live watchers get deltas,
/// streamed tool calls, progress, and waits that are no record. The serialized form has no records: those have their own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum EventBody {
    /// A record became durable; the events derived from it have been sent.
    #[serde(skip)]
    Recorded {
        /// The record.
        record: Durable<Arc<Record>>,
    },
    /// The run's status changed.
    Status(RunStatus),
    /// The run reached a stage of its lifecycle.
    Lifecycle(Lifecycle),
    /// The conversation is being made shorter, or was.
    Compaction(CompactionStage),
    /// An attempt of the model call starts, with or without reasoning.
    ThinkingStart {
        /// The call.
        call: CallId,
        /// The attempt.
        attempt: Attempt,
    },
    /// An attempt of the model call ended, with an answer or without.
    ThinkingEnd {
        /// The call.
        call: CallId,
        /// The attempt.
        attempt: Attempt,
    },
    /// A piece of the answer's text. The pieces of an attempt are contiguous from its start: a watcher that joins late
    /// gets what was streamed before as one piece. The answer's record has the whole text.
    TextDelta {
        /// The call.
        call: CallId,
        /// The attempt.
        attempt: Attempt,
        /// The piece.
        delta: Arc<str>,
    },
    /// A piece of the model's reasoning, contiguous from the attempt's start like the pieces of text.
    ReasoningDelta {
        /// The call.
        call: CallId,
        /// The attempt.
        attempt: Attempt,
        /// The piece.
        delta: Arc<str>,
    },
    /// A tool call was streamed completely, before its answer ended. Not durable, like the deltas: a
    /// [`EventBody::Retry`] of the model call voids it; [`EventBody::ToolCallParsed`] follows with the answer.
    ToolCallStreamed {
        /// The call.
        call: CallId,
        /// The attempt of the model call, counted from 1.
        attempt: Attempt,
        /// The tool, as the model names it.
        tool: Arc<str>,
        /// The arguments, as the model wrote them.
        arguments: Arc<str>,
    },
    /// The durable answer contains a tool call.
    ToolCallParsed {
        /// The call.
        call: CallId,
        /// The tool, as the model names it.
        tool: Arc<str>,
        /// The arguments, as the model wrote them.
        arguments: Arc<str>,
    },
    /// An attempt of a tool call starts.
    ToolStart {
        /// The call.
        call: CallId,
        /// The attempt.
        attempt: Attempt,
        /// The tool.
        tool: Arc<str>,
        /// The arguments, as the model wrote them.
        arguments: Arc<str>,
    },
    /// A tool reports progress.
    ToolProgress {
        /// The call.
        call: CallId,
        /// The attempt.
        attempt: Attempt,
        /// The progress note.
        note: Arc<str>,
    },
    /// A tool call has its result; the record contains it.
    ToolEnd {
        /// The call.
        call: CallId,
        /// The attempt; 0 if none had started.
        attempt: Attempt,
        /// The tool.
        tool: Arc<str>,
        /// The status of the result.
        status: CallStatus,
    },
    /// The model has answered, and every call of the answer has a result.
    IterationEnd {
        /// The iteration.
        iteration: u32,
    },
    /// Everything streamed so far for the call's earlier attempts is void. A new attempt starts, or the answer was
    /// discarded and the next iteration calls the model again.
    Retry {
        /// The call.
        call: CallId,
        /// The output of attempts before this one is void. If the answer was discarded, this attempt is never made.
        attempt: Attempt,
    },
}

/// The present status of a run.
#[derive(Debug, Clone, PartialEq, Eq, IntoStaticStr, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum RunStatus {
    /// The run is durably accepted.
    Accepted,
    /// An earlier run of its session goes first.
    Queued,
    /// A model call is under way.
    Thinking,
    /// The conversation is too long and is being summarised.
    #[serde(rename = "compressing")]
    #[strum(serialize = "compressing")]
    Compacting,
    /// Tool calls are under way.
    Executing,
    /// The run waits.
    Waiting {
        /// The reason of the wait.
        reason: Arc<str>,
        /// The end of the wait; absent if it depends on other calls or runs.
        until: Option<Timestamp>,
    },
    /// The run waits for a person's approval of a call.
    Parked {
        /// The call.
        call: CallId,
        /// The time at which the request expires.
        until: Timestamp,
    },
    /// The run has its outcome.
    Ended(OutcomeDetail),
}

/// A stage in the lifecycle of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, IntoStaticStr, Serialize, Deserialize)]
#[serde(tag = "stage", rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Lifecycle {
    /// The run has started.
    Start,
    /// The run starts nothing new and waits for its open calls.
    Finishing,
    /// The run completed.
    End,
    /// The run ended with another outcome, such as a stop.
    Error,
}

/// A stage of a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, IntoStaticStr, Serialize, Deserialize)]
#[serde(tag = "stage", rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum CompactionStage {
    /// A call for a summary starts, perhaps ahead of its need.
    Start,
    /// The model gets a shorter conversation from here on. Some compactions need no call, and have only this stage.
    End,
}

impl CompactionStage {
    /// The public name.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The stream of an event, by which clients filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventStream {
    /// The journal.
    Journal,
    /// Status and stages of a run.
    Lifecycle,
    /// Output of the model.
    Assistant,
    /// Tool calls.
    Tool,
    /// Stages of compactions.
    Compaction,
}

impl EventBody {
    /// The type's public name.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Recorded { .. } => "record",
            Self::Status(_) => "status",
            Self::Lifecycle(_) => "lifecycle",
            Self::Compaction(_) => "compaction",
            Self::ThinkingStart { .. } => "thinking.start",
            Self::ThinkingEnd { .. } => "thinking.end",
            Self::TextDelta { .. } => "text.delta",
            Self::ReasoningDelta { .. } => "reasoning.delta",
            Self::ToolCallStreamed { .. } => "tool_call.streamed",
            Self::ToolCallParsed { .. } => "tool_call.parsed",
            Self::ToolStart { .. } => "tool.start",
            Self::ToolProgress { .. } => "tool.progress",
            Self::ToolEnd { .. } => "tool.end",
            Self::IterationEnd { .. } => "iteration.end",
            Self::Retry { .. } => "retry",
        }
    }

    /// The stream of the event.
    pub const fn stream(&self) -> EventStream {
        match self {
            Self::Recorded { .. } => EventStream::Journal,
            Self::Status(_) | Self::Lifecycle(_) | Self::IterationEnd { .. } => EventStream::Lifecycle,
            Self::ThinkingStart { .. }
            | Self::ThinkingEnd { .. }
            | Self::TextDelta { .. }
            | Self::ReasoningDelta { .. }
            | Self::ToolCallStreamed { .. }
            | Self::ToolCallParsed { .. } => EventStream::Assistant,
            Self::ToolStart { .. } | Self::ToolProgress { .. } | Self::ToolEnd { .. } => EventStream::Tool,
            Self::Compaction(_) => EventStream::Compaction,
            Self::Retry { call, .. } => match call.n {
                0 => EventStream::Assistant,
                _ => EventStream::Tool,
            },
        }
    }
}

impl RunStatus {
    /// The public name.
    pub fn name(&self) -> &'static str {
        self.into()
    }
}

impl Lifecycle {
    /// The public name.
    pub fn name(self) -> &'static str {
        self.into()
    }
}
