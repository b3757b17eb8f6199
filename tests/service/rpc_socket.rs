//! The WebSockets of the service: calls and events, what ends a connection, and hostile clients.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use tungstenite::Message;

use crate::{
    running::until,
    served::{Served, scripts},
    socket::Socket,
};

#[test]
fn calls_of_a_connection_are_answered_as_they_end() {
    let served = Served::start(&scripts());
    let mut socket = Socket::rpc(&served, &served.token);
    let run = socket.call("agent", &json!({ "message": "wait" }))["result"]["runId"].clone();
    until("the command runs", || served.world.work().join("ran").exists());
    let wait = socket.start("agent.wait", &json!({ "runId": run }));
    let listed = socket.call("sessions.list", &json!({}));
    assert_eq!(listed["result"]["count"], 1, "it does not wait for the other call");
    served.world.release();
    let waited = socket.next();
    assert_eq!((&waited["id"], &waited["result"]["status"]), (&json!(wait), &json!("ok")));
    socket.send(r#"[{"jsonrpc":"2.0","id":"x","method":"sessions.list"},1]"#);
    let batch = socket.next();
    assert_eq!((&batch[0]["id"], &batch[1]["error"]["code"]), (&json!("x"), &json!(-32600)));
    socket.send("{");
    assert_eq!(socket.next()["error"]["code"], -32700);
}

#[test]
fn events_follow_a_subscription_and_resume() {
    let served = Served::start(&scripts());
    let mut socket = Socket::rpc(&served, &served.token);
    let run =
        socket.call("agent", &json!({ "message": "hello", "sessionKey": "s" }))["result"]["runId"].clone();
    let subscribed = |socket: &mut Socket, params: Value| {
        let answer = socket.call("events.subscribe", &params);
        answer["result"]["subscription"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    };
    let read = |socket: &mut Socket, subscription: &str| {
        let mut events = Vec::new();
        loop {
            let message = socket.next();
            assert_eq!(message["params"]["subscription"], *subscription, "{message}");
            match message["method"].as_str().unwrap() {
                "event" => events.push(message["params"].clone()),
                "event.end" => return events,
                other => panic!("{other}: {message}"),
            }
        }
    };
    let name = subscribed(&mut socket, json!({ "runId": run }));
    let all = read(&mut socket, &name);
    let ids = |events: &[Value]| {
        events.iter().filter_map(|event| event["id"].as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    let seen = ids(&all);
    assert_eq!(all[0]["event"]["status"], "accepted");
    assert_eq!(all.last().unwrap()["event"]["kind"], "run.ended");
    let half = seen.len() / 2;
    let name = subscribed(&mut socket, json!({ "runId": run, "after": seen[half] }));
    assert_eq!(ids(&read(&mut socket, &name)), seen[half + 1..]);
    let session = subscribed(&mut socket, json!({ "sessionKey": "s", "after": 0 }));
    while socket.next()["params"]["event"]["kind"] != "run.ended" {}
    let ended = socket.call("events.unsubscribe", &json!({ "subscription": session }));
    assert_eq!(ended["result"]["ok"], true);
    let feed = subscribed(&mut socket, json!({ "all": true, "after": "0.0" }));
    let first = socket.next();
    assert_eq!(
        (&first["params"]["subscription"], &first["params"]["event"]["seq"]),
        (&json!(feed), &json!(1))
    );
    let check = |socket: &mut Socket, params: Value, part: &str| {
        let answer = socket.call("events.subscribe", &params);
        assert!(answer["error"]["message"].as_str().unwrap().contains(part), "{answer}");
    };
    check(&mut socket, json!({}), "name one of");
    check(&mut socket, json!({ "runId": run, "all": true }), "name one of");
    check(&mut socket, json!({ "runId": run, "after": "x" }), "after: `x` is not the id");
}

#[test]
fn a_connection_is_opened_only_with_a_token_and_from_a_known_page() {
    let served = Served::start(&scripts());
    let bearer = format!("Bearer {}", served.token);
    let check = |path: &str, headers: &[(&str, &str)], status: u16| {
        assert_eq!(Socket::open(&served, path, headers).err(), Some(status), "{path} {headers:?}");
    };
    check("/rpc", &[], 401);
    check("/rpc", &[("authorization", "Bearer x")], 401);
    check(&format!("/rpc?token={}", served.token), &[], 401);
    check("/rpc", &[("authorization", &bearer), ("origin", "https://evil.example")], 403);
    check("/gateway", &[("origin", "https://evil.example")], 403);
    check("/gateway", &[("host", "evil.example")], 421);
    let own = format!("http://{}", served.address());
    assert!(Socket::open(&served, "/rpc", &[("authorization", &bearer), ("origin", &own)]).is_ok());
    assert_eq!(served.get("/rpc").status, 426);
}

#[test]
fn a_connection_ends_with_its_token_and_with_the_service() {
    let mut served = Served::start(&scripts());
    let token = served.new_token("guest", "read");
    let mut guest = Socket::rpc(&served, &token);
    assert!(guest.call("sessions.list", &json!({})).get("result").is_some());
    let mut other = Socket::rpc(&served, &served.token);
    assert!(other.call("sessions.list", &json!({})).get("result").is_some());
    served.world.ok(&["tokens", "revoke", "guest"]);
    guest.start("sessions.list", &json!({}));
    assert_eq!(guest.closed(), Some(1008));
    let run = other.call("agent", &json!({ "message": "wait" }))["result"]["runId"].clone();
    other.start("agent.wait", &json!({ "runId": run }));
    served.stop();
    assert_eq!(other.closed(), Some(1001));
}

#[test]
fn too_many_calls_under_way_are_refused() {
    let served = Served::start(&scripts());
    let mut socket = Socket::rpc(&served, &served.token);
    let run = socket.call("agent", &json!({ "message": "wait" }))["result"]["runId"].clone();
    let waits: Vec<u64> = (0..50).map(|_| socket.start("agent.wait", &json!({ "runId": run }))).collect();
    let refused = socket.call("sessions.list", &json!({}));
    assert_eq!(
        (&refused["error"]["code"], &refused["error"]["data"]["status"]),
        (&json!(-32000), &json!(429))
    );
    until("the command runs", || served.world.work().join("ran").exists());
    served.world.release();
    let mut answered: Vec<u64> = waits.iter().map(|_| socket.next()["id"].as_u64().unwrap()).collect();
    answered.sort_unstable();
    assert_eq!(answered, waits);
    assert!(socket.call("sessions.list", &json!({})).get("result").is_some());
    let subscribe = json!({ "all": true });
    let refused = (0..17)
        .map(|_| socket.call("events.subscribe", &subscribe))
        .filter(|answer| answer.get("error").is_some());
    assert_eq!(refused.count(), 1);
}

#[test]
fn hostile_clients_are_cut_off_and_others_notice_nothing() {
    let served = Served::start(&scripts());
    let run = served.result("agent", &json!({ "message": "wait" }))["runId"].clone();
    let open = || Socket::rpc(&served, &served.token);
    // A frame that says to be larger than a message may be.
    let mut huge = open();
    huge.write(&[0x81, 0xff, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(huge.closed(), Some(1009));
    // A message of many frames that is too large as a whole.
    let mut long = open();
    let text = vec![b'x'; 65_535];
    let part = [[0x01, 0xfe, 0xff, 0xff, 0, 0, 0, 0].as_slice(), &*text].concat();
    let next = [[0x00, 0xfe, 0xff, 0xff, 0, 0, 0, 0].as_slice(), &*text].concat();
    let sent = std::iter::once(&part).chain(std::iter::repeat_n(&next, 200));
    let taken = sent.take_while(|frame| std::io::Write::write_all(long.stream(), frame).is_ok()).count();
    assert!(taken < 201, "it is cut off");
    // What is no frame.
    let mut wrong = open();
    wrong.write(b"GET / HTTP/1.1\r\n\r\n");
    assert_eq!(wrong.closed(), Some(1002));
    let mut binary = open();
    binary.try_send(Message::binary(vec![0; 16]));
    assert_eq!(binary.closed(), Some(1003));
    let mut invalid = open();
    invalid.write(&[0x81, 0x82, 0, 0, 0, 0, 0xff, 0xff]);
    assert_eq!(invalid.closed(), Some(1007));
    // A flood of control frames.
    let mut flood = open();
    let mut frames = (0..100_000).take_while(|_| flood.try_send(Message::Pong(Vec::new().into())));
    frames.by_ref().for_each(drop);
    drop(frames);
    assert!(flood.ends());
    // Connections with half a frame.
    let mut halves: Vec<Socket> = (0..200).map(|_| open()).collect();
    halves.iter_mut().for_each(|half| half.write(&[0x81, 0xff, 0, 0, 0, 0, 0, 0x70]));
    // Connections that are only opened, with no token.
    let strangers: Vec<_> = (0..40).map(|_| Socket::open(&served, "/gateway", &[])).collect();
    assert!(strangers.iter().any(|stranger| stranger.as_ref().err() == Some(&503)), "handshakes are bounded");
    let mut deep = open();
    deep.send(&"[".repeat(1 << 20));
    assert_eq!(deep.next()["error"]["code"], -32700);
    let begun = Instant::now();
    assert!(open().call("sessions.list", &json!({})).get("result").is_some());
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    until("the command runs", || served.world.work().join("ran").exists());
    served.world.release();
    assert_eq!(served.result("agent.wait", &json!({ "runId": run, "timeoutMs": 60_000 }))["status"], "ok");
}

#[test]
fn a_client_that_does_not_read_is_closed() {
    let served = Served::start(&scripts());
    let message = "x".repeat(7_000);
    for _ in 0..20 {
        let sent = served
            .result("chat.send", &json!({ "sessionKey": "s", "message": message, "queueMode": "followup" }));
        served.result("agent.wait", &json!({ "runId": sent["runId"], "timeoutMs": 60_000 }));
    }
    let mut socket = Socket::rpc(&served, &served.token);
    let call =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "chat.history", "params": { "sessionKey": "s" } })
            .to_string();
    let begun = Instant::now();
    // The answers fill the buffers of the system, and the connection takes no more calls.
    while socket.try_send(Message::text(call.as_str())) {
        assert!(begun.elapsed() < Duration::from_mins(2), "it is not closed");
    }
    assert!(begun.elapsed() > Duration::from_secs(20), "a slow client is waited for");
    assert!(served.call("sessions.list", &json!({})).get("result").is_some());
}

/// KiB of memory that the service has had at most.
fn peak_memory(served: &Served) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", served.pid())).expect("its figures");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[test]
fn answers_that_are_not_read_cost_a_bounded_amount_of_memory() {
    const CALLS: usize = 50;
    let served = Served::start(&scripts());
    let text = "x".repeat(100_000);
    let messages: Vec<Value> = (0..41)
        .map(|n| json!({ "role": if n % 2 == 0 { "user" } else { "assistant" }, "content": text }))
        .collect();
    served.post("/v1/chat/completions", &json!({ "model": "default", "messages": messages })).text();
    let key = served.result("sessions.list", &json!({}))["sessions"][0]["key"].clone();
    let params = json!({ "sessionKey": key, "maxChars": 200_000 });
    let once = served.result("chat.history", &params);
    let size = once.to_string().len();
    assert!(size > 1 << 20, "{size}");
    let before = peak_memory(&served);
    let mut socket = Socket::rpc(&served, &served.token);
    let mut calls: Vec<u64> = (0..CALLS).map(|_| socket.start("chat.history", &params)).collect();
    // Others are answered meanwhile.
    for _ in 0..3 {
        assert_eq!(served.result("chat.history", &params), once);
    }
    // All are answered once they are read, in any order.
    while !calls.is_empty() {
        let answer = socket.next();
        assert!(answer["result"] == once, "{}", answer["error"]);
        calls.retain(|id| answer["id"] != *id);
    }
    let more = (peak_memory(&served) - before) << 10;
    assert!(more < size as u64 * 25, "{more} bytes for {CALLS} answers of {size}");
    // A batch has no more large answers than fit.
    let call = |id: usize| json!({ "jsonrpc": "2.0", "id": id, "method": "chat.history", "params": params });
    let batch = served.post("/rpc", &(0..CALLS).map(call).collect()).json();
    let refused = batch.as_array().unwrap().iter().filter(|answer| answer["error"]["code"] == -32000).count();
    assert!((CALLS - 4..CALLS).contains(&refused), "{refused}");
}

#[test]
fn a_client_that_answers_no_ping_is_closed() {
    let served = Served::start(&scripts());
    let mut half = Socket::rpc(&served, &served.token);
    // Nothing can be answered within a frame.
    half.write(&[0x81, 0xff, 0, 0, 0, 0, 0, 0x70]);
    let mut silent = Socket::open(&served, "/gateway", &[]).expect("an upgrade");
    let begun = Instant::now();
    assert_eq!(silent.closed(), Some(1008), "no handshake");
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    assert!(half.ends());
    assert!(begun.elapsed() > Duration::from_secs(30), "a slow client is waited for: {:?}", begun.elapsed());
}

/// Connects as OpenClaw's clients do.
#[track_caller]
pub(crate) fn connect(served: &Served, auth: &Value, max_protocol: u64) -> (Socket, Value) {
    let mut socket = Socket::open(served, "/gateway", &[]).expect("an upgrade");
    let challenge = socket.next();
    assert_eq!((&challenge["type"], &challenge["event"]), (&json!("event"), &json!("connect.challenge")));
    let client = json!({ "id": "cli", "version": "1", "platform": "linux", "mode": "cli" });
    let params = json!({
        "minProtocol": max_protocol, "maxProtocol": max_protocol, "client": client, "role": "operator",
        "scopes": ["operator.admin"], "caps": [], "auth": auth, "device": { "id": "d" },
    });
    socket.send(&json!({ "type": "req", "id": "c", "method": "connect", "params": params }).to_string());
    let answer = socket.next();
    assert_eq!((&answer["type"], &answer["id"]), (&json!("res"), &json!("c")));
    (socket, answer)
}

#[test]
fn openclaws_frames_reach_the_same_methods() {
    let served = Served::start(&scripts());
    let token = served.new_token("claw", "read,submit");
    let (mut socket, hello) = connect(&served, &json!({ "token": token }), 4);
    let hello = &hello["payload"];
    assert_eq!((&hello["type"], &hello["protocol"]), (&json!("hello-ok"), &json!(4)));
    assert_eq!(hello["auth"]["scopes"], json!(["operator.read", "operator.write"]));
    assert!(hello["auth"].get("deviceToken").is_none());
    let mut request = |id: &str, method: &str, params: Value| {
        let frame = json!({ "type": "req", "id": id, "method": method, "params": params });
        socket.send(&frame.to_string());
        loop {
            // The end of a run is answered with the id of its call, at any time.
            let frame = socket.next();
            if frame["type"] == "res" && frame["id"] == id {
                return frame;
            }
        }
    };
    let accepted = request("1", "agent", json!({ "message": "hello", "idempotencyKey": "k" }));
    assert_eq!((&accepted["ok"], &accepted["payload"]["status"]), (&json!(true), &json!("accepted")));
    let refused = request("none", "health", json!({}));
    assert_eq!((&refused["ok"], &refused["error"]["code"]), (&json!(false), &json!("INVALID_REQUEST")));
    let forbidden = request("2", "chat.abort", json!({ "sessionKey": "s" }));
    assert_eq!(forbidden["error"]["code"], "FORBIDDEN");
}

#[test]
fn a_run_of_openclaws_client_is_answered_twice() {
    let served = Served::start(&scripts());
    let (mut socket, _) = connect(&served, &json!({ "password": served.token }), 4);
    let mut answers = |message: &str| {
        let params = json!({ "message": message, "idempotencyKey": message });
        socket
            .send(&json!({ "type": "req", "id": message, "method": "agent", "params": params }).to_string());
        let mut next = || {
            loop {
                let frame = socket.next();
                if frame["type"] == "res" {
                    assert_eq!(frame["id"], message);
                    return frame;
                }
            }
        };
        (next(), next())
    };
    let (accepted, ended) = answers("hello");
    assert_eq!(accepted["payload"]["status"], "accepted");
    assert_eq!(
        (&ended["payload"]["status"], &ended["payload"]["runId"]),
        (&json!("ok"), &accepted["payload"]["runId"])
    );
    assert_eq!(ended["payload"]["result"]["payloads"][0]["text"], "[rehearsal] You said: hello");
    let (_, failed) = answers("refuse");
    assert_eq!((&failed["ok"], &failed["error"]["code"]), (&json!(false), &json!("UNAVAILABLE")), "{failed}");
}

#[test]
fn a_handshake_is_refused_with_the_reason() {
    let served = Served::start(&scripts());
    let check = |auth: Value, max_protocol: u64, detail: &str| {
        let (mut socket, answer) = connect(&served, &auth, max_protocol);
        assert_eq!(
            (&answer["ok"], &answer["error"]["details"]["code"]),
            (&json!(false), &json!(detail)),
            "{answer}"
        );
        assert_eq!(socket.closed(), Some(1008));
    };
    check(json!({}), 4, "AUTH_TOKEN_MISSING");
    check(json!({ "token": "x" }), 4, "AUTH_TOKEN_MISMATCH");
    check(json!({ "token": served.token }), 3, "PROTOCOL_MISMATCH");
    let mut socket = Socket::open(&served, "/gateway", &[]).expect("an upgrade");
    socket.next();
    socket.send(
        &json!({ "type": "req", "id": "1", "method": "agent", "params": { "message": "x" } }).to_string(),
    );
    assert_eq!(socket.next()["ok"], false, "before connect, nothing is called");
    assert_eq!(socket.closed(), Some(1008));
    assert_eq!(served.runs(), 0);
}
