//! Rendering of `chat_completions` answers.

use hermod_actors::model::{FinishReason, ModelAnswer, ToolCall, Usage};
use serde::Serialize;
use serde_json::json;

use crate::rehearsal::{
    ScriptedAnswer,
    wire::{EventBuffer, ParsedRequest, ReplyMode, events::pieces},
};

#[derive(Serialize)]
struct Chunk<'a, D: Serialize> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: &'a [Choice<'a, D>],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<WireUsage>,
}

#[derive(Serialize)]
struct Choice<'a, D: Serialize> {
    index: u64,
    delta: &'a D,
    finish_reason: Option<&'static str>,
}

#[derive(Default, Serialize)]
struct Delta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<[CallDelta<'a>; 1]>,
}

#[derive(Serialize)]
struct CallDelta<'a> {
    index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    function: FunctionDelta<'a>,
}

#[derive(Serialize)]
struct FunctionDelta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    arguments: &'a str,
}

#[derive(Serialize)]
struct WireUsage {
    prompt_tokens: u64,
    completion_tokens: u64,
    total_tokens: u64,
    prompt_tokens_details: PromptDetails,
}

#[derive(Serialize)]
struct PromptDetails {
    cached_tokens: u64,
}

impl From<&Usage> for WireUsage {
    fn from(usage: &Usage) -> Self {
        Self {
            prompt_tokens: usage.input_tokens,
            completion_tokens: usage.output_tokens,
            total_tokens: usage.total(),
            prompt_tokens_details: PromptDetails { cached_tokens: usage.cached_tokens },
        }
    }
}

/// Renders an answer in the requested mode. Its id depends only on the step and its time is constant, so equal requests
/// get equal bytes.
pub fn write(scripted: &ScriptedAnswer<'_>, exchange: &ParsedRequest<'_>, model: &str) -> EventBuffer {
    let id = format!("chatcmpl-rehearsal-{}", scripted.step);
    match exchange.reply {
        ReplyMode::Whole => whole(&scripted.answer, &id, model),
        ReplyMode::Stream => {
            let usage = scripted.answer.usage.as_ref().filter(|_| exchange.include.usage);
            stream(scripted, &id, model, usage)
        }
    }
}

struct ChunkWriter<'a> {
    events: EventBuffer,
    id: &'a str,
    model: &'a str,
}

impl ChunkWriter<'_> {
    fn chunk(&mut self, delta: &Delta<'_>, finish_reason: Option<&'static str>) {
        self.event(&[Choice { index: 0, delta, finish_reason }], None);
    }

    fn call(&mut self, call: CallDelta<'_>) {
        self.chunk(&Delta { tool_calls: Some([call]), ..Delta::default() }, None);
    }

    fn event(&mut self, choices: &[Choice<'_, Delta<'_>>], usage: Option<WireUsage>) {
        let (id, model) = (self.id, self.model);
        self.events.data(&Chunk { id, object: "chat.completion.chunk", created: 0, model, choices, usage });
    }
}

fn stream(scripted: &ScriptedAnswer<'_>, id: &str, model: &str, usage: Option<&Usage>) -> EventBuffer {
    let mut writer = ChunkWriter { events: EventBuffer::default(), id, model };
    let (message, chunk) = (&scripted.answer.message, scripted.pace.chunk);
    writer.chunk(&Delta { role: Some("assistant"), content: Some(""), ..Delta::default() }, None);
    for piece in pieces(&message.reasoning, chunk) {
        writer.chunk(&Delta { reasoning_content: Some(piece), ..Delta::default() }, None);
    }
    for piece in pieces(&message.text, chunk) {
        writer.chunk(&Delta { content: Some(piece), ..Delta::default() }, None);
    }
    for (index, call) in message.calls.iter().enumerate() {
        let function = FunctionDelta { name: Some(&call.name), arguments: "" };
        writer.call(CallDelta { index, id: Some(&call.id), kind: Some("function"), function });
        for arguments in pieces(&call.arguments, chunk) {
            let function = FunctionDelta { name: None, arguments };
            writer.call(CallDelta { index, id: None, kind: None, function });
        }
    }
    writer.chunk(&Delta::default(), Some(finish(scripted.answer.finish)));
    if let Some(usage) = usage {
        writer.event(&[], Some(usage.into()));
    }
    writer.events.mark("[DONE]");
    writer.events
}

fn whole(answer: &ModelAnswer, id: &str, model: &str) -> EventBuffer {
    let call = |call: &ToolCall| {
        let function = json!({ "name": call.name, "arguments": call.arguments });
        json!({ "id": call.id, "type": "function", "function": function })
    };
    let assistant = &answer.message;
    let mut message = json!({ "role": "assistant", "content": assistant.text });
    if !assistant.reasoning.is_empty() {
        message["reasoning_content"] = assistant.reasoning.as_str().into();
    }
    if !assistant.calls.is_empty() {
        message["tool_calls"] = assistant.calls.iter().map(call).collect();
    }
    EventBuffer::whole(&json!({
        "id": id,
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [{ "index": 0, "message": message, "finish_reason": finish(answer.finish) }],
        "usage": answer.usage.as_ref().map(WireUsage::from),
    }))
}

fn finish(finish: FinishReason) -> &'static str {
    match finish {
        FinishReason::Stop => "stop",
        FinishReason::ToolCalls => "tool_calls",
        FinishReason::Length => "length",
        FinishReason::Refused => "content_filter",
    }
}
