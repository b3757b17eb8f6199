//! Encoding of messages for `anthropic_messages`. The JSON of one message is in `write.rs`, the rest of
//! the body in `body.rs`.

use std::borrow::Cow;

use hermod_actors::{
    model::{AssistantMessage, Message, MessageContent, ToolCall, ToolSpec},
    port::{EncodedHead, Encoder, MessageBuffer},
};
use serde::Serialize;
use serde_json::{Map, Value};

use super::{
    body::cache_marker,
    opaque::OpaquePart,
    write::{MessageWriter, is_blank},
};
use crate::provider::{
    CacheTtl,
    names::{MAX_NAME_CHARS, wire_name},
    schema::object_schema,
    wire::{EncodeTarget, encoded_head, image_placeholder, write_json, write_tools},
};

/// Characters that remain of another vendor's id. With the appended position it has at most 64.
const MAX_FOREIGN_ID_CHARS: usize = 43;

/// The end of the last object of a list, and of the list.
const OBJECT_END: &[u8] = b"}],";

/// Encodes messages and tools.
#[derive(Debug, Clone)]
pub struct MessagesEncoder {
    target: EncodeTarget,
    cache: CacheTtl,
}

impl MessagesEncoder {
    /// An encoder for one model. `cache` is how long the vendor caches prompt prefixes.
    pub const fn new(target: EncodeTarget, cache: CacheTtl) -> Self {
        Self { target, cache }
    }

    fn write_content(&self, content: &MessageContent, to: &mut MessageWriter<'_>) {
        to.text(&content.text);
        for image in &*content.images {
            if self.target.has_vision {
                to.image(image);
            } else {
                to.text(&image_placeholder(image));
            }
        }
    }

    fn write_user(&self, content: &MessageContent, to: &mut MessageBuffer) {
        to.start_turn();
        let mut message = MessageWriter::begin(to, "user");
        self.write_content(content, &mut message);
        message.note(content.note.as_deref().unwrap_or_default());
        message.end();
    }

    /// Writes an answer: retained blocks at their positions, with texts and calls between and after them.
    fn write_answer(&self, answer: &AssistantMessage, to: &mut MessageBuffer) {
        let position = to.len();
        let mut message = MessageWriter::begin(to, "assistant");
        let mut text = answer.text.as_str();
        let mut calls = answer.calls.iter();
        for part in answer.parts_of(&self.target.origin).iter().filter_map(OpaquePart::of) {
            match part {
                OpaquePart::Text(bytes) => {
                    // The text may have changed since; if it is too short, it is not split.
                    let (before, rest) = text.split_at_checked(bytes).unwrap_or((text, ""));
                    message.text(before);
                    text = rest;
                }
                OpaquePart::Call => {
                    calls.by_ref().take(1).for_each(|call| write_call(call, position, &mut message));
                }
                OpaquePart::Opaque(block) => message.opaque_block(block),
            }
        }
        message.text(text);
        calls.for_each(|call| write_call(call, position, &mut message));
        let thinks_first = message.end();
        // All answers of a turn count as one for the vendor, which checks only the start of the first.
        if !answer.calls.is_empty() && !to.has_calls_in_turn() {
            to.set_foreign_reasoning(!thinks_first);
        }
    }

    /// Writes the results of one answer's calls as one message. The vendor requires results first, so the notes follow
    /// them.
    fn write_results(&self, results: &[Message], position: usize, to: &mut MessageBuffer) {
        let mut message = MessageWriter::begin(to, "user");
        let mut notes = String::new();
        for result in results {
            if let Message::Tool { call, name: _, content } = result {
                message.result(&wire_id(call, position), |message| self.write_content(content, message));
                notes.push_str(content.note.as_deref().unwrap_or_default());
            }
        }
        message.note(&notes);
        message.end();
    }
}

impl Encoder for MessagesEncoder {
    /// `"tools":[…],"system":[…],"messages":[`: tools sorted by name; an empty tool list or system prompt is omitted. The
    /// prompt carries the cache marker, or the last tool if there is no prompt.
    fn head(&self, system: &str, tools: &[ToolSpec]) -> EncodedHead {
        let marker = cache_marker(self.cache).unwrap_or_default();
        let mut out = Vec::with_capacity(system.len() + 1_024 * tools.len() + 128);
        let has_system = !is_blank(system);
        write_tools(&mut out, tools, wire_tool);
        if !has_system && !tools.is_empty() {
            insert_marker(&mut out, marker);
        }
        if has_system {
            out.extend_from_slice(br#""system":[{"type":"text","text":"#);
            write_json(&mut out, system);
            out.extend_from_slice(OBJECT_END);
            insert_marker(&mut out, marker);
        }
        out.extend_from_slice(br#""messages":["#);
        encoded_head(out, tools)
    }

    fn messages(&self, messages: &[Message], to: &mut MessageBuffer) {
        let mut answer_position = 0;
        for group in messages.chunk_by(|a, b| is_result(a) && is_result(b)) {
            match group {
                [Message::System(text)] => self.write_user(&MessageContent::from(&**text), to),
                [Message::User(content)] => self.write_user(content, to),
                [Message::Assistant(answer)] => {
                    answer_position = to.len();
                    self.write_answer(answer, to);
                }
                results => self.write_results(results, answer_position, to),
            }
        }
    }
}

/// Inserts the marker into the last written object, whose list has ended.
fn insert_marker(out: &mut Vec<u8>, marker: &str) {
    out.truncate(out.len() - OBJECT_END.len());
    out.extend_from_slice(marker.as_bytes());
    out.extend_from_slice(OBJECT_END);
}

#[derive(Serialize)]
struct MessagesTool<'a> {
    name: Cow<'a, str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    input_schema: Cow<'a, Value>,
}

fn wire_tool(ToolSpec { name, description, parameters }: &ToolSpec) -> MessagesTool<'_> {
    let (name, input_schema) = (wire_name(name, MAX_NAME_CHARS), object_schema(parameters));
    MessagesTool { name, description, input_schema }
}

const fn is_result(message: &Message) -> bool {
    matches!(message, Message::Tool { .. })
}

fn write_call(call: &ToolCall, position: usize, to: &mut MessageWriter<'_>) {
    // Arguments are copied into the request. A value that is no object, or has a lone surrogate, would invalidate it.
    let is_readable = serde_json::from_str::<Map<String, Value>>(&call.arguments).is_ok();
    let input = if is_readable { call.arguments.trim() } else { "{}" };
    to.call(&wire_id(&call.id, position), &wire_name(&call.name, MAX_NAME_CHARS), input);
}

/// The id of a call for the vendor. The vendor's own ids stay unchanged. Others get the position of their answer: the
/// vendor refuses some characters, and an id that a later answer repeats.
fn wire_id(id: &str, position: usize) -> Cow<'_, str> {
    match wire_name(id, MAX_NAME_CHARS) {
        Cow::Borrowed(id) if id.starts_with("toolu_") => Cow::Borrowed(id),
        Cow::Borrowed(_) | Cow::Owned(_) => {
            Cow::Owned(format!("{}_{position}", wire_name(id, MAX_FOREIGN_ID_CHARS)))
        }
    }
}
