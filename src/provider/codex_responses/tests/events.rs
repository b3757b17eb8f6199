//! Streams made by hand, and what they are decoded to.
#![allow(clippy::needless_pass_by_value)] // `json!` makes values, and references to them would only be noise

use std::sync::{Arc, Mutex};

use hermod_actors::{
    model::{Answer, Failure, FailureClass, Finish, Origin},
    port::Deltas,
};
use serde_json::{Value, json};

use crate::provider::{codex_responses::draft::Draft, reader::Reader, wire::Decoder};

/// Text and reasoning as they were shown.
#[derive(Default)]
pub(super) struct Shown(Mutex<(String, String)>);

impl Deltas for Shown {
    fn text(&self, delta: &str) {
        self.0.lock().unwrap().0.push_str(delta);
    }
    fn reasoning(&self, delta: &str) {
        self.0.lock().unwrap().1.push_str(delta);
    }
}

pub(super) fn origin() -> Arc<Origin> {
    Arc::new(Origin { provider: "p".into(), wire: "codex_responses".into(), model: "m".into() })
}

pub(super) fn reader() -> Box<dyn Decoder> {
    Box::new(Reader::new(Draft::new(origin())))
}

pub(super) fn decode<'a>(
    parts: impl IntoIterator<Item = &'a [u8]>,
    shown: &Shown,
) -> Result<Answer, Failure> {
    let mut decoder = reader();
    for part in parts {
        decoder.push(part, shown)?;
    }
    decoder.finish(shown)
}

/// The body decodes so, also byte by byte.
pub(super) fn decode_in_all_ways(body: &[u8]) -> (Result<Answer, Failure>, (String, String)) {
    let shown = Shown::default();
    let answer = decode([body], &shown);
    assert_eq!(decode(body.chunks(1), &Shown::default()), answer);
    (answer, shown.0.into_inner().unwrap())
}

/// The answer, of which all was shown as it came.
pub(super) fn answer(events: &[Value]) -> Answer {
    let (answer, shown) = decode_in_all_ways(stream(events).as_bytes());
    let answer = answer.unwrap();
    if answer.finish != Finish::Refused {
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

/// `response.NAME` about an item.
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

/// `response.output_item.STEP`.
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

/// `response.completed` with this output.
pub(super) fn completed(output: &[Value]) -> Value {
    json!({"type": "response.completed", "response": {"object": "response", "status": "completed", "output": output}})
}

pub(super) fn ended(name: &str, response: Value) -> Value {
    json!({"type": format!("response.{name}"), "response": response})
}
