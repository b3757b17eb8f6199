//! `hermod tree --follow` and `hermod stop --tree`, from the outside: the real binary.

use std::{
    fs,
    io::{BufRead, BufReader, Lines as Read, Write},
    os::unix::net::UnixListener,
    process::ChildStdout,
    thread::{self, JoinHandle},
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    running::{Running, texts},
    world::{World, object},
};

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
    assert!(first.starts_with(&format!("{id}  running, runs shell 0s  iterations 1 of ")), "{first}");
    world.release();
    let last = next(&mut seen, "completed");
    assert!(last.starts_with(&format!("{id}  completed  iterations 2 of ")), "{last}");
    assert!(seen.next().is_none(), "nothing follows the end");
    assert_eq!(follows.end().status.code(), Some(0));
    assert_eq!(running.end().status.code(), Some(0));
}

/// Takes the place of a process that holds the store: gives one connection these trees, one at each request.
fn holder(world: &World, trees: Vec<Value>) -> JoinHandle<()> {
    fs::create_dir_all(world.state()).unwrap();
    let listener = UnixListener::bind(world.state().join("control.sock")).unwrap();
    fs::write(world.state().join("control.token"), "token").unwrap();
    thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        assert_eq!(object(&lines.next().unwrap().unwrap()), json!({ "token": "token" }));
        for tree in trees {
            assert_eq!(object(&lines.next().unwrap().unwrap())["verb"], "tree");
            (&stream).write_all(format!("{}\n", json!({ "tree": tree })).as_bytes()).unwrap();
        }
    })
}

/// A run as the holder tells it.
fn node(n: u32, state: &str, children: &[Value]) -> Value {
    let id = format!("{n:026}");
    let at = "1970-01-01T00:00:00.000Z";
    let call = format!("{id}.1.1");
    let tool = json!({ "what": "tool", "call": call, "tool": "shell", "attempt": 1, "since": at });
    let waits = if state == "running" { vec![tool] } else { Vec::new() };
    json!({
        "id": id, "session": id, "state": state, "outcome": (state == "ended").then_some("completed"), "cause": null,
        "accepted_at": at, "started_at": at, "ended_at": null, "iterations": 1,
        "usage": { "input_tokens": 0, "output_tokens": 0 }, "parent": null, "input": "look", "limits": null,
        "spent": null, "reserved": null, "waits": waits, "children": children,
    })
}

/// A root with one subagent that ends, and then ends itself; what has not changed comes more than once.
fn changes() -> Vec<Value> {
    let tree = |root, child| json!([node(1, root, &[node(2, child, &[])])]);
    let (first, then) = (tree("running", "running"), tree("running", "ended"));
    vec![first.clone(), first.clone(), first, then.clone(), then, tree("ended", "ended")]
}

#[test]
fn what_has_not_changed_is_not_told_again() {
    let world = World::new();
    let held = holder(&world, changes());
    let told = world.ok(&["tree", "last", "--follow"]);
    held.join().unwrap();
    let snapshots: Vec<Vec<&str>> = told.split("\n\n").map(|snapshot| snapshot.lines().collect()).collect();
    assert_eq!(snapshots.len(), 3, "{told}");
    let is = |n: usize, root: &str, child: &str| {
        let [first, second] = snapshots[n][..] else { panic!("{told}") };
        assert!(
            first.contains(root) && second.starts_with("└─ 00000002  ") && second.contains(child),
            "{told}"
        );
    };
    is(0, "running, runs shell ", "running, runs shell ");
    is(1, "running, runs shell ", "completed  iterations 1  \"look\"");
    is(2, "completed  iterations 1", "completed");

    fs::remove_file(world.state().join("control.sock")).unwrap();
    let held = holder(&world, changes());
    let told = world.ok(&["tree", "last", "--follow", "--json"]);
    held.join().unwrap();
    let children: Vec<Value> =
        told.lines().map(|line| object(line)[0]["children"][0]["state"].clone()).collect();
    assert_eq!(children, ["running", "ended", "ended"]);
}

#[test]
fn a_run_is_told_with_its_task_and_its_account() {
    let world = World::new();
    let running = world.started(&[]);
    let node = &object(&world.ok(&["tree", "--json"]))[0];
    assert_eq!(
        (&node["input"], &node["parent"], &node["children"]),
        (&json!("wait"), &Value::Null, &json!([]))
    );
    assert!(node["limits"]["iterations"].as_u64() > node["spent"]["iterations"].as_u64(), "{node}");
    world.release();
    assert_eq!(running.end().status.code(), Some(0));
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
    assert!(out.contains("no process runs it") && out.lines().count() == 1, "{out}");
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
    world.fails(&["stop", "--tree", "--all"], 2, "cannot be used with");
    world.fails(&["stop", "nobody", "--tree"], 2, "no run or session `nobody`");
    assert!(world.ok(&["stop", "last", "--tree"]).contains("has ended: stopped (by command)"));
    assert_eq!(running.end().status.code(), Some(1));
}
