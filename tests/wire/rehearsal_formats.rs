//! The rehearsal model in its three wire formats, through a real socket: what they have in common and what not.

use std::time::Duration;

use hermod::rehearsal::{Script, next_answer, wire::FORMATS};
use serde_json::{Value, json};

use crate::played::{ANTHROPIC, CHAT, PATHS, RESPONSES, post, request, send, send_with, start, with};

#[tokio::test]
async fn what_is_thought_is_told_to_whoever_asks() {
    let running = start(json!([{ "think": "hm", "say": "x" }])).await;
    let check = async |path: &str, fields: Value, field: &str, expected: Value| {
        let whole = json!({ "stream": false });
        let body = with(with(request(path, "go"), whole), fields);
        let answer = post(&running, path, &body).await.json();
        assert_eq!(answer.pointer(field).unwrap_or(&Value::Null), &expected, "{body} {answer}");
    };
    let enabled = |display: &str| json!({ "thinking": { "type": "enabled", "budget_tokens": 1024, "display": display } });
    check(CHAT, json!({}), "/choices/0/message/reasoning_content", json!("hm")).await;
    check(ANTHROPIC, json!({}), "/content/0/type", json!("text")).await;
    check(ANTHROPIC, json!({ "thinking": { "type": "disabled" } }), "/content/0/type", json!("text")).await;
    check(ANTHROPIC, json!({ "thinking": { "type": "adaptive" } }), "/content/0/thinking", json!("hm")).await;
    check(ANTHROPIC, enabled("summarized"), "/content/0/thinking", json!("hm")).await;
    check(ANTHROPIC, enabled("omitted"), "/content/0/thinking", json!("")).await;
    let summary = [json!({ "type": "summary_text", "text": "hm" })];
    check(RESPONSES, json!({}), "/output/0/type", json!("message")).await;
    check(RESPONSES, json!({ "reasoning": { "effort": "none" } }), "/output/0/type", json!("message")).await;
    check(RESPONSES, json!({ "reasoning": { "effort": "low" } }), "/output/0/summary", json!([])).await;
    check(RESPONSES, json!({ "reasoning": { "effort": "low" } }), "/output/0/encrypted_content", Value::Null)
        .await;
    check(RESPONSES, json!({ "reasoning": { "summary": "auto" } }), "/output/0/summary", json!(summary))
        .await;
}

#[tokio::test]
async fn an_answer_ends_in_the_vendors_words() {
    let check = async |finish: &str, chat: &str, anthropic: &str, responses: (&str, Value)| {
        let running = start(json!([{ "say": "x", "finish": finish }])).await;
        let ask = async |path: &str| {
            post(&running, path, &with(request(path, "go"), json!({ "stream": false }))).await.json()
        };
        assert_eq!(ask(CHAT).await["choices"][0]["finish_reason"], chat);
        assert_eq!(ask(ANTHROPIC).await["stop_reason"], anthropic);
        let response = ask(RESPONSES).await;
        assert_eq!(
            (&response["status"], &response["incomplete_details"]),
            (&json!(responses.0), &responses.1)
        );
        let stream = post(&running, RESPONSES, &request(RESPONSES, "go")).await.named_events();
        assert_eq!(stream.last().unwrap().0, format!("response.{}", responses.0));
    };
    check("stop", "stop", "end_turn", ("completed", Value::Null)).await;
    check("tool_calls", "tool_calls", "tool_use", ("completed", Value::Null)).await;
    check("length", "length", "max_tokens", ("incomplete", json!({ "reason": "max_output_tokens" }))).await;
    check("refused", "content_filter", "refusal", ("incomplete", json!({ "reason": "content_filter" })))
        .await;
}

#[tokio::test]
async fn a_scripted_status_has_the_vendors_shape() {
    let check = async |path: &str, status: u16, expected: Value| {
        let running = start(json!([{ "say": "x", "fault": { "status": status } }])).await;
        let refused = post(&running, path, &request(path, "go")).await;
        assert_eq!((refused.status, refused.json()), (status, expected));
        assert_eq!(post(&running, path, &request(path, "go")).await.status, 200);
    };
    let message = |status: u16| format!("(rehearsal) the script answers {status} here");
    let anthropic = |kind: &str, status: u16| {
        let error = json!({ "type": kind, "message": message(status) });
        json!({ "type": "error", "error": error, "request_id": "req_rehearsal" })
    };
    check(ANTHROPIC, 401, anthropic("authentication_error", 401)).await;
    check(ANTHROPIC, 413, anthropic("request_too_large", 413)).await;
    check(ANTHROPIC, 429, anthropic("rate_limit_error", 429)).await;
    check(ANTHROPIC, 500, anthropic("api_error", 500)).await;
    check(ANTHROPIC, 529, anthropic("overloaded_error", 529)).await;
    let openai = |kind: &str, code: Value, status: u16| json!({ "error": { "message": message(status), "type": kind, "param": null, "code": code } });
    for path in [CHAT, RESPONSES] {
        check(path, 429, openai("rate_limit_error", json!("rate_limit_exceeded"), 429)).await;
        check(path, 503, openai("server_error", Value::Null, 503)).await;
    }
}

#[tokio::test]
async fn a_fault_is_met_once_whatever_the_format() {
    let running = start(json!([{ "say": "x", "fault": { "status": 503, "times": 2 } }])).await;
    let mut met = Vec::new();
    for path in [CHAT, ANTHROPIC, RESPONSES] {
        met.push(post(&running, path, &request(path, "go")).await.status);
    }
    assert_eq!(met, [503, 503, 200]);
}

#[tokio::test]
async fn a_stream_is_cut() {
    for path in PATHS {
        for (cut, whole) in [("reset", false), ("clean", true)] {
            let running = start(json!([{ "say": "x", "fault": { "cut_after": 2, "cut": cut } }])).await;
            let first = post(&running, path, &request(path, "go")).await;
            assert_eq!((first.status, first.events().len(), first.whole), (200, 2, whole), "{path}");
            let second = post(&running, path, &request(path, "go")).await;
            assert!(second.whole && second.body.starts_with(&first.body), "{path}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_stalls() {
    for path in PATHS {
        let running = start(json!([{ "say": "x", "fault": { "stall": "1m", "stall_after": 1 } }])).await;
        let began = tokio::time::Instant::now();
        assert!(post(&running, path, &request(path, "go")).await.whole);
        assert_eq!(began.elapsed().as_secs(), Duration::from_mins(1).as_secs(), "{path}");
    }
}

#[tokio::test]
async fn other_doors() {
    let running = start(json!([{ "say": "x" }])).await;
    let error = |kind: &str, message: &str| {
        let error = json!({ "type": kind, "message": message });
        json!({ "type": "error", "error": error, "request_id": "req_rehearsal" })
    };
    let refused = send(&running, "POST /v1/messages", "{}").await;
    let expected = error("invalid_request_error", "anthropic-version: header is required");
    assert_eq!((refused.status, refused.json()), (400, expected));
    let version = "anthropic-version: 2023-06-01\r\n";
    let missing = send_with(&running, "GET /v1/files", version, "").await;
    let doors = "POST /v1/chat/completions, POST /v1/messages, POST /v1/responses or GET /v1/models";
    let expected = error("not_found_error", &format!("there is no GET /v1/files here: use {doors}"));
    assert_eq!((missing.status, missing.json()), (404, expected));
    let models = send_with(&running, "GET /v1/models", version, "").await.json();
    assert_eq!((&models["data"][0]["type"], &models["last_id"]), (&json!("model"), &json!("rehearsal/t")));
}

/// A history of answers that call tools of these ids, each with its results, the last one with more beside it.
fn history(path: &str, answers: &[&[&str]], beside: &str) -> Value {
    let mut items = vec![json!({ "role": "user", "content": "go" })];
    for ids in answers {
        let arguments = "{}";
        let function = json!({ "name": "shell", "arguments": arguments });
        let ids = ids.iter();
        match path {
            ANTHROPIC => {
                let call = |id| json!({ "type": "tool_use", "id": id, "name": "shell", "input": {} });
                let result =
                    |id| json!({ "type": "tool_result", "tool_use_id": id, "content": format!("r {id}") });
                let calls: Vec<_> = ids.clone().map(call).collect();
                items.push(json!({ "role": "assistant", "content": calls }));
                items.push(json!({ "role": "user", "content": ids.map(result).collect::<Vec<_>>() }));
            }
            RESPONSES => {
                let call = |id| json!({ "type": "function_call", "call_id": id, "name": "shell", "arguments": "{}" });
                let result = |id| json!({ "type": "function_call_output", "call_id": id, "output": format!("r {id}") });
                items.push(json!({ "role": "assistant", "content": "I look." }));
                items.extend(ids.clone().map(call));
                items.extend(ids.map(result));
            }
            _ => {
                let call = |id| json!({ "type": "function", "id": id, "function": function });
                let result = |id| json!({ "role": "tool", "tool_call_id": id, "content": format!("r {id}") });
                let calls: Vec<_> = ids.clone().map(call).collect();
                items.push(json!({ "role": "assistant", "content": null, "tool_calls": calls }));
                items.extend(ids.map(result));
            }
        }
    }
    if path == ANTHROPIC && !beside.is_empty() {
        let content = items.last_mut().unwrap()["content"].as_array_mut().unwrap();
        content.push(json!({ "type": "text", "text": beside }));
    }
    let field = if path == RESPONSES { "input" } else { "messages" };
    with(request(path, ""), json!({ field: items }))
}

#[test]
fn the_step_is_the_same_whatever_the_format() {
    let call = json!({ "call": [{ "tool": "shell" }] });
    let said = json!({ "say": "{{step}} {{result:last}}", "repeat": "forever" });
    let script = json!({ "name": "t", "scripts": [{ "steps": [call, said] }] });
    let script = Script::parse(script.to_string().as_bytes()).unwrap();
    let check = |path: &str, answers: &[&[&str]], beside: &str, expected: &str| {
        let format = FORMATS.iter().find(|format| format.path == path).unwrap();
        let body = history(path, answers, beside).to_string();
        let exchange = (format.read)(body.as_bytes()).unwrap();
        let text = next_answer(&script, &exchange.conversation).answer.message.text;
        assert_eq!(text, format!("[rehearsal] {expected}"), "{body}");
    };
    for path in PATHS {
        check(path, &[&["rh_1_1", "rh_1_2"]], "", "2 r rh_1_2");
        check(path, &[&["rh_7_1"]], "", "8 r rh_7_1");
        check(path, &[&["call_a", "toolu_b"], &["fc_c"]], "", "3 r fc_c");
        check(path, &[&["rh_1_1"], &["toolu_a", "toolu_b"], &["rh_3_1"]], "", "4 r rh_3_1");
        check(path, &[&["rh_1_1"], &["call_a"]], "", "3 r call_a");
    }
    check(ANTHROPIC, &[&["rh_1_1"]], "hurry up", "2 r rh_1_1\n\nhurry up");
}

#[test]
fn half_a_request_is_refused() {
    for format in &FORMATS {
        let body = history(format.path, &[&["rh_1_1", "rh_1_2"]], "").to_string();
        assert!((format.read)(body.as_bytes()).is_ok(), "{body}");
        for cut in 0..body.len() {
            let refusal = (format.read)(&body.as_bytes()[..cut]).unwrap_err();
            assert_eq!(refusal.status, 400, "{}", &body[..cut]);
        }
        assert_eq!((format.read)(b"\xff").unwrap_err().status, 400);
    }
}

/// Asks one after the other, and returns what the cache had: tokens read, tokens written.
async fn cached(path: &str, bodies: &[Value]) -> Vec<(u64, u64)> {
    let running = start(json!([{ "say": "x", "repeat": "forever" }])).await;
    let mut found = Vec::new();
    for body in bodies {
        let answer = post(&running, path, &with(body.clone(), json!({ "stream": false }))).await.json();
        let tokens = |fields: [&str; 3]| {
            let value = fields.iter().find_map(|field| answer["usage"].pointer(field));
            value.and_then(Value::as_u64).unwrap_or(0)
        };
        let read = tokens([
            "/cache_read_input_tokens",
            "/prompt_tokens_details/cached_tokens",
            "/input_tokens_details/cached_tokens",
        ]);
        let written =
            tokens(["/cache_creation_input_tokens", "/none", "/input_tokens_details/cache_write_tokens"]);
        found.push((read, written));
    }
    found
}

#[tokio::test]
async fn marks_say_what_anthropic_messages_caches() {
    let mark = json!({ "type": "ephemeral" });
    let text = |letter: &str, marked: bool| {
        let block = json!({ "type": "text", "text": letter.repeat(398) });
        let block = if marked { with(block, json!({ "cache_control": mark })) } else { block };
        json!([block])
    };
    let user = |letter: &str, marked: bool| json!({ "role": "user", "content": text(letter, marked) });
    let said = json!({ "role": "assistant", "content": "b".repeat(398) });
    let body = |messages: Value| {
        with(
            json!({ "model": "m", "max_tokens": 9 }),
            json!({ "system": text("s", true), "messages": messages }),
        )
    };
    // Each text is 400 bytes with its quotes: 100 tokens.
    let check = async |bodies: &[Value], expected: &[(u64, u64)]| {
        assert_eq!(cached(ANTHROPIC, bodies).await, expected);
    };
    let first = body(json!([user("a", true)]));
    check(&[first.clone(), first.clone()], &[(0, 200), (200, 0)]).await;
    let grown = body(json!([user("a", false), said, user("c", true)]));
    check(&[first.clone(), grown.clone(), grown], &[(0, 200), (200, 200), (400, 0)]).await;
    let other = body(json!([user("x", true)]));
    check(&[first.clone(), other], &[(0, 200), (100, 100)]).await;
    let unmarked = json!({ "model": "m", "max_tokens": 9, "messages": [user("a", false)] });
    check(&[unmarked.clone(), unmarked], &[(0, 0), (0, 0)]).await;
    let model = with(first.clone(), json!({ "model": "n" }));
    check(&[first.clone(), model], &[(0, 200), (0, 200)]).await;
    let plain = with(first.clone(), json!({ "system": "s".repeat(398) }));
    check(&[first, plain], &[(0, 200), (200, 0)]).await;
}

#[tokio::test]
async fn the_other_formats_cache_what_they_have_seen() {
    for (path, field) in [(CHAT, "messages"), (RESPONSES, "input")] {
        let message = |role: &str, bytes: usize| json!({ "role": role, "content": "a".repeat(bytes) });
        let body = |messages: &[Value]| json!({ "model": "m", field: messages });
        let (long, answer, short) = (message("user", 6000), message("assistant", 700), message("user", 40));
        let check = async |bodies: &[Value], expected: &[u64]| {
            let read: Vec<_> = cached(path, bodies).await.into_iter().map(|(read, _)| read).collect();
            assert_eq!(read, expected, "{path}");
        };
        let first = body(std::slice::from_ref(&long));
        let second = body(&[long.clone(), answer, short.clone()]);
        check(&[first.clone(), second.clone(), second], &[0, 1408, 1664]).await;
        let small = body(&[short]);
        check(&[small.clone(), small], &[0, 0]).await;
        check(&[first.clone(), body(&[message("user", 6001)])], &[0, 0]).await;
    }
}
