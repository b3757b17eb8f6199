//! JSON-RPC when something is lost on the way: a connection, a token, or the service.

use serde_json::{Value, json};

use crate::{
    running::until,
    served::{Served, scripts},
    socket::Socket,
};

/// Begins a run that waits.
#[track_caller]
fn waiting_run(served: &Served) -> Value {
    let run = served.result("agent", &json!({ "message": "wait", "sessionKey": "s" }))["runId"].clone();
    until("the command runs", || served.world.work().join("ran").exists());
    run
}

/// Subscribes, and returns the name of the subscription.
#[track_caller]
fn subscribe(socket: &mut Socket, params: &Value) -> Value {
    let answer = socket.call("events.subscribe", params);
    assert!(answer.get("result").is_some(), "{answer}");
    answer["result"]["subscription"].clone()
}

/// The events of a subscription until its end.
#[track_caller]
fn read_to_end(socket: &mut Socket, subscription: &Value) -> Vec<Value> {
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
}

#[test]
fn a_repeat_of_a_call_whose_connection_was_lost_steers_once() {
    let served = Served::start(&scripts());
    let run = waiting_run(&served);
    for n in 0..60 {
        let params =
            json!({ "sessionKey": "s", "message": format!("m{n}"), "idempotencyKey": format!("k{n}") });
        let mut lost = Socket::rpc(&served, &served.token);
        lost.start("chat.send", &params);
        drop(lost);
        assert_eq!(served.result("chat.send", &params)["status"], "steered");
    }
    served.world.release();
    assert_eq!(served.waited(&run)["status"], "ok");
    let mut socket = Socket::rpc(&served, &served.token);
    let subscription = subscribe(&mut socket, &json!({ "runId": run, "after": 0 }));
    let events = read_to_end(&mut socket, &subscription);
    let steered = events.iter().filter(|event| event["event"]["kind"] == "message.steered").count();
    assert_eq!(steered, 60);
}

#[test]
fn a_run_that_was_followed_to_its_end_has_no_more_events() {
    let served = Served::start(&scripts());
    let run = served.result("agent", &json!({ "message": "hello" }))["runId"].clone();
    assert_eq!(served.waited(&run)["status"], "ok");
    let mut socket = Socket::rpc(&served, &served.token);
    let first = subscribe(&mut socket, &json!({ "runId": run }));
    let events = read_to_end(&mut socket, &first);
    let last = events.last().unwrap();
    assert_eq!(last["event"]["kind"], "run.ended");
    let again = subscribe(&mut socket, &json!({ "runId": run, "after": last["id"] }));
    assert_eq!(read_to_end(&mut socket, &again), [Value::Null; 0]);
}

#[test]
fn a_subscription_that_the_service_cuts_off_has_no_end() {
    let mut served = Served::start(&scripts());
    let run = waiting_run(&served);
    let mut sockets: Vec<Socket> = (0..8).map(|_| Socket::rpc(&served, &served.token)).collect();
    for socket in &mut sockets {
        subscribe(socket, &json!({ "runId": run }));
    }
    served.stop();
    for socket in &mut sockets {
        let (messages, code) = socket.rest();
        assert!(messages.iter().all(|message| message["method"] != "event.end"), "{messages:?}");
        assert_eq!(code, Some(1001));
    }
}

#[test]
fn a_wait_does_not_outlive_its_token() {
    let served = Served::start(&scripts());
    let run = waiting_run(&served);
    let token = served.new_token("guest", "read");
    let mut guest = Socket::rpc(&served, &token);
    guest.start("agent.wait", &json!({ "runId": run }));
    assert!(guest.call("sessions.list", &json!({})).get("result").is_some());
    served.world.ok(&["tokens", "revoke", "guest"]);
    served.world.release();
    assert_eq!(served.waited(&run)["status"], "ok");
    let (messages, code) = guest.rest();
    assert!(messages.iter().all(|message| message.get("result").is_none()), "{messages:?}");
    assert_eq!(code, Some(1008));
}

#[test]
fn a_client_that_ends_its_connection_is_answered() {
    let served = Served::start(&scripts());
    assert!(Socket::rpc(&served, &served.token).ends_in_order());
    assert!(Socket::open(&served, "/gateway", &[]).unwrap().ends_in_order());
}

#[test]
fn an_error_repeats_little_of_what_is_wrong() {
    let served = Served::start(&scripts());
    let long = "x".repeat(4 << 20);
    let check = |method: &str, params: Value| {
        let answer = served.call(method, &params);
        assert!(answer.get("error").is_some());
        assert!(answer.to_string().len() < 20_000, "{method}: {} bytes", answer.to_string().len());
    };
    check(&long, json!({}));
    check("agent.wait", json!({ "runId": long }));
    check("agent.wait", json!({ "runId": 1, long.as_str(): 1 }));
    check("sessions.list", json!({ "limit": long }));
    check("agent", json!({ "message": "x", "agentId": long }));
}

#[test]
fn a_key_stands_for_one_run_also_within_a_batch() {
    let served = Served::start(&scripts());
    let json = ("content-type", "application/json");
    for (method, key) in [("agent", "a"), ("chat.send", "c")] {
        let params = json!({ "sessionKey": key, "message": "hello", "idempotencyKey": key });
        let calls: Vec<Value> = (0..10)
            .map(|id| json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
            .collect();
        let answers = served.send(("POST", "/rpc"), &[json], &json!(calls).to_string()).json();
        for answer in answers.as_array().unwrap() {
            assert_eq!(answer["result"]["runId"], answers[0]["result"]["runId"], "{method}: {answer}");
        }
    }
    assert_eq!(served.runs(), 2);
    // The longest time that can be written is a limit like any other.
    let longest = served.result("agent", &json!({ "message": "hello", "timeout": u64::MAX }));
    assert_eq!(served.waited(&longest["runId"])["status"], "ok");
}
