//! Encoding of the system prompt, tools and messages for `codex_responses`. The rest of the body is in `body.rs`; what
//! of an answer is sent back is in `opaque.rs`.

use std::borrow::Cow;

use hermod_actors::{
    model::{AssistantMessage, Image, Message, MessageContent, ToolCall, ToolSpec},
    port::{EncodedHead, Encoder, MessageBuffer},
};
use serde::Serialize;
use serde_json::Value;

use super::opaque::{EchoedItem, entries};
use crate::provider::{
    loose::is_object,
    names::{MAX_NAME_CHARS, wire_name},
    schema::object_schema,
    wire::{EncodeTarget, encoded_head, image_placeholder, write_json, write_tools},
};

/// Maximum length of a call id.
const MAX_ID_CHARS: usize = 64;
/// A call id of at least this length counts as unique among all answers.
const MIN_UNIQUE_ID_CHARS: usize = 12;

/// Encodes messages and tools.
#[derive(Debug, Clone)]
pub struct ResponsesEncoder {
    target: EncodeTarget,
}

impl ResponsesEncoder {
    /// An encoder for one model.
    pub const fn new(target: EncodeTarget) -> Self {
        Self { target }
    }

    /// Writes a text, or a list of parts if there are images and the model accepts them.
    fn write_content(&self, content: &MessageContent, to: &mut MessageBuffer) {
        if content.images.is_empty() || !self.target.has_vision {
            to.push_json(&*plain_text(content));
            return;
        }
        let mut before = "[";
        if !content.text.is_empty() {
            to.push("[");
            to.push_json(&WirePart { r#type: "input_text", text: &content.text });
            before = ",";
        }
        for image in &*content.images {
            let media = image.format.media_type();
            let part = r#"{"type":"input_image","detail":"auto","image_url":"data:"#;
            to.push(format!("{before}{part}{media};base64,"));
            to.push_image(image.clone());
            to.push(r#""}"#);
            before = ",";
        }
        if let Some(note) = &content.note {
            to.push(",");
            to.push_json(&WirePart { r#type: "input_text", text: note });
        }
        to.push("]");
    }

    fn write_answer(&self, answer: &AssistantMessage, to: &mut MessageBuffer) {
        let position = to.len();
        for entry in entries(answer, answer.parts_of(&self.target.origin)) {
            to.push(",");
            match entry {
                EchoedItem::Reasoning(item) => to.push_json(item),
                EchoedItem::Text { text, phase } => {
                    let role = "assistant";
                    to.push_json(&WireMessage { r#type: "message", role, content: text, phase });
                }
                EchoedItem::Call(call) => to.push_json(&WireCall::of(call, position)),
            }
        }
    }
}

impl Encoder for ResponsesEncoder {
    /// `"instructions":SYSTEM,"tools":[…],"input":[`: tools sorted by name; an empty prompt or tool list is omitted.
    ///
    /// The prompt is no message of the input: servers differ in its role there, and one requires `instructions`. In
    /// both forms it precedes everything else, so it is cached.
    fn head(&self, system: &str, tools: &[ToolSpec]) -> EncodedHead {
        let mut out = Vec::with_capacity(system.len() + 1_024 * tools.len() + 64);
        if !system.is_empty() {
            out.extend_from_slice(br#""instructions":"#);
            write_json(&mut out, system);
            out.push(b',');
        }
        write_tools(&mut out, tools, wire_tool);
        out.extend_from_slice(br#""input":["#);
        encoded_head(out, tools)
    }

    fn messages(&self, messages: &[Message], to: &mut MessageBuffer) {
        let mut answer_position = 0;
        for message in messages {
            match message {
                Message::System(text) => {
                    to.push(",");
                    let role = "system";
                    to.push_json(&WireMessage { r#type: "message", role, content: text, phase: None });
                }
                Message::User(content) => {
                    to.push(r#",{"type":"message","role":"user","content":"#);
                    self.write_content(content, to);
                    to.push("}");
                }
                Message::Assistant(answer) => {
                    answer_position = to.len();
                    self.write_answer(answer, to);
                }
                Message::Tool { call, name: _, content } => {
                    to.push(r#",{"type":"function_call_output","call_id":"#);
                    to.push_json(&*call_id(call, answer_position));
                    to.push(r#","output":"#);
                    self.write_content(content, to);
                    to.push("}");
                }
            }
        }
    }
}

/// The content as one text: fewer servers accept a list of parts.
fn plain_text(content: &MessageContent) -> Cow<'_, str> {
    if content.images.is_empty() && content.note.is_none() {
        return Cow::Borrowed(&content.text);
    }
    let images: Vec<String> = content.images.iter().map(|image: &Image| image_placeholder(image)).collect();
    let text = Some(&*content.text).filter(|text| !text.is_empty());
    let lines: Vec<&str> = text.into_iter().chain(images.iter().map(String::as_str)).collect();
    Cow::Owned(lines.join("\n") + content.note.as_deref().unwrap_or_default())
}

/// A call id in the form that the vendor accepts. A long id of another vendor is shortened equally in the call and its
/// result. A short id gets the position of its answer, because the vendor refuses an id that a later answer repeats.
fn call_id(id: &str, position: usize) -> Cow<'_, str> {
    match id.chars().count() {
        0..MIN_UNIQUE_ID_CHARS => Cow::Owned(format!("{id}_{position}")),
        MIN_UNIQUE_ID_CHARS..=MAX_ID_CHARS => Cow::Borrowed(id),
        _ => wire_name(id, MAX_ID_CHARS),
    }
}

#[derive(Serialize)]
struct WirePart<'a> {
    r#type: &'static str,
    text: &'a str,
}

#[derive(Serialize)]
struct WireMessage<'a> {
    r#type: &'static str,
    role: &'static str,
    content: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    phase: Option<&'a str>,
}

#[derive(Serialize)]
struct WireCall<'a> {
    r#type: &'static str,
    call_id: Cow<'a, str>,
    name: Cow<'a, str>,
    arguments: &'a str,
}

impl<'a> WireCall<'a> {
    fn of(call: &'a ToolCall, position: usize) -> Self {
        // Servers parse the arguments of earlier calls, and refuse the request if they are no object.
        let arguments = if is_object(&call.arguments) { &call.arguments } else { "{}" };
        Self {
            r#type: "function_call",
            call_id: call_id(&call.id, position),
            name: wire_name(&call.name, MAX_NAME_CHARS),
            arguments,
        }
    }
}

#[derive(Serialize)]
struct ResponsesTool<'a> {
    r#type: &'static str,
    name: Cow<'a, str>,
    description: &'a str,
    parameters: Cow<'a, Value>,
    strict: bool,
}

/// Strict schemas are a separate dialect: every property is required, and no other is allowed.
fn wire_tool(ToolSpec { name, description, parameters }: &ToolSpec) -> ResponsesTool<'_> {
    let (name, parameters) = (wire_name(name, MAX_NAME_CHARS), object_schema(parameters));
    ResponsesTool { r#type: "function", name, description, parameters, strict: false }
}
