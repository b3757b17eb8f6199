//! The opaque state of an answer, which is sent back to its vendor: the reasoning, and the order of reasoning, texts and
//! calls. Also the items of an answer in the next request.
//!
//! `[{"type":"reasoning",…}, {"type":"message","bytes":12,"phase":"commentary"}, {"type":"function_call"}, …]`:
//! reasoning in the form that is sent back. Texts and calls are in the message, so parts for texts hold
//! their length and phase, and parts for calls only their position.

use hermod_actors::model::{AssistantMessage, ToolCall};
use serde_json::{Map, Value, json};

use super::slot::{ItemKind, ItemSlot, PartKind};

/// An item of an answer, as it is sent back to the vendor.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum EchoedItem<'a> {
    /// Written unchanged.
    Reasoning(&'a Value),
    Text {
        text: &'a str,
        phase: Option<&'a str>,
    },
    Call(&'a ToolCall),
}

/// The opaque parts of an answer; none if its text and calls already say everything.
pub(super) fn parts(slots: &[ItemSlot]) -> Vec<Value> {
    let mut parts: Vec<Value> = Vec::new();
    for slot in slots {
        let text = slot.text();
        match slot.kind {
            ItemKind::Reasoning => parts.extend(reasoning(slot)),
            ItemKind::Message if !text.is_empty() => {
                let mut part = json!({"type": "message", "bytes": text.len()});
                if !slot.phase.is_empty() {
                    part["phase"] = slot.phase.as_str().into();
                }
                parts.push(part);
            }
            ItemKind::Call if slot.is_call() => parts.push(json!({"type": "function_call"})),
            ItemKind::Message | ItemKind::Call | ItemKind::Other => drop_dangling_reasoning(&mut parts),
        }
    }
    drop_dangling_reasoning(&mut parts);
    if parts.iter().any(|part| has_type(part, "reasoning") || part.get("phase").is_some()) {
        parts
    } else {
        Vec::new()
    }
}

fn has_type(part: &Value, kind: &str) -> bool {
    part.get("type").and_then(Value::as_str) == Some(kind)
}

/// True if a part is reasoning that the vendor refuses without a following item. OpenAI's formats need that item. Other
/// formats, which a gateway names in `format`, may end with reasoning.
fn needs_next_item(part: &Value) -> bool {
    let format = part.get("format").and_then(Value::as_str);
    has_type(part, "reasoning") && format.is_none_or(|format| format.starts_with("openai"))
}

fn drop_dangling_reasoning(parts: &mut Vec<Value>) {
    let retained = parts.iter().rposition(|part| !needs_next_item(part)).map_or(0, |at| at + 1);
    parts.truncate(retained);
}

/// A reasoning item to send back. `None` without content, encrypted content and signature: an id or a summary alone is
/// useless, because the vendor stores nothing.
fn reasoning(slot: &ItemSlot) -> Option<Value> {
    let list = |kind: PartKind| {
        let parts = slot.parts.iter().filter(move |part| part.kind == kind);
        parts.map(|part| json!({"type": kind.name(), "text": part.text})).collect::<Vec<_>>()
    };
    let content = list(PartKind::Thought);
    if content.is_empty() && slot.encrypted.is_empty() && slot.signature.is_empty() {
        return None;
    }
    let mut item = Map::new();
    item.insert("type".into(), "reasoning".into());
    if !slot.id.is_empty() {
        item.insert("id".into(), slot.id.as_str().into());
    }
    // The field is required, even if empty.
    item.insert("summary".into(), list(PartKind::Summary).into());
    if !content.is_empty() {
        item.insert("content".into(), content.into());
    }
    let fields =
        [("encrypted_content", &slot.encrypted), ("signature", &slot.signature), ("format", &slot.format)];
    for (name, value) in fields.into_iter().filter(|(_, value)| !value.is_empty()) {
        item.insert(name.into(), value.as_str().into());
    }
    Some(item.into())
}

/// The items of an answer. `parts` are its opaque parts if the called vendor made them.
///
/// The answer may have changed since. If the length of the text differs, the whole text moves to the position of the
/// last text. If the number of calls differs, the calls move to the end. Reasoning without its next item is dropped.
pub(super) fn entries<'a>(message: &'a AssistantMessage, parts: &'a [Value]) -> Vec<EchoedItem<'a>> {
    let mut entries = EchoedItems::default();
    let mut texts = texts(message, parts).into_iter();
    let mut calls = message.calls.iter();
    let calls_match =
        parts.iter().filter(|part| has_type(part, "function_call")).count() == message.calls.len();
    if !parts.iter().any(|part| has_type(part, "message")) {
        entries.text(&message.text, None);
    }
    for part in parts {
        if needs_next_item(part) {
            entries.pending.push(part);
        } else if has_type(part, "reasoning") {
            entries.list.push(EchoedItem::Reasoning(part));
        } else if has_type(part, "message") {
            let phase = part.get("phase").and_then(Value::as_str);
            entries.text(texts.next().unwrap_or_default(), phase);
        } else if has_type(part, "function_call") {
            entries.call(calls.next().filter(|_| calls_match));
        } else {
            entries.pending.clear();
        }
    }
    entries.pending.clear();
    if !calls_match {
        message.calls.iter().for_each(|call| entries.call(Some(call)));
    }
    let only_reasoning = entries.list.iter().all(|entry| matches!(entry, EchoedItem::Reasoning(_)));
    if only_reasoning { Vec::new() } else { entries.list }
}

/// The text of each `message` part.
fn texts<'a>(message: &'a AssistantMessage, parts: &[Value]) -> Vec<&'a str> {
    let mut rest = message.text.as_str();
    let message_parts = parts.iter().filter(|part| has_type(part, "message"));
    let cut = |part: &Value| {
        let bytes = part.get("bytes").and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok())?;
        let (text, after) = rest.split_at_checked(bytes)?;
        rest = after;
        Some(text)
    };
    let count = message_parts.clone().count();
    match message_parts.map(cut).collect::<Option<Vec<_>>>() {
        Some(texts) if rest.is_empty() => texts,
        Some(_) | None => {
            let mut texts = vec![""; count];
            if let Some(last) = texts.last_mut() {
                *last = &message.text;
            }
            texts
        }
    }
}

#[derive(Debug, Default)]
struct EchoedItems<'a> {
    list: Vec<EchoedItem<'a>>,
    /// Reasoning that waits for its next item.
    pending: Vec<&'a Value>,
    /// The position of the first call and its reasoning.
    calls_at: Option<usize>,
}

impl<'a> EchoedItems<'a> {
    fn text(&mut self, text: &'a str, phase: Option<&'a str>) {
        if text.is_empty() {
            self.pending.clear();
            return;
        }
        let entry = EchoedItem::Text { text, phase };
        match self.calls_at {
            // Some vendors refuse items between a call and its result.
            Some(at) => {
                self.pending.clear();
                self.list.insert(at, entry);
                self.calls_at = Some(at + 1);
            }
            None => self.follow(entry),
        }
    }

    fn call(&mut self, call: Option<&'a ToolCall>) {
        let Some(call) = call else {
            self.pending.clear();
            return;
        };
        self.calls_at.get_or_insert(self.list.len());
        self.follow(EchoedItem::Call(call));
    }

    fn follow(&mut self, entry: EchoedItem<'a>) {
        self.list.extend(self.pending.drain(..).map(EchoedItem::Reasoning));
        self.list.push(entry);
    }
}
