//! Expectations of runs that are submitted to a service.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::{
    running::{kinds, until},
    served::Served,
};

fn claims() -> Value {
    json!([{ "steps": [{ "say": "It is done.", "repeat": "forever" }] }])
}

#[test]
fn a_command_that_hangs_misses_after_its_time() {
    let served = Served::start(&claims());
    let command = "echo $$ >> pids; exec sleep 600";
    let expects = json!([
        { "kind": "command", "command": command, "timeout_s": 1 },
        { "kind": "text", "contains": "done" },
    ]);
    let accepted = served.post("/v1/runs", &json!({ "input": "do it", "expects": expects })).json();
    let run = accepted["run"].as_str().unwrap();
    served.get(&format!("/v1/runs/{run}/wait?timeout=60s"));
    let result = served.get(&format!("/v1/runs/{run}/result")).json();
    assert_eq!((&result["outcome"], &result["cause"]), (&json!("failed"), &json!("expectation")), "{result}");
    let misses = result["misses"].as_array().unwrap();
    assert_eq!(misses.len(), 1, "{result}");
    assert_eq!((&misses[0]["n"], &misses[0]["reason"]), (&json!(0), &json!("it did not end within 1 s")));
    let records = served.world.journal("last");
    assert_eq!(kinds(&records).iter().filter(|kind| **kind == "run.verified").count(), 2);
    let pids = fs::read_to_string(served.world.work().join("pids")).unwrap();
    assert_eq!(pids.lines().count(), 2);
    for pid in pids.lines() {
        until("the command is ended", || !Path::new(&format!("/proc/{pid}")).exists());
    }
}

#[test]
fn a_killed_service_checks_again() {
    let mut served = Served::start(&claims());
    let command = "echo once >> ran; while [ -e ran ] && [ ! -e release ]; do sleep 0.02; done";
    let expects = json!([{ "kind": "command", "command": command }]);
    let accepted = served.post("/v1/runs", &json!({ "input": "do it", "expects": expects })).json();
    let run = accepted["run"].as_str().unwrap();
    until("the command checks", || served.world.work().join("ran").exists());
    served.kill();
    served.start_again();
    until("the command checks again", || served.world.times_run() == 2);
    served.world.release();
    let ended = served.get(&format!("/v1/runs/{run}/wait?timeout=60s")).json();
    assert_eq!(ended["outcome"], "completed", "{ended}");
}

#[test]
fn what_cannot_be_expected_is_refused() {
    let served = Served::start(&claims());
    let check = |expectation: &Value, status: u16, part: &str| {
        let answer = served.post("/v1/runs", &json!({ "input": "do it", "expects": [expectation] }));
        let found = answer.status;
        let problem = answer.json();
        assert_eq!(found, status, "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains(part), "{problem}");
    };
    check(&json!({ "kind": "file", "path": "/etc/passwd" }), 422, "leads out of the workspace");
    check(&json!({ "kind": "file", "path": "a", "exists": true }), 422, "unknown field `exists`");
    check(&json!({ "kind": "schema", "path": "a", "schema": { "type": "none" } }), 422, "not valid");
    check(&json!({ "kind": "command", "command": "make", "timeout_s": 0 }), 422, "`timeout_s` is 0");
    assert_eq!(served.runs(), 0);
}
