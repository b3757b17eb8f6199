//! Builders of streams for tests, and checks of what they decode to.
#![allow(clippy::needless_pass_by_value)] // `json!` makes values, and references to them would only be noise

use std::sync::{Arc, Mutex};

use hermod_actors::{
    model::{AnswerOrigin, Failure, FailureClass, ModelAnswer},
    port::DeltaSink,
};
use serde_json::{Value, json};

use crate::provider::{
    anthropic_messages::{NAME, decode::MessagesDecoder},
    reader::ResponseReader,
    wire::Decoder,
};

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

pub(super) fn reader() -> Box<ResponseReader<MessagesDecoder>> {
    let origin = AnswerOrigin { provider: "p".into(), wire: NAME.into(), model: "m".into() };
    Box::new(ResponseReader::new(Arc::new(origin)))
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

/// Decodes the body, also byte by byte, and checks that the shown text and reasoning are those of the answer.
pub(super) fn decode_in_all_ways(body: &[u8]) -> Result<ModelAnswer, Failure> {
    let shown = Shown::default();
    let answer = decode([body], &shown);
    assert_eq!(decode(body.chunks(1), &Shown::default()), answer);
    let shown = shown.0.into_inner().unwrap();
    if let Ok(ModelAnswer { message, .. }) = &answer {
        assert_eq!((&message.text, &message.reasoning), (&shown.0, &shown.1));
    }
    answer
}

pub(super) fn stream(events: &[Value]) -> String {
    let event = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap());
    events.iter().map(event).collect()
}

pub(super) fn start(index: Value, block: Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

pub(super) fn delta(index: Value, delta: Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

pub(super) fn text(index: u64, text: &str) -> Value {
    delta(json!(index), json!({"type": "text_delta", "text": text}))
}

pub(super) fn thinking(index: u64, text: &str) -> Value {
    delta(json!(index), json!({"type": "thinking_delta", "thinking": text}))
}

pub(super) fn signature(index: u64, text: &str) -> Value {
    delta(json!(index), json!({"type": "signature_delta", "signature": text}))
}

pub(super) fn input(index: Value, json: Value) -> Value {
    delta(index, json!({"type": "input_json_delta", "partial_json": json}))
}

pub(super) fn stop(index: u64) -> Value {
    json!({"type": "content_block_stop", "index": index})
}

pub(super) fn end(reason: &str) -> [Value; 2] {
    [
        json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {}}),
        json!({"type": "message_stop"}),
    ]
}

pub(super) fn call(id: &str, name: &str, input: Value) -> Value {
    json!({"type": "tool_use", "id": id, "name": name, "input": input})
}

/// The answer of a message with these events.
pub(super) fn answer(events: &[Value], reason: &str) -> ModelAnswer {
    let begin = json!({"type": "message_start", "message": {"role": "assistant", "content": [], "stop_reason": null}});
    let all = [&[begin, json!({"type": "ping"})], events, &end(reason)].concat();
    decode_in_all_ways(stream(&all).as_bytes()).unwrap()
}

pub(super) fn check_failure(body: &str, class: FailureClass, says: &str) {
    let failure = decode_in_all_ways(body.as_bytes()).unwrap_err();
    assert_eq!(failure.class, class, "{failure}");
    assert!(failure.message.contains(says), "{failure}");
}
