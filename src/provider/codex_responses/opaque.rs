//! What is kept of an answer for its maker: its reasoning, and in which order it stood to text and calls.
//!
//! `[{"type":"reasoning",…}, {"type":"message","bytes":12,"phase":"commentary"}, {"type":"function_call"}, …]`: reasoning
//! as it goes back; of texts and calls, which the message holds, only that they stood here.

use hermod_actors::model::{AssistantMessage, ToolCall};
use serde_json::{Map, Value, json};

use super::slot::{Kind, PartKind, Slot};

/// An item of an answer, as it goes back to the vendor.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Entry<'a> {
    /// To be written as it is.
    Reasoning(&'a Value),
    Text {
        text: &'a str,
        phase: Option<&'a str>,
    },
    Call(&'a ToolCall),
}

/// The opaque parts of an answer; none if there is nothing in them that its text and calls do not say.
pub(super) fn parts(slots: &[Slot]) -> Vec<Value> {
    let mut parts: Vec<Value> = Vec::new();
    for slot in slots {
        let text = slot.text();
        match slot.kind {
            Kind::Reasoning => parts.extend(reasoning(slot)),
            Kind::Message if !text.is_empty() => {
                let mut part = json!({"type": "message", "bytes": text.len()});
                if !slot.phase.is_empty() {
                    part["phase"] = slot.phase.as_str().into();
                }
                parts.push(part);
            }
            Kind::Call if slot.is_call() => parts.push(json!({"type": "function_call"})),
            Kind::Message | Kind::Call | Kind::Other => drop_last_bound(&mut parts),
        }
    }
    drop_last_bound(&mut parts);
    if parts.iter().any(|part| is(part, "reasoning") || part.get("phase").is_some()) {
        parts
    } else {
        Vec::new()
    }
}

fn is(part: &Value, kind: &str) -> bool {
    part.get("type").and_then(Value::as_str) == Some(kind)
}

/// Whether a part is reasoning that the vendor refuses without the item that it led to. A gateway to other vendors, which
/// says whose `format` it is, also puts it behind.
fn is_bound(part: &Value) -> bool {
    let format = part.get("format").and_then(Value::as_str);
    is(part, "reasoning") && format.is_none_or(|format| format.starts_with("openai"))
}

fn drop_last_bound(parts: &mut Vec<Value>) {
    let kept = parts.iter().rposition(|part| !is_bound(part)).map_or(0, |at| at + 1);
    parts.truncate(kept);
}

/// A reasoning item as it goes back; `None` if there is only an id in it, which says nothing where nothing is stored.
fn reasoning(slot: &Slot) -> Option<Value> {
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
    // Also where it is empty: it must be there.
    item.insert("summary".into(), list(PartKind::Summary).into());
    if !content.is_empty() {
        item.insert("content".into(), content.into());
    }
    let more =
        [("encrypted_content", &slot.encrypted), ("signature", &slot.signature), ("format", &slot.format)];
    for (name, value) in more.into_iter().filter(|(_, value)| !value.is_empty()) {
        item.insert(name.into(), value.as_str().into());
    }
    Some(item.into())
}

/// The items of an answer. `parts` are its opaque parts if the vendor that is asked made them.
///
/// The answer may have changed since: a text whose length is another one goes whole to where the last text stood, calls
/// whose number is another one go to the end, and reasoning whose next item is gone is left out.
pub(super) fn entries<'a>(message: &'a AssistantMessage, parts: &'a [Value]) -> Vec<Entry<'a>> {
    let mut entries = Entries::default();
    let mut texts = texts(message, parts).into_iter();
    let mut calls = message.calls.iter();
    let known = parts.iter().filter(|part| is(part, "function_call")).count() == message.calls.len();
    if !parts.iter().any(|part| is(part, "message")) {
        entries.text(&message.text, None);
    }
    for part in parts {
        if is_bound(part) {
            entries.pending.push(part);
        } else if is(part, "reasoning") {
            entries.list.push(Entry::Reasoning(part));
        } else if is(part, "message") {
            let phase = part.get("phase").and_then(Value::as_str);
            entries.text(texts.next().unwrap_or_default(), phase);
        } else if is(part, "function_call") {
            entries.call(calls.next().filter(|_| known));
        } else {
            entries.pending.clear();
        }
    }
    entries.pending.clear();
    if !known {
        message.calls.iter().for_each(|call| entries.call(Some(call)));
    }
    let alone = entries.list.iter().all(|entry| matches!(entry, Entry::Reasoning(_)));
    if alone { Vec::new() } else { entries.list }
}

/// The text of each `message` among the parts.
fn texts<'a>(message: &'a AssistantMessage, parts: &[Value]) -> Vec<&'a str> {
    let mut rest = message.text.as_str();
    let places = parts.iter().filter(|part| is(part, "message"));
    let cut = |part: &Value| {
        let bytes = part.get("bytes").and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok())?;
        let (text, after) = rest.split_at_checked(bytes)?;
        rest = after;
        Some(text)
    };
    let count = places.clone().count();
    match places.map(cut).collect::<Option<Vec<_>>>() {
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
struct Entries<'a> {
    list: Vec<Entry<'a>>,
    /// Reasoning whose next item has not come.
    pending: Vec<&'a Value>,
    /// Where the first call stands, its reasoning included.
    calls_at: Option<usize>,
}

impl<'a> Entries<'a> {
    fn text(&mut self, text: &'a str, phase: Option<&'a str>) {
        if text.is_empty() {
            self.pending.clear();
            return;
        }
        let entry = Entry::Text { text, phase };
        match self.calls_at {
            // Some vendors refuse what stands between a call and its result.
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
        self.follow(Entry::Call(call));
    }

    fn follow(&mut self, entry: Entry<'a>) {
        self.list.extend(self.pending.drain(..).map(Entry::Reasoning));
        self.list.push(entry);
    }
}
