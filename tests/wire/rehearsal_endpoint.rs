//! The rehearsal model through a real socket. Time is virtual: it passes when everything waits.

use std::time::Duration;

use hermod::rehearsal::RehearsalHandle;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::Instant,
};

use crate::played::{Response, send, start};

fn request(stream: bool) -> Value {
    let tool = json!({ "type": "function", "function": { "name": "shell" } });
    json!({ "model": "m", "messages": [{ "role": "user", "content": "go" }], "tools": [tool], "stream": stream })
}

async fn ask(running: &RehearsalHandle) -> Response {
    send(running, "POST /v1/chat/completions", &request(true).to_string()).await
}

#[tokio::test]
async fn an_answer_streams() {
    let call = json!({ "tool": "shell", "arguments": { "command": "ls" } });
    let running =
        start(json!([{ "think": "hm", "say": "Là-bas", "call": [call], "chunk": 8, "usage": { "input_tokens": 7, "output_tokens": 3 } }])).await;
    let mut body = request(true);
    body["stream_options"] = json!({ "include_usage": true });
    let response = send(&running, "POST /v1/chat/completions", &body.to_string()).await;
    assert_eq!((response.status, response.whole), (200, true));
    assert!(response.head.contains("content-type: text/event-stream"), "{}", response.head);
    assert!(response.head.contains("x-hermod-rehearsal: 1"), "{}", response.head);
    let tool = |function: Value| json!({ "tool_calls": [{ "index": 0, "function": function }] });
    let start = json!({ "name": "shell", "arguments": "" });
    let start =
        json!({ "tool_calls": [{ "index": 0, "id": "rh_1_1", "type": "function", "function": start }] });
    let expected = [
        json!({ "role": "assistant", "content": "" }),
        json!({ "reasoning_content": "hm" }),
        json!({ "content": "Là-bas" }),
        start,
        tool(json!({ "arguments": "{\"comman" })),
        tool(json!({ "arguments": "d\":\"ls\"}" })),
        json!({}),
    ];
    assert_eq!(response.deltas(), expected);
    let events = response.events();
    let [.., finish, usage, done] = events[..] else { panic!("{events:?}") };
    let finish: Value = serde_json::from_str(finish).unwrap();
    assert_eq!(finish["choices"][0]["finish_reason"], "tool_calls");
    assert_eq!(
        (&finish["model"], &finish["object"]),
        (&json!("rehearsal/t"), &json!("chat.completion.chunk"))
    );
    let usage: Value = serde_json::from_str(usage).unwrap();
    let tokens = json!({ "prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10, "prompt_tokens_details": { "cached_tokens": 0 } });
    assert_eq!((&usage["choices"], &usage["usage"]), (&json!([]), &tokens));
    assert_eq!(done, "[DONE]");
}

#[tokio::test]
async fn the_same_request_gets_the_same_bytes() {
    let running = start(json!([{ "say": "x" }])).await;
    let (first, second) = (ask(&running).await, ask(&running).await);
    assert_eq!(first.body, second.body);
    assert_eq!(first.events().len(), 4, "no usage was asked for");
}

#[tokio::test]
async fn an_answer_in_one_piece() {
    let running = start(json!([{ "say": "Hello", "finish": "length" }])).await;
    let response = send(&running, "POST /v1/chat/completions", &request(false).to_string()).await;
    assert!(response.head.contains("content-type: application/json"), "{}", response.head);
    let body = response.json();
    let message = json!({ "role": "assistant", "content": "[rehearsal] Hello" });
    assert_eq!(body["choices"], json!([{ "index": 0, "message": message, "finish_reason": "length" }]));
    assert_eq!((&body["object"], &body["model"]), (&json!("chat.completion"), &json!("rehearsal/t")));
    assert_eq!(body["usage"]["completion_tokens"], 4);
}

#[tokio::test]
async fn other_doors() {
    let running = start(json!([{ "say": "x" }])).await;
    let models = send(&running, "GET /v1/models", "").await;
    assert_eq!((models.status, &models.json()["data"][0]["id"]), (200, &json!("rehearsal/t")));
    for head in ["GET /", "POST /v1/completions", "GET /v1/chat/completions"] {
        let response = send(&running, head, "").await;
        assert_eq!(
            (response.status, &response.json()["error"]["type"]),
            (404, &json!("invalid_request_error"))
        );
        assert!(response.head.contains("x-hermod-rehearsal: 1"), "{}", response.head);
    }
    let refused = send(&running, "POST /v1/chat/completions", r#"{"model":"m","messages":[]}"#).await;
    let message = "messages[0]: a user message is missing";
    let error =
        json!({ "message": message, "type": "invalid_request_error", "param": "messages[0]", "code": null });
    assert_eq!((refused.status, refused.json()), (400, json!({ "error": error })));
}

#[tokio::test]
async fn a_long_history_is_read() {
    let running = start(json!([{ "say": "{{step}}", "repeat": "forever" }])).await;
    let mut messages = vec![json!({ "role": "user", "content": "go" })];
    for step in 1..=2500 {
        let id = format!("rh_{step}_1");
        let call =
            json!({ "id": id, "type": "function", "function": { "name": "shell", "arguments": "{}" } });
        messages.push(json!({ "role": "assistant", "content": null, "tool_calls": [call] }));
        messages.push(json!({ "role": "tool", "tool_call_id": id, "content": "\u{1f98a}\n".repeat(300) }));
    }
    let body = json!({ "model": "m", "messages": messages }).to_string();
    let response = send(&running, "POST /v1/chat/completions", &body).await;
    assert_eq!(response.json()["choices"][0]["message"]["content"], "[rehearsal] 2501");
}

#[tokio::test]
async fn a_scripted_status_strikes_once() {
    let fault = json!({ "status": 429, "headers": { "retry-after": "7" } });
    let running = start(json!([{ "say": "x", "fault": fault }])).await;
    let refused = ask(&running).await;
    assert_eq!((refused.status, &refused.json()["error"]["type"]), (429, &json!("rate_limit_error")));
    assert!(refused.head.contains("retry-after: 7"), "{}", refused.head);
    assert_eq!(ask(&running).await.status, 200);
    let running = start(json!([{ "say": "x", "fault": { "status": 502, "headers": { "content-type": "text/html" }, "body": "<html>" } }])).await;
    let page = ask(&running).await;
    assert_eq!((page.status, page.body.as_str()), (502, "<html>"));
    assert!(page.head.contains("content-type: text/html"), "{}", page.head);
}

#[tokio::test]
async fn a_stream_is_cut() {
    let check = async |fault: Value, events: usize, whole: bool| {
        let running = start(json!([{ "say": "x", "fault": fault }])).await;
        let cut = ask(&running).await;
        assert_eq!((cut.status, cut.events().len(), cut.whole), (200, events, whole), "{fault}");
        let second = ask(&running).await;
        assert_eq!((second.events().len(), second.whole), (4, true));
    };
    check(json!({ "cut_after": 0 }), 0, false).await;
    check(json!({ "cut_after": 2 }), 2, false).await;
    check(json!({ "cut_after": 2, "cut": "clean" }), 2, true).await;
    check(json!({ "cut_after": 99 }), 4, false).await;
}

#[tokio::test(start_paused = true)]
async fn pauses() {
    let check = async |step: Value, seconds: u64| {
        let running = start(json!([step])).await;
        let began = Instant::now();
        let response = ask(&running).await;
        assert_eq!((response.events().len(), response.whole), (4, true), "{step}");
        assert_eq!(began.elapsed().as_secs(), seconds, "{step}");
    };
    check(json!({ "say": "x" }), 0).await;
    check(json!({ "say": "x", "delay": "20s" }), 20).await;
    check(json!({ "say": "x", "chunk_delay": "5s" }), 15).await;
    check(json!({ "say": "x", "fault": { "stall": "1m" } }), 60).await;
    check(json!({ "say": "x", "delay": "1s", "chunk_delay": "1s", "fault": { "stall": "1m", "stall_after": 2 } }), 64)
        .await;
}

#[tokio::test]
async fn stopping_waits_for_no_idle_connection() {
    let running = start(json!([{ "say": "x" }])).await;
    let address = running.base_url.strip_prefix("http://").unwrap().strip_suffix("/v1").unwrap().to_owned();
    let mut silent = TcpStream::connect(&address).await.unwrap();
    let mut used = TcpStream::connect(&address).await.unwrap();
    used.write_all(b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"}") {
        assert_ne!(used.read_buf(&mut bytes).await.unwrap(), 0);
    }
    tokio::time::timeout(Duration::from_mins(1), running.stop()).await.unwrap().unwrap();
    assert_eq!(used.read(&mut [0]).await.unwrap(), 0);
    assert_eq!(silent.read(&mut [0]).await.unwrap(), 0);
}

#[tokio::test]
async fn stopping_breaks_open_streams_and_frees_the_port() {
    let running = start(json!([{ "say": "x", "fault": { "stall": "1h", "stall_after": 1 } }])).await;
    let address = running.base_url.strip_prefix("http://").unwrap().strip_suffix("/v1").unwrap().to_owned();
    let mut socket = TcpStream::connect(&address).await.unwrap();
    let body = request(true).to_string();
    let head =
        format!("POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", body.len());
    socket.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\n\n\r\n") {
        assert_ne!(socket.read_buf(&mut bytes).await.unwrap(), 0);
    }
    tokio::time::timeout(Duration::from_mins(1), running.stop()).await.unwrap().unwrap();
    let _reset = socket.read_to_end(&mut bytes).await;
    let response = Response::parse(&bytes);
    assert_eq!((response.events().len(), response.whole), (1, false));
    TcpStream::connect(&address).await.unwrap_err();
}
