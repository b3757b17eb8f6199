use serde::Deserialize;

use super::slot::PartKind;
use crate::provider::loose::{Loose, Maybe};

/// What an event says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// An error in place of the rest.
    Error,
    /// The final response.
    End(Ending),
    /// An item begins.
    ItemBegins,
    /// An item is whole.
    ItemWhole,
    /// A part of an item is whole.
    PartWhole,
    /// A piece of this.
    Delta(Stream),
    /// All of this.
    Whole(Stream),
    /// Something happens to an item, such as a tool of the vendor's own being at work.
    Goes,
    /// Nothing about the answer.
    Nothing,
}

/// What comes in deltas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    Part(PartKind),
    Arguments,
}

/// How the vendor ends an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Completed,
    Incomplete,
    Failed,
    Cancelled,
}

impl Ending {
    /// By the `status` of a response, which is also how its last event is named.
    pub(super) fn named(status: &str) -> Option<Self> {
        match status {
            "completed" | "done" => Some(Self::Completed),
            "incomplete" => Some(Self::Incomplete),
            "failed" => Some(Self::Failed),
            "cancelled" | "canceled" => Some(Self::Cancelled),
            _ => None,
        }
    }
}

impl Stream {
    /// By what stands between `response.` and `.delta` or `.done`.
    fn named(name: &str) -> Option<Self> {
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

/// An event of a stream. Each kind has some of the fields.
#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Event<'a> {
    pub(super) r#type: Loose<'a>,
    pub(super) response: Maybe<Response<'a>>,
    pub(super) item: Maybe<Item<'a>>,
    pub(super) part: Maybe<Part<'a>>,
    pub(super) output_index: Loose<'a>,
    pub(super) item_id: Loose<'a>,
    pub(super) content_index: Loose<'a>,
    pub(super) summary_index: Loose<'a>,
    pub(super) delta: Loose<'a>,
    pub(super) text: Loose<'a>,
    pub(super) refusal: Loose<'a>,
    pub(super) arguments: Loose<'a>,
    pub(super) input: Loose<'a>,
    /// An error in place of the rest, under status 200; some vendors write its fields beside the type.
    pub(super) error: Loose<'a>,
    pub(super) code: Loose<'a>,
    pub(super) message: Loose<'a>,
}

impl Event<'_> {
    /// What it says, by its `type`.
    pub(super) fn what(&self) -> What {
        let name = self.r#type.text();
        if matches!(name, "error" | "response.error") || (name.is_empty() && self.error != Loose::Nothing) {
            return What::Error;
        }
        let Some(name) = name.strip_prefix("response.") else { return What::Nothing };
        let Some((name, step)) = name.rsplit_once('.') else {
            return Ending::named(name).map_or(What::Nothing, What::End);
        };
        let stream = Stream::named(name);
        match (name, step, stream) {
            ("output_item", "added", _) => What::ItemBegins,
            ("output_item", "done", _) => What::ItemWhole,
            ("content_part" | "reasoning_summary_part", "done", _) => What::PartWhole,
            (_, "delta", Some(stream)) => What::Delta(stream),
            (_, "done", Some(stream)) => What::Whole(stream),
            _ if self.output_index == Loose::Nothing => What::Nothing,
            _ => What::Goes,
        }
    }

    /// Which part of its item it is about.
    pub(super) fn part_index(&self) -> u64 {
        self.summary_index.count().or_else(|| self.content_index.count()).unwrap_or(0)
    }
}

/// A `response`: the whole answer, or how far it is.
#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Response<'a> {
    pub(super) object: Loose<'a>,
    pub(super) status: Loose<'a>,
    pub(super) output: Maybe<Vec<Maybe<Item<'a>>>>,
    pub(super) error: Loose<'a>,
    pub(super) incomplete_details: Maybe<Incomplete<'a>>,
    pub(super) usage: Maybe<UsageFields<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Incomplete<'a> {
    pub(super) reason: Loose<'a>,
}

/// An output item. Each kind has some of the fields.
#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Item<'a> {
    pub(super) r#type: Loose<'a>,
    pub(super) id: Loose<'a>,
    /// Of a message or of reasoning: a list of parts, or a text.
    pub(super) content: Loose<'a>,
    pub(super) phase: Loose<'a>,
    pub(super) summary: Loose<'a>,
    pub(super) encrypted_content: Loose<'a>,
    pub(super) signature: Loose<'a>,
    pub(super) format: Loose<'a>,
    pub(super) call_id: Loose<'a>,
    pub(super) name: Loose<'a>,
    pub(super) status: Loose<'a>,
    pub(super) arguments: Loose<'a>,
    /// In place of `arguments`, for tools without a schema.
    pub(super) input: Loose<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Part<'a> {
    pub(super) r#type: Loose<'a>,
    pub(super) text: Loose<'a>,
    pub(super) refusal: Loose<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct UsageFields<'a> {
    pub(super) input_tokens: Loose<'a>,
    pub(super) output_tokens: Loose<'a>,
    pub(super) input_tokens_details: Maybe<InputDetails<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct InputDetails<'a> {
    pub(super) cached_tokens: Loose<'a>,
    pub(super) cache_write_tokens: Loose<'a>,
}
