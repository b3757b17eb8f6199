//! Renders `anthropic_messages` answers, errors and the list of models.

use hermod_actors::model::{FinishReason, ToolCall, Usage};
use serde_json::{Value, json};

use crate::rehearsal::{
    ScriptedAnswer,
    wire::{EventBuffer, ParsedRequest, RequestRefusal, events::pieces, seal::seal},
};

/// One block of an answer.
enum ReplyBlock<'a> {
    Thinking { thought: &'a str, signature: String },
    Text(&'a str),
    Call(&'a ToolCall),
}

/// Renders an answer in the requested mode. Equal requests get equal bytes, except for the usage.
pub fn write(scripted: &ScriptedAnswer<'_>, request: &ParsedRequest<'_>, model: &str) -> EventBuffer {
    let blocks = blocks(scripted, request);
    let usage = usage(scripted.answer.usage.unwrap_or_default());
    let mut message = json!({
        "id": format!("msg_rehearsal_{}", scripted.step),
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": null,
        "stop_sequence": null,
        "usage": usage,
    });
    if request.is_stream {
        message["usage"]["output_tokens"] = 1.into();
        return stream(scripted, &blocks, &message, &usage);
    }
    message["content"] = blocks.iter().map(ReplyBlock::whole).collect();
    message["stop_reason"] = stop_reason(scripted.answer.finish).into();
    EventBuffer::whole(&message)
}

fn blocks<'a>(scripted: &'a ScriptedAnswer<'_>, request: &ParsedRequest<'_>) -> Vec<ReplyBlock<'a>> {
    let assistant = &scripted.answer.message;
    let mut blocks = Vec::new();
    if !assistant.reasoning.is_empty() {
        let thought = if request.include.thoughts { assistant.reasoning.as_str() } else { "" };
        blocks
            .push(ReplyBlock::Thinking { thought, signature: seal(&request.model.0, &assistant.reasoning) });
    }
    if !assistant.text.is_empty() {
        blocks.push(ReplyBlock::Text(&assistant.text));
    }
    blocks.extend(assistant.calls.iter().map(ReplyBlock::Call));
    blocks
}

impl ReplyBlock<'_> {
    fn whole(&self) -> Value {
        match self {
            Self::Thinking { thought, signature } => {
                json!({ "type": "thinking", "thinking": thought, "signature": signature })
            }
            Self::Text(text) => json!({ "type": "text", "text": text }),
            Self::Call(call) => {
                // A script may contain arguments that are no JSON, which can only be sent as a string.
                let input = serde_json::from_str(&call.arguments);
                let input = input.unwrap_or_else(|_| Value::String(call.arguments.clone()));
                json!({ "type": "tool_use", "id": call.id, "name": call.name, "input": input })
            }
        }
    }

    /// The block in the start event of a stream.
    fn start(&self) -> Value {
        match self {
            Self::Thinking { .. } => json!({ "type": "thinking", "thinking": "", "signature": "" }),
            Self::Text(_) => json!({ "type": "text", "text": "" }),
            Self::Call(call) => {
                json!({ "type": "tool_use", "id": call.id, "name": call.name, "input": {} })
            }
        }
    }

    fn deltas(&self, chunk: Option<usize>) -> Vec<Value> {
        match self {
            Self::Thinking { thought, signature } => {
                let thoughts = pieces(thought, chunk);
                let thoughts = thoughts.map(|piece| json!({ "type": "thinking_delta", "thinking": piece }));
                let signature = json!({ "type": "signature_delta", "signature": signature });
                thoughts.chain([signature]).collect()
            }
            Self::Text(text) => {
                pieces(text, chunk).map(|piece| json!({ "type": "text_delta", "text": piece })).collect()
            }
            Self::Call(call) => {
                let pieces = [""].into_iter().chain(pieces(&call.arguments, chunk));
                pieces.map(|piece| json!({ "type": "input_json_delta", "partial_json": piece })).collect()
            }
        }
    }
}

fn stream(
    scripted: &ScriptedAnswer<'_>,
    blocks: &[ReplyBlock<'_>],
    message: &Value,
    usage: &Value,
) -> EventBuffer {
    let mut events = EventBuffer::default();
    events.typed("message_start", json!({ "message": message }));
    for (index, block) in blocks.iter().enumerate() {
        events.typed("content_block_start", json!({ "index": index, "content_block": block.start() }));
        if index == 0 {
            events.typed("ping", json!({}));
        }
        for delta in block.deltas(scripted.pace.chunk) {
            events.typed("content_block_delta", json!({ "index": index, "delta": delta }));
        }
        events.typed("content_block_stop", json!({ "index": index }));
    }
    let delta = json!({ "stop_reason": stop_reason(scripted.answer.finish), "stop_sequence": null });
    events.typed("message_delta", json!({ "delta": delta, "usage": usage }));
    events.typed("message_stop", json!({}));
    events
}

/// The usage in the vendor's form, which counts cached tokens separately.
fn usage(usage: Usage) -> Value {
    let cached = usage.cached_tokens.saturating_add(usage.cache_write_tokens);
    json!({
        "input_tokens": usage.input_tokens.saturating_sub(cached),
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.output_tokens,
        "service_tier": "standard",
    })
}

fn stop_reason(finish: FinishReason) -> &'static str {
    match finish {
        FinishReason::Stop => "end_turn",
        FinishReason::ToolCalls => "tool_use",
        FinishReason::Length => "max_tokens",
        FinishReason::Refused => "refusal",
    }
}

/// The body of an error response.
pub fn error(refusal: &RequestRefusal) -> String {
    let kind = match refusal.status {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        504 => "timeout_error",
        529 => "overloaded_error",
        500.. => "api_error",
        _ => "invalid_request_error",
    };
    let error = json!({ "type": kind, "message": refusal.message });
    json!({ "type": "error", "error": error, "request_id": "req_rehearsal" }).to_string()
}

/// The body of `GET /v1/models`.
pub fn models(model: &str) -> String {
    let created_at = "1970-01-01T00:00:00Z";
    let data = json!({ "type": "model", "id": model, "display_name": model, "created_at": created_at });
    json!({ "data": [data], "has_more": false, "first_id": model, "last_id": model }).to_string()
}
