//! JSON-RPC over HTTP: the methods, their errors, and what is refused.

use serde_json::{Value, json};

use crate::{
    running::until,
    served::{Served, scripts},
};

const JSON: (&str, &str) = ("content-type", "application/json");

impl Served {
    /// Calls a method over HTTP, and returns its answer.
    #[track_caller]
    pub(crate) fn call(&self, method: &str, params: &Value) -> Value {
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let answer = self.post("/rpc", &call);
        assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")));
        answer.json()
    }

    /// Calls a method that succeeds.
    #[track_caller]
    pub(crate) fn result(&self, method: &str, params: &Value) -> Value {
        let mut answer = self.call(method, params);
        assert_eq!((&answer["jsonrpc"], &answer["id"]), (&json!("2.0"), &json!(1)), "{answer}");
        assert!(answer.get("result").is_some(), "{answer}");
        answer["result"].take()
    }

    /// Calls a method that is refused.
    #[track_caller]
    pub(crate) fn error(&self, method: &str, params: &Value, (code, status): (i32, u16), part: &str) {
        check_error(&self.call(method, params), (code, status), part);
    }

    /// Waits for the outcome of a run.
    #[track_caller]
    pub(crate) fn waited(&self, run: &Value) -> Value {
        self.result("agent.wait", &json!({ "runId": run, "timeoutMs": 60_000 }))
    }
}

#[track_caller]
fn check_error(answer: &Value, (code, status): (i32, u16), part: &str) {
    let error = &answer["error"];
    assert_eq!((&error["code"], &error["data"]["status"]), (&json!(code), &json!(status)), "{answer}");
    assert_eq!(error["data"]["problem"]["detail"], error["message"]);
    assert!(error["message"].as_str().unwrap().contains(part), "{answer}");
}

/// Waits until the command of the script `wait` runs.
#[track_caller]
fn until_it_waits(served: &Served) {
    until("the command runs", || served.world.work().join("ran").exists());
}

#[test]
fn an_agent_begins_a_run_and_its_end_is_waited_for() {
    let served = Served::start(&scripts());
    let accepted = served.result("agent", &json!({ "message": "hello", "sessionKey": "s", "timeout": 60 }));
    assert_eq!((&accepted["status"], &accepted["sessionKey"]), (&json!("accepted"), &json!("s")));
    let waited = served.waited(&accepted["runId"]);
    assert_eq!(
        (&waited["status"], &waited["runId"], &waited["answer"]),
        (&json!("ok"), &accepted["runId"], &json!("[rehearsal] You said: hello"))
    );
    let at = |field: &Value| field.as_u64().unwrap();
    assert!(at(&accepted["acceptedAt"]) <= at(&waited["startedAt"]));
    assert!(at(&waited["startedAt"]) <= at(&waited["endedAt"]));
    let refused = served.result("agent", &json!({ "message": "refuse" }));
    assert!(!refused["sessionKey"].as_str().unwrap().is_empty());
    let waited = served.waited(&refused["runId"]);
    assert_eq!((&waited["status"], &waited["outcome"]), (&json!("error"), &json!("refused")), "{waited}");
    assert!(waited["error"].as_str().unwrap().contains("refused"), "{waited}");
    let shown = served.get(&format!("/v1/runs/{}", accepted["runId"].as_str().unwrap())).json();
    assert_eq!(shown["spec"]["limits"]["timeout_ms"], 60_000);
}

#[test]
fn a_wait_that_is_over_ends_only_itself() {
    let served = Served::start(&scripts());
    let run = served.result("agent", &json!({ "message": "wait" }))["runId"].clone();
    until_it_waits(&served);
    let waited = served.result("agent.wait", &json!({ "runId": run, "timeoutMs": 0 }));
    assert_eq!((&waited["status"], &waited["state"]), (&json!("timeout"), &json!("running")), "{waited}");
    assert!(waited.get("endedAt").is_none() && waited.get("outcome").is_none(), "{waited}");
    served.world.release();
    assert_eq!(served.waited(&run)["status"], "ok");
}

#[test]
fn a_key_stands_for_one_call_of_one_token() {
    let mut served = Served::start(&scripts());
    let call = json!({ "message": "hello", "idempotencyKey": "k", "sessionKey": "s" });
    let first = served.result("agent", &call);
    served.kill();
    served.start_again();
    assert_eq!(served.result("agent", &call), first, "also after a crash");
    let other = json!({ "message": "hello", "idempotencyKey": "k", "sessionKey": "s", "thinking": "low" });
    served.error("agent", &other, (-32602, 422), "other settings");
    let (own, token) = (served.new_token("other", "submit,read"), served.token.clone());
    served.token = own;
    let foreign = served.result("agent", &json!({ "message": "hello", "idempotencyKey": "k" }));
    assert_ne!(foreign["runId"], first["runId"]);
    served.token = token;
    assert_eq!(served.runs(), 2);
    served.error("agent", &json!({ "message": "x", "idempotencyKey": " " }), (-32602, 422), "idempotencyKey");
}

#[test]
fn a_chat_steers_the_run_that_is_under_way() {
    let mut served = Served::start(&scripts());
    let sent = |served: &Served, more: Value| {
        let mut call = json!({ "sessionKey": "s", "message": "hurry" });
        call.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        served.result("chat.send", &call)
    };
    let first =
        served.result("chat.send", &json!({ "sessionKey": "s", "message": "wait", "idempotencyKey": "1" }));
    assert_eq!(first["status"], "started");
    until_it_waits(&served);
    let steered = sent(&served, json!({ "idempotencyKey": "2" }));
    assert_eq!((&steered["status"], &steered["runId"]), (&json!("steered"), &first["runId"]));
    assert_eq!(sent(&served, json!({ "idempotencyKey": "2" })), steered, "a repeat");
    served.kill();
    served.start_again();
    assert_eq!(sent(&served, json!({ "idempotencyKey": "2" })), steered, "a repeat after a crash");
    let again = json!({ "sessionKey": "s", "message": "wait", "idempotencyKey": "1" });
    assert_eq!(served.result("chat.send", &again), first, "a repeat of the call that began the run");
    let other = json!({ "sessionKey": "s", "message": "other", "idempotencyKey": "2" });
    served.error("chat.send", &other, (-32602, 422), "which another request sent");
    let followup = sent(&served, json!({ "queueMode": "followup" }));
    assert_eq!(followup["status"], "started");
    assert_ne!(followup["runId"], first["runId"]);
    let listed = served.result("sessions.list", &json!({}));
    assert_eq!(listed["sessions"][0]["activeRunIds"], json!([first["runId"], followup["runId"]]));
    let submitter = served.new_token("submitter", "submit");
    let token = std::mem::replace(&mut served.token, submitter);
    let queued = sent(&served, json!({}));
    assert_eq!(queued["status"], "started", "a token that may not steer begins a run");
    let steering = json!({ "sessionKey": "s", "message": "x", "queueMode": "steer" });
    served.error("chat.send", &steering, (-32003, 403), "no scope `steer`");
    served.token = token;
    served.world.release();
    assert_eq!(served.waited(&queued["runId"])["status"], "ok");
    let history = served.result("chat.history", &json!({ "sessionKey": "s" }));
    let shown = history.to_string();
    assert_eq!(
        shown.matches("hurry").count(),
        1 + 2 * 2,
        "steered once, and two runs with their answers: {shown}"
    );
    assert_eq!(served.world.times_run(), 1);
}

#[test]
fn a_chat_is_aborted_and_read() {
    let served = Served::start(&scripts());
    for text in ["one", "two"] {
        let sent = served.result("chat.send", &json!({ "sessionKey": "s", "message": text }));
        assert_eq!(served.waited(&sent["runId"])["status"], "ok");
    }
    let run = served.result("chat.send", &json!({ "sessionKey": "s", "message": "wait" }))["runId"].clone();
    until_it_waits(&served);
    let history = served.result("chat.history", &json!({ "sessionKey": "s" }));
    assert_eq!(history["inFlightRun"]["runId"], run);
    let roles = |history: &Value| {
        let messages = history["messages"].as_array().unwrap().iter();
        messages.map(|message| message["role"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(roles(&history)[..5], ["user", "assistant", "user", "assistant", "user"]);
    assert_eq!(history["messages"][0]["content"], json!([{ "type": "text", "text": "one" }]));
    let last = served.result("chat.history", &json!({ "sessionKey": "s", "limit": 1, "maxChars": 3 }));
    assert_eq!((last["messages"].as_array().unwrap().len(), &last["hasMore"]), (1, &json!(true)));
    let other = served.result("agent", &json!({ "message": "one", "sessionKey": "t" }));
    let foreign = json!({ "sessionKey": "t", "runId": run });
    served.error("chat.abort", &foreign, (-32602, 422), "a run of another session");
    let aborted = served.result("chat.abort", &json!({ "sessionKey": "s", "runId": run }));
    assert_eq!(aborted, json!({ "ok": true, "aborted": true, "runIds": [run] }));
    let waited = served.waited(&run);
    assert_eq!((&waited["status"], &waited["outcome"]), (&json!("error"), &json!("stopped")));
    let aborted = served.result("chat.abort", &json!({ "sessionKey": "s" }));
    assert_eq!(aborted, json!({ "ok": true, "aborted": false, "runIds": [] }));
    served.waited(&other["runId"]);
    let page = served.result("sessions.list", &json!({ "limit": 1 }));
    assert_eq!((&page["sessions"][0]["key"], &page["nextOffset"]), (&json!("t"), &json!(1)));
    let page = served.result("sessions.list", &json!({ "limit": 1, "offset": 1 }));
    let session = &page["sessions"][0];
    assert_eq!(
        (&session["key"], &session["status"], &page["hasMore"]),
        (&json!("s"), &json!("stopped"), &json!(false))
    );
}

#[test]
fn batches_are_answered_in_their_order() {
    let served = Served::start(&scripts());
    let send = |body: &str| served.send(("POST", "/rpc"), &[JSON], body);
    let call = |id: Value, method: &str| json!({ "jsonrpc": "2.0", "id": id, "method": method });
    let batch = json!([
        call(json!("a"), "sessions.list"),
        { "jsonrpc": "2.0", "method": "agent", "params": { "message": "hello", "sessionKey": "notified" } },
        call(json!(2.5), "none"),
        7,
        call(json!(null), "sessions.list"),
    ]);
    let answers = send(&batch.to_string()).json();
    let ids: Vec<&Value> = answers.as_array().unwrap().iter().map(|answer| &answer["id"]).collect();
    assert_eq!(ids, [&json!("a"), &json!(2.5), &Value::Null, &Value::Null]);
    assert!(answers[0]["result"]["sessions"].is_array() && answers[3]["result"]["sessions"].is_array());
    check_error(&answers[1], (-32601, 404), "there is no method `none`; there are: agent,");
    check_error(&answers[2], (-32600, 400), "is an object");
    let notification = json!({ "jsonrpc": "2.0", "method": "sessions.list" }).to_string();
    let nothing = send(&format!("[{notification},{notification}]"));
    assert_eq!((nothing.status, nothing.text().as_str()), (204, ""));
    assert_eq!(served.get("/v1/sessions/notified").json()["key"], "notified");
}

#[test]
fn what_is_too_much_is_an_error() {
    let served = Served::start(&scripts());
    let check = |body: &str, http: u16, code: i32, part: &str| {
        let answer = served.send(("POST", "/rpc"), &[JSON], body);
        assert_eq!(answer.status, http);
        let answer = answer.json();
        assert_eq!((&answer["error"]["code"], &answer["id"]), (&json!(code), &Value::Null), "{answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains(part), "{answer}");
    };
    let one = r#"{"jsonrpc":"2.0","id":1,"method":"agent","params":{"message":"hello"}}"#;
    check(&format!("[{one}{}]", format!(",{one}").repeat(9_999)), 200, -32600, "more than 50 requests");
    check("[]", 200, -32600, "empty");
    check("{", 200, -32700, "EOF");
    check(&"[".repeat(1 << 20), 200, -32700, "EOF");
    // A list is a batch, here with one request that is none.
    let nested = format!("{}{}", "[".repeat(1 << 20), "]".repeat(1 << 20));
    let answers = served.send(("POST", "/rpc"), &[JSON], &nested).json();
    check_error(&answers[0], (-32600, 400), "an object");
    let deep = format!(
        r#"{{"jsonrpc":"2.0","id":null,"method":"agent","params":{}{}}}"#,
        "[".repeat(1 << 20),
        "]".repeat(1 << 20)
    );
    check(&deep, 200, -32602, "must be an object");
    check(&format!(r#"{{"x":"{}"}}"#, "x".repeat(9 << 20)), 413, -32600, "longer than");
    let plain = served.send(("POST", "/rpc"), &[], one);
    assert_eq!((plain.status, &plain.json()["error"]["code"]), (415, &json!(-32600)));
    assert_eq!(served.runs(), 0, "nothing was accepted");
}

#[test]
fn wrong_parameters_name_the_field_and_the_remedy() {
    let served = Served::start(&scripts());
    let refused =
        |method: &str, params: Value, part: &str| served.error(method, &params, (-32602, 422), part);
    refused("agent", json!({}), "missing field `message`");
    refused("agent", json!({ "message": " " }), "message: is empty; say what");
    refused("agent", json!({ "message": 5 }), "message: invalid type: integer `5`");
    refused("agent", json!({ "message": "x", "msg": 1 }), "unknown field `msg`, expected one of `message`");
    refused("agent", json!({ "message": "x", "channel": "telegram" }), "unknown field `channel`");
    refused("agent", json!({ "message": "x", "deliver": true }), "deliver: there is no channel");
    refused(
        "agent",
        json!({ "message": "x", "agentId": "main" }),
        "agentId: there is no agent `main`; there are: default",
    );
    refused("agent", json!({ "message": "x", "thinking": "much" }), "thinking: `much` is no level; use off");
    refused("agent", json!({ "message": "x", "sessionKey": "" }), "sessionKey: is empty");
    refused("agent", json!({ "message": "x", "cwd": "/nowhere" }), "/nowhere");
    refused("agent", json!(["x"]), "must be an object");
    refused("chat.send", json!({ "sessionKey": "s", "message": "x", "queueMode": "later" }), "queueMode");
    refused("chat.history", json!({ "sessionKey": "s", "limit": 0 }), "limit: `0` is not between 1 and 1000");
    refused("sessions.list", json!({ "offset": 1_000_000 }), "offset: `1000000` is too far");
    served.error("agent.wait", &json!({ "runId": "x" }), (-32004, 404), "there is no run and no message `x`");
    served.error("chat.history", &json!({ "sessionKey": "x" }), (-32004, 404), "there is no session `x`");
    served.error("chat.abort", &json!({ "sessionKey": "x" }), (-32004, 404), "there is no session `x`");
    served.error("events.subscribe", &json!({ "all": true }), (-32600, 400), "over a WebSocket");
    assert_eq!(served.runs(), 0, "nothing was accepted");
}

#[test]
fn each_method_needs_its_scope() {
    let mut served = Served::start(&scripts());
    let run = served.result("agent", &json!({ "message": "one", "sessionKey": "s" }))["runId"].clone();
    served.waited(&run);
    let calls = [
        ("submit", "agent", json!({ "message": "x" })),
        ("submit", "chat.send", json!({ "sessionKey": "s", "message": "x" })),
        ("read", "agent.wait", json!({ "runId": run })),
        ("read", "chat.history", json!({ "sessionKey": "s" })),
        ("read", "sessions.list", json!({})),
        ("steer", "chat.abort", json!({ "sessionKey": "s" })),
    ];
    for scope in ["read", "submit", "steer"] {
        served.token = served.new_token(scope, scope);
        for (needed, method, params) in &calls {
            if *needed == scope {
                served.result(method, params);
            } else {
                served.error(method, params, (-32003, 403), &format!("has no scope `{needed}`"));
            }
        }
    }
    let plain = served.send_plain(("POST", "/rpc"), &[JSON], "{}");
    assert_eq!((plain.status, plain.header("content-type")), (401, Some("application/problem+json")));
}
