//! `hermod wire`: what the binary prints of responses, and the requests that it makes of conversations.

use std::{fs, process::Stdio, thread};

use crate::recordings::{Case, cases};
use crate::world::{World, object, stderr};
use hermod::provider::WIRES;
use serde_json::{Value, json};

/// A GIF of one pixel.
const PIXEL: &str = "R0lGODlhAQABAAAAACwAAAAAAQABAAACAkQBADs=";

/// Recordings in which something is decided otherwise than in the SDKs.
fn decided_otherwise() -> Vec<String> {
    let all: Vec<Value> = serde_json::from_str(include_str!("wire_differences.json")).unwrap();
    all.iter().map(|difference| difference["case"].as_str().unwrap().to_owned()).collect()
}

#[test]
#[cfg_attr(no_recordings, ignore = "the recordings are not here: see README.md, Two commands")]
fn decode_speaks_the_words_of_the_recordings() {
    let otherwise = decided_otherwise();
    let cases: Vec<Case> = cases().into_iter().filter(|case| !otherwise.contains(&case.name)).collect();
    let world = World::new();
    let of_part = |part: &[Case]| part.iter().filter_map(|case| check(&world, case)).collect::<Vec<_>>();
    let wrong: Vec<String> = thread::scope(|scope| {
        let parts = cases.chunks(cases.len().max(4) / 4).map(|part| scope.spawn(|| of_part(part)));
        parts.collect::<Vec<_>>().into_iter().flat_map(|part| part.join().unwrap()).collect()
    });
    assert!(wrong.is_empty(), "{} recordings:\n{}", wrong.len(), wrong.join("\n"));
}

/// What is printed of a recording and is not what it says.
fn check(world: &World, case: &Case) -> Option<String> {
    let file = |name: &str| case.folder.join(name).to_str().unwrap().to_owned();
    let (body, headers, status) =
        (file("response.body"), file("response.headers.json"), case.status.to_string());
    let printed = world.ok(&[
        "wire",
        "decode",
        "--format",
        case.format.name,
        "--status",
        &status,
        "--headers",
        &headers,
        &body,
    ]);
    let printed: Value = serde_json::from_str(&printed).unwrap();
    let fields: Vec<&String> = printed.as_object().unwrap().keys().collect();
    assert_eq!(fields, ["outcome", "text", "reasoning", "tool_calls", "stop_reason", "usage", "failure"]);
    let found = [&printed["outcome"], &printed["stop_reason"], &printed["usage"]["input_tokens"]];
    let expected = words(&case.sdk);
    (found != expected.each_ref()).then(|| format!("{}: {expected:?}, not {printed}", case.name))
}

/// Outcome, stop reason and input tokens.
fn words(sdk: &Value) -> [Value; 3] {
    let outcome = if sdk["truncated"] == true { json!("truncated_stream") } else { sdk["outcome"].clone() };
    let said =
        |place: &str| sdk.pointer(place).filter(|word| word.as_str().is_some_and(|word| !word.is_empty()));
    if outcome != "message" {
        let stop = if outcome == "failed" { json!("failed") } else { json!(said("/finish_reason")) };
        return [outcome, stop, Value::Null];
    }
    let stop = ["/stop_reason", "/finish_reason", "/incomplete_details/reason", "/status"];
    let usage = &sdk["usage_normalised"];
    let input =
        if usage.is_null() { Value::Null } else { json!(usage["input_tokens"].as_u64().unwrap_or(0)) };
    [outcome, json!(stop.iter().find_map(|place| said(place))), input]
}

fn chunk(delta: &Value, finish: &Value) -> String {
    format!("data: {}\n\n", json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }] }))
}

const DECODE: [&str; 4] = ["wire", "decode", "--format", "chat_completions"];

#[test]
fn what_was_shown_is_printed_though_the_answer_is_none() {
    let world = World::new();
    fs::write(world.work().join("body"), chunk(&json!({ "content": "half" }), &Value::Null)).unwrap();
    let printed = object(&world.ok(&[&DECODE[..], &["body"]].concat()));
    assert_eq!((&printed["outcome"], &printed["text"]), (&json!("truncated_stream"), &json!("half")));
    assert_eq!(
        (&printed["failure"]["class"], &printed["failure"]["retry_after"]),
        (&json!("cut"), &Value::Null)
    );
}

#[test]
fn waits_are_printed_in_seconds() {
    let world = World::new();
    fs::write(world.work().join("body"), r#"{"error":{"message":"slow down"}}"#).unwrap();
    fs::write(world.work().join("headers"), r#"{"Retry-After-Ms":"1500","x-ratelimit-reset":"1754667660"}"#)
        .unwrap();
    let printed =
        object(&world.ok(&[&DECODE[..], &["--status", "429", "--headers", "headers", "body"]].concat()));
    assert_eq!(printed["outcome"], "http_error");
    let failure = json!({
        "class": "rate_limited", "retry_after": 1.5, "reset_at": "2025-08-08T15:41:00.000Z",
        "message": "HTTP 429: slow down",
    });
    assert_eq!(printed["failure"], failure);
}

#[test]
fn the_body_may_come_from_standard_input_and_is_believed() {
    let world = World::new();
    fs::write(world.work().join("headers"), r#"{"content-type":"application/json"}"#).unwrap();
    let mut child = world
        .hermod(&[&DECODE[..], &["--headers", "headers", "-"]].concat())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let body = chunk(&json!({ "content": "said" }), &json!("stop"));
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), body.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let printed = object(&String::from_utf8(output.stdout.clone()).unwrap());
    assert_eq!((&printed["text"], &printed["stop_reason"]), (&json!("said"), &json!("stop")));
    assert!(stderr(&output).contains("the body is an event stream"), "{}", stderr(&output));
}

#[test]
fn what_cannot_be_read_is_told() {
    let world = World::new();
    fs::write(world.work().join("headers"), r#"{"retry-after": 3}"#).unwrap();
    fs::write(world.work().join("list"), "[]").unwrap();
    let fails = |more: &[&str], part: &str| world.fails(&[&DECODE[..], more].concat(), 2, part);
    fails(&["absent"], "absent: No such file");
    fails(&["--status", "7"], "--status");
    fails(&["--headers", "absent"], "absent: No such file");
    fails(&["--headers", "headers"], "headers: \"retry-after\": 3");
    fails(&["--headers", "list"], "list: ");
    fails(&["--provider", "p"], "--model");
    world.fails(&["wire", "decode", "--format", "morse"], 2, "chat_completions");
    world.fails(&["wire", "encode", "--format", "chat_completions", "absent"], 2, "absent: No such file");
    world.fails(&["wire", "encode", "--format", "chat_completions", "list"], 2, "list: ");
}

/// A conversation of `steps` steps, in which each result has a picture.
fn conversation(steps: usize) -> Value {
    let picture =
        json!({ "type": "image_url", "image_url": { "url": format!("data:image/gif;base64,{PIXEL}") } });
    let mut messages =
        vec![json!({ "role": "user", "content": [{ "type": "text", "text": "Look." }, picture] })];
    for n in 0..steps {
        let call = json!({ "id": format!("call_{n}"), "type": "function", "function": { "name": "look.at", "arguments": "{}" } });
        let text = json!({ "type": "text", "text": format!("result {n}") });
        messages.push(json!({ "role": "assistant", "content": null, "tool_calls": [call] }));
        messages
            .push(json!({ "role": "tool", "tool_call_id": format!("call_{n}"), "content": [text, picture] }));
    }
    let tool = json!({ "type": "function", "function": { "name": "look.at", "description": "Looks." } });
    json!({ "model": "m", "max_tokens": 9, "system": "Be kind.", "tools": [tool], "messages": messages })
}

#[test]
fn encode_prints_the_request() {
    let world = World::new();
    for wire in WIRES {
        fs::write(world.work().join("c.json"), conversation(2).to_string()).unwrap();
        let encode = |file: &Value, more: &[&str]| {
            fs::write(world.work().join("c.json"), file.to_string()).unwrap();
            let args = ["wire", "encode", "--format", wire.name, "--cache", "off", "c.json"];
            world.ok(&[&args[..], more].concat())
        };
        for cache in ["off", "5m", "1h"] {
            world.ok(&["wire", "encode", "--format", wire.name, "--cache", cache, "c.json"]);
        }
        let request = encode(&conversation(2), &["--model", "other"]);
        let json: Value = serde_json::from_str(&request).unwrap();
        assert_eq!(json["model"], "other", "{request}");
        assert_eq!(request.matches(PIXEL).count(), 3, "{request}");
        assert!(!request.contains("look.at"), "{}: {request}", wire.name);
        let mut unseeing = conversation(2);
        unseeing["images"] = json!(false);
        assert!(!encode(&unseeing, &[]).contains(PIXEL), "{}", wire.name);
        // What is written once stays written: a longer conversation begins as the shorter one.
        let (short, long) = (encode(&conversation(2), &[]), encode(&conversation(3), &[]));
        let alike = short.bytes().zip(long.bytes()).take_while(|(a, b)| a == b).count();
        assert!(
            short[alike..].len() < 200 && short[..alike].contains("result 1"),
            "{}: {alike} of {short}",
            wire.name
        );
    }
}
