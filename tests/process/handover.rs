//! Several `hermod run` in one state directory: the process that holds the store carries out the runs of the others, and
//! they follow it over its end. With a service and without one.

use std::{fs, process::Stdio};

use image::ImageFormat;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    pictures::picture,
    resume::{killed_at, left},
    running::{Lines, Running, kinds, texts, until},
    world::{World, object},
};

const SERVE: [&str; 4] = ["serve", "--rehearse", "--listen", "127.0.0.1:0"];
/// Number of commands at once.
const RUNS: usize = 10;

/// Starts a service, and returns when it serves.
pub(crate) fn serve(world: &World) -> Running {
    serve_with(world, &[])
}

fn serve_with(world: &World, settings: &[(&str, &str)]) -> Running {
    let mut command = world.hermod(&SERVE);
    command.envs(settings.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut service = Running::new(command.spawn().unwrap());
    let mut lines = Lines::of(&mut service);
    lines.until("serving   http://");
    // Its progress is not read any more: a full pipe must not hold it up.
    std::thread::spawn(move || lines.rest());
    service
}

/// A script of its own for the run `n`, and the option that plays it. Its command notes its number, and waits for
/// `release` if it has to.
pub(crate) fn script(world: &World, n: usize, waits: bool) -> String {
    let wait = if waits { "; while [ -e effects ] && [ ! -e release ]; do sleep 0.02; done" } else { "" };
    let command = format!("echo {n} >> effects{wait}");
    let steps = json!([
        { "call": [{ "tool": "shell", "arguments": { "command": command } }] },
        { "say": format!("answer {n}") },
    ]);
    let path = world.state().with_file_name(format!("script{n}.json"));
    fs::write(&path, json!({ "name": "t", "scripts": [{ "steps": steps }] }).to_string()).unwrap();
    format!("--rehearse={}", path.display())
}

pub(crate) fn start(world: &World, n: usize, more: &[&str]) -> Running {
    let (script, task) = (script(world, n, true), format!("do {n}"));
    world.running(&[&["run", &script, &task], more].concat())
}

/// The effects of the commands, sorted.
fn effects(world: &World) -> Vec<usize> {
    let effects = fs::read_to_string(world.work().join("effects")).unwrap_or_default();
    let mut effects: Vec<usize> = effects.lines().map(|line| line.parse().unwrap()).collect();
    effects.sort_unstable();
    effects
}

/// Waits until as many commands have begun.
pub(crate) fn until_begun(world: &World, count: usize) {
    until("the commands run", || effects(world).len() == count);
}

/// Checks that a command has ended with its own answer.
#[track_caller]
fn check_answer(running: Running, n: usize) -> String {
    let output = running.end();
    let (answer, progress) = texts(&output);
    assert_eq!(output.status.code(), Some(0), "{n}: {progress}");
    assert_eq!(answer, format!("[rehearsal] answer {n}\n"), "{progress}");
    progress
}

/// Checks that each run has ended as `completed`, except these, and that each effect is there once.
#[track_caller]
fn check_once(world: &World, count: usize, others: &[&str]) {
    assert_eq!(effects(world), (0..count).collect::<Vec<_>>());
    let runs = object(&world.ok(&["runs", "list", "--json"]));
    let mut outcomes: Vec<&str> =
        runs.as_array().unwrap().iter().map(|run| run["outcome"].as_str().unwrap_or("none")).collect();
    outcomes.retain(|outcome| *outcome != "completed");
    assert_eq!((runs.as_array().unwrap().len(), &outcomes[..]), (count, others), "{runs}");
}

#[test]
fn ten_runs_at_once_each_get_their_own_answer() {
    let world = World::new();
    let runs: Vec<Running> =
        (0..RUNS).map(|n| world.running(&["run", &script(&world, n, false), &format!("do {n}")])).collect();
    for (n, run) in runs.into_iter().enumerate() {
        check_answer(run, n);
    }
    check_once(&world, RUNS, &[]);
}

#[test]
fn a_run_that_has_ended_leaves_the_others_to_the_next_holder() {
    let world = World::new();
    let mut owner = world.running(&["run", &script(&world, 0, true), "do 0", "--timeout", "1h"]);
    Lines::of(&mut owner).until("asks ");
    let runs: Vec<Running> = (1..4).map(|n| start(&world, n, &[])).collect();
    until_begun(&world, 4);
    // Its end suspends the runs of the others, which go on where they were.
    world.ok(&["stop", "--json", &run_of(&world, "do 0")]);
    assert_eq!(owner.end().status.code(), Some(1), "stopped by command");
    world.release();
    for (n, run) in (1..).zip(runs) {
        let progress = check_answer(run, n);
        assert!(progress.contains("handover  process "), "{progress}");
    }
    check_once(&world, 4, &["stopped"]);
}

/// The id of the run with this input.
#[track_caller]
pub(crate) fn run_of(world: &World, input: &str) -> String {
    let runs = object(&world.ok(&["runs", "list", "--json"]));
    let run = runs.as_array().unwrap().iter().find(|run| run["input"] == input);
    run.expect("the run is there")["id"].as_str().unwrap().to_owned()
}

#[test]
fn ten_runs_at_once_at_a_service_that_is_killed_and_restarted() {
    let world = World::new();
    let service = serve(&world);
    let runs: Vec<Running> = (0..RUNS)
        .map(|n| start(&world, n, if n == 3 { &["--budget", "iterations=1"] } else { &[] }))
        .collect();
    until_begun(&world, RUNS);
    service.signal(Signal::KILL);
    service.end();
    let service = serve(&world);
    world.release();
    for (n, run) in runs.into_iter().enumerate() {
        if n == 3 {
            let output = run.end();
            assert_eq!(output.status.code(), Some(3), "its own exit code: {}", texts(&output).1);
            continue;
        }
        let progress = check_answer(run, n);
        assert!(progress.contains("has gone; run "), "{progress}");
        assert_eq!(progress.matches("tool 1.1  shell {").count(), 1, "{progress}");
    }
    check_once(&world, RUNS, &["budget_exhausted"]);
    service.signal(Signal::TERM);
    assert_eq!(service.end().status.code(), Some(0));
}

#[test]
fn a_service_that_does_not_come_back_is_replaced_by_its_clients() {
    let world = World::new();
    let service = serve(&world);
    let runs: Vec<Running> = (0..3).map(|n| start(&world, n, &[])).collect();
    until_begun(&world, 3);
    service.signal(Signal::TERM);
    assert_eq!(service.end().status.code(), Some(0));
    world.release();
    for (n, run) in runs.into_iter().enumerate() {
        check_answer(run, n);
    }
    check_once(&world, 3, &[]);
}

#[test]
fn an_interrupt_stops_its_own_run_alone() {
    let world = World::new();
    let service = serve(&world);
    let (stopped, other) = (start(&world, 0, &["--json"]), start(&world, 1, &[]));
    until_begun(&world, 2);
    stopped.signal(Signal::INT);
    let output = stopped.end();
    let (result, progress) = texts(&output);
    assert_eq!(output.status.code(), Some(130), "{progress}");
    let result = object(&result);
    assert_eq!((&result["outcome"], &result["reason"]), (&json!("stopped"), &json!("signal")), "{result}");
    world.release();
    check_answer(other, 1);
    check_once(&world, 2, &["stopped"]);
    service.signal(Signal::TERM);
    service.end();
}

#[test]
fn a_client_that_is_ended_leaves_its_run_to_the_service() {
    let world = World::new();
    let service = serve(&world);
    // Where these tests are started with SIGHUP ignored, so is it by the client: SIGKILL ends it then.
    let gone: &[Signal] = &[Signal::HUP, Signal::KILL];
    for (n, signals, code) in [(0, &[Signal::TERM][..], Some(143)), (1, gone, None)] {
        let run = start(&world, n, &[]);
        until_begun(&world, n + 1);
        let id = run_of(&world, &format!("do {n}"));
        signals.iter().for_each(|signal| run.signal(*signal));
        let output = run.end();
        let (_, progress) = texts(&output);
        assert_eq!(output.status.code(), code, "{progress}");
        if code.is_some() {
            let line = format!("left      run {id}: it goes on in process {}", service.pid());
            assert!(progress.contains(&line), "{progress}");
        }
        let shown = object(&world.ok(&["runs", "show", &id, "--json"]));
        assert_eq!(shown["state"], "running", "{shown}");
    }
    // One of them is followed again, the other one is waited for.
    let followed = world.running(&["run", "--resume", &run_of(&world, "do 0")]);
    let waited = world.running(&["runs", "resume", "--wait", &run_of(&world, "do 1")]);
    assert_eq!(world.ok(&["runs", "resume", "--all"]), "", "the service goes on with them");
    world.release();
    check_answer(followed, 0);
    check_answer(waited, 1);
    check_once(&world, 2, &[]);
    service.signal(Signal::TERM);
    service.end();
}

#[test]
fn a_client_prints_what_an_owner_prints() {
    let say = |world: &World, args: &[&str]| {
        let output = world.run(&[&["run", &script(world, 0, false), "--json"], args].concat());
        assert_eq!(output.status.code(), Some(0), "{}", texts(&output).1);
        object(&texts(&output).0)
    };
    let (own, served) = (World::new(), World::new());
    let service = serve(&served);
    let args = ["--session", "k", "--key", "one", "--task-id", "t", "hi"];
    let (mine, theirs) = (say(&own, &args), say(&served, &args));
    let stable = |result: &Value| {
        let names = ["isolation_key", "outcome", "answer", "answer_source", "iterations", "unpriced"];
        (names.map(|name| result[name].clone()), result["messages"].clone())
    };
    assert_eq!(stable(&mine), stable(&theirs));
    let names = |result: &Value| result.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&mine), names(&theirs));
    // The key stands for the run, and the conversation goes on.
    assert_eq!(say(&served, &args), theirs);
    let conflict = [&args[..6], &["other"]].concat();
    served.fails(&[&["run", "--rehearse"], &conflict[..]].concat(), 2, "--key ");
    let next = say(&served, &["--resume", "k", "and more"]);
    assert_eq!(next["session"], theirs["session"]);
    served.fails(&["run", "--resume", "k"], 2, "--resume: this session has no unfinished run");
    served.fails(&["run", "--rehearse", "--durability", "strict", "hi"], 2, "--durability: process ");
    served.fails(&["run", "--model", "no/model", "hi"], 78, "no");
    service.signal(Signal::TERM);
    service.end();
}

#[test]
fn a_task_that_waits_for_its_acceptance_is_not_lost_by_an_interrupt() {
    let world = World::new();
    // After repeated crashes, an owner accepts nothing until the unfinished runs have been tried.
    let suspect = left(&world, &json!([{ "say": "late", "delay": "5m" }]), Signal::KILL);
    (0..2).for_each(|_| killed_at(&world, "asks "));
    let service = serve(&world);
    let mut client = world.running(&["run", &script(&world, 0, true), "do 0"]);
    let mut lines = Lines::of(&mut client);
    lines.until("has not accepted the task yet");
    client.signal(Signal::INT);
    lines.until("interrupt the run is stopped once it is accepted");
    world.ok(&["stop", &suspect]);
    let progress = lines.rest();
    assert_eq!(client.end().status.code(), Some(130), "{progress}");
    assert!(progress.contains("ended     stopped"), "{progress}");
    service.signal(Signal::TERM);
    service.end();
}

#[test]
fn a_long_task_with_pictures_crosses_over() {
    let world = World::new();
    let service = serve(&world);
    let picture = picture(ImageFormat::Png, (400, 400));
    assert!(picture.len() > 400_000);
    fs::write(world.work().join("p.png"), &picture).unwrap();
    let text = "long ".repeat(20_000);
    world.ok(&["run", &script(&world, 0, false), "--image", "p.png", &text]);
    let accepted = world.journal("last");
    let accepted = accepted.iter().find(|record| record["kind"] == "run.accepted").unwrap();
    assert_eq!(accepted["input"].as_str().map(str::len), Some(text.len()));
    assert_eq!(accepted["images"][0]["bytes"], json!(picture.len()), "{}", accepted["images"]);
    let left = fs::read_dir(world.state().join("submissions")).unwrap().count();
    assert_eq!(left, 0, "the file is removed");
    service.signal(Signal::TERM);
    service.end();
}

#[test]
fn a_run_that_waits_for_a_person_is_left_at_the_service() {
    let world = World::new();
    let service = serve_with(&world, &[("HERMOD_APPROVALS__APPROVER", "person")]);
    let script = world.script(&json!([
        { "call": [{ "tool": "shell", "arguments": { "command": "chmod -R 777 ." } }] },
        { "say": "done" },
    ]));
    let output = world.run(&["run", &script, "do it"]);
    let (_, progress) = texts(&output);
    assert_eq!(output.status.code(), Some(6), "{progress}");
    assert!(progress.contains("parked    run "), "{progress}");
    assert_eq!(world.run(&["run", "--resume", "last"]).status.code(), Some(6), "still");
    world.ok(&["approvals", "allow", "last"]);
    let output = world.run(&["runs", "resume", "--wait", "--all"]);
    assert_eq!(output.status.code(), Some(0), "{}", texts(&output).1);
    until("it has ended", || kinds(&world.journal("last")).last() == Some(&"run.ended"));
    service.signal(Signal::TERM);
    service.end();
}
