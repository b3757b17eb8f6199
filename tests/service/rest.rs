//! The REST operations: what is accepted is durable, and every error is a problem document.

use std::{collections::BTreeMap, fs, thread};

use serde_json::{Value, json};

use crate::{
    http::Answer,
    running::until,
    served::{Served, scripts},
};

const JSON: (&str, &str) = ("content-type", "application/json");

impl Served {
    /// Submits a run, and returns its id.
    #[track_caller]
    fn submit(&self, body: &Value) -> String {
        let answer = self.post("/v1/runs", body);
        assert_eq!(answer.status, 202);
        answer.json()["run"].as_str().unwrap().to_owned()
    }

    #[track_caller]
    fn wait(&self, run: &str) -> Value {
        self.get(&format!("/v1/runs/{run}/wait?timeout=60s")).json()
    }

    /// Checks that a request is refused with a problem document.
    #[track_caller]
    fn refuses(&self, operation: (&str, &str), body: &str, status: u16, part: &str) {
        let answer = self.send(operation, &[JSON], body);
        check_problem(answer, status, part);
    }
}

#[track_caller]
fn check_problem(answer: Answer, status: u16, part: &str) {
    let found = answer.status;
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    let problem = answer.json();
    assert_eq!((found, &problem["status"]), (status, &json!(status)), "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains(part), "{problem}");
}

#[test]
fn a_run_is_accepted_waited_for_and_shown() {
    let served = Served::start(&scripts());
    let accepted =
        served.post("/v1/runs", &json!({ "input": "hello", "session": "s", "timeout": 60 })).json();
    let run = accepted["run"].as_str().unwrap();
    assert!(accepted["accepted_at"].as_str().unwrap().ends_with('Z'));
    let ended = served.wait(run);
    let expect = json!({
        "run": run, "session": accepted["session"], "state": "ended", "outcome": "completed",
        "answer": "[rehearsal] You said: hello",
    });
    assert_eq!(ended, expect);
    let shown = served.get(&format!("/v1/runs/{run}")).json();
    assert_eq!(shown["spec"]["workspace"], served.world.work().to_str().unwrap());
    assert_eq!(shown["spec"]["limits"]["timeout_ms"], 60_000);
    assert_eq!(served.get(&format!("/v1/runs/{run}/result")).json()["answer"], ended["answer"]);
    assert_eq!(served.get("/v1/sessions/s").json()["runs"][0]["id"], run);
    assert_eq!(served.get("/v1/sessions").json()["items"][0]["key"], "s");
    assert_eq!(served.get(&format!("/v1/runs/{run}/budget")).json()["id"], run);
    assert_eq!(served.get("/v1/tree").json(), json!([]));
    assert_eq!(served.get("/v1/approvals").json(), json!([]));
    let limits = json!({ "input": "x", "budget": { "iterations": 3, "wall": "1m" } });
    let limited = served.submit(&limits);
    let limits = &served.get(&format!("/v1/runs/{limited}")).json()["spec"]["limits"];
    assert_eq!((&limits["budget"]["iterations"], &limits["wall_ms"]), (&json!(3), &json!(60_000)));
    // The limit that the configuration has for runs without a terminal.
    assert_eq!(limits["timeout_ms"], 600_000);
}

#[test]
fn a_key_stands_for_one_request_of_one_token() {
    let mut served = Served::start(&scripts());
    let send = |served: &Served, body: &str, token: &str| {
        let bearer = format!("Bearer {token}");
        let headers = [("authorization", &*bearer), JSON, ("idempotency-key", "k")];
        served.send_plain(("POST", "/v1/runs"), &headers, body)
    };
    let (body, token) = (r#"{"input":"hello"}"#, served.token.clone());
    let first = send(&served, body, &token).json();
    served.kill();
    served.start_again();
    assert_eq!(send(&served, body, &token).json(), first, "also after a crash");
    let other = r#"{"input":"hello","budget":{"iterations":5}}"#;
    check_problem(send(&served, other, &token), 422, "other settings");
    check_problem(send(&served, r#"{"input":"bye"}"#, &token), 422, "another text");
    let own = served.new_token("other", "submit");
    assert_ne!(send(&served, body, &own).json()["run"], first["run"]);
    assert_eq!(served.runs(), 2);
}

#[test]
fn accepted_runs_survive_a_kill() {
    let mut served = Served::start(&scripts());
    let runs =
        ["wait", "one", "two"].map(|input| served.submit(&json!({ "input": input, "session": input })));
    until("the command runs", || served.world.work().join("ran").exists());
    served.kill();
    served.world.release();
    served.start_again();
    let outcomes = runs.each_ref().map(|run| served.wait(run)["outcome"].clone());
    assert_eq!(outcomes, ["completed", "completed", "completed"].map(Value::from));
    assert_eq!(served.world.times_run(), 1);
}

#[test]
fn a_run_is_stopped_and_steered() {
    let served = Served::start(&scripts());
    let run = served.submit(&json!({ "input": "wait" }));
    until("the command runs", || served.world.work().join("ran").exists());
    let waited = served.get(&format!("/v1/runs/{run}/wait?timeout=1ms")).json();
    assert_eq!((&waited["state"], &waited["outcome"]), (&json!("running"), &Value::Null));
    served.refuses(("GET", &format!("/v1/runs/{run}/result")), "", 409, "no outcome yet");
    let steered = served.post(&format!("/v1/runs/{run}/steer"), &json!({ "text": "hurry" }));
    assert_eq!(steered.status, 202);
    assert_eq!(steered.json()["run"], *run);
    let stopped = served.send(("POST", &format!("/v1/runs/{run}/stop")), &[], "").json();
    assert_eq!(stopped["outcome"], "stopped", "{stopped}");
    assert_eq!(served.wait(&run)["reason"], stopped["reason"]);
    served.refuses(("POST", &format!("/v1/runs/{run}/steer")), r#"{"text":"x"}"#, 409, "has ended");
}

#[test]
fn events_resume_after_the_last_seen_record() {
    let served = Served::start(&scripts());
    let run = served.submit(&json!({ "input": "hello" }));
    served.wait(&run);
    let path = format!("/v1/runs/{run}/events");
    let events = |last: Option<u64>| {
        let last = last.map(|last| last.to_string());
        let header = last.as_deref().map(|last| ("last-event-id", last));
        let events = served.send(("GET", &path), header.as_slice(), "").events();
        events.iter().map(|data| serde_json::from_str(data).unwrap()).collect::<Vec<Value>>()
    };
    let all = events(None);
    let records = |events: &[Value]| {
        let records = events.iter().filter(|event| event["event"] == "record");
        records.map(|event| event["seq"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    let seqs = records(&all);
    assert!(seqs.len() > 3 && seqs.is_sorted_by(|a, b| a < b), "{seqs:?}");
    assert_eq!((&all[0]["status"], &all.last().unwrap()["kind"]), (&json!("accepted"), &json!("run.ended")));
    for (n, seen) in (1..).zip(&seqs[..seqs.len() - 1]) {
        assert_eq!(records(&events(Some(*seen))), seqs[n..], "after {seen}");
    }
    let seen = seqs.last().unwrap().to_string();
    assert_eq!(served.send(("GET", &path), &[("last-event-id", &seen)], "").status, 204);
    check_problem(served.send(("GET", &path), &[("last-event-id", "x")], ""), 400, "Last-Event-ID is `x`");
}

#[test]
fn the_feed_has_all_records_once_in_one_order() {
    let served = Served::start(&scripts());
    let runs = [0; 3].map(|_| served.submit(&json!({ "input": "hello" })));
    runs.iter().for_each(|run| drop(served.wait(run)));
    let read = |after: &str, ends: usize| {
        let mut answer = served.get(&format!("/v1/events?after={after}"));
        let (mut records, mut ids, mut left) = (BTreeMap::<String, Vec<u64>>::new(), Vec::new(), ends);
        let mut text = String::new();
        while left > 0 {
            text += &answer.chunk().expect("the feed goes on");
            while let Some((event, rest)) = text.split_once("\n\n") {
                let field =
                    |name: &str| event.lines().find_map(|line| line.strip_prefix(name)).unwrap().to_owned();
                let data: Value = serde_json::from_str(&field("data: ")).unwrap();
                ids.push(field("id: "));
                left -= usize::from(data["kind"] == "run.ended");
                let session = data["session"].as_str().unwrap().to_owned();
                records.entry(session).or_default().push(data["seq"].as_u64().unwrap());
                text = rest.to_owned();
            }
        }
        (records, ids)
    };
    let (records, ids) = read("0.0", 3);
    assert_eq!(records.len(), 3);
    assert!(records.values().all(|seqs| seqs.iter().copied().eq(1..=seqs.len() as u64)), "{records:?}");
    let half = ids.len() / 2;
    let (_, rest) = read(&ids[half], 1);
    assert_eq!(rest, ids[half + 1..][..rest.len()]);
    served.refuses(("GET", "/v1/events?after=x"), "", 400, "`x` is no place in the feed");
}

#[test]
fn lists_are_pages_with_filters() {
    let served = Served::start(&scripts());
    let runs: Vec<String> =
        ["one", "fail", "Three"].map(|input| served.submit(&json!({ "input": input }))).into();
    runs.iter().for_each(|run| drop(served.wait(run)));
    let ids = |query: &str| {
        let page = served.get(&format!("/v1/runs?{query}")).json();
        let items = page["items"].as_array().unwrap().iter();
        (items.map(|run| run["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>(), page["next"].clone())
    };
    let newest_first: Vec<String> = runs.iter().rev().cloned().collect();
    assert_eq!(ids(""), (newest_first.clone(), Value::Null));
    let (first, next) = ids("max=2");
    assert_eq!(first, newest_first[..2]);
    let (rest, _) = ids(&format!("before={}", next.as_str().unwrap()));
    assert_eq!(rest, newest_first[2..]);
    assert_eq!(ids("outcome=failed").0, runs[1..2]);
    assert_eq!(ids("text=three").0, runs[2..]);
    assert_eq!(ids("state=running").0, [""; 0]);
    assert_eq!(ids("since=2100-01-01T00:00:00Z").0, [""; 0]);
    served.refuses(("GET", "/v1/runs?outcome=x"), "", 400, "unknown variant `x`");
    served.refuses(("GET", "/v1/runs?color=x"), "", 400, "unknown field `color`");
}

#[test]
fn wrong_requests_get_problems() {
    let served = Served::start(&scripts());
    let submit = ("POST", "/v1/runs");
    served.refuses(submit, "{", 400, "EOF");
    served.refuses(submit, "{}", 422, "missing field `input`");
    served.refuses(submit, r#"{"input":" "}"#, 422, "input: is empty");
    served.refuses(submit, r#"{"input":"x","inptu":1}"#, 422, "unknown field `inptu`");
    served.refuses(submit, r#"{"input":"x","agent":"nobody"}"#, 422, "there is no agent `nobody`");
    served.refuses(submit, r#"{"input":"x","model":"a/b"}"#, 422, "no model provider is configured");
    served.refuses(submit, r#"{"input":"x","workspace":"/nowhere"}"#, 422, "workspace /nowhere");
    let state = json!({ "input": "x", "workspace": served.world.state() }).to_string();
    served.refuses(submit, &state, 422, "it lies in Hermod's state directory");
    served.refuses(
        submit,
        r#"{"input":"x","budget":{"iterations":0}}"#,
        422,
        "budget.iterations: `0` must be",
    );
    served.refuses(submit, r#"{"input":"x","timeout":"soon"}"#, 422, "timeout: `soon`");
    served.refuses(submit, r#"{"input":"x","session":""}"#, 422, "session: is empty");
    let deep = format!(r#"{{"input":"x","budget":{}"#, "[".repeat(100_000));
    served.refuses(submit, &deep, 400, "recursion limit");
    served.refuses(submit, &format!(r#"{{"input":"{}"}}"#, "x".repeat(9 << 20)), 413, "longer than");
    served.refuses(("GET", "/v1/runs/x"), "", 404, "there is no run `x`");
    served.refuses(("GET", "/v1/sessions/x"), "", 404, "there is no session `x`");
    served.refuses(("POST", "/v1/approvals/x/allow"), "", 404, "`x` is no id of a call");
    served.refuses(("GET", "/v1/none"), "", 404, "no resource `/v1/none`");
    served.refuses(("DELETE", "/v1/runs"), "", 405, "no operation DELETE");
    check_problem(served.send(submit, &[], "{}"), 415, "Content-Type");
    let invalid = served.send(submit, &[JSON, ("idempotency-key", " ")], r#"{"input":"x"}"#);
    check_problem(invalid, 400, "Idempotency-Key");
    assert_eq!(served.runs(), 0, "nothing was accepted");
}

#[test]
fn a_wait_tells_nothing_to_a_token_that_is_revoked_meanwhile() {
    let served = Served::start(&scripts());
    let reader = format!("Bearer {}", served.new_token("reader", "read"));
    let run = served.submit(&json!({ "input": "wait" }));
    until("the command runs", || served.world.work().join("ran").exists());
    let path = format!("/v1/runs/{run}/wait?timeout=60s");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| served.send_plain(("GET", &path), &[("authorization", &reader)], ""));
        let connections = |metrics: &str| metrics.lines().any(|line| line == "hermod_http_connections 2");
        until("the reader waits", || connections(&served.get("/metrics").text()));
        served.world.ok(&["tokens", "revoke", "reader"]);
        served.world.release();
        check_problem(waiting.join().unwrap(), 401, "revoked");
    });
    assert_eq!(served.get(&path).json()["outcome"], "completed");
}

#[test]
fn only_tokens_with_the_scope_are_served() {
    let served = Served::start(&scripts());
    let reader = format!("Bearer {}", served.new_token("reader", "read"));
    let list = ("GET", "/v1/runs");
    check_problem(served.send_plain(list, &[], ""), 401, "Bearer TOKEN");
    check_problem(served.send_plain(list, &[("authorization", "Bearer x")], ""), 401, "not known");
    assert_eq!(served.send_plain(list, &[("authorization", &reader)], "").status, 200);
    let submit =
        served.send_plain(("POST", "/v1/runs"), &[("authorization", &reader), JSON], r#"{"input":"x"}"#);
    check_problem(submit, 403, "the token `reader` has no scope `submit`");
    let mut feed = served.send_plain(("GET", "/v1/events"), &[("authorization", &reader)], "");
    served.world.ok(&["tokens", "revoke", "reader"]);
    served.submit(&json!({ "input": "secret" }));
    assert_eq!(feed.chunk(), None, "a revoked token reads nothing more");
    check_problem(served.send_plain(list, &[("authorization", &reader)], ""), 401, "revoked");
    let page = served.send(list, &[("origin", "https://evil.example")], "");
    check_problem(page, 403, "pages of `https://evil.example`");
    assert_eq!(served.send_plain(("GET", "/readyz"), &[], "").status, 200);
    // A damaged file of tokens lets nobody in.
    fs::write(served.world.state().join("tokens.json"), "{").unwrap();
    check_problem(served.send_plain(list, &[("authorization", "Bearer x")], ""), 503, "cannot be read");
}

#[test]
fn a_raised_run_goes_on_after_a_restart() {
    let mut served = Served::start(&scripts());
    let run = served.submit(&json!({ "input": "wait", "budget": { "iterations": 1 } }));
    until("the command runs", || served.world.work().join("ran").exists());
    served.world.release();
    assert_eq!(served.wait(&run)["outcome"], "budget_exhausted");
    served.stop();
    served.start_again();
    let raised = served.post(&format!("/v1/runs/{run}/budget"), &json!({ "add": { "iterations": 5 } }));
    assert_eq!(raised.status, 200);
    assert_eq!(served.wait(&run)["outcome"], "completed");
    let none = format!("/v1/runs/{run}/budget");
    served.refuses(("POST", &none), r#"{"add":{}}"#, 422, "names no limit");
    served.refuses(("POST", &none), r#"{"add":{"iterations":5}}"#, 409, "is not raised");
}

#[test]
fn a_session_is_found_by_its_key_whatever_that_looks_like() {
    let served = Served::start(&scripts());
    let key = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
    let first = served.post("/v1/runs", &json!({ "input": "one", "session": key })).json();
    let second = served.post("/v1/runs", &json!({ "input": "two", "session": key })).json();
    assert_eq!(first["session"], second["session"]);
    assert_eq!(served.get(&format!("/v1/sessions/{key}")).json()["key"], key);
}

#[test]
fn a_stopped_service_ends_what_waits() {
    let mut served = Served::start(&scripts());
    let run = served.submit(&json!({ "input": "wait" }));
    until("the command runs", || served.world.work().join("ran").exists());
    let mut events = served.get(&format!("/v1/runs/{run}/events"));
    served.stop();
    while events.chunk().is_some() {}
    served.world.release();
    served.start_again();
    assert_eq!(served.wait(&run)["outcome"], "completed");
    assert_eq!(served.world.times_run(), 1);
}
