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

/// Runs of a service with the hook `broken`, which fails unless its file `works` is there; and the events that it is to be
/// told of.
fn with_broken_hook() -> (Served, BTreeSet<String>) {
    let world = World::new();
    let works = world.work().join("works");
    let command = format!(
        "if [ -e {} ]; then cat >> {}; else echo out of order >&2; exit 4; fi",
        works.display(),
        ledger(&world).display()
    );
    world.configure(&format!(
        "[hooks.broken]\non = [\"after_model_call\", \"run_end\", \"message_received\", \"message_sent\"]\ncommand = {command:?}\n"
    ));
    let served = Served::start_in(world, &scripts());
    let mut expected = BTreeSet::new();
    for n in 0..3 {
        let run = run(&served, &format!("number {n}"));
        let ids = expected_ids(&served, &run);
        expected.extend(ids.into_iter().filter(|id| !id.ends_with("/session_start")));
    }
    until("two events are given up", || hook_status(&served)["skipped"].as_u64() >= Some(2));
    (served, expected)
}

/// The first hook, as `hermod status` shows it.
fn hook_status(served: &Served) -> Value {
    object(&served.world.ok(&["status", "--json"]))["hooks"][0].clone()
}

#[test]
fn an_observer_that_fails_rests_longer_and_longer_until_it_is_enabled() {
    let (served, expected) = with_broken_hook();
    let hook = hook_status(&served);
    assert_eq!((&hook["name"], &hook["state"]), (&json!("broken"), &json!("failing")), "{hook}");
    until("its pause is long", || hook_status(&served)["retry_in_s"].as_u64() > Some(2));
    let text = served.world.ok(&["status"]);
    for part in ["broken is failing: it exits with 4 and says: out of order", "`hermod hooks enable broken`"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let list = served.world.ok(&["hooks", "list"]);
    assert!(list.contains("failing") && list.contains("NEXT CALL"), "{list}");
    fs::write(served.world.work().join("works"), "").unwrap();
    let enabled = object(&served.world.ok(&["hooks", "enable", "broken", "--json"]));
    assert_eq!(enabled["name"], "broken", "{enabled}");
    until("what was given up is told", || expected.is_subset(&ids(&ledger(&served.world))));
    let is_ready = || {
        let hook = hook_status(&served);
        (&hook["state"], &hook["skipped"], &hook["retry_in_s"]) == (&json!("ready"), &json!(0), &Value::Null)
    };
    until("nothing is skipped", is_ready);
    served.world.fails(
        &["hooks", "enable", "other"],
        2,
        "there is no hook `other`; the configuration has: broken",
    );
}

#[test]
fn a_reload_and_a_restart_tell_what_was_given_up() {
    let (mut served, expected) = with_broken_hook();
    served.kill();
    served.start_again();
    until("two events are given up again", || hook_status(&served)["skipped"].as_u64() >= Some(2));
    fs::write(served.world.work().join("works"), "").unwrap();
    served.world.ok(&["config", "reload"]);
    until("what was given up is told", || expected.is_subset(&ids(&ledger(&served.world))));
    assert_eq!(hook_status(&served)["state"], "ready");
    served.stop();
    served.world.fails(&["hooks", "enable", "broken"], 1, "no service runs");
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

#[test]
fn a_refused_session_is_told_apart_from_a_broken_hook() {
    let check = |verdict: &str, status: u16, part: &str| {
        let served =
            served(&format!("[hooks.house]\non = [\"session_bootstrap\"]\ncommand = \"echo '{verdict}'\"\n"));
        let answer = served.post("/v1/runs", &json!({ "input": "go" }));
        let found = answer.status;
        let detail = answer.json()["detail"].to_string();
        assert_eq!(found, status, "{detail}");
        assert!(detail.contains(part), "{detail}");
        assert_eq!(served.get("/v1/sessions").json()["items"], json!([]), "nothing is recorded");
    };
    check(r#"{\"verdict\":\"refuse\",\"reason\":\"not today\"}"#, 403, "at session_bootstrap: not today");
    check("nonsense", 500, "it has given no verdict");
}
