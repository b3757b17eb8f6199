//! The memory flush before a summary: what a model finds is in the memory files, once, also if the process is killed before
//! the write.

use std::{fs, process::Output};

use hermod::memory::{MemoryFiles, Target};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    running::{Lines, kinds, until},
    world::{World, object, stderr},
};

const CONFIG: &str =
    "[models.t]\nwindow = 32000\n[compression]\nahead = false\n[auxiliary.memory]\nchain = [\"x/y\"]\n";
const FOUND: &str =
    "Here:\n- memory: The harbour is Ostend\n- user: Sails alone\nmemory: The harbour is Ostend";

/// A run whose view is compacted once and whose flush answers this, with this configuration; the option that plays it.
fn script(world: &World, config: &str, flush: &str) -> String {
    world.configure(config);
    let call = json!([{ "tool": "current_time" }]);
    let step = |n: usize| json!({ "say": format!("{n} {}", "x".repeat(6_000)), "call": call });
    let mut steps: Vec<Value> = (1..=12).map(step).collect();
    steps.push(json!({ "say": "done" }));
    let scripts = json!([
        { "when": "/^# The part of the conversation that goes/", "steps": [{ "say": flush }] },
        { "when": "/^# The (conversation|notes)/", "steps": [{ "say": "Notes: so far so good." }] },
        { "steps": steps },
    ]);
    let path = world.work().with_file_name("long.json");
    fs::write(&path, json!({ "name": "t", "scripts": scripts }).to_string()).unwrap();
    format!("--rehearse={}", path.display())
}

/// The records of a run that has completed.
#[track_caller]
fn records(world: &World, output: &Output) -> Vec<Value> {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
    let result = object(&String::from_utf8_lossy(&output.stdout));
    assert_eq!(result["outcome"], "completed", "{result}");
    world.journal(result["run"].as_str().unwrap())
}

fn files(world: &World) -> MemoryFiles {
    MemoryFiles::new(&world.state(), 2_200, 1_375)
}

fn entries(world: &World, target: Target) -> Vec<String> {
    files(world).lock(|| true).unwrap().read(target).unwrap().all().to_vec()
}

/// The position of the first record of this kind.
#[track_caller]
fn first(records: &[Value], kind: &str) -> usize {
    let position = records.iter().position(|record| record["kind"] == kind);
    position.unwrap_or_else(|| panic!("no {kind} in {:?}", kinds(records)))
}

#[test]
fn what_is_worth_it_is_remembered_before_the_view_is_compacted() {
    let world = World::new();
    let script = script(&world, CONFIG, FOUND);
    let output = world.run(&["run", "--json", &script, "go"]);
    let records = records(&world, &output);
    let order = ["aside.started", "aside.answered", "memory.saved", "summary.started", "context.compacted"];
    assert!(order.map(|kind| first(&records, kind)).is_sorted(), "{:?}", kinds(&records));
    let call = records[first(&records, "aside.started")]["call"].as_str().unwrap();
    assert!(call.ends_with(".1.memory"), "{call}");
    let saved = &records[first(&records, "memory.saved")];
    assert_eq!((&saved["added"], &saved["present"], &saved["refused"]), (&json!(2), &json!(0), &Value::Null));
    assert_eq!(entries(&world, Target::Memory), ["The harbour is Ostend"]);
    assert_eq!(entries(&world, Target::User), ["Sails alone"]);
    assert!(stderr(&output).contains("memory    2 added"), "{}", stderr(&output));
}

#[test]
fn a_policy_that_denies_the_tool_turns_the_flush_off() {
    let world = World::new();
    let config = format!("{CONFIG}[policy]\ndeny = [\"memory\"]\n");
    let script = script(&world, &config, FOUND);
    let records = records(&world, &world.run(&["run", "--json", &script, "go"]));
    let failed = &records[first(&records, "aside.failed")];
    assert!(failed.to_string().contains("memory"), "{failed}");
    assert!(
        !kinds(&records).contains(&"aside.started") && !world.state().join("memories/MEMORY.md").exists()
    );
    first(&records, "context.compacted");
}

#[test]
fn a_refused_entry_is_named_and_the_others_are_kept() {
    let world = World::new();
    let config = format!("{CONFIG}[policy]\ndeny = [\"memory(*secret*)\"]\n");
    let script =
        script(&world, &config, "Here:\nmemory: the secret harbour\nmemory: a\u{202e}b\nuser: Sails alone");
    let records = records(&world, &world.run(&["run", "--json", &script, "go"]));
    let saved = &records[first(&records, "memory.saved")];
    let refused: Vec<_> = saved["refused"].as_array().unwrap().iter().map(|one| &one["n"]).collect();
    assert_eq!((&saved["added"], refused), (&json!(1), vec![&json!(1), &json!(2)]), "{saved}");
    assert!(saved["refused"][1]["reason"].as_str().unwrap().contains("U+202E"), "{saved}");
    assert_eq!(entries(&world, Target::Memory), [""; 0]);
    assert_eq!(entries(&world, Target::User), ["Sails alone"]);
}

#[test]
fn entries_are_written_once_after_a_kill_between_the_answer_and_the_write() {
    let world = World::new();
    let script = script(&world, CONFIG, FOUND);
    // The write waits for it.
    let locked = files(&world).lock(|| true).unwrap();
    let mut running = world.running(&["run", &script, "go"]);
    let mut lines = Lines::of(&mut running);
    let accepted = lines.until("accepted  run ");
    let run = accepted.split(' ').nth(3).unwrap().to_owned();
    lines.until("memory    asks ");
    until("the answer is on disk", || kinds(&world.journal(&run)).contains(&"aside.answered"));
    running.signal(Signal::KILL);
    running.end();
    assert_eq!(locked.read(Target::Memory).unwrap().all(), [""; 0]);
    drop(locked);
    let before = world.journal(&run);
    assert!(!kinds(&before).contains(&"memory.saved"), "{:?}", kinds(&before));
    let resumed = world.run(&["runs", "resume", "--all", "--wait"]);
    assert_eq!(resumed.status.code(), Some(0), "{}", stderr(&resumed));
    let records = world.journal(&run);
    let count = |kind: &str| kinds(&records).iter().filter(|one| **one == kind).count();
    assert_eq!((count("memory.saved"), count("aside.started")), (1, 1), "{:?}", kinds(&records));
    assert!(first(&records, "memory.saved") < first(&records, "summary.started"));
    assert_eq!(entries(&world, Target::Memory), ["The harbour is Ostend"]);
    assert_eq!(entries(&world, Target::User), ["Sails alone"]);
}
