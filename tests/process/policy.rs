//! Calls that the policy asks about before their start, and questions of the model: the real binary, killed and asked from
//! other processes.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    running::{Lines, Running, kinds, texts, until},
    world::{World, object, stderr},
};

/// A command that the policy finds dangerous, and that leaves a line for each time it runs.
const DANGEROUS: &str = "echo once >> ran; chmod -R 777 .";
/// The part of it that asks.
const ASKING: &str = "chmod -R 777 .";
const PERSON: (&str, &str) = ("HERMOD_APPROVALS__APPROVER", "person");
const ALL: [&str; 4] = ["runs", "resume", "--all", "--wait"];

fn shell_script(world: &World) -> String {
    world.script(&json!([
        { "call": [{ "tool": "shell", "arguments": { "command": DANGEROUS } }] },
        { "say": "read: {{result:1.1}}" },
    ]))
}

/// Runs a script with a person who answers.
fn run_asking(world: &World, script: &str, more: &[(&str, &str)]) -> std::process::Output {
    let mut command = world.hermod(&["run", script, "--json", "do it"]);
    command.envs([PERSON]).envs(more.iter().copied()).output().unwrap()
}

/// A run that is parked before the start of its call, and its id.
fn parked(world: &World, script: &str, more: &[(&str, &str)]) -> String {
    let output = run_asking(world, script, more);
    assert_eq!(output.status.code(), Some(6), "{}", stderr(&output));
    let run = shown(world, "last")["id"].as_str().unwrap().to_owned();
    assert_eq!(times_run(world), 0, "it waits");
    run
}

fn shown(world: &World, run: &str) -> Value {
    object(&world.ok(&["runs", "show", run, "--json"]))
}

fn times_run(world: &World) -> usize {
    fs::read_to_string(world.work().join("ran")).map_or(0, |ran| ran.lines().count())
}

fn questions(world: &World) -> Vec<Value> {
    object(&world.ok(&["approvals", "list", "--json"])).as_array().unwrap().clone()
}

/// A process that owns the store and resumes its runs.
fn owner(world: &World) -> (Running, Lines) {
    let mut running = world.running(&["runs", "resume", "--all"]);
    let mut lines = Lines::of(&mut running);
    lines.until("holding   the store");
    (running, lines)
}

fn resume(world: &World, code: i32) {
    let mut command = world.hermod(&ALL);
    let output = command.envs([PERSON]).output().unwrap();
    assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
}

/// The content of the only result that the model has read, and its status.
fn result(world: &World, run: &str) -> (String, String) {
    let records = world.journal(run);
    let ends: Vec<_> = records.iter().filter(|record| record["kind"] == "call.ended").collect();
    assert_eq!(ends.len(), 1, "{records:?}");
    (ends[0]["status"].as_str().unwrap().to_owned(), ends[0]["content"].as_str().unwrap().to_owned())
}

#[test]
fn a_call_waits_over_a_kill_and_runs_once_when_it_is_allowed() {
    let world = World::new();
    let run = parked(&world, &shell_script(&world), &[]);
    let [asked] = &questions(&world)[..] else { panic!("one question") };
    let rule = format!("shell({ASKING})");
    assert_eq!((&asked["before_start"], &asked["wants_text"]), (&json!(true), &json!(false)));
    assert_eq!(asked["allow_rules"], json!([rule]));
    assert!(asked["question"].as_str().unwrap().contains(ASKING), "{asked}");
    let (running, _lines) = owner(&world);
    running.signal(Signal::KILL);
    running.end();
    assert_eq!((questions(&world), times_run(&world)), (vec![asked.clone()], 0));
    let answer = object(&world.ok(&["approvals", "allow", "last", "--json"]));
    assert_eq!((&answer["verdict"], &answer["scope"]), (&json!("allow"), &json!("once")));
    assert_eq!(times_run(&world), 0, "no process runs it");
    resume(&world, 0);
    assert_eq!((times_run(&world), shown(&world, &run)["outcome"].clone()), (1, json!("completed")));
    let kinds_of_run = world.journal(&run);
    assert_eq!(kinds(&kinds_of_run).iter().filter(|kind| **kind == "call.started").count(), 1);
    world.fails(&["approvals", "allow", "last"], 2, "has no pending approval");
}

#[test]
fn the_owner_goes_on_when_another_process_allows() {
    let world = World::new();
    let run = parked(&world, &shell_script(&world), &[]);
    let (running, mut lines) = owner(&world);
    world.ok(&["approvals", "allow", &run, "--run"]);
    lines.until("ended     completed");
    running.signal(Signal::TERM);
    running.end();
    assert_eq!(times_run(&world), 1);
}

#[test]
fn a_denial_and_silence_start_nothing() {
    let world = World::new();
    let run = parked(&world, &shell_script(&world), &[]);
    world.ok(&["approvals", "deny", "last"]);
    resume(&world, 0);
    let (status, content) = result(&world, &run);
    assert_eq!((status.as_str(), times_run(&world)), ("not_started", 0));
    assert!(content.contains("has denied this call"), "{content}");

    let world = World::new();
    let run = parked(&world, &shell_script(&world), &[("HERMOD_APPROVALS__EXPIRY", "1s")]);
    until("it has expired", || world.ok(&["approvals", "list"]).contains("; expired "));
    world.fails(&["approvals", "allow", &run], 2, "silence is a no");
    resume(&world, 0);
    let (status, content) = result(&world, &run);
    assert_eq!((status.as_str(), times_run(&world)), ("not_started", 0));
    assert!(content.contains("has not answered in time"), "{content}");
}

#[test]
fn without_a_person_the_call_is_denied_at_once_with_a_reason() {
    let world = World::new();
    let output = world.run(&["run", &shell_script(&world), "--json", "do it"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let run = shown(&world, "last")["id"].as_str().unwrap().to_owned();
    let (status, content) = result(&world, &run);
    assert_eq!((status.as_str(), times_run(&world)), ("error", 0));
    assert!(content.contains("no person answers here"), "{content}");
    assert!(texts(&output).0.contains("no person answers here"), "the model has read it");
}

#[test]
fn always_is_a_rule_that_the_list_shows_and_the_next_run_needs_no_answer() {
    let world = World::new();
    let script = shell_script(&world);
    parked(&world, &script, &[]);
    let said = world.ok(&["approvals", "allow", "last", "--always"]);
    assert!(said.contains("such calls of every run"), "{said}");
    resume(&world, 0);
    assert_eq!(times_run(&world), 1);
    let listed = object(&world.ok(&["policy", "list", "--json"]));
    let rule = json!(format!("shell({ASKING})"));
    let is_rule = |row: &&Value| row["rule"] == rule;
    let row = listed.as_array().unwrap().iter().find(is_rule).expect("it is listed");
    assert_eq!((&row["action"], &row["origin"]), (&json!("allow"), &json!("approved-rules.json")));
    let output = run_asking(&world, &script, &[]);
    assert_eq!((output.status.code(), times_run(&world)), (Some(0), 2), "{}", stderr(&output));
    // Hard rules hold whatever is approved.
    let verdict = object(&world.ok(&["policy", "check", "--json", "rm -rf /"]));
    assert_eq!(verdict["verdict"], "deny");
}

#[test]
fn damaged_approved_rules_are_noted_once_and_never_overwritten() {
    const DAMAGED: &str = r#"{"allow": ["shell(ls)""#;
    let world = World::new();
    parked(&world, &shell_script(&world), &[]);
    let path = world.state().join("approved-rules.json");
    fs::write(&path, DAMAGED).unwrap();
    let noted = |output: &std::process::Output, code: i32| {
        let text = stderr(output);
        assert_eq!(output.status.code(), Some(code), "{text}");
        let note = format!("policy    no approved rule counts: {}: it is damaged: EOF", path.display());
        for part in [note.as_str(), "repair the file, or remove it and approve again"] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(text.matches("no approved rule counts").count(), 1, "{text}");
        text
    };
    // Each process that judges calls notes it, however many it judges.
    let dangerous = json!({ "tool": "shell", "arguments": { "command": DANGEROUS } });
    let twice = world.script(&json!([{ "call": [dangerous] }, { "call": [dangerous] }, { "say": "done" }]));
    let mut command = world.hermod(&["run", &twice, "--json", "do it"]);
    let text = noted(&command.env("HERMOD_LOG", "hermod=error").output().unwrap(), 0);
    assert_eq!(text.matches("the approved rules do not count").count(), 1, "{text}");
    noted(&world.run(&["runs", "resume", "--all", "--wait"]), 6);
    noted(&world.run(&["policy", "check", "--json", DANGEROUS]), 0);
    // An approval for always is refused, with an owner and without one, and loses nothing.
    let run = questions(&world)[0]["run"].as_str().unwrap().to_owned();
    let refused = || {
        world.fails(&["approvals", "allow", &run, "--always"], 74, "approved-rules.json: it is damaged");
        assert_eq!(fs::read_to_string(&path).unwrap(), DAMAGED);
        assert_eq!(questions(&world).len(), 1);
    };
    refused();
    let (running, _lines) = owner(&world);
    refused();
    running.signal(Signal::TERM);
    running.end();
    world.ok(&["approvals", "allow", &run]);
    assert_eq!((times_run(&world), fs::read_to_string(&path).unwrap().as_str()), (0, DAMAGED));
}

#[test]
fn a_model_that_repeats_a_denied_call_is_ended() {
    let world = World::new();
    let script = world.script(&json!([
        { "call": [{ "tool": "shell", "arguments": { "command": DANGEROUS } }], "repeat": "forever" },
    ]));
    let check = |run: &str, status: &str| {
        let records = world.journal(run);
        let ends: Vec<_> = records.iter().filter(|record| record["kind"] == "call.ended").collect();
        assert!(ends.iter().all(|end| end["status"] == status), "{ends:?}");
        let found: Vec<_> = ends.iter().map(|end| end["repetition"]["times"].as_u64()).collect();
        assert_eq!(found, [None, Some(2), Some(3), Some(4), Some(5)]);
        assert_eq!(ends[4]["repetition"]["pattern"], "same_failure");
        let shown = shown(&world, run);
        assert_eq!((times_run(&world), &shown["outcome"]), (0, &json!("loop_detected")), "{shown}");
    };
    // A person denies it once, and the counts survive the process.
    let mut command = world.hermod(&["run", &script, "--budget", "iterations=12", "--json", "do it"]);
    let output = command.envs([PERSON]).output().unwrap();
    assert_eq!(output.status.code(), Some(6), "{}", stderr(&output));
    world.ok(&["approvals", "deny", "last"]);
    resume(&world, 4);
    check("last", "not_started");
    // The policy denies it.
    let output = world.run(&["run", &script, "--budget", "iterations=12", "do it"]);
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
    check("last", "error");
}

#[test]
fn a_question_of_the_model_is_answered_with_text() {
    let world = World::new();
    let script = world.script(&json!([
        { "call": [{ "tool": "clarify", "arguments": { "question": "Which branch?", "choices": ["main", "next"] } }] },
        { "say": "read: {{result:1.1}}" },
    ]));
    let run = parked(&world, &script, &[]);
    let listed = world.ok(&["approvals", "list"]);
    assert!(listed.contains("Which branch?") && listed.contains("approvals answer"), "{listed}");
    world.fails(&["approvals", "allow", "last"], 2, "is a question: answer it with");
    world.fails(&["approvals", "answer", "last", " "], 2, "not blank");
    let (running, mut lines) = owner(&world);
    world.ok(&["approvals", "answer", "last", "next, please"]);
    lines.until("ended     completed");
    running.signal(Signal::TERM);
    running.end();
    assert_eq!(result(&world, &run), ("ok".into(), "next, please".into()));
    world.fails(&["approvals", "answer", "last", "again"], 2, "has no pending approval");

    // Without a person the model does not have the tool.
    let output = world.run(&["run", &script, "--json", "do it"]);
    assert!(texts(&output).0.contains("there is no tool `clarify`"), "{}", stderr(&output));
}
