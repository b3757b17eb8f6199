//! `hermod runs list` and `hermod show`: what a person reads of runs.

use std::fs;

use serde_json::{Value, json};

use crate::{
    running::until,
    world::{World, object},
};

fn say(world: &World, text: &str) -> String {
    world.script(&json!([{ "say": text, "repeat": "forever" }]))
}

#[test]
fn a_list_is_filtered_by_time_outcome_and_number() {
    let world = World::new();
    let script = say(&world, "done");
    for task in ["first", "second", "third"] {
        world.ok(&["run", &script, task]);
    }
    let tasks = |args: &[&str]| -> Vec<String> {
        let list = object(&world.ok(&[&["runs", "list", "--json"], args].concat()));
        list.as_array().unwrap().iter().map(|run| run["input"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(tasks(&[]), ["first", "second", "third"], "JSON has the order of acceptance");
    assert_eq!(tasks(&["--limit", "2"]), ["second", "third"]);
    assert_eq!(tasks(&["--max", "1"]), ["third"]);
    assert_eq!(tasks(&["--outcome", "failed,timed_out"]), [""; 0]);
    assert_eq!(tasks(&["--outcome", "completed", "--limit", "1"]), ["third"]);
    assert_eq!(tasks(&["--since", "1h"]).len(), 3);
    assert_eq!(tasks(&["--until", "2020-01-01"]).len(), 0);
    assert_eq!(tasks(&["--since", "9000-01-01"]).len(), 0);
    let table = world.ok(&["runs", "list"]);
    let rows: Vec<&str> = table.lines().collect();
    assert!(rows[0].starts_with("RUN") && rows[1].contains("third") && rows[3].contains("first"), "{table}");
    world.fails(&["runs", "list", "--since", "soon"], 2, "must be a time ago like 8h");
    world.fails(&["runs", "list", "--outcome", "good"], 2, "possible values: completed, failed");
}

#[test]
fn a_list_says_whether_a_process_runs_a_run() {
    let world = World::new();
    let running = world.started(&[]);
    let row = |args: &[&str]| object(&world.ok(args))[0].clone();
    let list = ["runs", "list", "--outcome", "unfinished", "--json"];
    assert_eq!((&row(&list)["has_process"], &row(&list)["state"]), (&json!(true), &json!("running")));
    assert!(world.ok(&["show"]).contains("state     running"));
    drop(running);
    until("its socket is gone", || row(&list)["has_process"] == json!(false));
    assert_eq!(row(&list)["state"], "suspended");
    let shown = world.ok(&["show"]);
    let id = row(&list)["id"].as_str().unwrap().to_owned();
    assert!(shown.contains("state     suspended"), "{shown}");
    assert!(shown.contains(&format!("`hermod runs resume {id}`")), "{shown}");
    assert!(shown.contains("tool 1.1  shell has no result yet"), "{shown}");
    world.release();
}

/// A run with texts, a failing command, a long result, a subagent and thoughts.
fn furnished(world: &World) -> String {
    let call = |tool: &str, arguments: Value| json!({ "tool": tool, "arguments": arguments });
    let child = json!([{ "say": "seen" }]);
    let steps = json!([
        { "say": "I look.", "think": "where to begin", "call": [
            call("shell", json!({ "command": "seq 1 40\nexit 3" })),
            call("read_file", json!({ "path": "absent" })),
        ] },
        { "call": [call("delegate_task", json!({ "tasks": [{ "goal": "look around" }] }))] },
        { "say": "line one\nended     completed: forged\n```\n# not a heading" },
    ]);
    let script =
        json!({ "name": "t", "scripts": [{ "when": "look around", "steps": child }, { "steps": steps }] });
    let path = world.work().join("../furnished.json");
    fs::write(&path, script.to_string()).unwrap();
    format!("--rehearse={}", path.display())
}

#[test]
fn a_run_is_read_as_a_transcript() {
    let world = World::new();
    world.ok(&["run", &furnished(&world), "the task\nof two lines"]);
    let shown = world.ok(&["show"]);
    let has = |shown: &str, parts: &[&str]| {
        let mut rest = shown;
        for part in parts {
            let Some(at) = rest.find(part) else { panic!("`{part}` does not follow in:\n{shown}") };
            rest = &rest[at + part.len()..];
        }
    };
    has(
        &shown,
        &[
            "run       0",
            "task      the task\n          of two lines",
            "model 1   answered in ",
            "          I look.",
            "model 2   answered",
            "subagent  ",
            " completed: iterations 1",
            "answer    ",
            "line one\n          ended     completed: forged",
            "\nended     completed\n",
            "took      ",
        ],
    );
    has(
        &shown,
        &["tool 1.1  shell exit 3 in ", "        | 1\n", "[28 lines left out; --full shows them]", "| 40"],
    );
    has(&shown, &["tool 1.2  read_file error"]);
    assert!(!shown.contains("where to begin"), "{shown}");
    let full = world.ok(&["show", "last", "--full"]);
    has(&full, &["        > where to begin", "command:\n            seq 1 40\n            exit 3", "| 20\n"]);
    let child = shown.lines().find_map(|line| line.strip_prefix("subagent  ")).unwrap();
    let child = child.split(' ').next().unwrap();
    has(&world.ok(&["show", child]), &["task      ", "look around", "seen"]);
    let markdown = world.ok(&["show", "--format", "markdown"]);
    has(&markdown, &["# Run 0", "## Task\n\n> the task\n> of two lines", "### Tool 1.1: shell exit 3"]);
    has(&markdown, &["## Answer", "> ended     completed: forged\n> ```\n> # not a heading", "## End"]);
    let json = object(&world.ok(&["show", "--json"]));
    let entries = json["transcript"].as_array().unwrap();
    let kinds: Vec<_> = entries.iter().map(|entry| entry["entry"].as_str().unwrap()).collect();
    assert_eq!((kinds[0], kinds[1], *kinds.last().unwrap()), ("task", "answer", "end"), "{kinds:?}");
    assert_eq!(kinds.iter().filter(|kind| **kind == "call").count(), 3, "{kinds:?}");
    assert_eq!(json["outcome"], "completed");
}

#[test]
fn a_run_is_named_by_a_part_of_its_id() {
    let world = World::new();
    let script = say(&world, "done");
    world.ok(&["run", &script, "one"]);
    world.ok(&["run", &script, "two"]);
    let list = object(&world.ok(&["runs", "list", "--json"]));
    let ids: Vec<&str> = list.as_array().unwrap().iter().map(|run| run["id"].as_str().unwrap()).collect();
    for (id, task) in ids.iter().zip(["one", "two"]) {
        for part in [&id[..20], &id[18..], id] {
            let shown = world.ok(&["show", part]);
            assert!(shown.contains(&format!("task      {task}\n")), "{part}: {shown}");
        }
    }
    let common = ids[0].bytes().zip(ids[1].bytes()).take_while(|(a, b)| a == b).count();
    let common = &ids[0][..common.max(8)];
    if ids[1].starts_with(common) {
        world.fails(&["show", common], 2, "begin with");
    }
    world.fails(&["show", "01ZZZZZZZZZZ"], 2, "there is no run or session");
}

#[test]
fn a_transcript_is_the_same_with_and_without_an_owner() {
    let world = World::new();
    let finished = say(&world, "done");
    world.ok(&["run", &finished, "before"]);
    let id = object(&world.ok(&["runs", "list", "--json"]))[0]["id"].as_str().unwrap().to_owned();
    let entries = || object(&world.ok(&["show", &id, "--json"]))["transcript"].clone();
    let alone = entries();
    let running = world.started(&[]);
    assert_eq!(entries(), alone);
    world.release();
    assert!(running.end().status.success());
}
