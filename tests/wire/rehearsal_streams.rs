//! The events of the rehearsal model's streams, one by one, as the vendors send them.

use serde_json::{Value, json};

use crate::played::{ANTHROPIC, RESPONSES, Response, post, request, start, with};

fn step() -> Value {
    let call = |command: &str| json!({ "tool": "shell", "arguments": { "command": command } });
    json!([{ "think": "hm hm", "say": "Là", "call": [call("ls"), call("w")], "chunk": 9, "usage": {
        "input_tokens": 70, "output_tokens": 3, "cached_tokens": 20, "cache_write_tokens": 10,
    } }])
}

/// Checks the events from the first on: the name of each, and the fields that are given.
#[track_caller]
fn check_events(response: &Response, expected: &[(&str, Value)]) {
    assert_eq!((response.status, response.whole), (200, true), "{}", response.body);
    let events = response.named_events();
    for ((name, data), (expected, fields)) in events.iter().zip(expected) {
        assert_eq!(name, expected, "{data}");
        for (field, value) in fields.as_object().unwrap() {
            assert_eq!(&data[field], value, "{data}");
        }
    }
    let names: Vec<_> = events.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, expected.iter().map(|(name, _)| *name).collect::<Vec<_>>());
}

#[tokio::test]
async fn anthropic_messages_streams() {
    let running = start(step()).await;
    let thinking = json!({ "thinking": { "type": "enabled", "budget_tokens": 1024 } });
    let response = post(&running, ANTHROPIC, &with(request(ANTHROPIC, "go"), thinking)).await;
    let usage = |output: u64| {
        json!({
            "input_tokens": 40, "cache_creation_input_tokens": 10, "cache_read_input_tokens": 20,
            "output_tokens": output, "service_tier": "standard",
        })
    };
    let message = json!({
        "id": "msg_rehearsal_1", "type": "message", "role": "assistant", "model": "rehearsal/t", "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": usage(1),
    });
    let tool = |id: &str| json!({ "type": "tool_use", "id": id, "name": "shell", "input": {} });
    let begin =
        |index: u64, block: Value| ("content_block_start", json!({ "index": index, "content_block": block }));
    let delta = |index: u64, delta: Value| ("content_block_delta", json!({ "index": index, "delta": delta }));
    let input =
        |index: u64, json: &str| delta(index, json!({ "type": "input_json_delta", "partial_json": json }));
    let end = |index: u64| ("content_block_stop", json!({ "index": index }));
    let signature = response.named_events()[4].1["delta"]["signature"].clone();
    assert!(!signature.as_str().unwrap().is_empty());
    let stop = json!({ "stop_reason": "tool_use", "stop_sequence": null });
    check_events(
        &response,
        &[
            ("message_start", json!({ "message": message })),
            begin(0, json!({ "type": "thinking", "thinking": "", "signature": "" })),
            ("ping", json!({})),
            delta(0, json!({ "type": "thinking_delta", "thinking": "hm hm" })),
            delta(0, json!({ "type": "signature_delta", "signature": signature })),
            end(0),
            begin(1, json!({ "type": "text", "text": "" })),
            delta(1, json!({ "type": "text_delta", "text": "Là" })),
            end(1),
            begin(2, tool("rh_1_1")),
            input(2, ""),
            input(2, "{\"command"),
            input(2, "\":\"ls\"}"),
            end(2),
            begin(3, tool("rh_1_2")),
            input(3, ""),
            input(3, "{\"command"),
            input(3, "\":\"w\"}"),
            end(3),
            ("message_delta", json!({ "delta": stop, "usage": usage(3) })),
            ("message_stop", json!({})),
        ],
    );
}

/// The response of `step()`, as it begins and as it ends.
fn response_object(status: &str, output: &Value, usage: &Value) -> Value {
    json!({
        "id": "resp_rehearsal_1", "object": "response", "created_at": 0, "status": status, "background": false,
        "error": null, "incomplete_details": null, "instructions": null, "max_output_tokens": null,
        "model": "rehearsal/t", "output": output, "parallel_tool_calls": true, "previous_response_id": null,
        "store": false, "temperature": 1.0, "text": { "format": { "type": "text" } }, "tool_choice": "auto",
        "tools": [], "top_p": 1.0, "truncation": "disabled", "usage": usage, "user": null, "metadata": {},
    })
}

/// The items of `step()`.
fn outputs(sealed: &Value) -> [Value; 4] {
    let text = json!({ "type": "output_text", "annotations": [], "logprobs": [], "text": "Là" });
    let call = |n: u64, arguments: &str| {
        json!({
            "id": format!("fc_rehearsal_1_{n}"), "type": "function_call", "status": "completed",
            "arguments": arguments, "call_id": format!("rh_1_{n}"), "name": "shell",
        })
    };
    [
        json!({
            "id": "rs_rehearsal_1", "type": "reasoning", "encrypted_content": sealed,
            "summary": [{ "type": "summary_text", "text": "hm hm" }],
        }),
        json!({
            "id": "msg_rehearsal_1", "type": "message", "status": "completed", "role": "assistant",
            "content": [text],
        }),
        call(1, r#"{"command":"ls"}"#),
        call(2, r#"{"command":"w"}"#),
    ]
}

type Event = (&'static str, Value);

/// The events of one item: as it begins, what comes between, and as it ends.
fn item_events(index: usize, done: &Value, begun: Value, between: Vec<Event>) -> Vec<Event> {
    let whole = |item: Value| json!({ "output_index": index, "item": item });
    let place = json!({ "item_id": done["id"], "output_index": index });
    let between = between.into_iter().map(|(name, fields)| (name, with(place.clone(), fields)));
    let mut events = vec![("response.output_item.added", whole(with(done.clone(), begun)))];
    events.extend(between);
    events.push(("response.output_item.done", whole(done.clone())));
    events
}

fn reasoning_events(done: &Value) -> Vec<Event> {
    let at = |fields: Value| with(json!({ "summary_index": 0 }), fields);
    let part = |text: &str| at(json!({ "part": { "type": "summary_text", "text": text } }));
    let between = vec![
        ("response.reasoning_summary_part.added", part("")),
        ("response.reasoning_summary_text.delta", at(json!({ "delta": "hm hm" }))),
        ("response.reasoning_summary_text.done", at(json!({ "text": "hm hm" }))),
        ("response.reasoning_summary_part.done", part("hm hm")),
    ];
    item_events(0, done, json!({ "summary": [] }), between)
}

fn message_events(done: &Value) -> Vec<Event> {
    let at = |fields: Value| with(json!({ "content_index": 0 }), fields);
    let part = |text: &str| at(json!({ "part": with(done["content"][0].clone(), json!({ "text": text })) }));
    let between = vec![
        ("response.content_part.added", part("")),
        ("response.output_text.delta", at(json!({ "delta": "Là", "logprobs": [] }))),
        ("response.output_text.done", at(json!({ "text": "Là", "logprobs": [] }))),
        ("response.content_part.done", part("Là")),
    ];
    item_events(1, done, json!({ "status": "in_progress", "content": [] }), between)
}

fn call_events(index: usize, done: &Value, pieces: [&str; 2]) -> Vec<Event> {
    let delta = |piece: &str| ("response.function_call_arguments.delta", json!({ "delta": piece }));
    let all = json!({ "arguments": pieces.concat(), "name": "shell" });
    let between = vec![delta(pieces[0]), delta(pieces[1]), ("response.function_call_arguments.done", all)];
    item_events(index, done, json!({ "status": "in_progress", "arguments": "" }), between)
}

#[tokio::test]
async fn codex_responses_streams() {
    let running = start(step()).await;
    let reasoning = json!({
        "reasoning": { "effort": "low", "summary": "auto" }, "include": ["reasoning.encrypted_content"],
    });
    let response = post(&running, RESPONSES, &with(request(RESPONSES, "go"), reasoning)).await;
    let done = outputs(&response.named_events()[2].1["item"]["encrypted_content"]);
    let usage = json!({
        "input_tokens": 70, "input_tokens_details": { "cached_tokens": 20, "cache_write_tokens": 10 },
        "output_tokens": 3, "output_tokens_details": { "reasoning_tokens": 1 }, "total_tokens": 73,
    });
    let begun = json!({ "response": response_object("in_progress", &json!([]), &Value::Null) });
    let completed = json!({ "response": response_object("completed", &json!(done), &usage) });
    let mut expected = vec![("response.created", begun.clone()), ("response.in_progress", begun)];
    expected.extend(reasoning_events(&done[0]));
    expected.extend(message_events(&done[1]));
    expected.extend(call_events(2, &done[2], ["{\"command", "\":\"ls\"}"]));
    expected.extend(call_events(3, &done[3], ["{\"command", "\":\"w\"}"]));
    expected.push(("response.completed", completed));
    for (number, (_, fields)) in expected.iter_mut().enumerate() {
        fields["sequence_number"] = number.into();
    }
    check_events(&response, &expected);
}

#[tokio::test]
async fn an_empty_answer_has_no_content() {
    let running = start(json!([{ "say": "" }])).await;
    let anthropic = post(&running, ANTHROPIC, &request(ANTHROPIC, "go")).await;
    check_events(
        &anthropic,
        &[("message_start", json!({})), ("message_delta", json!({})), ("message_stop", json!({}))],
    );
    let responses = post(&running, RESPONSES, &request(RESPONSES, "go")).await.named_events();
    assert_eq!(responses.last().unwrap().1["response"]["output"], json!([]));
}
