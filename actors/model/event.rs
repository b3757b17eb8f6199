use std::sync::Arc;

use super::{Attempt, CallId, CallStatus, Durable, OutcomeDetail, Record, RunId, Seq, SessionId, Timestamp};

/// What a watcher sees: records as they become durable with what they mean, and what is not durable.
#[derive(Debug, Clone)]
pub struct SessionEvent {
    /// The session.
    pub session: SessionId,
    /// The run that it is about; `None` if it is about the session.
    pub run: Option<RunId>,
    /// The last record that whoever has seen this event has seen whole: to go on, watch from the next one.
    pub seq: Seq,
    /// What happened.
    pub body: EventBody,
}

/// See [`SessionEvent`]. What follows from a record comes before the record itself, in the same order for whoever watches now
/// and whoever comes later; deltas and progress are for those who watch now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventBody {
    /// A record became durable; all that follows from it has been said.
    Recorded {
        /// The record.
        record: Durable<Arc<Record>>,
    },
    /// Where the run is now.
    Status(RunStatus),
    /// A stage of the run.
    Lifecycle(Lifecycle),
    /// An attempt of the model call begins.
    ThinkingStart {
        /// The call.
        call: CallId,
        /// The attempt.
        attempt: Attempt,
    },
    /// An attempt of the model call is over, with an answer or without.
    ThinkingEnd {
        /// The call.
        call: CallId,
        /// The attempt.
        attempt: Attempt,
    },
    /// A piece of the answer's text. The pieces of an attempt follow each other from its beginning; where one was
    /// missed none follows, and the text comes whole with the answer's record.
    TextDelta {
        /// The call.
        call: CallId,
        /// The attempt.
        attempt: Attempt,
        /// The piece.
        delta: Arc<str>,
    },
    /// A piece of what the model thinks; like text.
    ReasoningDelta {
        /// The call.
        call: CallId,
        /// The attempt.
        attempt: Attempt,
        /// The piece.
        delta: Arc<str>,
    },
    /// The stream has brought a tool call whole, before the answer that it belongs to. Not durable, as the deltas are: a
    /// [`EventBody::Retry`] of the model call voids it, and [`EventBody::ToolCallParsed`] follows with the answer.
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
    /// The answer asks for a tool call.
    ToolCallParsed {
        /// The call.
        call: CallId,
        /// The tool, as the model names it.
        tool: Arc<str>,
        /// The arguments, as the model wrote them.
        arguments: Arc<str>,
    },
    /// An attempt of a tool call begins.
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
    /// A tool says how far it is.
    ToolProgress {
        /// The call.
        call: CallId,
        /// The attempt.
        attempt: Attempt,
        /// What it says.
        note: Arc<str>,
    },
    /// A tool call has its result, which is in the record.
    ToolEnd {
        /// The call.
        call: CallId,
        /// The attempt; 0 if none had begun.
        attempt: Attempt,
        /// The tool.
        tool: Arc<str>,
        /// How it ended.
        status: CallStatus,
    },
    /// The model has answered, and every call of the answer has its result.
    IterationEnd {
        /// The iteration.
        iteration: u32,
    },
    /// What the attempts of a call have shown until now is void: a new one begins, or the answer was discarded and the
    /// next iteration asks again.
    Retry {
        /// The call.
        call: CallId,
        /// The first attempt of which what is shown counts.
        attempt: Attempt,
    },
}

/// See [`EventBody::Status`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunStatus {
    /// It is on disk.
    Accepted,
    /// An earlier run of its session goes first.
    Queued,
    /// The model is asked.
    Thinking,
    /// Its conversation has become too long, and is being summarised.
    Compacting,
    /// Tools run.
    Executing,
    /// Nothing can be done until then.
    Waiting {
        /// Why.
        reason: Arc<str>,
        /// Until when; absent if others have to be done first, whose ends are not known.
        until: Option<Timestamp>,
    },
    /// A person is asked about a call.
    Parked {
        /// The call.
        call: CallId,
        /// How long the answer is waited for.
        until: Timestamp,
    },
    /// It has its outcome.
    Ended(OutcomeDetail),
}

/// See [`EventBody::Lifecycle`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lifecycle {
    /// It is under way.
    Start,
    /// It does nothing new, and waits for what it had begun.
    Finishing,
    /// It has completed.
    End,
    /// It has ended in another way.
    Error,
}

/// Which of the streams an event belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventStream {
    /// The journal.
    Journal,
    /// The stages of a run.
    Lifecycle,
    /// What the model does.
    Assistant,
    /// What the tools do.
    Tool,
}

impl EventBody {
    /// The type's public name.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Recorded { .. } => "record",
            Self::Status(_) => "status",
            Self::Lifecycle(_) => "lifecycle",
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

    /// The stream that it belongs to.
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
            Self::Retry { call, .. } => match call.n {
                0 => EventStream::Assistant,
                _ => EventStream::Tool,
            },
        }
    }
}

impl RunStatus {
    /// The public name.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Queued => "queued",
            Self::Thinking => "thinking",
            Self::Compacting => "compressing",
            Self::Executing => "executing",
            Self::Waiting { .. } => "waiting",
            Self::Parked { .. } => "parked",
            Self::Ended(_) => "ended",
        }
    }
}

impl Lifecycle {
    /// The public name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Finishing => "finishing",
            Self::End => "end",
            Self::Error => "error",
        }
    }
}
