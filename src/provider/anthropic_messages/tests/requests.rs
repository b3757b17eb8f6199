//! Builders of requests for tests, and checks of their encoding.
#![allow(clippy::needless_pass_by_value)] // `json!` makes values, and references to them would only be noise

use std::{collections::BTreeMap, sync::Arc};

use hermod_actors::{
    model::{
        AnswerOrigin, Artifact, AssistantMessage, CallId, Image, ImageFormat, Message, MessageContent,
        ModelDeadlines, OpaqueState, RunId, SessionId, ToolCall, ToolSpec,
    },
    port::{Encoder, MessageBuffer, ModelRequest, ToolChoice},
};
use serde_json::{Value, json};

use crate::provider::{
    CacheTtl, Dialect,
    anthropic_messages::{AnthropicMessages, MessagesEncoder, NAME},
    wire::{EncodeTarget, WireFormat},
};

pub(super) fn origin(model: &str) -> Arc<AnswerOrigin> {
    Arc::new(AnswerOrigin { provider: "p".into(), wire: NAME.into(), model: model.into() })
}

pub(super) fn encoder(sees: bool, cache: CacheTtl) -> MessagesEncoder {
    MessagesEncoder::new(EncodeTarget { origin: origin("m"), has_vision: sees }, cache)
}

pub(super) fn request(
    system: &str,
    tools: &[ToolSpec],
    messages: MessageBuffer,
    cache: CacheTtl,
) -> ModelRequest {
    ModelRequest {
        call: CallId { run: RunId::from_bits(1), iteration: 1, n: 0 },
        session: SessionId::from_bits(1),
        model: "m \"1\"".into(),
        credential: hermod_actors::model::CredentialId::default(),
        max_tokens: 8_192,
        thinking: None,
        deadlines: ModelDeadlines::default(),
        head: encoder(true, cache).head(system, tools),
        tool_choice: ToolChoice::Auto,
        messages,
        images: BTreeMap::from([("p".to_owned(), "Base64".into())]),
    }
}

pub(super) fn text_of(request: ModelRequest, cache: CacheTtl) -> String {
    let wire = AnthropicMessages::of(&Dialect { host: String::new(), cache });
    String::from_utf8(wire.body(request).concat()).unwrap()
}

pub(super) fn body(request: ModelRequest, cache: CacheTtl) -> Value {
    serde_json::from_str(&text_of(request, cache)).unwrap()
}

pub(super) fn encode(encoder: &MessagesEncoder, messages: &[Message]) -> MessageBuffer {
    let mut to = MessageBuffer::default();
    encoder.messages(messages, &mut to);
    to
}

/// Checks the encoding of these messages, as a whole and group by group.
pub(super) fn check_messages(encoder: &MessagesEncoder, messages: &[Message], expected: Value) {
    let whole = text_of(request("", &[], encode(encoder, messages), CacheTtl::Off), CacheTtl::Off);
    let found: Value = serde_json::from_str(&whole).unwrap();
    assert_eq!(found["messages"], expected, "{:#}", found["messages"]);
    let mut grown = MessageBuffer::default();
    let is_result = |message: &Message| matches!(message, Message::Tool { .. });
    for group in messages.chunk_by(|_, next| is_result(next)) {
        encoder.messages(group, &mut grown);
    }
    assert_eq!(text_of(request("", &[], grown, CacheTtl::Off), CacheTtl::Off), whole);
}

pub(super) fn call(id: &str, arguments: &str) -> ToolCall {
    ToolCall { id: id.into(), name: "look".into(), arguments: arguments.into() }
}

pub(super) fn answer(text: &str, calls: &[ToolCall]) -> AssistantMessage {
    AssistantMessage { text: text.into(), calls: calls.to_vec(), ..AssistantMessage::default() }
}

pub(super) fn said(answer: AssistantMessage) -> Message {
    Message::Assistant(Arc::new(answer))
}

/// The answer with the opaque state that `model` made for it.
pub(super) fn with_parts(answer: AssistantMessage, model: &str, parts: Value) -> Message {
    let parts = parts.as_array().unwrap().clone();
    said(AssistantMessage {
        opaque: Some(Arc::new(OpaqueState::new(origin(model), parts).unwrap())),
        ..answer
    })
}

pub(super) fn result(id: &str, content: impl Into<MessageContent>) -> Message {
    Message::Tool { call: id.into(), name: "look".into(), content: content.into() }
}

pub(super) fn picture() -> Image {
    Image::new(ImageFormat::Png, Artifact { handle: "p".into(), bytes: 9, sha256: None })
}

pub(super) fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

pub(super) fn shown() -> Value {
    json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "Base64"}})
}

pub(super) fn asked(id: &str, input: Value) -> Value {
    json!({"type": "tool_use", "id": id, "name": "look", "input": input})
}

pub(super) fn returned(id: &str, content: Value) -> Value {
    json!({"type": "tool_result", "tool_use_id": id, "content": content})
}

pub(super) fn message(role: &str, content: Value) -> Value {
    json!({"role": role, "content": content})
}

pub(super) fn tool(name: &str, parameters: Value) -> ToolSpec {
    ToolSpec { name: name.into(), description: "It \"does\".".into(), parameters }
}

pub(super) fn thought(text: &str) -> Value {
    json!({"type": "thinking", "thinking": text, "signature": "s"})
}
