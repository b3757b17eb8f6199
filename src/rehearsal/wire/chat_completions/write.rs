//! Renders `chat_completions` answers. Errors and the list of models are in `openai.rs`.

use hermod_actors::model::{FinishReason, ToolCall, Usage};
use serde_json::{Value, json};

use crate::rehearsal::{
    ScriptedAnswer,
    wire::{EventBuffer, ParsedRequest, events::pieces},
};

/// Renders an answer in the requested mode. Its id depends only on the step, and its time is constant. So equal requests
/// get equal bytes, except for the usage, which depends on the simulated cache.
pub fn write(scripted: &ScriptedAnswer<'_>, request: &ParsedRequest<'_>, model: &str) -> EventBuffer {
    if request.is_stream { stream(scripted, model, request.include.usage) } else { whole(scripted, model) }
}

fn completion(scripted: &ScriptedAnswer<'_>, object: &str, model: &str, choices: &[Value]) -> Value {
    let id = format!("chatcmpl-rehearsal-{}", scripted.step);
    json!({ "id": id, "object": object, "created": 0, "model": model, "choices": choices })
}

fn stream(scripted: &ScriptedAnswer<'_>, model: &str, with_usage: bool) -> EventBuffer {
    let mut events = EventBuffer::default();
    let (message, chunk) = (&scripted.answer.message, scripted.pace.chunk);
    let completion = |choices: &[Value]| completion(scripted, "chat.completion.chunk", model, choices);
    let mut send = |delta: Value, finish: Option<&str>| {
        events.data(&completion(&[json!({ "index": 0, "delta": delta, "finish_reason": finish })]));
    };
    send(json!({ "role": "assistant", "content": "" }), None);
    for piece in pieces(&message.reasoning, chunk) {
        send(json!({ "reasoning_content": piece }), None);
    }
    for piece in pieces(&message.text, chunk) {
        send(json!({ "content": piece }), None);
    }
    for (index, ToolCall { id, name, arguments }) in message.calls.iter().enumerate() {
        let function = json!({ "name": name, "arguments": "" });
        let call = json!({ "index": index, "id": id, "type": "function", "function": function });
        send(json!({ "tool_calls": [call] }), None);
        for piece in pieces(arguments, chunk) {
            let call = json!({ "index": index, "function": { "arguments": piece } });
            send(json!({ "tool_calls": [call] }), None);
        }
    }
    send(json!({}), Some(finish(scripted.answer.finish)));
    if let Some(reported) = scripted.answer.usage.filter(|_| with_usage) {
        let mut last = completion(&[]);
        last["usage"] = usage(&reported);
        events.data(&last);
    }
    events.text("[DONE]");
    events
}

fn whole(scripted: &ScriptedAnswer<'_>, model: &str) -> EventBuffer {
    let answer = &scripted.answer;
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
    let choice = json!({ "index": 0, "message": message, "finish_reason": finish(answer.finish) });
    let mut completion = completion(scripted, "chat.completion", model, &[choice]);
    completion["usage"] = answer.usage.as_ref().map(usage).into();
    EventBuffer::whole(&completion)
}

fn usage(usage: &Usage) -> Value {
    json!({
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total(),
        "prompt_tokens_details": { "cached_tokens": usage.cached_tokens },
    })
}

fn finish(finish: FinishReason) -> &'static str {
    match finish {
        FinishReason::Stop => "stop",
        FinishReason::ToolCalls => "tool_calls",
        FinishReason::Length => "length",
        FinishReason::Refused => "content_filter",
    }
}
