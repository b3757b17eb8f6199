//! Hooks that observe a service: what they are told over kills, what becomes of one that keeps failing, and that runs do
//! not wait for them.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::{
    running::until,
    served::{Served, scripts},
    world::{World, object},
};

/// All names of observers that a run without subagents, approvals and compaction is.
const TOLD: [&str; 6] =
    ["session_start", "run_end", "after_model_call", "message_received", "message_sent", "service_start"];

fn ledger(world: &World) -> PathBuf {
    world.work().join("ledger")
}

fn events(ledger: &Path) -> Vec<Value> {
    let text = fs::read_to_string(ledger).unwrap_or_default();
    // A process that is killed may have begun a line.
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn ids(ledger: &Path) -> BTreeSet<String> {
    events(ledger).iter().map(|event| event["id"].as_str().expect("an id").to_owned()).collect()
}

fn served(config: &str) -> Served {
    let world = World::new();
    world.configure(config);
    Served::start_in(world, &scripts())
}

#[track_caller]
fn run(served: &Served, input: &str) -> Value {
    let run = served.post("/v1/runs", &json!({ "input": input })).json();
    let id = run["run"].as_str().expect("a run");
    let ended = served.get(&format!("/v1/runs/{id}/wait?timeout=60s")).json();
    assert_eq!(ended["outcome"], "completed", "{ended}");
    run
}

/// The ids of the events that the records of a run are.
fn expected_ids(served: &Served, run: &Value) -> BTreeSet<String> {
    let session = run["session"].as_str().unwrap();
    let records = served.world.journal(session);
    let of = |record: &Value| -> Vec<String> {
        let names: &[&str] = match record["kind"].as_str().unwrap() {
            "session.opened" => &["session_start"],
            "run.accepted" => &["message_received"],
            "model.answered" => &["after_model_call"],
            "run.ended" => &["run_end", "message_sent"],
            _ => &[],
        };
        names.iter().map(|name| format!("{session}/{}/{name}", record["seq"])).collect()
    };
    records.iter().flat_map(of).collect()
}

#[test]
fn an_observer_is_told_of_each_event_over_kills() {
    let world = World::new();
    let path = ledger(&world);
    world.configure(&format!(
        "[hooks.watcher]\non = {TOLD:?}\ncommand = \"cat >> {}\"\n\
         [hooks.slow]\non = [\"run_end\"]\ncommand = \"sleep 60\"\n",
        path.display()
    ));
    let mut served = Served::start_in(world, &scripts());
    let mut expected = BTreeSet::new();
    for n in 0..6 {
        // The slow hook hangs, and no run waits for it.
        let run = run(&served, &format!("number {n}"));
        expected.extend(expected_ids(&served, &run));
        if n % 2 == 1 {
            served.kill();
            served.start_again();
        }
    }
    until("all events are told", || expected.is_subset(&ids(&path)));
    let told = events(&path);
    for event in &told {
        assert!(TOLD.contains(&event["name"].as_str().unwrap()), "{event}");
        assert_eq!(event["hook"], "watcher");
    }
    let name = |event: &&Value, name: &str| event["name"] == name;
    let ended = told.iter().find(|event| name(event, "run_end")).unwrap();
    assert_eq!(ended["result"]["answer"], "[rehearsal] You said: number 0", "{ended}");
    assert_eq!(ended["result"]["messages"][0]["content"], "number 0", "{ended}");
    let sent = told.iter().find(|event| name(event, "message_sent")).unwrap();
    assert_eq!(sent["text"], "[rehearsal] You said: number 0");
    until("a start is told", || ids(&path).iter().any(|id| id.starts_with("service/")));
    let of_feed = ids(&path).into_iter().filter(|id| !id.starts_with("service/")).collect::<BTreeSet<_>>();
    assert_eq!(of_feed, expected, "an id is the same whenever its event is told");
}

#[test]
fn an_observer_that_keeps_failing_is_disabled_until_a_reload() {
    let world = World::new();
    let path = ledger(&world);
    let config = |command: &str| {
        format!(
            "[hooks.broken]\non = [\"after_model_call\", \"run_end\", \"message_received\", \"message_sent\"]\ncommand = \"{command}\"\n"
        )
    };
    world.configure(&config("echo out of order >&2; exit 4"));
    let served = Served::start_in(world, &scripts());
    let mut expected = BTreeSet::new();
    for n in 0..3 {
        let run = run(&served, &format!("number {n}"));
        let ids = expected_ids(&served, &run);
        expected.extend(ids.into_iter().filter(|id| !id.ends_with("/session_start")));
    }
    let status = || object(&served.world.ok(&["status", "--json"]));
    until("it is disabled", || status()["hooks"][0]["state"] == "disabled");
    let hook = status()["hooks"][0].clone();
    assert_eq!((&hook["name"], &hook["skipped"]), (&json!("broken"), &json!(10)), "{hook}");
    let text = served.world.ok(&["status"]);
    assert!(
        text.contains("hook         broken is disabled: it exits with 4 and says: out of order"),
        "{text}"
    );
    let list = served.world.ok(&["hooks", "list"]);
    assert!(list.contains("broken") && list.contains("disabled"), "{list}");
    served.world.configure(&config(&format!("cat >> {}", path.display())));
    served.world.ok(&["config", "reload"]);
    until("what was given up is told", || expected.is_subset(&ids(&path)));
    assert_eq!(status()["hooks"][0]["state"], "ready");
}

#[test]
fn a_service_that_ends_is_told_too() {
    let mut served = served("");
    let path = ledger(&served.world);
    served.stop();
    served.world.configure(&format!(
        "[hooks.life]\non = [\"gateway_start\", \"service_stop\"]\ncommand = \"cat >> {}\"\n",
        path.display()
    ));
    served.start_again();
    until("the start is told", || events(&path).len() == 1);
    served.stop();
    let names: Vec<Value> = events(&path).iter().map(|event| event["name"].clone()).collect();
    assert_eq!(names, ["service_start", "service_stop"]);
}
