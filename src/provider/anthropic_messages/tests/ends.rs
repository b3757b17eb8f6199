//! Ends of streams: complete, cut off, or with an error in place of the end.
#![allow(clippy::needless_pass_by_value)] // `json!` makes values, and references to them would only be noise

use hermod_actors::model::{AssistantMessage, FailureClass, FinishReason};
use serde_json::{Value, json};

use super::events::*;
use crate::provider::wire::{DecodeProgress, Decoder};

#[test]
fn an_error_may_come_in_place_of_the_rest() {
    let said = stream(&[text(0, "a")]);
    let check = |error: Value, class, says| {
        let event = json!({"type": "error", "error": error, "request_id": "r"});
        check_failure(&(said.clone() + &stream(&[event])), class, says);
    };
    check(
        json!({"type": "overloaded_error", "message": "Overloaded"}),
        FailureClass::Overloaded,
        "Overloaded",
    );
    let rate = FailureClass::RateLimited { retry_after_ms: None, reset_at: None };
    check(json!({"type": "rate_limit_error", "message": "slow"}), rate, "slow");
    check(json!({"type": "api_error", "message": "Internal server error"}), FailureClass::Server, "Internal");
    check(json!("oh"), FailureClass::Server, "oh");
    check(Value::Null, FailureClass::Server, "request_id");
    let long =
        json!({"type": "invalid_request_error", "message": "prompt is too long: 9 tokens > 8 maximum"});
    check(long, FailureClass::ContextTooLong { limit: Some(8) }, "8");
    check_failure("data: {\"error\":{\"type\":\"authentication_error\"}}\n\n", FailureClass::Auth, "auth");
}

#[test]
fn a_stream_without_an_end_is_cut() {
    let cut = |body: &str| check_failure(body, FailureClass::IncompleteStream, "");
    cut("");
    cut(&stream(&[text(0, "a"), stop(0)]));
    cut("data: {\"type\":\"content_block_delta\",\"del");
    cut("{\"type\":\"message\",\"content\":[{\"ty");
    cut("data: what\n\n");
    let asks = [start(json!(0), call("a", "f", json!({}))), input(json!(0), json!("{\"x"))];
    cut(&stream(&asks));
    cut(&stream(&[&asks[..], &[json!({"type": "message_stop"})]].concat()));
    // Every input starts as an empty object. That is the whole input only if no piece follows.
    let [_, last] = end("tool_use");
    for begun in [json!({}), json!(""), Value::Null] {
        let begun = start(json!(0), call("a", "f", begun));
        cut(&stream(&[begun.clone(), last.clone()]));
        cut(&(stream(std::slice::from_ref(&begun)) + "data: [DONE]\n\n"));
        let answer = decode_in_all_ways(stream(&[begun, stop(0), last.clone()]).as_bytes()).unwrap();
        assert_eq!((answer.message.calls.len(), answer.finish), (1, FinishReason::ToolCalls));
    }
    let document = json!({"type": "message", "content": [call("a", "f", json!({}))]}).to_string();
    assert_eq!(&*decode_in_all_ways(document.as_bytes()).unwrap().message.calls[0].arguments, "{}");
}

#[test]
fn an_end_may_be_marked_in_one_way_only() {
    let [reason, last] = end("max_tokens");
    for (events, finish) in
        [([text(0, "a"), reason], FinishReason::Length), ([text(0, "a"), last], FinishReason::Stop)]
    {
        let body = stream(&events);
        for behind in ["", "event: data\ndata: [DONE]", ": bye\n\n", "data: {\"type\":\"mess"] {
            let answer = decode_in_all_ways((body.clone() + behind).as_bytes()).unwrap();
            assert_eq!((&*answer.message.text, answer.finish), ("a", finish));
        }
        assert!(decode([body.trim_end().as_bytes()], &Shown::default()).is_ok());
    }
}

#[test]
fn a_whole_document_is_an_answer_too() {
    let content = json!([
        {"type": "thinking", "thinking": "x", "signature": "s"},
        {"type": "text", "text": "a", "citations": []},
        call("i", "f", json!({"x": 1})),
    ]);
    let usage = json!({"input_tokens": 1, "output_tokens": 2});
    let document = json!({"type": "message", "role": "assistant", "content": content, "stop_reason": "tool_use", "usage": usage});
    let answer = decode_in_all_ways(format!("\u{feff}\n{document:#}\n").as_bytes()).unwrap();
    let AssistantMessage { text, reasoning, calls, opaque } = &answer.message;
    assert_eq!((&**text, &**reasoning, &*calls[0].arguments), ("a", "x", "{\"x\":1}"));
    assert_eq!((opaque.is_some(), answer.finish), (true, FinishReason::ToolCalls));
    assert_eq!(answer.usage.map(|usage| usage.total()), Some(3));
    let error = "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}";
    check_failure(error, FailureClass::Overloaded, "Overloaded");
    check_failure("{\"detail\":\"Not allowed\"}", FailureClass::Server, "Not allowed");
    check_failure("{\"hello\":1}", FailureClass::NotAnApi, "{\"hello\":1}");
    check_failure("<html>\n<b>down</b>", FailureClass::NotAnApi, "<html> <b>down</b>");
}

#[test]
fn an_answer_has_a_limit() {
    let piece = stream(&[text(0, &"x".repeat(4 << 20))]);
    let mut decoder = reader();
    let results: Vec<_> = (0..9).map(|_| decoder.push(piece.as_bytes(), &Shown::default())).collect();
    assert_eq!(results[0], Ok(DecodeProgress::Content));
    assert!(matches!(&results[8], Err(failure) if failure.message.contains("larger")), "{results:?}");
    let many: Vec<_> = (0..2_000).map(|n| start(json!(n), call("a", "f", json!({})))).collect();
    check_failure(&stream(&many), FailureClass::IncompleteStream, "more than 1024 tool calls");
    let many: Vec<_> = (0..5_000).map(|n| text(n, "")).collect();
    check_failure(&stream(&many), FailureClass::IncompleteStream, "more than 4096 blocks");
}

#[test]
fn only_what_shows_something_is_progress() {
    let mut decoder = reader();
    let mut push =
        |event: &Value| decoder.push(stream(std::slice::from_ref(event)).as_bytes(), &Shown::default());
    let [reason, last] = end("end_turn");
    for quiet in [json!({"type": "ping"}), json!({"type": "message_start"}), stop(0), text(0, "")] {
        assert_eq!(push(&quiet), Ok(DecodeProgress::Quiet), "{quiet}");
    }
    for shows in [text(0, "a"), signature(1, "s"), start(json!(2), call("a", "f", json!({}))), reason] {
        assert_eq!(push(&shows), Ok(DecodeProgress::Content), "{shows}");
    }
    assert_eq!(push(&last), Ok(DecodeProgress::Done));
}
