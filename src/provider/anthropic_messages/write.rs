use hermod_actors::{model::Image, port::MessageBuffer};
use serde_json::Value;

use crate::provider::wire::write_json;

/// What stands in place of a text that has nothing to read: the vendor refuses blank texts and messages without content,
/// and a conversation cannot leave out what was answered, or was the answer.
pub(super) const NO_TEXT: &str = "[No text.]";

/// One message that is being written. The last of its blocks is open, so that a cache marker fits in.
#[derive(Debug)]
pub(super) struct MessageWriter<'a> {
    to: &'a mut MessageBuffer,
    buffer: Vec<u8>,
    first: Option<BlockClass>,
    last: Option<BlockClass>,
    is_marked: bool,
}

/// What a block is, as far as its place in a message matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlockClass {
    /// Can be marked.
    Plain,
    /// Cannot be the last.
    Thinking,
    /// Anything else of the vendor's.
    Opaque,
}

impl<'a> MessageWriter<'a> {
    /// Begins a message behind those that are there.
    pub(super) fn begin(to: &'a mut MessageBuffer, role: &str) -> Self {
        let comma = if to.is_empty() { "" } else { "," };
        let begin = format!(r#"{comma}{{"role":"{role}","content":["#);
        Self { to, buffer: begin.into_bytes(), first: None, last: None, is_marked: false }
    }

    /// Begins a block behind those that are there.
    fn block(&mut self, kind: BlockClass) {
        if self.last.is_some() {
            self.buffer.extend_from_slice(b"},");
        }
        self.first = self.first.or(Some(kind));
        self.last = Some(kind);
    }

    /// A text, unless it is blank.
    pub(super) fn text(&mut self, text: &str) {
        if !is_blank(text) {
            self.block(BlockClass::Plain);
            self.buffer.extend_from_slice(br#"{"type":"text","text":"#);
            write_json(&mut self.buffer, text);
        }
    }

    /// A note, of which the next request need not know: what is to be cached ends before it.
    pub(super) fn note(&mut self, note: &str) {
        if !is_blank(note) {
            self.mark();
            self.text(note);
        }
    }

    /// A picture, as a hole.
    pub(super) fn image(&mut self, image: &Image) {
        self.block(BlockClass::Plain);
        let media = image.format.media_type();
        let begin = format!(r#"{{"type":"image","source":{{"type":"base64","media_type":"{media}","data":""#);
        self.buffer.extend_from_slice(begin.as_bytes());
        self.flush();
        self.to.push_image(image.clone());
        self.buffer.extend_from_slice(br#""}"#);
    }

    /// A call; `input` is a JSON object.
    pub(super) fn call(&mut self, id: &str, name: &str, input: &str) {
        self.block(BlockClass::Plain);
        self.buffer.extend_from_slice(br#"{"type":"tool_use","id":"#);
        write_json(&mut self.buffer, id);
        self.buffer.extend_from_slice(br#","name":"#);
        write_json(&mut self.buffer, name);
        self.buffer.extend_from_slice(br#","input":"#);
        self.buffer.extend_from_slice(input.as_bytes());
    }

    /// The result of a call, with the blocks that `content` writes.
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

    /// A block as it came.
    pub(super) fn opaque_block(&mut self, block: &Value) {
        let Some(fields) = block.as_object() else { return };
        let thinks =
            matches!(fields.get("type").and_then(Value::as_str), Some("thinking" | "redacted_thinking"));
        self.block(if thinks { BlockClass::Thinking } else { BlockClass::Opaque });
        write_json(&mut self.buffer, fields);
        self.buffer.pop();
    }

    /// Sees to it that there is something, and something behind what was thought.
    pub(super) fn fill_if_empty(&mut self) {
        if matches!(self.last, None | Some(BlockClass::Thinking)) {
            self.text(NO_TEXT);
        }
    }

    /// Ends the message; tells whether it began with what was thought.
    pub(super) fn end(mut self) -> bool {
        self.fill_if_empty();
        self.mark();
        self.to.push("}]}");
        self.first == Some(BlockClass::Thinking)
    }

    /// Lets the message be marked at the block that is open, if that can be and no earlier one is.
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

/// Whether a text shows nothing; wider than the vendor's rule, which differs in control characters.
pub(super) fn is_blank(text: &str) -> bool {
    text.chars().all(|c| c.is_whitespace() || c.is_control())
}
