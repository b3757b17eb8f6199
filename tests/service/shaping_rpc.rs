//! Replies over WebSockets: subscriptions of JSON-RPC to a reply, and the events `chat` of OpenClaw's clients.

use serde_json::{Value, json};

use crate::{
    rpc_socket::connect,
    running::{WAITING, until},
    served::Served,
    socket::Socket,
};

/// A run that waits before it says this text, and one that is silent.
fn scripts(text: &str) -> Value {
    let wait = json!([{ "tool": "shell", "arguments": { "command": WAITING } }]);
    json!([
        { "when": "silent", "steps": [{ "say": "NO_REPLY" }] },
        { "when": "fail", "steps": [{ "say": "x", "fault": { "status": 400, "times": "forever" } }] },
        { "steps": [{ "call": wait }, { "say": text, "chunk": 5, "chunk_delay": "20ms" }] },
    ])
}

#[test]
fn a_subscription_to_a_reply_ends_with_the_final_one() {
    let text = "A text that comes in several pieces, one behind the other.";
    let served = Served::start(&scripts(text));
    let mut socket = Socket::rpc(&served, &served.token);
    let run = socket.call("agent", &json!({ "message": "go" }))["result"]["runId"].clone();
    until("the command runs", || served.world.work().join("ran").exists());
    let read = |socket: &mut Socket, params: Value, meanwhile: &dyn Fn()| {
        let answer = socket.call("events.subscribe", &params);
        let name = answer["result"]["subscription"].clone();
        assert!(name.is_string(), "{answer}");
        meanwhile();
        let mut events = Vec::new();
        loop {
            let message = socket.next();
            assert_eq!(message["params"]["subscription"], name);
            match message["method"].as_str() {
                Some("event") => events.push(message["params"].clone()),
                Some("event.end") => return events,
                _ => panic!("{message}"),
            }
        }
    };
    let deltas = json!({ "runId": run, "shape": "deltas", "verbose": "on" });
    let events = read(&mut socket, deltas.clone(), &|| served.world.release());
    let names = |events: &[Value]| {
        events.iter().map(|event| event["event"]["event"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let all = names(&events);
    assert_eq!((all[0].as_str(), all[1].as_str(), all[all.len() - 1].as_str()), ("tool", "delta", "final"));
    let said: String = events
        .iter()
        .filter(|event| event["event"]["event"] == "delta")
        .filter_map(|event| event["event"]["text"].as_str())
        .collect();
    assert_eq!(said, format!("[rehearsal] {text}"));
    // It goes on behind what was seen.
    let mut behind = deltas;
    behind["after"] = events[0]["id"].clone();
    assert_eq!(names(&read(&mut socket, behind, &|| ())), ["delta", "final"]);
    let blocks = read(&mut socket, json!({ "runId": run, "shape": "blocks" }), &|| ());
    assert_eq!(names(&blocks), ["block", "final"]);
    for (params, part) in [
        (json!({ "all": true, "shape": "blocks" }), "runId"),
        (json!({ "runId": run, "verbose": "on" }), "name its shape"),
        (json!({ "runId": run, "shape": "chat", "after": "3" }), "leave it out"),
        (json!({ "runId": run, "shape": "lines" }), "shape"),
    ] {
        let error = socket.call("events.subscribe", &params)["error"]["message"].to_string();
        assert!(error.contains(part), "{error}");
    }
}

/// The next message that is no sign of life.
#[track_caller]
fn next(socket: &mut Socket) -> Value {
    loop {
        let message = socket.next();
        if message["event"] != "tick" {
            return message;
        }
    }
}

#[test]
fn openclaws_clients_get_the_chat_of_a_message_without_asking() {
    let text = "A text that comes in several pieces, one behind the other, for as long as it takes.";
    let served = Served::start(&scripts(text));
    let (mut socket, hello) = connect(&served, &json!({ "token": served.token }), 4);
    assert!(hello["payload"]["features"]["events"].as_array().unwrap().contains(&json!("chat")), "{hello}");
    let mut send = |message: &str, reply: &dyn Fn()| {
        let params = json!({ "sessionKey": message, "message": message, "idempotencyKey": message });
        socket.send(
            &json!({ "type": "req", "id": message, "method": "chat.send", "params": params }).to_string(),
        );
        let sent = next(&mut socket);
        assert_eq!((&sent["id"], &sent["payload"]["status"]), (&json!(message), &json!("started")), "{sent}");
        reply();
        let mut events = Vec::new();
        loop {
            let event = next(&mut socket);
            assert_eq!(event["event"], "chat", "{event}");
            let payload = event["payload"].clone();
            let run = (&payload["runId"], &payload["sessionKey"], &payload["seq"]);
            assert_eq!(run, (&sent["payload"]["runId"], &json!(message), &json!(events.len() + 1)));
            events.push(payload);
            if events.last().unwrap()["state"] != "delta" {
                return events;
            }
        }
    };
    let events = send("go", &|| {
        until("the command runs", || served.world.work().join("ran").exists());
        served.world.release();
    });
    let whole = format!("[rehearsal] {text}");
    let (last, deltas) = events.split_last().unwrap();
    let shown = |event: &Value| event["message"]["content"][0]["text"].as_str().unwrap().to_owned();
    assert_eq!((last["state"].as_str(), shown(last)), (Some("final"), whole.clone()));
    assert!(!deltas.is_empty());
    let mut said = String::new();
    for delta in deltas {
        said += delta["deltaText"].as_str().unwrap();
        assert_eq!(shown(delta), said, "it has the message so far");
    }
    assert!(whole.starts_with(&said));
    let silent = send("silent", &|| ());
    assert_eq!(silent.len(), 1);
    assert_eq!((&silent[0]["state"], &silent[0]["message"]), (&json!("final"), &Value::Null));
    let failed = send("fail", &|| ());
    assert_eq!(failed.last().unwrap()["state"], "error");
    assert!(failed.last().unwrap()["errorMessage"].as_str().unwrap().contains("provider"));
}
