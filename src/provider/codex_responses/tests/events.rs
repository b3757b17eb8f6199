//! Builders of streams for tests, and checks of what they decode to.
#![allow(clippy::needless_pass_by_value)] // `json!` makes values, and references to them would only be noise

use std::sync::{Arc, Mutex};

use hermod_actors::{
    model::{AnswerOrigin, Failure, FailureClass, FinishReason, ModelAnswer},
    port::DeltaSink,
};
use serde_json::{Value, json};

use crate::provider::{codex_responses::decode::ResponsesDecoder, reader::ResponseReader, wire::Decoder};

/// Collects the text and reasoning that watchers are shown.
#[derive(Default)]
pub(super) struct Shown(Mutex<(String, String)>);

impl DeltaSink for Shown {
    fn text(&self, delta: &str) {
        self.0.lock().unwrap().0.push_str(delta);
    }
    fn reasoning(&self, delta: &str) {
        self.0.lock().unwrap().1.push_str(delta);
    }
}

pub(super) fn origin() -> Arc<AnswerOrigin> {
    Arc::new(AnswerOrigin { provider: "p".into(), wire: "codex_responses".into(), model: "m".into() })
}

pub(super) fn reader() -> Box<dyn Decoder> {
    Box::new(ResponseReader::<ResponsesDecoder>::new(origin()))
}

pub(super) fn decode<'a>(
    parts: impl IntoIterator<Item = &'a [u8]>,
    shown: &Shown,
) -> Result<ModelAnswer, Failure> {
    let mut decoder = reader();
    for part in parts {
        decoder.push(part, shown)?;
    }
    decoder.finish(shown)
}

/// Decodes the body, also byte by byte; returns the result and what was shown.
pub(super) fn decode_in_all_ways(body: &[u8]) -> (Result<ModelAnswer, Failure>, (String, String)) {
    let shown = Shown::default();
    let answer = decode([body], &shown);
    assert_eq!(decode(body.chunks(1), &Shown::default()), answer);
    (answer, shown.0.into_inner().unwrap())
}

/// The answer. Checks that exactly its text and reasoning were shown.
pub(super) fn answer(events: &[Value]) -> ModelAnswer {
    let (answer, shown) = decode_in_all_ways(stream(events).as_bytes());
    let answer = answer.unwrap();
    if answer.finish != FinishReason::Refused {
        assert_eq!((&answer.message.text, &answer.message.reasoning), (&shown.0, &shown.1));
    }
    answer
}

pub(super) fn check_failure(body: &str, class: FailureClass, says: &str) {
    let failure = decode_in_all_ways(body.as_bytes()).0.unwrap_err();
    assert_eq!(failure.class, class, "{failure}");
    assert!(failure.message.contains(says), "{failure}");
}

pub(super) fn stream(events: &[Value]) -> String {
    let lines = events.iter().map(|event| {
        let name = event["type"].as_str().unwrap_or_default();
        format!("event: {name}\ndata: {event}\n\n")
    });
    lines.collect()
}

/// An event `response.NAME` of an item.
pub(super) fn event(name: &str, index: u64, id: &str, fields: Value) -> Value {
    let mut event = json!({"type": format!("response.{name}"), "output_index": index, "item_id": id});
    for (key, value) in fields.as_object().unwrap() {
        event[key] = value.clone();
    }
    event
}

pub(super) fn delta(name: &str, index: u64, delta: &str) -> Value {
    event(&format!("{name}.delta"), index, &format!("i{index}"), json!({"delta": delta, "content_index": 0}))
}

/// An event `response.output_item.STEP`.
pub(super) fn item(step: &str, index: u64, item: Value) -> Value {
    json!({"type": format!("response.output_item.{step}"), "output_index": index, "item": item})
}

pub(super) fn message(index: u64, text: &str) -> Value {
    let content = if text.is_empty() { json!([]) } else { json!([{"type": "output_text", "text": text}]) };
    json!({"type": "message", "id": format!("i{index}"), "role": "assistant", "content": content})
}

pub(super) fn call(index: u64, name: &str, arguments: &str) -> Value {
    let (id, call) = (format!("i{index}"), format!("c{index}"));
    json!({"type": "function_call", "id": id, "call_id": call, "name": name, "arguments": arguments})
}

pub(super) fn thought(index: u64, summary: &str, encrypted: &str) -> Value {
    let summary =
        if summary.is_empty() { json!([]) } else { json!([{"type": "summary_text", "text": summary}]) };
    json!({"type": "reasoning", "id": format!("i{index}"), "summary": summary, "encrypted_content": encrypted})
}

/// The event `response.completed` with this output.
pub(super) fn completed(output: &[Value]) -> Value {
    json!({"type": "response.completed", "response": {"object": "response", "status": "completed", "output": output}})
}

pub(super) fn ended(name: &str, response: Value) -> Value {
    json!({"type": format!("response.{name}"), "response": response})
}

pub(super) fn check(events: &[Value], text: &str, reasoning: &str, finish: FinishReason) {
    let ModelAnswer { message, finish: found, .. } = answer(events);
    assert_eq!((&*message.text, &*message.reasoning, found), (text, reasoning, finish), "{events:?}");
}

pub(super) fn check_calls(events: &[Value], expected: &[(&str, &str, &str)]) {
    let answer = answer(events);
    let found: Vec<_> =
        answer.message.calls.iter().map(|call| (&*call.id, &*call.name, &*call.arguments)).collect();
    assert_eq!(found, expected, "{events:?}");
    assert_eq!(answer.finish, if expected.is_empty() { FinishReason::Stop } else { FinishReason::ToolCalls });
}

/// A usual stream: reasoning, text and two interleaved calls.
pub(super) fn usual() -> Vec<Value> {
    let output = [thought(0, "hm", "x1"), message(1, "Hello"), call(2, "f", "{\"x\":1}"), call(3, "g", "{}")];
    let mut events = vec![
        json!({"type": "response.created", "response": {"status": "in_progress", "output": []}}),
        json!({"type": "response.in_progress", "response": {"status": "in_progress"}}),
        item("added", 0, thought(0, "", "x0")),
        event(
            "reasoning_summary_part.added",
            0,
            "i0",
            json!({"summary_index": 0, "part": {"type": "summary_text", "text": ""}}),
        ),
        event("reasoning_summary_text.delta", 0, "i0", json!({"summary_index": 0, "delta": "hm"})),
        event("reasoning_summary_text.done", 0, "i0", json!({"summary_index": 0, "text": "hm"})),
        event(
            "reasoning_summary_part.done",
            0,
            "i0",
            json!({"summary_index": 0, "part": {"type": "summary_text", "text": "hm"}}),
        ),
        item("done", 0, output[0].clone()),
        item("added", 1, message(1, "")),
        event(
            "content_part.added",
            1,
            "i1",
            json!({"content_index": 0, "part": {"type": "output_text", "text": ""}}),
        ),
        delta("output_text", 1, "Hel"),
        delta("output_text", 1, "lo"),
        event("output_text.done", 1, "i1", json!({"content_index": 0, "text": "Hello"})),
        event(
            "content_part.done",
            1,
            "i1",
            json!({"content_index": 0, "part": {"type": "output_text", "text": "Hello"}}),
        ),
        item("done", 1, output[1].clone()),
        item("added", 2, call(2, "f", "")),
        delta("function_call_arguments", 2, "{\"x"),
        item("added", 3, call(3, "g", "")),
        delta("function_call_arguments", 3, "{"),
        delta("function_call_arguments", 2, "\":1}"),
        event("function_call_arguments.done", 2, "i2", json!({"arguments": "{\"x\":1}"})),
        item("done", 2, output[2].clone()),
        delta("function_call_arguments", 3, "}"),
        item("done", 3, output[3].clone()),
    ];
    events.push(completed(&output));
    events
}
