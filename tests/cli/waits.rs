//! What runs wait for, from the outside: of a run under way, and of one that nobody runs.

use std::io::{BufRead, BufReader};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    running::{Running, texts},
    world::{World, object},
};

/// Starts a run whose model says nothing, and returns when it is asked.
fn stalled(world: &World, more: &[&str]) -> Running {
    let script = world.script(&json!([{ "say": "late", "delay": "5m" }]));
    let mut running = world.running(&[&["run", &script, "think"], more].concat());
    let progress = BufReader::new(running.child().stderr.as_mut().unwrap());
    progress.lines().map(|line| line.unwrap()).find(|line| line.starts_with("model 1   asks")).unwrap();
    running
}

fn show(world: &World, id: &str) -> (Value, String) {
    (object(&world.ok(&["runs", "show", id, "--json"])), world.ok(&["runs", "show", id]))
}

/// Milliseconds of a time of a JSON object.
fn ms(at: &Value) -> u64 {
    let at = humantime::parse_rfc3339(at.as_str().expect("a time")).unwrap();
    u64::try_from(at.duration_since(std::time::UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

/// The line of what is shown that begins so.
#[track_caller]
fn line<'a>(shown: &'a str, begin: &str) -> &'a str {
    shown.lines().find(|line| line.starts_with(begin)).unwrap_or_else(|| panic!("no `{begin}` in {shown}"))
}

#[test]
fn a_run_at_a_silent_model_says_what_it_waits_for_and_until_when() {
    let world = World::new();
    let running = stalled(&world, &["--timeout", "1h"]);
    let (run, shown) = show(&world, "last");
    let (model, limit) = (&run["waits"][0], &run["waits"][1]);
    assert_eq!((&model["what"], &model["attempt"]), (&json!("model"), &json!(1)), "{run}");
    let records = world.journal("last");
    let started = records.iter().find(|record| record["kind"] == "model.started").unwrap();
    assert_eq!((&model["since"], &model["model"]), (&started["at"], &started["model"]));
    let allowed = ms(&model["until"]) - ms(&model["since"]);
    assert!((1_800_000..=2_000_000).contains(&allowed), "{allowed} ms");
    assert_eq!((&limit["what"], &limit["limit_ms"]), (&json!("limit"), &json!(3_600_000)), "{run}");
    assert_eq!(limit["outcome"], "timed_out");
    assert_eq!(run["waits"].as_array().unwrap().len(), 2, "{run}");

    let waiting = line(&shown, "waiting ");
    for part in ["for the answer of ", model["since"].as_str().unwrap(), "gives up at "] {
        assert!(waiting.contains(part), "{waiting}");
    }
    assert!(line(&shown, "time limit ").contains("ends as timed_out at "), "{shown}");
    let tree = world.ok(&["tree"]);
    assert!(tree.contains(&format!("running, asks {} ", model["model"].as_str().unwrap())), "{tree}");
    assert_eq!(object(&world.ok(&["tree", "--json"]))[0]["waits"][0], *model);
    world.ok(&["stop", "last"]);
    assert_eq!(running.end().status.code(), Some(1));
    let (run, shown) = show(&world, "last");
    assert_eq!(run["waits"], json!([]));
    assert!(!shown.contains("waiting "), "{shown}");
}

/// A run waits for a process.
#[track_caller]
fn check_nobody(world: &World, id: &str) {
    let (run, shown) = show(world, id);
    let (waits, id) = (run["waits"].as_array().unwrap(), run["id"].as_str().unwrap());
    assert_eq!(waits.len(), 1, "no limit of the interrupted call holds: {run}");
    assert_eq!(waits[0]["what"], "process", "{run}");
    assert_eq!(waits[0]["since"], world.journal(id).last().unwrap()["at"]);
    let waiting = line(&shown, "waiting ");
    assert!(waiting.ends_with(&format!("no process runs it: `hermod runs resume {id}`")), "{waiting}");
    assert!(world.ok(&["tree", id]).contains("no process runs it"));
}

#[test]
fn a_run_that_nobody_runs_says_so() {
    let world = World::new();
    let killed = stalled(&world, &["--timeout", "1h"]);
    killed.signal(Signal::KILL);
    killed.end();
    check_nobody(&world, "last");
    // Whoever holds the store for another conversation does not run it either.
    let first = show(&world, "last").0["id"].as_str().unwrap().to_owned();
    let other = stalled(&world, &[]);
    check_nobody(&world, &first);
    assert_eq!(show(&world, "last").0["waits"][0]["what"], "model");
    world.ok(&["stop", "last"]);
    let (_, progress) = texts(&other.end());
    assert!(progress.contains("stopped"), "{progress}");
}

#[test]
fn a_run_at_a_command_says_which_one() {
    let world = World::new();
    let running = world.started(&[]);
    let (run, shown) = show(&world, "last");
    let shell = &run["waits"][0];
    assert_eq!((&shell["what"], &shell["tool"]), (&json!("tool"), &json!("shell")), "{run}");
    // The command's own limit of 2 min, what the tool adds to it, and what its result may take.
    let allowed = ms(&shell["until"]) - ms(&shell["since"]);
    assert!((120_000..=300_000).contains(&allowed), "{allowed} ms");
    assert!(line(&shown, "waiting ").contains("for shell, call 1.1, since "), "{shown}");
    world.release();
    assert_eq!(running.end().status.code(), Some(0));
}
