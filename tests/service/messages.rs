//! Messages to a session over HTTP: each mode, what becomes of a message, also across a kill, and what is refused.

use serde_json::{Value, json};

use crate::{
    running::until,
    served::{Served, scripts},
};

impl Served {
    /// Sends a message to the session `s`, with this key; returns its id.
    #[track_caller]
    fn message(&self, key: &str, body: &Value) -> String {
        let headers = [("content-type", "application/json"), ("idempotency-key", key)];
        let answer = self.send(("POST", "/v1/sessions/s/messages"), &headers, &body.to_string());
        assert_eq!(answer.status, 202);
        let sent = answer.json();
        assert_eq!(sent.as_object().unwrap().len(), 2, "{sent}");
        assert!(sent["session"].is_string(), "{sent}");
        sent["message"].as_str().unwrap().to_owned()
    }

    fn fate(&self, message: &str) -> Value {
        self.get(&format!("/v1/messages/{message}")).json()
    }

    /// Waits until the message is in this state, and returns its run.
    #[track_caller]
    fn until_state(&self, message: &str, state: &str) -> String {
        until(&format!("message {message} is {state}"), || self.fate(message)["state"] == state);
        self.fate(message)["run"].as_str().unwrap_or_default().to_owned()
    }

    /// The session has a run whose command waits until the world lets it go on.
    fn busy(&self) -> String {
        let run = self.message("busy", &json!({ "text": "wait" }));
        until("the command runs", || self.world.work().join("ran").exists());
        run
    }

    fn answer_of(&self, run: &str) -> String {
        let waited = self.get(&format!("/v1/runs/{run}/wait?timeout=60s")).json();
        waited["answer"].as_str().unwrap_or_default().to_owned()
    }
}

#[test]
fn a_message_to_an_idle_session_is_a_run() {
    let served = Served::start(&scripts());
    let message = served.message("k", &json!({ "text": "hello" }));
    assert_eq!(served.until_state(&message, "answered"), message);
    assert_eq!(served.fate(&message), json!({ "state": "answered", "run": message }));
    assert_eq!(served.answer_of(&message), "[rehearsal] You said: hello");
    assert_eq!(served.message("k", &json!({ "text": "hello" })), message, "a repeat is the first");
    let headers = [("content-type", "application/json"), ("idempotency-key", "k")];
    let other = served.send(("POST", "/v1/sessions/s/messages"), &headers, r#"{"text":"other"}"#);
    assert_eq!(other.status, 422);
}

#[test]
fn messages_to_a_busy_session_follow_their_modes_also_across_a_kill() {
    let mut served = Served::start(&scripts());
    let busy = served.busy();
    let body = |text: &str, mode: &str| json!({ "text": text, "mode": mode });
    let steered = served.message("1", &body("steered", "steer"));
    let followup = served.message("2", &body("followup", "followup"));
    let collected = served.message("3", &body("first", "collect"));
    let joined = served.message("4", &body("second", "collect"));
    let sent = [(&steered, &busy), (&followup, &followup), (&collected, &collected), (&joined, &collected)];
    for (message, run) in sent {
        assert_eq!(served.fate(message), json!({ "state": "queued", "run": run }), "{message}");
    }
    served.kill();
    served.start_again();
    assert_eq!(served.message("4", &body("second", "collect")), joined, "a repeat after a crash");
    served.world.release();
    for (message, run) in sent {
        assert_eq!(served.until_state(message, "answered"), *run);
    }
    assert_eq!(served.answer_of(&followup), "[rehearsal] You said: followup");
    assert_eq!(served.answer_of(&collected), "[rehearsal] You said: first\n\nsecond");
    assert_eq!(served.runs(), 3);
    // The wait for a message is that for the run in which it is.
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "agent.wait", "params": { "runId": joined } });
    let waited = served.post("/rpc", &call).json();
    assert_eq!(waited["result"]["status"], "ok", "{waited}");
    assert_eq!(waited["result"]["runId"], json!(collected), "{waited}");
}

#[test]
fn late_messages_become_one_run_and_their_repeats_are_still_known() {
    let served = Served::start(&json!([
        { "when": "late", "steps": [{ "say": "late", "delay": "1s" }] },
        { "steps": [{ "say": "You said: {{user}}" }] },
    ]));
    let late = served.message("late", &json!({ "text": "late" }));
    until("the model is called", || served.fate(&late)["state"] == "injected");
    let [first, second] = ["one", "two"].map(|text| served.message(text, &json!({ "text": text })));
    for message in [&first, &second] {
        assert_eq!(served.until_state(message, "answered"), first);
    }
    assert_eq!(served.answer_of(&first), "[rehearsal] You said: one\n\ntwo");
    for (text, message) in [("one", &first), ("two", &second)] {
        assert_eq!(served.message(text, &json!({ "text": text })), *message, "a repeat of {text}");
    }
}

#[test]
fn an_interrupt_stops_the_run_and_goes_first() {
    let served = Served::start(&scripts());
    let busy = served.busy();
    let dropped = served.message("1", &json!({ "text": "later", "mode": "followup" }));
    let newest = served.message("2", &json!({ "text": "now", "mode": "interrupt" }));
    assert_eq!(served.until_state(&newest, "answered"), newest);
    let fate = |message: &str, reason: &str| {
        assert_eq!(served.fate(message), json!({ "state": "dropped", "reason": reason, "run": message }));
    };
    fate(&busy, "stopped (by a newer message)");
    fate(&dropped, "stopped (by a newer message)");
}

#[test]
fn at_the_cap_messages_are_dropped_and_the_model_gets_their_beginnings() {
    let served = Served::start(&scripts());
    served.busy();
    let send = |n: usize| {
        served.message(&n.to_string(), &json!({ "text": format!("task {n}"), "mode": "followup" }))
    };
    let messages: Vec<String> = (0..22).map(send).collect();
    for (n, message) in messages.iter().enumerate() {
        let fate = served.fate(message);
        let expected = if n < 2 { "dropped" } else { "queued" };
        assert_eq!(fate["state"], expected, "{n}: {fate}");
        assert_eq!(fate["reason"].as_str(), (n < 2).then_some("queue_full: 20 messages waited"), "{n}");
    }
    served.world.release();
    for message in &messages[2..] {
        served.until_state(message, "answered");
    }
    let conversation = served.get("/v1/sessions/s/messages?max=1000").json().to_string();
    assert!(conversation.contains(r"- task 0\n- task 1]"), "{conversation}");
}

#[test]
fn what_is_wrong_is_named() {
    let served = Served::start(&scripts());
    let check = |body: &str, status: u16, part: &str| {
        let headers = [("content-type", "application/json")];
        let answer = served.send(("POST", "/v1/sessions/s/messages"), &headers, body);
        let (found, problem) = (answer.status, answer.text());
        assert_eq!(found, status, "{problem}");
        assert!(problem.contains(part), "{problem}");
    };
    check("{}", 422, "missing field `text`");
    check(r#"{"text":" "}"#, 422, "text: is empty");
    check(r#"{"text":"x","mode":"later"}"#, 422, "unknown variant `later`");
    check(r#"{"text":"x","colour":"red"}"#, 422, "unknown field `colour`");
    check(
        r#"{"text":"x","attachments":[{"url":"http://a/b.png"}]}"#,
        422,
        "attachments[0].url: `http://a/b.png` is not",
    );
    let long = json!({ "text": "x".repeat((256 << 10) + 1) }).to_string();
    check(&long, 422, "text: has 262145 bytes, and at most 262144 are taken");
    assert_eq!(served.get("/v1/messages/nonsense").status, 404);
    assert_eq!(served.get("/v1/messages/01JZZZZZZZZZZZZZZZZZZZZZZZ").status, 404);
    assert_eq!(served.runs(), 0, "nothing was accepted");
}

#[test]
fn a_token_that_may_not_steer_sends_runs_of_their_own() {
    let served = Served::start(&scripts());
    served.busy();
    let token = served.new_token("submitter", "read,submit");
    let path = ("POST", "/v1/sessions/s/messages");
    for mode in ["steer", "interrupt"] {
        let body = json!({ "text": "x", "mode": mode });
        assert_eq!(served.send_as(&token, path, &body).status, 403, "{mode}");
    }
    let sent = served.send_as(&token, path, &json!({ "text": "x" })).json();
    let message = sent["message"].as_str().unwrap();
    assert_eq!(served.fate(message), json!({ "state": "queued", "run": message }));
    served.world.release();
    served.until_state(message, "answered");
}
