//! The queue of a session over HTTP and on the command line: what is set, across a kill, and what comes before it.

use serde_json::{Value, json};

use crate::{
    running::until,
    served::{Served, scripts},
};

impl Served {
    fn queue(&self, method: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let headers = [("content-type", "application/json")];
        let answer = self.send((method, "/v1/sessions/s/queue"), &headers, &body);
        (answer.status, answer.json())
    }

    fn queue_shown(&self) -> Value {
        self.get("/v1/sessions/s").json()["queue"].clone()
    }

    fn sends(&self, body: &Value) -> String {
        let sent = self.post("/v1/sessions/s/messages", body).json();
        sent["message"].as_str().unwrap().to_owned()
    }

    fn mode_recorded(&self, run: &str) -> Value {
        let journal = self.world.ok(&["journal", run]);
        let records = journal.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let accepted = |record: &Value| record["kind"] == "run.accepted" && record["run"] == run;
        records.filter(accepted).map(|record| record["queueing"]["mode"].clone()).next().unwrap_or_default()
    }
}

#[test]
fn a_session_has_a_queue_of_its_own_also_after_a_kill() {
    let mut served = Served::start(&scripts());
    assert_eq!(served.queue("PUT", &json!({ "mode": "followup" })).0, 404, "there is no session yet");
    let first = served.sends(&json!({ "text": "hello" }));
    assert_eq!(served.mode_recorded(&first), "steer");
    assert_eq!(served.queue_shown(), Value::Null);

    let own = json!({ "mode": "followup", "cap": 1, "drop": "new" });
    let (status, shown) = served.queue("PUT", &own);
    assert_eq!((status, &shown["queue"], &shown["key"]), (200, &own, &json!("s")));
    served.kill();
    served.start_again();
    assert_eq!(served.queue_shown(), own);

    let busy = served.sends(&json!({ "text": "wait" }));
    until("the command runs", || served.world.work().join("ran").exists());
    let next = served.sends(&json!({ "text": "next" }));
    assert_eq!(
        (&served.mode_recorded(&busy), &served.mode_recorded(&next)),
        (&json!("followup"), &json!("followup"))
    );
    let dropped = served.sends(&json!({ "text": "too many" }));
    let fate = served.get(&format!("/v1/messages/{dropped}")).json();
    assert_eq!(fate, json!({ "state": "dropped", "reason": "queue_full: 1 messages waited" }));
    // A message's own mode comes first.
    let now = served.sends(&json!({ "text": "now", "mode": "interrupt" }));
    assert_eq!(served.mode_recorded(&now), "interrupt");
    until("it is answered", || served.get(&format!("/v1/messages/{now}")).json()["state"] == "answered");

    let (status, shown) = served.queue("DELETE", &Value::Null);
    assert_eq!((status, &shown["queue"]), (200, &Value::Null));
    let last = served.sends(&json!({ "text": "hello" }));
    assert_eq!(served.mode_recorded(&last), "steer");
}

#[test]
fn a_setting_that_cannot_be_taken_changes_nothing() {
    let served = Served::start(&scripts());
    served.sends(&json!({ "text": "hello" }));
    for (body, field) in [
        (json!({ "cap": 0 }), "cap"),
        (json!({ "mode": "later" }), "mode"),
        (json!({ "drop": "all" }), "drop"),
        (json!({ "collect_ms": 0 }), "collect_ms"),
        (json!({ "window": 1 }), "window"),
    ] {
        let (status, problem) = served.queue("PUT", &body);
        assert_eq!(status, 422, "{body} {problem}");
        assert!(problem["detail"].as_str().unwrap().contains(field), "{body} {problem}");
    }
    let token = served.new_token("sender", "submit,read");
    let refused = served.send_as(&token, ("PUT", "/v1/sessions/s/queue"), &json!({ "mode": "collect" }));
    assert_eq!(refused.status, 403);
    assert_eq!(served.queue_shown(), Value::Null);
}

#[test]
fn the_command_line_sets_it_with_and_without_a_service() {
    let mut served = Served::start(&scripts());
    let message = served.sends(&json!({ "text": "hello" }));
    until("it is answered", || served.get(&format!("/v1/messages/{message}")).json()["state"] == "answered");
    assert_eq!(served.world.ok(&["sessions", "queue", "s"]).trim(), "as configured");
    let told = served.world.ok(&["sessions", "queue", "s", "--mode", "collect", "--collect-window", "2s"]);
    assert_eq!(told.trim(), "mode collect, collect window 2000 ms");
    assert_eq!(served.queue_shown(), json!({ "mode": "collect", "collect_ms": 2_000 }));
    served.stop();
    // Without a service the store is written from here; what is not named stays.
    let told = served.world.ok(&["sessions", "queue", "s", "--cap", "5", "--json"]);
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told, json!({ "mode": "collect", "cap": 5, "collect_ms": 2_000 }));
    assert!(served.world.ok(&["sessions", "show", "s"]).contains("queue    mode collect, cap 5"));
    served.start_again();
    assert_eq!(served.queue_shown(), json!({ "mode": "collect", "cap": 5, "collect_ms": 2_000 }));
    assert_eq!(served.world.ok(&["sessions", "queue", "s", "--reset"]).trim(), "as configured");
    assert_eq!(served.queue_shown(), Value::Null);
    served.world.fails(&["sessions", "queue", "nobody"], 2, "no run or session `nobody`");
}
