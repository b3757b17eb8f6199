//! The events of a response that is streamed. Each has the next sequence number.

use axum::response::sse::Event;
use hermod_actors::RunResult;
use serde_json::{Value, json};

use super::{
    error::ApiError,
    response_object::{ResponseState, ResponseView, text_part},
    stream::pieces,
};

/// Makes the events of one response.
#[derive(Debug)]
pub(super) struct ResponseEvents {
    view: ResponseView,
    next: u64,
}

impl ResponseEvents {
    pub(super) const fn new(view: ResponseView) -> Self {
        Self { view, next: 0 }
    }

    /// The events before there is a text.
    pub(super) fn first(&mut self, status: &ResponseState) -> Vec<Event> {
        self.first_values(status).iter().map(encode).collect()
    }

    /// The events of a run that has ended, or an error.
    pub(super) fn last(&mut self, result: Result<RunResult, ApiError>) -> Vec<Event> {
        self.last_values(result).iter().map(encode).collect()
    }

    fn first_values(&mut self, status: &ResponseState) -> Vec<Value> {
        let response = self.view.unfinished(status);
        let created = self.event("response.created", json!({ "response": response }));
        vec![created, self.event("response.in_progress", json!({ "response": response }))]
    }

    fn last_values(&mut self, result: Result<RunResult, ApiError>) -> Vec<Value> {
        let result = match result {
            Ok(result) => result,
            Err(error) => {
                let fields = json!({ "code": error.code(), "message": error.message(), "param": null });
                return vec![self.event("error", fields)];
            }
        };
        let (response, status, text) = self.view.ended(&result);
        let mut events = text.map_or_else(Vec::new, |text| self.message(text, &status));
        events.push(self.event(status.last_event(), json!({ "response": response })));
        events
    }

    fn message(&mut self, text: &str, status: &ResponseState) -> Vec<Value> {
        let id = self.view.message_id();
        let item = self.view.message(text, status);
        let place = |fields: Value| {
            let mut place = json!({ "item_id": id, "output_index": 0, "content_index": 0 });
            if let (Some(place), Value::Object(fields)) = (place.as_object_mut(), fields) {
                place.extend(fields);
            }
            place
        };
        let started = json!({
            "id": id, "type": "message", "status": "in_progress", "role": "assistant", "content": [],
        });
        let mut events = vec![
            self.event("response.output_item.added", json!({ "output_index": 0, "item": started })),
            self.event("response.content_part.added", place(json!({ "part": text_part("") }))),
        ];
        for piece in pieces(text) {
            let fields = place(json!({ "delta": piece, "logprobs": [] }));
            events.push(self.event("response.output_text.delta", fields));
        }
        events.extend([
            self.event("response.output_text.done", place(json!({ "text": text, "logprobs": [] }))),
            self.event("response.content_part.done", place(json!({ "part": text_part(text) }))),
            self.event("response.output_item.done", json!({ "output_index": 0, "item": item })),
        ]);
        events
    }

    fn event(&mut self, kind: &str, fields: Value) -> Value {
        let mut event = json!({ "type": kind, "sequence_number": self.next });
        self.next += 1;
        if let (Some(event), Value::Object(fields)) = (event.as_object_mut(), fields) {
            event.extend(fields);
        }
        event
    }
}

fn encode(value: &Value) -> Event {
    let name = value.get("type").and_then(Value::as_str).unwrap_or_default();
    Event::default().event(name).data(value.to_string())
}

#[cfg(test)]
mod tests {
    use hermod_actors::model::{Outcome, RunId};

    use super::*;
    use crate::service::openai::{chat_answer::tests::result, response_object::tests::view};

    fn check(result: Result<RunResult, ApiError>, expect: &[&str]) -> Vec<Value> {
        let mut events = ResponseEvents::new(view(true));
        let mut values = events.first_values(&ResponseState::new("in_progress"));
        values.extend(events.last_values(result));
        let kinds: Vec<&str> = values.iter().map(|event| event["type"].as_str().unwrap()).collect();
        let kinds: Vec<&str> = kinds.iter().map(|kind| kind.trim_start_matches("response.")).collect();
        assert_eq!(kinds, expect);
        let numbers: Vec<u64> =
            values.iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect();
        assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>());
        values
    }

    #[test]
    fn a_stream_has_all_events_in_their_order() {
        let text = "ä".repeat(201);
        let values = check(
            Ok(result(Outcome::Completed, &text)),
            &[
                "created",
                "in_progress",
                "output_item.added",
                "content_part.added",
                "output_text.delta",
                "output_text.delta",
                "output_text.done",
                "content_part.done",
                "output_item.done",
                "completed",
            ],
        );
        let deltas: String = values.iter().filter_map(|event| event["delta"].as_str()).collect();
        assert_eq!(deltas, text);
        assert_eq!(values.last().unwrap()["response"]["output"][0]["content"][0]["text"], text);
    }

    #[test]
    fn a_run_without_an_answer_ends_the_stream_too() {
        let mut nothing = result(Outcome::Failed, "");
        nothing.answer = None;
        check(Ok(nothing), &["created", "in_progress", "failed"]);
        check(Err(ApiError::stopping(RunId::from_bits(1))), &["created", "in_progress", "error"]);
    }
}
