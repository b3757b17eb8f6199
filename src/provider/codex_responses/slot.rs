//! An output item of a `codex_responses` answer, as received so far, with the kinds of items and of their parts.

use std::borrow::Cow;

use hermod_actors::model::Failure;
use serde_json::Value;

use super::event::Item;
use crate::provider::{
    loose::{LooseValue, is_object},
    reader::incomplete_stream,
};

/// Maximum number of items in an answer, and of parts in an item.
pub(super) const MAX_PARTS: usize = 1_024;
/// Bytes counted for each item and each part, in addition to its texts.
pub(super) const SLOT_OVERHEAD_BYTES: usize = 64;

/// The failure of an answer with more items or parts than [`MAX_PARTS`].
pub(super) fn too_many_parts() -> Failure {
    incomplete_stream(&format!("the answer has more than {MAX_PARTS} items, or parts in one"))
}

/// The kind of an output item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum ItemKind {
    Message,
    Reasoning,
    Call,
    /// Activity of the vendor's own tools, and unknown items: no part of the answer.
    #[default]
    Other,
}

impl ItemKind {
    fn of(item: &Item<'_>) -> Self {
        match item.r#type.text() {
            "message" => Self::Message,
            "reasoning" => Self::Reasoning,
            "function_call" | "custom_tool_call" => Self::Call,
            _ => Self::Other,
        }
    }
}

/// The kind of an item's part. The order of the variants is the order within an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PartKind {
    /// The vendor's summary of the reasoning.
    Summary,
    /// The reasoning itself.
    Thought,
    Text,
    Refusal,
}

impl PartKind {
    /// The kind by the `type` of a part; for an unknown type, the usual kind of `owner`.
    pub(super) fn from_name(name: &str, owner: ItemKind) -> Self {
        match name {
            "output_text" | "text" => Self::Text,
            "refusal" => Self::Refusal,
            "reasoning_text" => Self::Thought,
            "summary_text" => Self::Summary,
            _ => match owner {
                ItemKind::Reasoning => Self::Thought,
                ItemKind::Message | ItemKind::Call | ItemKind::Other => Self::Text,
            },
        }
    }

    /// The kind of items with such parts.
    pub(super) const fn owner(self) -> ItemKind {
        match self {
            Self::Summary | Self::Thought => ItemKind::Reasoning,
            Self::Text | Self::Refusal => ItemKind::Message,
        }
    }

    /// The `type` of such a part.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Summary => "summary_text",
            Self::Thought => "reasoning_text",
            Self::Text => "output_text",
            Self::Refusal => "refusal",
        }
    }
}

/// A part of an item's content.
#[derive(Debug, Clone)]
pub(super) struct ItemPart {
    pub(super) kind: PartKind,
    pub(super) index: u64,
    pub(super) text: String,
}

/// An output item, as received so far.
#[derive(Debug, Clone, Default)]
pub(super) struct ItemSlot {
    pub(super) kind: ItemKind,
    /// The item's position in the output, if the vendor reports it.
    pub(super) index: Option<u64>,
    pub(super) id: String,
    /// The whole item has been received.
    pub(super) is_complete: bool,
    /// Sorted by kind and index.
    pub(super) parts: Vec<ItemPart>,
    pub(super) phase: String,
    pub(super) encrypted: String,
    pub(super) signature: String,
    pub(super) format: String,
    pub(super) call_id: String,
    pub(super) name: String,
    pub(super) arguments: String,
    pub(super) arguments_state: ArgumentsState,
}

/// The state of a call's arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum ArgumentsState {
    /// Received in pieces so far.
    #[default]
    Streaming,
    /// The vendor reports that they are incomplete.
    Incomplete,
    /// The vendor reports that they are complete.
    Complete,
}

impl ItemSlot {
    pub(super) fn new(kind: ItemKind, index: Option<u64>, id: String) -> Self {
        Self { kind, index, id, ..Self::default() }
    }

    /// An empty slot for an item.
    pub(super) fn of(item: &Item<'_>, index: Option<u64>) -> Self {
        Self::new(ItemKind::of(item), index, item.id.text().to_owned())
    }

    /// Sets the fields that an item has from its start: `call_id`, `name` and `phase`.
    pub(super) fn set_start_fields(&mut self, item: &mut Item<'_>) {
        let fields = [
            (&mut self.call_id, &mut item.call_id),
            (&mut self.name, &mut item.name),
            (&mut self.phase, &mut item.phase),
        ];
        for (field, reported) in fields {
            set_if_present(field, std::mem::take(reported));
        }
    }

    /// Sets the item from its complete form. Fields that this form omits stay unchanged.
    pub(super) fn fill(&mut self, mut item: Item<'_>) -> Result<(), Failure> {
        self.is_complete = true;
        if self.kind == ItemKind::Other {
            return Ok(());
        }
        self.set_start_fields(&mut item);
        if !matches!(item.status.text(), "in_progress" | "incomplete") {
            self.arguments_state = ArgumentsState::Complete;
        } else if self.arguments_state == ArgumentsState::Streaming {
            self.arguments_state = ArgumentsState::Incomplete;
        }
        set_if_present(&mut self.id, item.id);
        set_if_present(&mut self.encrypted, item.encrypted_content);
        set_if_present(&mut self.signature, item.signature);
        set_if_present(&mut self.format, item.format);
        set_if_present(
            &mut self.arguments,
            if item.arguments == LooseValue::Absent { item.input } else { item.arguments },
        );
        let owner = self.kind;
        self.replace(&[PartKind::Summary], texts(item.summary, |_| PartKind::Summary))?;
        let content = texts(item.content, |name| PartKind::from_name(name, owner));
        self.replace(&[PartKind::Thought, PartKind::Text, PartKind::Refusal], content)
    }

    /// Replaces the parts of these kinds by `parts`, unless those are all empty.
    fn replace(&mut self, kinds: &[PartKind], mut parts: Vec<ItemPart>) -> Result<(), Failure> {
        parts.retain(|part| !part.text.is_empty());
        if parts.is_empty() {
            return Ok(());
        }
        parts.extend(self.parts.drain(..).filter(|part| !kinds.contains(&part.kind)));
        parts.sort_by_key(|part| (part.kind, part.index));
        self.parts = parts;
        if self.parts.len() > MAX_PARTS { Err(too_many_parts()) } else { Ok(()) }
    }

    /// The text of a part, added if it is new.
    pub(super) fn part(&mut self, kind: PartKind, index: u64) -> Result<&mut String, Failure> {
        // Nearly always it is the last part.
        let after = self.parts.iter().rposition(|part| (part.kind, part.index) <= (kind, index));
        let at = match after {
            Some(at) if (self.parts[at].kind, self.parts[at].index) == (kind, index) => at,
            _ if self.parts.len() >= MAX_PARTS => return Err(too_many_parts()),
            after => {
                let at = after.map_or(0, |at| at + 1);
                self.parts.insert(at, ItemPart { kind, index, text: String::new() });
                at
            }
        };
        Ok(&mut self.parts[at].text)
    }

    /// True if it is the last part of its text. Summaries and thoughts are one text, the reasoning.
    pub(super) fn ends_with(&self, (kind, index): (PartKind, u64)) -> bool {
        let with = |other: PartKind| {
            let is_reasoning = |kind| matches!(kind, PartKind::Summary | PartKind::Thought);
            other == kind || (is_reasoning(other) && is_reasoning(kind))
        };
        let last = self.parts.iter().rfind(|part| with(part.kind));
        last.is_some_and(|part| (part.kind, part.index) == (kind, index))
    }

    fn joined(&self, kinds: [PartKind; 2], between: &str) -> String {
        let texts = self.parts.iter().filter(|part| kinds.contains(&part.kind) && !part.text.is_empty());
        texts.map(|part| part.text.as_str()).collect::<Vec<_>>().join(between)
    }

    /// The text of the item.
    pub(super) fn text(&self) -> String {
        self.joined([PartKind::Text; 2], "")
    }

    /// The refusal of the item.
    pub(super) fn refusal(&self) -> String {
        self.joined([PartKind::Refusal; 2], "")
    }

    /// The reasoning, one paragraph per part.
    pub(super) fn reasoning(&self) -> String {
        self.joined([PartKind::Summary, PartKind::Thought], PARAGRAPH_BREAK)
    }

    /// The size in bytes that counts towards the limit of an answer.
    pub(super) fn size(&self) -> usize {
        let fields = [&self.phase, &self.encrypted, &self.signature, &self.format];
        let more = [&self.id, &self.call_id, &self.name, &self.arguments];
        let parts: usize = self.parts.iter().map(|part| SLOT_OVERHEAD_BYTES + part.text.len()).sum();
        SLOT_OVERHEAD_BYTES + parts + fields.into_iter().chain(more).map(String::len).sum::<usize>()
    }

    /// True if it is a call with a name or arguments.
    pub(super) fn is_call(&self) -> bool {
        self.kind == ItemKind::Call && !(self.name.is_empty() && self.arguments.is_empty())
    }

    /// True if it is a call whose arguments are incomplete.
    pub(super) fn is_incomplete_call(&self) -> bool {
        self.is_call()
            && match self.arguments_state {
                ArgumentsState::Streaming => !is_object(&self.arguments),
                ArgumentsState::Incomplete => true,
                ArgumentsState::Complete => false,
            }
    }
}

/// Separates two pieces of reasoning.
pub(super) const PARAGRAPH_BREAK: &str = "\n\n";

fn set_if_present(field: &mut String, reported: LooseValue<'_>) {
    let reported = reported.into_text();
    if !reported.is_empty() {
        *field = reported;
    }
}

/// The texts of a content, which is a list of parts or one text.
fn texts(content: LooseValue<'_>, kind: impl Fn(&str) -> PartKind) -> Vec<ItemPart> {
    let list = match content {
        LooseValue::Absent => return Vec::new(),
        LooseValue::Text(text) => vec![Value::String(Cow::into_owned(text))],
        LooseValue::Other(Value::Array(list)) => list,
        LooseValue::Other(part) => vec![part],
    };
    let part = |(index, part)| {
        let (name, text) = match part {
            Value::String(text) => (String::new(), text),
            Value::Object(mut fields) => {
                let mut field = |name| match fields.remove(name) {
                    Some(Value::String(text)) => Some(text),
                    _ => None,
                };
                let name = field("type").unwrap_or_default();
                (name, field("text").or_else(|| field("refusal"))?)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => return None,
        };
        Some(ItemPart { kind: kind(&name), index, text })
    };
    (0..).zip(list).filter_map(part).collect()
}
