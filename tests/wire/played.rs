//! The rehearsal model behind a real socket, and what came out of it.

use std::sync::Arc;

use hermod::rehearsal::{Rehearsal, RehearsalHandle, Script};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

pub(crate) const CHAT: &str = "/v1/chat/completions";
pub(crate) const ANTHROPIC: &str = "/v1/messages";
pub(crate) const RESPONSES: &str = "/v1/responses";
pub(crate) const PATHS: [&str; 3] = [CHAT, ANTHROPIC, RESPONSES];

#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// In lower case, one a line.
    pub(crate) head: String,
    pub(crate) body: String,
    /// Whether the body ended as HTTP says.
    pub(crate) whole: bool,
}

impl Response {
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let text = std::str::from_utf8(bytes).unwrap();
        let (head, rest) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let head = head.to_lowercase();
        let (body, whole) =
            if head.contains("transfer-encoding: chunked") { dechunk(rest) } else { (rest.to_owned(), true) };
        Self { status, head, body, whole }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// What stands behind `data: ` in each event.
    pub(crate) fn events(&self) -> Vec<&str> {
        let events = self.body.split_terminator("\n\n");
        events.map(|event| event.split_once("data: ").unwrap().1).collect()
    }

    /// The names of the events, and their data; each is named as its type.
    pub(crate) fn named_events(&self) -> Vec<(String, Value)> {
        let events = self.body.split_terminator("\n\n");
        let named = events.map(|event| {
            let (name, data) = event.strip_prefix("event: ").unwrap().split_once("\ndata: ").unwrap();
            let data: Value = serde_json::from_str(data).unwrap();
            assert_eq!(data["type"], name);
            (name.to_owned(), data)
        });
        named.collect()
    }

    /// The deltas of `chat_completions`, as JSON.
    pub(crate) fn deltas(&self) -> Vec<Value> {
        let chunks = self.events().into_iter().filter_map(|event| serde_json::from_str::<Value>(event).ok());
        chunks.filter_map(|chunk| chunk["choices"].get(0).map(|choice| choice["delta"].clone())).collect()
    }
}

fn dechunk(mut rest: &str) -> (String, bool) {
    let mut body = String::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            return (body, true);
        }
        body.push_str(&after[..size]);
        rest = &after[size + 2..];
    }
    (body, false)
}

pub(crate) async fn start(steps: Value) -> RehearsalHandle {
    let script = json!({ "name": "t", "scripts": [{ "steps": steps }] });
    let script = Script::parse(script.to_string().as_bytes()).unwrap();
    Rehearsal::start("127.0.0.1:0", Arc::new(script)).await.unwrap()
}

pub(crate) async fn send(running: &RehearsalHandle, head: &str, body: &str) -> Response {
    send_with(running, head, "", body).await
}

/// `headers`: lines, each with its end.
pub(crate) async fn send_with(running: &RehearsalHandle, head: &str, headers: &str, body: &str) -> Response {
    let address = running.base_url.strip_prefix("http://").unwrap().strip_suffix("/v1").unwrap();
    let mut socket = TcpStream::connect(address).await.unwrap();
    let length = body.len();
    let request = format!(
        "{head} HTTP/1.1\r\nhost: x\r\n{headers}connection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    // A reset after the last byte is one of the ways in which a cut connection ends.
    let _reset = socket.read_to_end(&mut bytes).await;
    Response::parse(&bytes)
}

pub(crate) async fn post(running: &RehearsalHandle, path: &str, body: &Value) -> Response {
    let headers = if path == ANTHROPIC { "anthropic-version: 2023-06-01\r\n" } else { "" };
    send_with(running, &format!("POST {path}"), headers, &body.to_string()).await
}

/// A request that offers `shell` and streams.
pub(crate) fn request(path: &str, text: &str) -> Value {
    let schema = json!({ "type": "object" });
    let messages = json!([{ "role": "user", "content": text }]);
    match path {
        ANTHROPIC => json!({
            "model": "m", "max_tokens": 2048, "stream": true, "messages": messages,
            "tools": [{ "name": "shell", "input_schema": schema }],
        }),
        RESPONSES => json!({
            "model": "m", "stream": true, "store": false, "input": messages,
            "tools": [{ "type": "function", "name": "shell", "parameters": schema }],
        }),
        _ => json!({
            "model": "m", "stream": true, "messages": messages,
            "tools": [{ "type": "function", "function": { "name": "shell", "parameters": schema } }],
        }),
    }
}

pub(crate) fn with(mut body: Value, fields: Value) -> Value {
    for (name, value) in fields.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}
