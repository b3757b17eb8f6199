//! The rehearsal model refuses what a strict provider refuses, so it checks whoever talks to it.

use hermod::rehearsal::wire::chat_completions;
use serde_json::{Value, json};

#[track_caller]
fn check(messages: &[Value], expected: Option<&str>) {
    check_body(&json!({ "model": "m", "messages": messages }).to_string(), expected);
}

#[track_caller]
fn check_body(body: &str, expected: Option<&str>) {
    let refusal = chat_completions::read(body.as_bytes()).err();
    assert!(refusal.iter().all(|refusal| refusal.status == 400));
    assert_eq!(refusal.map(|refusal| refusal.message).as_deref(), expected, "{body}");
}

fn system() -> Value {
    json!({ "role": "system", "content": "be brief" })
}

fn user() -> Value {
    json!({ "role": "user", "content": "a" })
}

fn said() -> Value {
    json!({ "role": "assistant", "content": "b" })
}

fn called(ids: &[&str]) -> Value {
    let function = json!({ "name": "shell", "arguments": "{}" });
    let call = |id: &&str| json!({ "id": id, "type": "function", "function": function });
    json!({ "role": "assistant", "content": null, "tool_calls": ids.iter().map(call).collect::<Vec<_>>() })
}

fn result(id: &str) -> Value {
    json!({ "role": "tool", "tool_call_id": id, "content": "" })
}

#[test]
fn roles_alternate() {
    check(&[system(), user(), said(), user()], None);
    check(&[user(), called(&["x"]), result("x"), said(), user()], None);
    check(&[], Some("messages[0]: a user message is missing"));
    check(&[system()], Some("messages[1]: a user message is missing"));
    check(&[system(), said()], Some("messages[1]: the first message after the system's must be the user's"));
    check(&[user(), system()], Some("messages[1]: a system message must stand at the start"));
    check(&[user(), user()], Some("messages[1]: two user messages in a row"));
    check(&[user(), said(), said()], Some("messages[2]: two assistant messages in a row"));
    check(
        &[user(), called(&["x"]), result("x"), user()],
        Some("messages[3]: a user message directly after a tool message"),
    );
}

#[test]
fn calls_and_results_pair() {
    check(&[user(), called(&["x", "y"]), result("y"), result("x")], None);
    check(&[user(), called(&["x"])], Some("messages[2]: the call `x` has no tool message"));
    check(
        &[user(), called(&["x", "y"]), result("x"), said()],
        Some("messages[3]: the call `y` before it has no tool message"),
    );
    check(
        &[user(), result("x")],
        Some("messages[1]: `x` is no unanswered call of the assistant message before it"),
    );
    check(
        &[user(), called(&["x"]), result("x"), result("x")],
        Some("messages[3]: `x` is no unanswered call of the assistant message before it"),
    );
    check(&[user(), called(&["x", "x"])], Some("messages[1]: the call id `x` twice in one message"));
}

#[test]
fn messages_have_their_fields() {
    check(
        &[user(), json!({ "role": "assistant" })],
        Some("messages[1]: an assistant message with neither content nor tool_calls"),
    );
    check(
        &[json!({ "role": "user", "content": null })],
        Some("messages[0].content: is missing: only an assistant message may be without"),
    );
    check(
        &[json!({ "role": "user", "content": 7 })],
        Some("messages[0].content: expected a string, a list of parts or null"),
    );
    check(
        &[json!({ "role": "user", "content": "a", "tool_calls": [] })],
        Some("messages[0].tool_calls: only an assistant message may have them"),
    );
    check(
        &[user(), called(&["x"]), json!({ "role": "tool", "content": "" })],
        Some("messages[2].tool_call_id: is missing"),
    );
    let mut call = called(&["x"]);
    call["tool_calls"][0]["function"]["arguments"] = json!({});
    check(
        &[user(), call],
        Some("messages[1].tool_calls: a function's arguments must be JSON written into a string"),
    );
}

#[test]
fn the_request_itself() {
    let with = |field: &str, value: Value| {
        let mut body = json!({ "model": "m", "messages": [user()] });
        body[field] = value;
        body.to_string()
    };
    check_body(&with("stream", json!(true)), None);
    check_body(
        &with("stream_options", json!({ "include_usage": true })),
        Some("`stream_options` is only allowed when `stream` is true"),
    );
    check_body(&with("model", json!("")), Some("`model` is empty: name a model"));
    let tool = |name: &str| json!({ "type": "function", "function": { "name": name, "parameters": {} } });
    check_body(&with("tools", json!([tool("a"), tool("b")])), None);
    check_body(&with("tools", json!([tool("a"), tool("a")])), Some("two tools are named `a`"));
    check_body(
        &with("tools", json!([tool("a b")])),
        Some("`a b` is no name of a function: 1 to 64 of a-z, A-Z, 0-9, `_` and `-`"),
    );
    check_body(
        "{",
        Some("the body is no chat completion request: EOF while parsing an object at line 1 column 1"),
    );
}

#[test]
fn parts_are_what_they_say() {
    let image = |url: &str| json!([{ "type": "text", "text": "a" }, { "type": "image_url", "image_url": { "url": url } }]);
    let with = |message: Value, content: Value| {
        let mut message = message;
        message["content"] = content;
        message
    };
    let png = "data:image/png;base64,iVBORw0KGgo=";
    check(&[with(user(), image(png))], None);
    check(&[with(user(), image("https://example.com/a.png"))], None);
    check(&[user(), called(&["x"]), with(result("x"), image(png))], None);
    check(
        &[with(user(), image("data:image/gif;base64,iVBORw0KGgo="))],
        Some(
            "Invalid 'messages[0].content[1].image_url'. The image is declared as 'image/gif', but its bytes are 'image/png'.",
        ),
    );
    check(
        &[with(user(), image("a.png"))],
        Some(
            "Invalid 'messages[0].content[1].image_url'. Expected a valid URL, but got a value with an invalid format: \
             give a data URL with base64 or an http(s) URL.",
        ),
    );
    check(
        &[with(user(), json!([{ "type": "image_url", "image_url": png }]))],
        Some("messages[0].content[0]: `image_url` must be an object with an `url`"),
    );
    check(
        &[with(user(), json!([{ "type": "input_text", "text": "a" }]))],
        Some(
            "messages[0].content[0]: `input_text` in a message of role `user`: it may have `text`, `image_url`, `input_audio`, `file`",
        ),
    );
    check(
        &[user(), with(said(), image(png))],
        Some(
            "messages[1].content[1]: `image_url` in a message of role `assistant`: it may have `text`, `refusal`",
        ),
    );
    check(
        &[with(user(), json!([{ "type": "text", "text": 7 }]))],
        Some("messages[0].content[0]: `text` is no string"),
    );
}
