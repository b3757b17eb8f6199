//! `last` names the last run that a person or a client began, in every command that takes it: the real binary, with a run
//! whose subagent is younger than itself.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    killed_command::kill_command,
    running::{Running, until},
    world::{World, object, stderr},
};

/// Notes its pid and waits to be released.
const COMMAND: &str =
    "echo $$ >> ran; while [ -e ran ] && [ ! -e release ]; do sleep 0.02; done; echo released";

/// Starts a run with a subagent, and returns when the command of the subagent is under way.
fn begun(world: &World, in_doubt: &str) -> Running {
    let script = json!({ "name": "t", "scripts": [
        { "when": "parent", "steps": [
            { "call": [{ "tool": "delegate_task", "arguments": { "goal": "child" } }] },
            { "say": "heard: {{result:1.1}}" },
        ] },
        { "when": "child", "steps": [
            { "call": [{ "tool": "shell", "arguments": { "command": COMMAND } }] },
            { "say": "read: {{result:1.1}}" },
        ] },
        { "steps": [{ "say": "you said {{user}}" }] },
    ] });
    let path = world.state().with_file_name("family.json");
    fs::write(&path, script.to_string()).unwrap();
    let mut command = world.hermod(&["run", &format!("--rehearse={}", path.display()), "the parent"]);
    command.env("HERMOD_TOOLS__IN_DOUBT", in_doubt);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let running = Running::new(command.spawn().unwrap());
    until("the command runs", || {
        fs::read_to_string(world.work().join("ran")).is_ok_and(|ran| ran.ends_with('\n'))
    });
    running
}

/// The ids of the run, of its session, and of its subagent.
fn family(world: &World) -> [String; 3] {
    let rows = object(&world.ok(&["runs", "list", "--json"]));
    let [parent, child] = rows.as_array().unwrap().as_slice() else { panic!("{rows}") };
    [&parent["id"], &parent["session"], &child["id"]].map(|id| id.as_str().unwrap().to_owned())
}

/// What each command that takes `last`, and changes nothing, says of the run that it means.
fn check_named(world: &World, [run, session, _]: &[String; 3]) {
    let one = |args: &[&str], pointer: &str| {
        let printed = object(&world.ok(args));
        assert_eq!(printed.pointer(pointer), Some(&Value::from(run.as_str())), "{args:?}: {printed}");
    };
    one(&["runs", "show", "last", "--json"], "/id");
    one(&["tree", "last", "--json"], "/0/id");
    one(&["budget", "show", "last", "--json"], "/id");
    one(&["sessions", "show", "last", "--json"], "/runs/0/id");
    let accepted = world.journal("last").into_iter().find(|record| record["kind"] == "run.accepted").unwrap();
    assert_eq!(accepted["run"], run.as_str());
    one(&["budget", "add", "last", "iterations=1", "--json"], "/id");
    assert_eq!(object(&world.ok(&["sessions", "show", "last", "--json"]))["id"], session.as_str());
}

#[test]
fn last_is_no_subagents_run() {
    let world = World::new();
    let running = begun(&world, "tell");
    let ids = family(&world);
    let [run, session, child] = &ids;
    check_named(&world, &ids);
    let steered = object(&world.ok(&["steer", "last", "hurry", "--json"]));
    assert_eq!(steered["run"], run.as_str());
    running.signal(Signal::TERM);
    assert_eq!(running.end().status.code(), Some(143));
    check_named(&world, &ids);
    let stopped = object(&world.ok(&["stop", "last", "--json"]));
    assert_eq!((&stopped[0]["id"], &stopped[0]["outcome"]), (&json!(run), &json!("stopped")));
    assert_eq!(object(&world.ok(&["runs", "show", child, "--json"]))["outcome"], "stopped");
    // What is said next continues the conversation of the person, and is the last run from then on.
    let output = world.run(&["run", "--resume", "last", "--json", "and now"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let result = object(&String::from_utf8(output.stdout).unwrap());
    assert_eq!(result["session"], session.as_str());
    assert_eq!(object(&world.ok(&["runs", "show", "last", "--json"]))["id"], result["run"]);
}

#[test]
fn an_approval_of_the_last_run_is_that_of_its_subagent() {
    let world = World::new();
    let running = begun(&world, "ask");
    let [run, _, child] = family(&world);
    running.signal(Signal::KILL);
    running.end();
    kill_command(&world);
    let holder = world.running(&["runs", "resume", "--all"]);
    until("the subagent is parked", || object(&world.ok(&["approvals", "list", "--json"])) != json!([]));
    let decided = object(&world.ok(&["approvals", "deny", "last", "--json"]));
    assert_eq!((&decided["call"], &decided["verdict"]), (&json!(format!("{child}.1.1")), &json!("deny")));
    until("all have ended", || {
        let row = object(&world.ok(&["runs", "show", &run, "--json"]));
        row["outcome"] == "completed"
    });
    world.fails(&["approvals", "deny", "last"], 2, &format!("run {run} has no pending approval"));
    holder.signal(Signal::TERM);
    assert_eq!(holder.end().status.code(), Some(143));
}
