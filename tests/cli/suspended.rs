//! A run that no process runs is told as suspended, by every command that tells of it, and with what it has done so far.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    running::{Lines, Running, texts},
    world::{World, object},
};

/// What every command that tells of the first run says of its state, and of its iterations.
#[track_caller]
fn check(world: &World, run: &str, state: &str) {
    for (args, pointer) in [
        (&["runs", "list", "--json"][..], "/0"),
        (&["runs", "show", run, "--json"], ""),
        (&["sessions", "show", run, "--json"], "/runs/0"),
        (&["tree", run, "--json"], "/0"),
        (&["budget", "show", run, "--json"], ""),
    ] {
        let printed = object(&world.ok(args));
        let told = printed.pointer(pointer).unwrap();
        assert_eq!(
            (&told["id"], &told["state"], &told["iterations"]),
            (&json!(run), &json!(state), &json!(1)),
            "{args:?}"
        );
    }
    for args in [
        &["runs", "list"][..],
        &["runs", "show", run],
        &["sessions", "show", run],
        &["tree", run],
        &["budget", "show", run],
    ] {
        let printed = world.ok(args);
        let others = ["queued", "running", "suspended", "parked"];
        let told: Vec<&str> = others.into_iter().filter(|word| printed.contains(word)).collect();
        assert_eq!(told, [state], "{args:?}: {printed}");
    }
}

fn id(world: &World) -> String {
    object(&world.ok(&["runs", "show", "last", "--json"]))["id"].as_str().unwrap().to_owned()
}

#[test]
fn a_run_without_a_process_is_suspended_however_it_lost_it() {
    for signal in [Signal::TERM, Signal::KILL] {
        let world = World::new();
        let running = world.started(&[]);
        let run = id(&world);
        check(&world, &run, "running");
        running.signal(signal);
        running.end();
        check(&world, &run, "suspended");
        // Another process has the store, and runs another run.
        let script = world.script(&json!([{ "say": "late", "delay": "5m" }]));
        let mut other = world.running(&["run", &script, "other"]);
        Lines::of(&mut other).until("model 1   asks");
        let rows = object(&world.ok(&["runs", "list", "--json"]));
        let states: Vec<&Value> = rows.as_array().unwrap().iter().map(|row| &row["state"]).collect();
        assert_eq!(states, ["suspended", "running"]);
        world.ok(&["stop", "last"]);
        other.end();
        world.release();
        world.ok(&["runs", "resume", &run, "--wait"]);
        assert_eq!(object(&world.ok(&["runs", "show", &run, "--json"]))["state"], "ended");
    }
}

/// Lets the run go on until its command is attached to, and suspends it again.
fn resumed(world: &World, more: &[&str]) -> (String, String) {
    let mut running: Running = world.running(&[&["runs", "resume", "--all"], more].concat());
    let mut lines = Lines::of(&mut running);
    lines.until("taken up again");
    running.signal(Signal::TERM);
    let rest = lines.rest();
    let output = running.end();
    assert_eq!(output.status.code(), Some(143), "{rest}");
    texts(&output)
}

#[test]
fn a_suspended_run_has_its_iterations_in_what_a_resume_prints() {
    let world = World::new();
    let running = world.started(&[]);
    let run = id(&world);
    running.signal(Signal::TERM);
    running.end();
    let (json, _) = resumed(&world, &["--json"]);
    let row = &object(&json)[0];
    assert_eq!(
        (&row["id"], &row["state"], &row["iterations"]),
        (&json!(run), &json!("suspended"), &json!(1))
    );
    assert!(row["usage"]["input_tokens"].as_u64().unwrap() > 0, "{row}");
    let (table, _) = resumed(&world, &[]);
    let line = table.lines().find(|line| line.starts_with(&run)).unwrap();
    let cells: Vec<&str> = line.split_whitespace().collect();
    assert_eq!((cells[1], cells[3]), ("suspended", "1"), "{table}");
    world.ok(&["stop", "--all"]);
}
