//! The events of the rehearsal model's streams, one by one, as the vendors send them.
#![allow(clippy::unwrap_used)] // a test ends where it fails

#[path = "common/played.rs"]
mod played;

use serde_json::{Value, json};

use played::{ANTHROPIC, RESPONSES, Response, post, request, start, with};

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

#[tokio::test]
async fn codex_responses_streams() {
    let running = start(step()).await;
    let reasoning = json!({
        "reasoning": { "effort": "low", "summary": "auto" }, "include": ["reasoning.encrypted_content"],
    });
    let response = post(&running, RESPONSES, &with(request(RESPONSES, "go"), reasoning)).await;
    let sealed = response.named_events()[2].1["item"]["encrypted_content"].clone();
    let done = outputs(&sealed);
    let usage = json!({
        "input_tokens": 70, "input_tokens_details": { "cached_tokens": 20, "cache_write_tokens": 10 },
        "output_tokens": 3, "output_tokens_details": { "reasoning_tokens": 1 }, "total_tokens": 73,
    });
    let item = |name, index: usize, item: &Value| (name, json!({ "output_index": index, "item": item }));
    let begun = |index: usize, fields: Value| {
        item("response.output_item.added", index, &with(done[index].clone(), fields))
    };
    let ended = |index: usize| item("response.output_item.done", index, &done[index]);
    let summary = |name, fields: Value| {
        (name, with(json!({ "item_id": "rs_rehearsal_1", "output_index": 0, "summary_index": 0 }), fields))
    };
    let part = |text: &str| json!({ "part": { "type": "summary_text", "text": text } });
    let said = |name, fields: Value| {
        (name, with(json!({ "item_id": "msg_rehearsal_1", "output_index": 1, "content_index": 0 }), fields))
    };
    let text_part =
        |text: &str| json!({ "part": with(done[1]["content"][0].clone(), json!({ "text": text })) });
    let call = |index: usize| json!({ "item_id": done[index]["id"], "output_index": index });
    let delta = |index: usize, text: &str| {
        ("response.function_call_arguments.delta", with(call(index), json!({ "delta": text })))
    };
    let all = |index: usize, text: &str| {
        let fields = json!({ "arguments": text, "name": "shell" });
        ("response.function_call_arguments.done", with(call(index), fields))
    };
    let in_progress = |content: Value| with(json!({ "status": "in_progress" }), content);
    let started = json!({ "response": response_object("in_progress", &json!([]), &Value::Null) });
    let completed = json!({ "response": response_object("completed", &json!(done), &usage) });
    check_events(
        &response,
        &[
            ("response.created", with(started.clone(), json!({ "sequence_number": 0 }))),
            ("response.in_progress", with(started, json!({ "sequence_number": 1 }))),
            begun(0, json!({ "summary": [] })),
            summary("response.reasoning_summary_part.added", part("")),
            summary("response.reasoning_summary_text.delta", json!({ "delta": "hm hm" })),
            summary("response.reasoning_summary_text.done", json!({ "text": "hm hm" })),
            summary("response.reasoning_summary_part.done", part("hm hm")),
            ended(0),
            begun(1, in_progress(json!({ "content": [] }))),
            said("response.content_part.added", text_part("")),
            said("response.output_text.delta", json!({ "delta": "Là", "logprobs": [] })),
            said("response.output_text.done", json!({ "text": "Là", "logprobs": [] })),
            said("response.content_part.done", text_part("Là")),
            ended(1),
            begun(2, in_progress(json!({ "arguments": "" }))),
            delta(2, "{\"command"),
            delta(2, "\":\"ls\"}"),
            all(2, "{\"command\":\"ls\"}"),
            ended(2),
            begun(3, in_progress(json!({ "arguments": "" }))),
            delta(3, "{\"command"),
            delta(3, "\":\"w\"}"),
            all(3, "{\"command\":\"w\"}"),
            ended(3),
            ("response.completed", with(completed, json!({ "sequence_number": 24 }))),
        ],
    );
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
