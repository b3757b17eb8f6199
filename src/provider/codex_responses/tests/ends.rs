//! Ends of streams: complete, cut off, or with an error in place of the end.

use hermod_actors::model::{FailureClass, FinishReason};
use serde_json::{Value, json};

use super::events::*;

#[test]
fn an_answer_ends_as_the_vendor_says() {
    let of = |status: &str, reason: Value| {
        ended(
            status,
            json!({"status": status, "output": [message(0, "a")], "incomplete_details": {"reason": reason}}),
        )
    };
    check(&[of("incomplete", json!("max_output_tokens"))], "a", "", FinishReason::Length);
    check(&[of("incomplete", Value::Null)], "a", "", FinishReason::Length);
    check(&[of("incomplete", json!("content_filter"))], "a", "", FinishReason::Refused);
    check(&[ended("incomplete", json!({"incomplete_details": null}))], "", "", FinishReason::Length);
    // The status of the response takes precedence over the type of its event.
    check(&[ended("completed", json!({"status": "incomplete"}))], "", "", FinishReason::Length);
    check(&[ended("done", json!({"output": [message(0, "a")]}))], "a", "", FinishReason::Stop);
    check_failure(
        &stream(&[of("incomplete", json!("tea time"))]),
        FailureClass::IncompleteStream,
        "`tea time`",
    );
    check_failure(&stream(&[ended("cancelled", json!({}))]), FailureClass::IncompleteStream, "cancelled");
    check_failure(
        &stream(&[ended("failed", json!({"status": "failed", "error": null}))]),
        FailureClass::Server,
        "failed",
    );
}

#[test]
fn a_refusal_is_one() {
    let refusal =
        json!({"type": "message", "id": "i0", "content": [{"type": "refusal", "refusal": "I can't"}]});
    check(
        &[delta("refusal", 0, "I "), delta("refusal", 0, "can't"), completed(&[])],
        "I can't",
        "",
        FinishReason::Refused,
    );
    check(
        &[
            delta("refusal", 0, "I "),
            event("refusal.done", 0, "i0", json!({"refusal": "I can't"})),
            completed(std::slice::from_ref(&refusal)),
        ],
        "I can't",
        "",
        FinishReason::Refused,
    );
    check(&[completed(&[refusal])], "I can't", "", FinishReason::Refused);
}

#[test]
fn an_error_may_come_in_place_of_the_rest() {
    let check = |event: Value, class, says| {
        check_failure(&stream(&[delta("output_text", 0, "a"), event]), class, says);
    };
    let rate = FailureClass::RateLimited { retry_after_ms: None, reset_at: None };
    check(
        json!({"type": "error", "error": {"code": "rate_limit_exceeded", "message": "slow"}}),
        rate.clone(),
        "slow",
    );
    check(
        json!({"type": "error", "code": "rate_limit_exceeded", "message": "slow", "param": null}),
        rate,
        "slow",
    );
    check(json!({"error": {"code": 503, "message": "later"}}), FailureClass::Overloaded, "later");
    let failed =
        |code: &str| ended("failed", json!({"status": "failed", "error": {"code": code, "message": "m"}}));
    check(failed("server_error"), FailureClass::Server, "m");
    check(failed("context_length_exceeded"), FailureClass::ContextTooLong { limit: None }, "m");
}

#[test]
fn a_stream_without_an_end_is_cut() {
    let cut = |body: &str| check_failure(body, FailureClass::IncompleteStream, "");
    cut("");
    let events = usual();
    for count in 1..events.len() {
        cut(&(stream(&events[..count]) + ": bye\n\n"));
        cut(&(stream(&events[..count]) + "data: [DONE]\n\n"));
    }
    cut("data: {\"type\":\"response.comp");
    cut("data: what\n\n");
    // The stream ends in the middle of a call.
    let done =
        |arguments: &str| event("function_call_arguments.done", 0, "i0", json!({"arguments": arguments}));
    let begun = [item("added", 0, call(0, "f", ""))];
    let half = [begun[0].clone(), delta("function_call_arguments", 0, "{\"x")];
    cut(&stream(&[&begun[..], &[completed(&[])]].concat()));
    cut(&stream(&[&half[..], &[completed(&[])]].concat()));
    check_calls(&[&begun[..], &[done(""), completed(&[])]].concat(), &[("c0", "f", "")]);
    check_calls(&[&half[..], &[done("{\"x\":1}"), completed(&[])]].concat(), &[("c0", "f", "{\"x\":1}")]);
    let of = |status: &str| {
        let mut call = call(0, "f", "{}");
        call["status"] = json!(status);
        call
    };
    for status in ["in_progress", "incomplete"] {
        cut(&json!({"object": "response", "status": "completed", "output": [of(status)]}).to_string());
        check_calls(&[&begun[..], &[done("{}"), completed(&[of(status)])]].concat(), &[("c0", "f", "{}")]);
    }
    check_calls(&[completed(&[of("completed")])], &[("c0", "f", "{}")]);
    // What some servers send after the end.
    let whole = stream(&events);
    for body in
        [whole.clone() + "data: [DONE]\n\n", whole.clone() + "data: {\"half", whole.trim_end().to_owned()]
    {
        assert_eq!(decode_in_all_ways(body.as_bytes()).0.unwrap().message.text, "Hello");
    }
}

#[test]
fn a_whole_document_is_an_answer_too() {
    let document = |status: Value, error: Value| {
        json!({"object": "response", "status": status, "error": error, "output": [message(0, "a"), call(1, "f", "{}")]}).to_string()
    };
    let (answer, shown) =
        decode_in_all_ways(format!("\u{feff}\n{}\n", document(json!("completed"), Value::Null)).as_bytes());
    let answer = answer.unwrap();
    assert_eq!((&*answer.message.text, answer.message.calls.len(), &*shown.0), ("a", 1, "a"));
    assert!(decode_in_all_ways(document(Value::Null, Value::Null).as_bytes()).0.is_ok());
    check_failure(&document(json!("queued"), Value::Null), FailureClass::IncompleteStream, "`queued`");
    check_failure(
        &document(json!("failed"), json!({"code": "server_error", "message": "oh"})),
        FailureClass::Server,
        "oh",
    );
    check_failure(&document(Value::Null, json!("overloaded")), FailureClass::Overloaded, "overloaded");
    check_failure(
        "{\"error\":{\"message\":\"bad key\",\"code\":\"invalid_api_key\"}}",
        FailureClass::Auth,
        "bad key",
    );
    check_failure("{\"hello\":1}", FailureClass::NotAnApi, "{\"hello\":1}");
    check_failure("{\"output\":[{\"type\":\"mess", FailureClass::IncompleteStream, "");
}

#[test]
fn bytes_that_are_no_text_are_made_visible() {
    let body = b"data: {\"type\":\"response.output_text.delta\",\"delta\":\"a\xffb\"}\n\ndata: {\"type\":\"response.completed\"}\n\n";
    assert_eq!(decode_in_all_ways(body).0.unwrap().message.text, "a\u{fffd}b");
}
