//! Encoding of requests for `chat_completions`: messages, tools, system prompt and the body. Also [`ChatDialect`], in
//! which the requests of some vendors differ.

use std::{
    borrow::Cow,
    sync::{Arc, LazyLock},
};

use bytes::Bytes;
use hermod_actors::{
    model::{
        AssistantMessage, Hash, Image, Message, MessageContent, ThinkingLevel, ThinkingStyle, ToolCall,
        ToolSpec,
    },
    port::{EncodedHead, Encoder, MessageBuffer, ModelRequest, ToolChoice},
};
use serde::Serialize;
use serde_json::{Value, json};

use super::echoed::EchoedFields;

use crate::provider::{
    loose::is_object,
    names::{MAX_NAME_CHARS, wire_name},
    schema::object_schema,
    wire::{EncodeTarget, encoded_head, image_placeholder, join_body, write_json, write_tools},
};

/// The vendors whose requests differ from the common form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ChatDialect {
    /// Most vendors: `max_tokens`.
    #[default]
    Any,
    /// OpenAI itself: `max_completion_tokens`, and a key for its cache.
    OpenAi,
    /// OpenAI's models at Azure: `max_completion_tokens`.
    Azure,
    /// Mistral: call ids have nine letters or digits.
    Mistral,
}

impl ChatDialect {
    /// The dialect of the vendor at this host.
    pub fn of(host: &str) -> Self {
        match host {
            "api.openai.com" => Self::OpenAi,
            "api.mistral.ai" => Self::Mistral,
            _ if host.ends_with(".api.openai.com") => Self::OpenAi,
            _ if host.ends_with(".openai.azure.com") => Self::Azure,
            _ => Self::Any,
        }
    }

    const fn max_tokens(self) -> &'static str {
        match self {
            Self::Any | Self::Mistral => "max_tokens",
            Self::OpenAi | Self::Azure => "max_completion_tokens",
        }
    }

    /// A call id in the form that the vendor accepts, the same for the call and its result.
    fn call_id(self, id: &str) -> Cow<'_, str> {
        match self {
            Self::Any | Self::OpenAi | Self::Azure => wire_name(id, MAX_ID_CHARS),
            Self::Mistral => {
                let mut hash = Hash::of(id.as_bytes()).to_string();
                hash.truncate(MISTRAL_ID_CHARS);
                Cow::Owned(hash)
            }
        }
    }
}

/// Maximum length of a call id.
const MAX_ID_CHARS: usize = 40;
/// Length of a call id for Mistral.
const MISTRAL_ID_CHARS: usize = 9;

/// Text in place of reasoning, for calls that another model made. Kimi and DeepSeek refuse such calls without
/// reasoning.
const NO_REASONING: &str = ".";
/// Value in place of the signature that Gemini requires, for calls that another model made.
static NO_SIGNATURE: LazyLock<Value> =
    LazyLock::new(|| json!({"google": {"thought_signature": "skip_thought_signature_validator"}}));

/// Encodes messages and tools.
#[derive(Debug, Clone)]
pub struct ChatEncoder {
    dialect: ChatDialect,
    target: EncodeTarget,
    /// True if the model requires reasoning with every call.
    wants_reasoning: bool,
    /// True if the model requires a signature with the first call of an answer.
    wants_signature: bool,
}

impl ChatEncoder {
    /// An encoder for one model.
    pub fn new(dialect: ChatDialect, target: EncodeTarget) -> Self {
        let model = target.origin.model.to_ascii_lowercase();
        let is_one_of = |names: &[&str]| names.iter().any(|name| model.contains(name));
        let wants_reasoning = is_one_of(&["kimi-k2", "deepseek"]);
        let wants_signature = is_one_of(&["gemini-3"]);
        Self { dialect, target, wants_reasoning, wants_signature }
    }

    /// The text of a tool result; with placeholders for its images if the model accepts none.
    fn result_text(&self, content: &MessageContent) -> Arc<str> {
        let mut text = content.text_with_note();
        for image in content.images.iter().filter(|_| !self.target.has_vision) {
            let line = if text.is_empty() { "" } else { "\n" };
            text = format!("{text}{line}{}", image_placeholder(image)).into();
        }
        text
    }

    /// Writes `{"role":ROLE,"content":TEXT…}`, or a list of parts if the message has images.
    fn write_message(&self, message: &WireMessage<'_>, images: &[Image], to: &mut MessageBuffer) {
        if images.is_empty() {
            to.push_json(message);
            return;
        }
        let text = message.content.unwrap_or_default();
        to.push(format!(r#"{{"role":"{}","content":["#, message.role));
        let mut comma = "";
        if !text.is_empty() {
            to.push_json(&WirePart { r#type: "text", text });
            comma = ",";
        }
        for image in images {
            if self.target.has_vision {
                let media = image.format.media_type();
                let before = r#"{"type":"image_url","image_url":{"url":"data:"#;
                to.push(format!("{comma}{before}{media};base64,"));
                to.push_image(image.clone());
                to.push(r#""}}"#);
            } else {
                to.push(comma);
                to.push_json(&WirePart { r#type: "text", text: &image_placeholder(image) });
            }
            comma = ",";
        }
        to.push("]}");
    }
}

impl Encoder for ChatEncoder {
    /// `"tools":[…],"messages":[{system}`: tools sorted by name; an empty tool list or system prompt is omitted.
    fn head(&self, system: &str, tools: &[ToolSpec]) -> EncodedHead {
        let mut out = Vec::with_capacity(system.len() + 1_024 * tools.len() + 64);
        write_tools(&mut out, tools, wire_tool);
        out.extend_from_slice(br#""messages":["#);
        if !system.is_empty() {
            write_json(&mut out, &WireMessage::with_text("system", system));
        }
        encoded_head(out, tools)
    }

    fn messages(&self, messages: &[Message], to: &mut MessageBuffer) {
        // No server accepts images in tool results, so they follow in a user message.
        let mut result_images: Vec<Image> = Vec::new();
        for (n, message) in messages.iter().enumerate() {
            to.push(",");
            match message {
                Message::System(text) => to.push_json(&WireMessage::with_text("system", text)),
                Message::User(content) => {
                    self.write_message(
                        &WireMessage::with_text("user", &content.text_with_note()),
                        &content.images,
                        to,
                    );
                }
                Message::Assistant(answer) => {
                    to.push_json(&WireMessage::assistant(answer, self));
                }
                Message::Tool { call, name: _, content } => {
                    let text = self.result_text(content);
                    to.push_json(&WireMessage {
                        tool_call_id: Some(&self.dialect.call_id(call)),
                        ..WireMessage::with_text("tool", &text)
                    });
                    result_images.extend(content.images.iter().filter(|_| self.target.has_vision).cloned());
                }
            }
            let is_last = !matches!(messages.get(n + 1), Some(Message::Tool { .. }));
            if is_last && !result_images.is_empty() {
                to.push(",");
                let result_images = std::mem::take(&mut result_images);
                self.write_message(
                    &WireMessage::with_text("user", "[The pictures that the tools returned:]"),
                    &result_images,
                    to,
                );
            }
        }
    }
}

/// The whole body, in pieces.
pub(super) fn body(dialect: ChatDialect, request: ModelRequest) -> Vec<Bytes> {
    let mut begin = br#"{"model":"#.to_vec();
    write_json(&mut begin, &*request.model);
    let (field, limit) = (dialect.max_tokens(), request.max_tokens);
    let fixed = format!(r#","{field}":{limit},"stream":true,"stream_options":{{"include_usage":true}},"#);
    begin.extend_from_slice(fixed.as_bytes());
    if let Some(thinking) = request.thinking.filter(|thinking| thinking.style != ThinkingStyle::None) {
        let effort = if thinking.level == ThinkingLevel::Off { "none" } else { thinking.level.name() };
        begin.extend_from_slice(format!(r#""reasoning_effort":"{effort}","#).as_bytes());
    }
    if dialect == ChatDialect::OpenAi {
        begin.extend_from_slice(format!(r#""prompt_cache_key":"{}","#, request.session).as_bytes());
    }
    if request.head.has_tools && request.tool_choice == ToolChoice::NoCalls {
        begin.extend_from_slice(br#""tool_choice":"none","#);
    }
    join_body(begin, request, &[])
}

#[derive(Default, Serialize)]
struct WireMessage<'a> {
    role: &'static str,
    content: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<WireCall<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_details: Option<&'a Value>,
}

impl<'a> WireMessage<'a> {
    fn with_text(role: &'static str, content: &'a str) -> Self {
        Self { role, content: Some(content), ..Self::default() }
    }

    fn assistant(answer: &'a AssistantMessage, encoder: &ChatEncoder) -> Self {
        let ChatEncoder { dialect, target, wants_reasoning, wants_signature } = encoder;
        let echoed = EchoedFields::of(answer, &target.origin);
        let is_foreign = !answer.calls.is_empty() && echoed.is_empty();
        let no_reasoning = (is_foreign && *wants_reasoning).then_some(NO_REASONING);
        let no_signature = (is_foreign && *wants_signature).then(|| &*NO_SIGNATURE);
        let reasoning =
            |field: &str| echoed.reasoning.filter(|(name, _)| *name == field).map(|(_, text)| text);
        let calls = answer.calls.iter().enumerate().map(|(n, call)| {
            let extra = echoed.extra(n).or(no_signature.filter(|_| n == 0));
            WireCall::of(*dialect, call, extra)
        });
        Self {
            // `null` is allowed only for an answer with calls and without text.
            content: (!answer.text.is_empty() || answer.calls.is_empty()).then_some(&answer.text),
            tool_calls: calls.collect(),
            reasoning_content: reasoning("reasoning_content").or(no_reasoning),
            reasoning: reasoning("reasoning"),
            reasoning_details: echoed.details,
            ..Self::with_text("assistant", "")
        }
    }
}

#[derive(Serialize)]
struct WirePart<'a> {
    r#type: &'static str,
    text: &'a str,
}

#[derive(Serialize)]
struct WireCall<'a> {
    id: Cow<'a, str>,
    r#type: &'static str,
    function: WireFunction<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra_content: Option<&'a Value>,
}

#[derive(Serialize)]
struct WireFunction<'a> {
    name: Cow<'a, str>,
    arguments: &'a str,
}

impl<'a> WireCall<'a> {
    fn of(dialect: ChatDialect, call: &'a ToolCall, extra_content: Option<&'a Value>) -> Self {
        // Servers parse the arguments of earlier calls, and refuse the request if they are no object.
        let arguments = if is_object(&call.arguments) { &call.arguments } else { "{}" };
        let function = WireFunction { name: wire_name(&call.name, MAX_NAME_CHARS), arguments };
        Self { id: dialect.call_id(&call.id), r#type: "function", function, extra_content }
    }
}

#[derive(Serialize)]
struct ChatTool<'a> {
    r#type: &'static str,
    function: OfferedFunction<'a>,
}

#[derive(Serialize)]
struct OfferedFunction<'a> {
    name: Cow<'a, str>,
    description: &'a str,
    parameters: Cow<'a, Value>,
}

fn wire_tool(ToolSpec { name, description, parameters }: &ToolSpec) -> ChatTool<'_> {
    let (name, parameters) = (wire_name(name, MAX_NAME_CHARS), object_schema(parameters));
    ChatTool { r#type: "function", function: OfferedFunction { name, description, parameters } }
}
