//! What waits behind a run that waits for a person: the real binary, killed with its runner and its command.

use std::{
    fs,
    process::{Output, Stdio},
    time::Duration,
};

use rustix::process::Signal;
use serde_json::json;

use crate::{
    killed_command::kill_command,
    running::{Running, until},
    world::{World, object, stderr},
};

const ALL: [&str; 5] = ["runs", "resume", "--all", "--wait", "--json"];
/// Notes its pid and waits to be released.
const COMMAND: &str = "echo $$ >> ran; while [ -e ran ] && [ ! -e release ]; do sleep 0.02; done";

/// Runs to its end, which must come soon, and exits with this code.
#[track_caller]
fn ends(world: &World, args: &[&str], code: i32) -> Output {
    let mut command = world.hermod(args);
    command.env("HERMOD_TOOLS__IN_DOUBT", "ask").stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = Running::new(command.spawn().unwrap());
    let mut left = 3_000;
    while running.child().try_wait().unwrap().is_none() {
        left -= 1;
        if left == 0 {
            running.signal(Signal::TERM);
            panic!("{args:?} hangs: {}", stderr(&running.end()));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let output = running.end();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {}", stderr(&output));
    output
}

/// Leaves a run behind that waits for a person, and says its id.
fn parked(world: &World) -> String {
    let script = world.script(&json!([
        { "call": [{ "tool": "shell", "arguments": { "command": COMMAND } }] },
        { "say": "first" },
    ]));
    let mut command = world.hermod(&["run", &script, "do it"]);
    command.env("HERMOD_TOOLS__IN_DOUBT", "ask").stdout(Stdio::piped()).stderr(Stdio::piped());
    let running = Running::new(command.spawn().unwrap());
    until("the command runs", || {
        fs::read_to_string(world.work().join("ran")).is_ok_and(|ran| ran.ends_with('\n'))
    });
    running.signal(Signal::KILL);
    running.end();
    kill_command(world);
    let result = ends(world, &["run", "--resume", "last", "--json"], 6);
    object(&String::from_utf8(result.stdout).unwrap())["run"].as_str().unwrap().to_owned()
}

#[test]
fn whoever_waits_for_a_run_behind_a_parked_one_is_told_and_waits_no_more() {
    let world = World::new();
    let first = parked(&world);
    let script = world.script(&json!([{ "say": "second" }]));
    let output = ends(&world, &["run", "--resume", "last", &script, "--json", "do it otherwise"], 6);
    let result = object(&String::from_utf8_lossy(&output.stdout));
    let second = result["run"].as_str().unwrap();
    assert_ne!(second, first);
    let told =
        format!("parked    run {first}, and run {second} waits behind it: answer with `hermod approvals`");
    assert!(stderr(&output).contains(&told), "{}", stderr(&output));
    assert_eq!(result["error"], "parked");
    let again = ends(&world, &["run", "--resume", second], 6);
    assert!(stderr(&again).contains(&told), "{}", stderr(&again));

    let states = |output: &Output| {
        let rows = object(&String::from_utf8_lossy(&output.stdout));
        let rows = rows.as_array().unwrap().iter();
        rows.map(|row| row["state"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(states(&ends(&world, &ALL, 6)), ["parked", "suspended"]);
    fs::write(world.work().join("release"), "").unwrap();
    world.ok(&["approvals", "allow", &first]);
    assert_eq!(states(&ends(&world, &ALL, 0)), ["ended", "ended"]);
}
