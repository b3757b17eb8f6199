//! The guard against loops: a run whose model repeats its calls is warned and ended, also across a kill.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    running::Lines,
    world::{World, object, stderr},
};

/// A model that lists the folder for ever, each time after this delay.
fn forever(delay: &str) -> Value {
    json!([{ "call": [{ "tool": "list_files", "arguments": {} }], "repeat": "forever", "delay": delay }])
}

/// The `times` of the repetitions in the last run's journal, and the number of its calls.
fn counted(world: &World) -> (Vec<u64>, usize) {
    let records = world.journal("last");
    let ends: Vec<_> = records.iter().filter(|record| record["kind"] == "call.ended").collect();
    (ends.iter().filter_map(|end| end["repetition"]["times"].as_u64()).collect(), ends.len())
}

#[test]
fn a_run_that_repeats_itself_is_warned_and_ended() {
    let world = World::new();
    let output = world.run(&["run", &world.script(&forever("1ms")), "--json", "look"]);
    let (result, progress) = (object(&String::from_utf8_lossy(&output.stdout)), stderr(&output));
    assert_eq!((output.status.code(), &result["outcome"]), (Some(4), &json!("loop_detected")), "{progress}");
    let repetition = json!({ "pattern": "same_result", "tool": "list_files", "times": 5 });
    assert_eq!((&result["cause"], &result["repetition"]), (&json!("repetition"), &repetition), "{result}");
    let warned = "loop      `list_files` was called 3 times with the same arguments and the same result; the model is warned";
    assert!(progress.contains(warned), "{progress}");
    assert!(progress.contains(
        "`list_files` was called 5 times with the same arguments and the same result; the run ends"
    ));
    assert!(progress.contains("hermod run --resume"), "{progress}");
    assert_eq!(counted(&world), (vec![3, 4, 5], 5));
    let shown = object(&world.ok(&["runs", "show", "last", "--json"]));
    assert_eq!((&shown["outcome"], &shown["repetition"]), (&json!("loop_detected"), &repetition), "{shown}");
    assert!(world.ok(&["runs", "show", "last"]).contains("loop_detected"));
    // The model reads the warning with the third result.
    let messages: Vec<_> =
        result["messages"].as_array().unwrap().iter().map(|message| message["content"].to_string()).collect();
    let told: Vec<_> =
        messages.iter().filter(|text| text.contains("[From the runtime, not from the user:")).collect();
    assert_eq!(told.len(), 2, "{messages:?}");
}

#[test]
fn the_count_survives_a_kill() {
    let world = World::new();
    let mut running = world.running(&["run", &world.script(&forever("300ms")), "look"]);
    let mut lines = Lines::of(&mut running);
    lines.until("was called 3 times");
    running.signal(Signal::KILL);
    running.end();
    let output = world.run(&["runs", "resume", "--all", "--wait"]);
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
    assert_eq!(counted(&world), (vec![3, 4, 5], 5));
}

#[test]
fn without_the_guard_only_the_budget_ends_it() {
    let world = World::new();
    let script = world.script(&forever("1ms"));
    let mut command = world.hermod(&["run", &script, "--budget", "iterations=8", "look"]);
    let output = command.env("HERMOD_AGENT__LOOP_GUARD", "false").output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert_eq!(counted(&world), (Vec::new(), 8));
}
