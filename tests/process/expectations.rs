//! What a run has to leave behind: a run that claims it is done goes on, fails or completes by what is there.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    running::{Running, WAITING, kinds, until},
    world::{World, object, stderr},
};

/// The option that plays a model that says that it is done, and then does what these steps say when it reads that
/// something misses.
fn claims(world: &World, then: &Value) -> String {
    let claim = json!({ "say": "It is done." });
    let steps: Vec<&Value> = std::iter::once(&claim).chain(then.as_array().unwrap()).collect();
    world.script(&json!(steps))
}

fn nothing_more(world: &World) -> String {
    claims(world, &json!([{ "say": "It is done, really." }]))
}

/// The steps of a model that writes a file.
fn writes(path: &str, content: &str) -> Value {
    let arguments = json!({ "path": path, "content": content });
    json!([{ "call": [{ "tool": "write_file", "arguments": arguments }] }, { "say": "Now it is done." }])
}

/// A command that runs until it is released, and notes its process first.
fn waiting() -> String {
    format!("echo $$ >> pids; {WAITING}")
}

fn last_pid(world: &World) -> String {
    fs::read_to_string(world.work().join("pids")).unwrap().lines().last().unwrap().to_owned()
}

#[track_caller]
fn until_gone(pid: &str) {
    until("the command is ended", || !std::path::Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
fn what_misses_twice_fails_the_run() {
    let world = World::new();
    let script = nothing_more(&world);
    let output = world.run(&["run", &script, "--json", "--expect-file", "out.txt", "write it"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let result = object(&String::from_utf8(output.stdout.clone()).unwrap());
    assert_eq!((&result["outcome"], &result["cause"]), (&json!("failed"), &json!("expectation")), "{result}");
    let misses = json!([{
        "n": 0, "expected": "file out.txt, not empty", "reason": "`path` \"out.txt\" does not exist",
    }]);
    assert_eq!(result["misses"], misses, "{result}");
    assert_eq!((&result["answer_source"], &result["iterations"]), (&json!("partial"), &json!(2)), "{result}");
    assert!(result["partial"].as_str().unwrap().ends_with("It is done, really."), "{result}");
    let progress = stderr(&output);
    for part in ["missing   file out.txt, not empty: ", "ended     failed (expectation: file out.txt"] {
        assert!(progress.contains(part), "{progress}");
    }
    let records = world.journal("last");
    let told = "run.verified";
    let expect = [
        "session.opened",
        "run.accepted",
        "model.started",
        "model.answered",
        told,
        "model.started",
        "model.answered",
        told,
        "run.ended",
    ];
    assert_eq!(kinds(&records), expect);
    assert_eq!(records[4]["misses"], misses);
    assert_eq!(
        records[1]["spec"]["expects"],
        json!([{ "kind": "file", "path": "out.txt", "not_empty": true }])
    );
}

#[test]
fn what_is_there_at_the_second_try_completes_the_run() {
    let world = World::new();
    fs::write(world.state().with_file_name("schema.json"), r#"{"required": ["n"]}"#).unwrap();
    fs::write(world.work().join("old.json"), r#"{"n": 1}"#).unwrap();
    let schema = |file: &str| format!("{file}={}", world.state().with_file_name("schema.json").display());
    let (written, old) = (schema("new.json"), schema("old.json"));
    let script = claims(&world, &writes("new.json", r#"{"n": 1}"#));
    let files = ["--expect-new-file", "new.json", "--expect-schema", &written, "--expect-schema", &old];
    let more = ["--expect-command", "grep -q n new.json", "--expect-text", "done", "write it"];
    let output = world.run(&[&["run", &script, "--json"], &files[..], &more].concat());
    let result = object(&String::from_utf8(output.stdout.clone()).unwrap());
    assert_eq!(output.status.code(), Some(0), "{result}: {}", stderr(&output));
    assert_eq!((&result["outcome"], &result["answer_source"]), (&json!("completed"), &json!("final")));
    assert!(result["answer"].as_str().unwrap().ends_with("Now it is done."), "{result}");
    let records = world.journal("last");
    let misses: Vec<Vec<u64>> = records
        .iter()
        .filter(|record| record["kind"] == "run.verified")
        .map(|record| {
            let misses = record["misses"].as_array().into_iter().flatten();
            misses.map(|miss| miss["n"].as_u64().unwrap()).collect()
        })
        .collect();
    assert_eq!(misses, [vec![0, 1, 3], Vec::new()], "{records:?}");
    let reason =
        records.iter().find(|record| record["kind"] == "run.verified").unwrap()["misses"][2]["reason"]
            .as_str()
            .unwrap();
    assert!(reason.starts_with("it exited with 2; its output ends with: grep: new.json"), "{reason}");
}

#[test]
fn an_old_file_is_not_a_new_one() {
    let world = World::new();
    fs::write(world.work().join("out.txt"), "old").unwrap();
    let file = fs::File::options().write(true).open(world.work().join("out.txt")).unwrap();
    file.set_modified(std::time::UNIX_EPOCH).unwrap();
    let script = nothing_more(&world);
    world.ok(&["run", &script, "--expect-file", "out.txt", "write it"]);
    let output = world.run(&["run", &script, "--expect-new-file", "out.txt", "write it"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("it was there before this run"), "{}", stderr(&output));
}

#[test]
fn what_cannot_be_checked_or_is_not_allowed_is_refused() {
    let world = World::new();
    world.configure("[policy]\ndeny = [\"shell(*prod*)\"]\n");
    let script = nothing_more(&world);
    let refused = |option: &str, value: &str, part: &str| {
        world.fails(&["run", &script, option, value, "write it"], 2, part);
    };
    refused("--expect-file", "../out.txt", "leads out of the workspace");
    refused("--expect-file", "", "`path` is empty");
    refused("--expect-command", "deploy prod", "prod");
    refused("--expect-command", "rm -rf /", "never run");
    fs::write(world.work().join("schema.json"), r##"{"$ref": "#"}"##).unwrap();
    refused("--expect-schema", "out.json=schema.json", "refers to itself");
    refused("--expect-schema", "out.json", "is not PATH=SCHEMA");
    world.fails(&["run", "--resume", "last", "--expect-file", "out.txt"], 2, "--expect-file: ");
    assert_eq!(object(&world.ok(&["runs", "list", "--json"])), json!([]), "nothing was accepted");
}

/// A run whose command checks until it is released.
fn checked(world: &World) -> Running {
    let script = nothing_more(world);
    let running = world.running(&["run", &script, "--expect-command", &waiting(), "write it"]);
    until("the command checks", || world.work().join("ran").exists());
    running
}

#[test]
fn a_check_is_made_again_after_a_kill() {
    let world = World::new();
    let killed = checked(&world);
    let run = object(&world.ok(&["runs", "show", "last", "--json"]));
    assert_eq!(run["waits"][0]["what"], "verify", "{run}");
    assert!(world.ok(&["runs", "show", "last"]).contains("for the check of what it is expected to leave"));
    killed.signal(Signal::KILL);
    killed.end();
    let first = last_pid(&world);
    let resumed = world.running(&["run", "--resume", "last"]);
    until("the command checks again", || world.times_run() == 2);
    assert_ne!(last_pid(&world), first);
    until_gone(&first);
    world.release();
    let output = resumed.end();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let kinds_of = world.journal("last");
    assert_eq!(
        kinds(&kinds_of)[4..],
        ["session.revived", "run.verified", "run.ended"],
        "the model is not asked again"
    );
    assert_eq!(world.times_run(), 2);
}

#[test]
fn a_stop_ends_the_check() {
    let world = World::new();
    let running = checked(&world);
    world.ok(&["stop", "last"]);
    assert_eq!(running.end().status.code(), Some(1));
    until_gone(&last_pid(&world));
    let records = world.journal("last");
    assert_eq!(records.last().unwrap()["outcome"], "stopped");
    assert!(kinds(&records).iter().all(|kind| *kind != "run.verified"), "{records:?}");
}

#[test]
fn a_task_of_a_subagent_has_expectations() {
    let world = World::new();
    let task = json!({ "goal": "Write b.txt", "expects": [{ "kind": "file", "path": "b.txt" }] });
    let scripts = json!([
        { "when": "/^Write b.txt/", "steps": [{ "say": "It is written." }] },
        { "steps": [
            { "call": [{ "tool": "delegate_task", "arguments": task }] },
            { "say": "{{result:1.1#/outcome}}: {{result:1.1#/reason}}" },
        ]},
    ]);
    let path = world.state().with_file_name("claims.json");
    fs::write(&path, json!({ "name": "t", "scripts": scripts }).to_string()).unwrap();
    let answer = world.ok(&["run", &format!("--rehearse={}", path.display()), "delegate it"]);
    assert!(answer.contains("failed: expectation: file b.txt: `path` \"b.txt\" does not exist"), "{answer}");
}
