//! JSON types of `codex_responses` events and responses, and the kind of an event by its type.

use serde::Deserialize;

use super::slot::PartKind;
use crate::provider::loose::{LooseList, LooseObject, LooseValue};

/// The kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventKind {
    /// An error in place of the answer.
    Error,
    /// The final response.
    End(ResponseStatus),
    /// An item starts.
    ItemStarted,
    /// An item is complete.
    ItemDone,
    /// A part of an item is complete.
    PartDone,
    /// A piece of this target.
    Delta(DeltaTarget),
    /// The whole of this target.
    Done(DeltaTarget),
    /// Progress of an item, such as that of the vendor's own tools.
    Activity,
    /// Unrelated to the answer.
    Unrelated,
}

/// The text that an event extends or completes: a part's, or a call's arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeltaTarget {
    Part(PartKind),
    Arguments,
}

/// How the vendor ends an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponseStatus {
    Completed,
    Incomplete,
    Failed,
    Cancelled,
}

impl ResponseStatus {
    /// The status by the `status` of a response, which is also the name of its last event.
    pub(super) fn from_status(status: &str) -> Option<Self> {
        match status {
            "completed" | "done" => Some(Self::Completed),
            "incomplete" => Some(Self::Incomplete),
            "failed" => Some(Self::Failed),
            "cancelled" | "canceled" => Some(Self::Cancelled),
            _ => None,
        }
    }
}

impl DeltaTarget {
    /// The target by the part of an event's type between `response.` and `.delta` or `.done`.
    fn from_name(name: &str) -> Option<Self> {
        match name {
            "output_text" => Some(Self::Part(PartKind::Text)),
            "refusal" => Some(Self::Part(PartKind::Refusal)),
            "reasoning_summary_text" => Some(Self::Part(PartKind::Summary)),
            "reasoning_text" => Some(Self::Part(PartKind::Thought)),
            "function_call_arguments" | "custom_tool_call_input" => Some(Self::Arguments),
            _ => None,
        }
    }
}

/// An event of a stream. Each kind uses some of the fields.
#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Event<'a> {
    pub(super) r#type: LooseValue<'a>,
    pub(super) response: LooseObject<Response<'a>>,
    pub(super) item: LooseObject<Item<'a>>,
    pub(super) part: LooseObject<Part<'a>>,
    pub(super) output_index: LooseValue<'a>,
    pub(super) item_id: LooseValue<'a>,
    pub(super) content_index: LooseValue<'a>,
    pub(super) summary_index: LooseValue<'a>,
    pub(super) delta: LooseValue<'a>,
    pub(super) text: LooseValue<'a>,
    pub(super) refusal: LooseValue<'a>,
    pub(super) arguments: LooseValue<'a>,
    pub(super) input: LooseValue<'a>,
    /// An error in place of the answer, under status 200; some vendors write its fields beside the type.
    pub(super) error: LooseValue<'a>,
    pub(super) code: LooseValue<'a>,
    pub(super) message: LooseValue<'a>,
}

impl Event<'_> {
    /// The kind by `type`.
    pub(super) fn kind(&self) -> EventKind {
        let name = self.r#type.text();
        if matches!(name, "error" | "response.error") || (name.is_empty() && self.error != LooseValue::Absent)
        {
            return EventKind::Error;
        }
        let Some(name) = name.strip_prefix("response.") else { return EventKind::Unrelated };
        let Some((name, step)) = name.rsplit_once('.') else {
            return ResponseStatus::from_status(name).map_or(EventKind::Unrelated, EventKind::End);
        };
        let target = DeltaTarget::from_name(name);
        match (name, step, target) {
            ("output_item", "added", _) => EventKind::ItemStarted,
            ("output_item", "done", _) => EventKind::ItemDone,
            ("content_part" | "reasoning_summary_part", "done", _) => EventKind::PartDone,
            (_, "delta", Some(target)) => EventKind::Delta(target),
            (_, "done", Some(target)) => EventKind::Done(target),
            _ if self.output_index == LooseValue::Absent => EventKind::Unrelated,
            _ => EventKind::Activity,
        }
    }

    /// The index of the part that the event concerns.
    pub(super) fn part_index(&self) -> u64 {
        self.summary_index.count().or_else(|| self.content_index.count()).unwrap_or(0)
    }
}

/// A `response`: the whole answer, or its current state.
#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Response<'a> {
    pub(super) object: LooseValue<'a>,
    pub(super) status: LooseValue<'a>,
    pub(super) output: LooseList<LooseObject<Item<'a>>>,
    pub(super) error: LooseValue<'a>,
    pub(super) incomplete_details: LooseObject<Incomplete<'a>>,
    pub(super) usage: LooseObject<UsageFields<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Incomplete<'a> {
    pub(super) reason: LooseValue<'a>,
}

/// An output item. Each kind uses some of the fields.
#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Item<'a> {
    pub(super) r#type: LooseValue<'a>,
    pub(super) id: LooseValue<'a>,
    /// In a message or reasoning: a list of parts, or a text.
    pub(super) content: LooseValue<'a>,
    pub(super) phase: LooseValue<'a>,
    pub(super) summary: LooseValue<'a>,
    pub(super) encrypted_content: LooseValue<'a>,
    pub(super) signature: LooseValue<'a>,
    pub(super) format: LooseValue<'a>,
    pub(super) call_id: LooseValue<'a>,
    pub(super) name: LooseValue<'a>,
    pub(super) status: LooseValue<'a>,
    pub(super) arguments: LooseValue<'a>,
    /// In place of `arguments`, for tools without a schema.
    pub(super) input: LooseValue<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Part<'a> {
    pub(super) r#type: LooseValue<'a>,
    pub(super) text: LooseValue<'a>,
    pub(super) refusal: LooseValue<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct UsageFields<'a> {
    pub(super) input_tokens: LooseValue<'a>,
    pub(super) output_tokens: LooseValue<'a>,
    pub(super) input_tokens_details: LooseObject<InputDetails<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct InputDetails<'a> {
    pub(super) cached_tokens: LooseValue<'a>,
    pub(super) cache_write_tokens: LooseValue<'a>,
}
