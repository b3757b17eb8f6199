//! Writes one message of `anthropic_messages`, block by block, and marks where a cache marker may stand. `encode.rs`
//! decides what is written.

use hermod_actors::{model::Image, port::MessageBuffer};
use serde_json::Value;

use crate::provider::wire::write_json;

/// Replaces blank content. The vendor refuses blank texts and messages without content, and a conversation cannot omit
/// a message that was answered, or an answer.
pub(super) const NO_TEXT: &str = "[No text.]";

/// Writes one message. Its last block stays open, so that a cache marker can be inserted.
#[derive(Debug)]
pub(super) struct MessageWriter<'a> {
    to: &'a mut MessageBuffer,
    buffer: Vec<u8>,
    first: Option<BlockClass>,
    last: Option<BlockClass>,
    is_marked: bool,
}

/// The kind of a block, as far as its position in a message matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlockClass {
    /// May carry a cache marker.
    Plain,
    /// Must not be the last block.
    Thinking,
    /// Any other block of the vendor.
    Opaque,
}

impl<'a> MessageWriter<'a> {
    /// Starts a message after the existing ones.
    pub(super) fn begin(to: &'a mut MessageBuffer, role: &str) -> Self {
        let comma = if to.is_empty() { "" } else { "," };
        let begin = format!(r#"{comma}{{"role":"{role}","content":["#);
        Self { to, buffer: begin.into_bytes(), first: None, last: None, is_marked: false }
    }

    /// Starts a block after the existing ones.
    fn block(&mut self, kind: BlockClass) {
        if self.last.is_some() {
            self.buffer.extend_from_slice(b"},");
        }
        self.first = self.first.or(Some(kind));
        self.last = Some(kind);
    }

    /// Writes a text, unless it is blank.
    pub(super) fn text(&mut self, text: &str) {
        if !is_blank(text) {
            self.block(BlockClass::Plain);
            self.buffer.extend_from_slice(br#"{"type":"text","text":"#);
            write_json(&mut self.buffer, text);
        }
    }

    /// Writes a note, which the next request may omit: the cached prefix ends before it.
    pub(super) fn note(&mut self, note: &str) {
        if !is_blank(note) {
            self.mark();
            self.text(note);
        }
    }

    /// Writes an image, whose data is inserted later.
    pub(super) fn image(&mut self, image: &Image) {
        self.block(BlockClass::Plain);
        let media = image.format.media_type();
        let begin = format!(r#"{{"type":"image","source":{{"type":"base64","media_type":"{media}","data":""#);
        self.buffer.extend_from_slice(begin.as_bytes());
        self.flush();
        self.to.push_image(image.clone());
        self.buffer.extend_from_slice(br#""}"#);
    }

    /// Writes a call; `input` is a JSON object.
    pub(super) fn call(&mut self, id: &str, name: &str, input: &str) {
        self.block(BlockClass::Plain);
        self.buffer.extend_from_slice(br#"{"type":"tool_use","id":"#);
        write_json(&mut self.buffer, id);
        self.buffer.extend_from_slice(br#","name":"#);
        write_json(&mut self.buffer, name);
        self.buffer.extend_from_slice(br#","input":"#);
        self.buffer.extend_from_slice(input.as_bytes());
    }

    /// Writes the result of a call, with the blocks that `content` writes.
    pub(super) fn result(&mut self, id: &str, content: impl FnOnce(&mut Self)) {
        self.block(BlockClass::Plain);
        self.buffer.extend_from_slice(br#"{"type":"tool_result","tool_use_id":"#);
        write_json(&mut self.buffer, id);
        self.buffer.extend_from_slice(br#","content":["#);
        self.last = None;
        content(self);
        self.fill_if_empty();
        self.buffer.extend_from_slice(b"}]");
    }

    /// Writes a block unchanged.
    pub(super) fn opaque_block(&mut self, block: &Value) {
        let Some(fields) = block.as_object() else { return };
        let is_thinking =
            matches!(fields.get("type").and_then(Value::as_str), Some("thinking" | "redacted_thinking"));
        self.block(if is_thinking { BlockClass::Thinking } else { BlockClass::Opaque });
        write_json(&mut self.buffer, fields);
        self.buffer.pop();
    }

    /// Adds a placeholder text if there is no block, or if the last one is reasoning.
    pub(super) fn fill_if_empty(&mut self) {
        if matches!(self.last, None | Some(BlockClass::Thinking)) {
            self.text(NO_TEXT);
        }
    }

    /// Ends the message; true if it starts with reasoning.
    pub(super) fn end(mut self) -> bool {
        self.fill_if_empty();
        self.mark();
        self.to.push("}]}");
        self.first == Some(BlockClass::Thinking)
    }

    /// Allows a cache marker at the open block, if its kind permits one and no earlier block has one.
    fn mark(&mut self) {
        self.flush();
        if self.last == Some(BlockClass::Plain) && !self.is_marked {
            self.to.mark_cacheable();
            self.is_marked = true;
        }
    }

    fn flush(&mut self) {
        self.to.push(std::mem::take(&mut self.buffer));
    }
}

/// True if a text shows nothing. Wider than the vendor's rule, which differs in control characters.
pub(super) fn is_blank(text: &str) -> bool {
    text.chars().all(|c| c.is_whitespace() || c.is_control())
}
