//! Renders `codex_responses` answers: the output items, the response object and the events of a stream. Errors and the list of models are
//! in `openai.rs`.

use hermod_actors::model::{FinishReason, ToolCall, Usage};
use serde_json::{Value, json};

use crate::rehearsal::{
    ScriptedAnswer,
    wire::{EventBuffer, ParsedRequest, events::pieces, seal::seal},
};

/// Renders an answer in the requested mode. Equal requests get equal bytes, except for the usage.
pub fn write(scripted: &ScriptedAnswer<'_>, request: &ParsedRequest<'_>, model: &str) -> EventBuffer {
    let outputs = outputs(scripted, request);
    let response = ResponseBuilder { scripted, model };
    if request.is_stream {
        stream(&response, &outputs)
    } else {
        EventBuffer::whole(&response.finished(&outputs))
    }
}

/// One item of an answer.
enum OutputItem<'a> {
    Reasoning { id: String, summary: Option<&'a str>, sealed: Option<String> },
    Message { id: String, text: &'a str },
    Call { id: String, call: &'a ToolCall },
}

/// The items of an answer, in order.
fn outputs<'a>(scripted: &'a ScriptedAnswer<'_>, request: &ParsedRequest<'_>) -> Vec<OutputItem<'a>> {
    let (reply, step) = (&scripted.answer.message, scripted.step);
    let mut outputs = Vec::new();
    if !reply.reasoning.is_empty() {
        let include = request.include;
        outputs.push(OutputItem::Reasoning {
            id: format!("rs_rehearsal_{step}"),
            summary: include.thoughts.then_some(reply.reasoning.as_str()),
            sealed: include.sealed_thoughts.then(|| seal(&request.model.0, &reply.reasoning)),
        });
    }
    if !reply.text.is_empty() {
        outputs.push(OutputItem::Message { id: format!("msg_rehearsal_{step}"), text: &reply.text });
    }
    for (n, call) in (1..).zip(&reply.calls) {
        outputs.push(OutputItem::Call { id: format!("fc_rehearsal_{step}_{n}"), call });
    }
    outputs
}

impl OutputItem<'_> {
    fn id(&self) -> &str {
        match self {
            Self::Reasoning { id, .. } | Self::Message { id, .. } | Self::Call { id, .. } => id,
        }
    }

    /// The item as JSON; without content until it is `done`.
    fn item(&self, done: bool) -> Value {
        let status = if done { "completed" } else { "in_progress" };
        match self {
            Self::Reasoning { id, summary, sealed } => {
                let summary: Vec<_> =
                    summary.iter().filter(|_| done).map(|text| summary_part(text)).collect();
                let mut item = json!({ "id": id, "type": "reasoning", "summary": summary });
                if let Some(sealed) = sealed {
                    item["encrypted_content"] = sealed.as_str().into();
                }
                item
            }
            Self::Message { id, text } => {
                let content: Vec<_> = done.then(|| text_part(text)).into_iter().collect();
                json!({
                    "id": id, "type": "message", "status": status, "role": "assistant", "content": content,
                })
            }
            Self::Call { id, call } => json!({
                "id": id,
                "type": "function_call",
                "status": status,
                "arguments": if done { call.arguments.as_str() } else { "" },
                "call_id": call.id,
                "name": call.name,
            }),
        }
    }
}

fn summary_part(text: &str) -> Value {
    json!({ "type": "summary_text", "text": text })
}

fn text_part(text: &str) -> Value {
    json!({ "type": "output_text", "annotations": [], "logprobs": [], "text": text })
}

struct ResponseBuilder<'a> {
    scripted: &'a ScriptedAnswer<'a>,
    model: &'a str,
}

impl ResponseBuilder<'_> {
    /// The response at its start, without output.
    fn in_progress(&self) -> Value {
        json!({
            "id": format!("resp_rehearsal_{}", self.scripted.step),
            "object": "response",
            "created_at": 0,
            "status": "in_progress",
            "background": false,
            "error": null,
            "incomplete_details": null,
            "instructions": null,
            "max_output_tokens": null,
            "model": self.model,
            "output": [],
            "parallel_tool_calls": true,
            "previous_response_id": null,
            "store": false,
            "temperature": 1.0,
            "text": { "format": { "type": "text" } },
            "tool_choice": "auto",
            "tools": [],
            "top_p": 1.0,
            "truncation": "disabled",
            "usage": null,
            "user": null,
            "metadata": {},
        })
    }

    /// The reason of an incomplete answer; `None` if it is complete.
    fn incomplete(&self) -> Option<&'static str> {
        match self.scripted.answer.finish {
            FinishReason::Stop | FinishReason::ToolCalls => None,
            FinishReason::Length => Some("max_output_tokens"),
            FinishReason::Refused => Some("content_filter"),
        }
    }

    fn finished(&self, outputs: &[OutputItem<'_>]) -> Value {
        let mut response = self.in_progress();
        response["status"] = "completed".into();
        if let Some(reason) = self.incomplete() {
            response["status"] = "incomplete".into();
            response["incomplete_details"] = json!({ "reason": reason });
        }
        response["output"] = outputs.iter().map(|output| output.item(true)).collect();
        let answer = &self.scripted.answer;
        let reasoning_tokens = (answer.message.reasoning.len() / 4) as u64;
        response["usage"] = usage(answer.usage.unwrap_or_default(), reasoning_tokens);
        response
    }
}

fn usage(usage: Usage, reasoning_tokens: u64) -> Value {
    json!({
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": { "reasoning_tokens": reasoning_tokens.min(usage.output_tokens) },
        "total_tokens": usage.total(),
    })
}

/// Writes the numbered events of a stream.
#[derive(Default)]
struct EventWriter {
    events: EventBuffer,
    number: u64,
}

impl EventWriter {
    /// Writes an event with its number.
    fn send(&mut self, kind: &str, mut body: Value) {
        body["sequence_number"] = self.number.into();
        self.number += 1;
        self.events.typed(kind, body);
    }

    /// Writes the events between the start and the end of an item.
    fn fill(&mut self, index: usize, output: &OutputItem<'_>, chunk: Option<usize>) {
        let at = |fields: Value| {
            let mut body = json!({ "item_id": output.id(), "output_index": index });
            if let (Value::Object(body), Value::Object(fields)) = (&mut body, fields) {
                body.extend(fields);
            }
            body
        };
        match output {
            OutputItem::Reasoning { summary, .. } => {
                let Some(text) = summary else { return };
                let at = |name: &str, value: Value| at(json!({ "summary_index": 0, name: value }));
                self.send("response.reasoning_summary_part.added", at("part", summary_part("")));
                for piece in pieces(text, chunk) {
                    self.send("response.reasoning_summary_text.delta", at("delta", piece.into()));
                }
                self.send("response.reasoning_summary_text.done", at("text", (*text).into()));
                self.send("response.reasoning_summary_part.done", at("part", summary_part(text)));
            }
            OutputItem::Message { text, .. } => {
                let part = |part: Value| at(json!({ "content_index": 0, "part": part }));
                let text_at =
                    |name: &str, text: &str| at(json!({ "content_index": 0, name: text, "logprobs": [] }));
                self.send("response.content_part.added", part(text_part("")));
                for piece in pieces(text, chunk) {
                    self.send("response.output_text.delta", text_at("delta", piece));
                }
                self.send("response.output_text.done", text_at("text", text));
                self.send("response.content_part.done", part(text_part(text)));
            }
            OutputItem::Call { call, .. } => {
                for piece in pieces(&call.arguments, chunk) {
                    self.send("response.function_call_arguments.delta", at(json!({ "delta": piece })));
                }
                let done = json!({ "name": call.name, "arguments": call.arguments });
                self.send("response.function_call_arguments.done", at(done));
            }
        }
    }
}

fn stream(response: &ResponseBuilder<'_>, outputs: &[OutputItem<'_>]) -> EventBuffer {
    let mut writer = EventWriter::default();
    let started = response.in_progress();
    writer.send("response.created", json!({ "response": started }));
    writer.send("response.in_progress", json!({ "response": started }));
    for (index, output) in outputs.iter().enumerate() {
        let at = |done| json!({ "output_index": index, "item": output.item(done) });
        writer.send("response.output_item.added", at(false));
        writer.fill(index, output, response.scripted.pace.chunk);
        writer.send("response.output_item.done", at(true));
    }
    let end = if response.incomplete().is_some() { "response.incomplete" } else { "response.completed" };
    writer.send(end, json!({ "response": response.finished(outputs) }));
    writer.events
}
