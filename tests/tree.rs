//! `hermod tree --follow` and `hermod stop --tree`, from the outside: the real binary.
#![allow(clippy::unwrap_used)] // a test ends where it fails

mod common;

use std::io::{BufRead, BufReader, Lines as Read};
use std::process::ChildStdout;

use common::{Running, World, object, texts};
use rustix::process::Signal;
use serde_json::{Value, json};

/// What a process writes to standard output, as it comes.
fn lines(running: &mut Running) -> Read<BufReader<ChildStdout>> {
    BufReader::new(running.child().stdout.take().unwrap()).lines()
}

/// The next line with this part; those before it are read over.
#[track_caller]
fn next(lines: &mut Read<BufReader<ChildStdout>>, part: &str) -> String {
    lines.map(|line| line.unwrap()).find(|line| line.contains(part)).expect(part)
}

#[test]
fn a_tree_is_followed_until_its_root_has_ended() {
    let world = World::new();
    let running = world.started(&[]);
    let id = object(&world.ok(&["runs", "show", "last", "--json"]))["id"].as_str().unwrap().to_owned();
    let mut follows = world.running(&["tree", "last", "--follow"]);
    let mut seen = lines(&mut follows);
    let first = next(&mut seen, "runs shell");
    assert!(first.starts_with(&format!("{id}  running, runs shell 0s  iterations 1/")), "{first}");
    world.release();
    let last = next(&mut seen, "completed");
    assert!(last.starts_with(&format!("{id}  completed  iterations 2/")), "{last}");
    assert!(seen.next().is_none(), "nothing follows the end");
    assert_eq!(follows.end().status.code(), Some(0));
    assert_eq!(running.end().status.code(), Some(0));
}

#[test]
fn what_has_not_changed_is_not_told_again() {
    let world = World::new();
    let running = world.started(&[]);
    let mut follows = world.running(&["tree", "--follow", "--json"]);
    let mut seen = lines(&mut follows);
    let mut snapshots = vec![object(&next(&mut seen, "\"tool\""))];
    // As many answers as the holder would give in this time, of which none is new.
    std::thread::sleep(std::time::Duration::from_millis(900));
    world.ok(&["stop", "last"]);
    snapshots.extend(seen.map(|line| object(&line.unwrap())));
    assert!(snapshots.windows(2).all(|two| two[0] != two[1]), "{snapshots:?}");
    assert!(snapshots.len() <= 4, "{snapshots:?}");
    assert_eq!(snapshots.last(), Some(&json!([])), "without a run it is told what has not ended");
    let node = &snapshots[0][0];
    assert_eq!((&node["task"], &node["parent"], &node["children"]), (&json!("wait"), &Value::Null, &json!([])));
    assert!(node["limits"]["iterations"].as_u64() > node["spent"]["iterations"].as_u64(), "{node}");
    assert_eq!(follows.end().status.code(), Some(0));
    assert_eq!(running.end().status.code(), Some(1), "stopped by command");
}

#[test]
fn a_signal_ends_the_watching_only() {
    let world = World::new();
    let running = world.started(&[]);
    let mut follows = world.running(&["tree", "last", "--follow"]);
    next(&mut lines(&mut follows), "runs shell");
    follows.signal(Signal::INT);
    assert_eq!(follows.end().status.code(), Some(130));
    world.release();
    assert_eq!(running.end().status.code(), Some(0));
}

#[test]
fn there_is_nothing_to_follow_where_nothing_runs() {
    let world = World::new();
    let running = world.started(&[]);
    running.signal(Signal::TERM);
    assert_eq!(running.end().status.code(), Some(143));
    let (out, err) = texts(&world.run(&["tree", "last", "--follow"]));
    assert!(out.contains("nobody runs it") && out.lines().count() == 1, "{out}");
    assert!(err.contains("there is nothing to follow"), "{err}");
    assert_eq!(texts(&world.run(&["tree", "--follow"])).0, out, "the same without its name");
    let stopped = object(&world.ok(&["stop", "last", "--tree", "--json"]));
    assert_eq!((stopped[0]["outcome"].as_str(), stopped.as_array().unwrap().len()), (Some("stopped"), 1));
    let (out, err) = texts(&world.run(&["tree", "last", "--follow"]));
    assert!(out.contains("  stopped  ") && err.is_empty(), "{out}{err}");
    assert_eq!(texts(&world.run(&["tree", "--follow"])).0, "no run is unfinished\n");
}

#[test]
fn a_tree_is_stopped_by_any_run_of_it() {
    let world = World::new();
    let running = world.started(&[]);
    world.fails(&["stop", "--tree"], 2, "<RUN>");
    world.fails(&["stop", "--tree", "--all"], 2, "<RUN>");
    world.fails(&["stop", "nobody", "--tree"], 2, "no run or session `nobody`");
    assert!(world.ok(&["stop", "last", "--tree"]).contains("has ended: stopped (by command)"));
    assert_eq!(running.end().status.code(), Some(1));
}
