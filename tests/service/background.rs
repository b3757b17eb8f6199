//! A service in the background: it ends when it is idle, makes way for another service, and is started by a client.

use std::fs;

use serde_json::json;

use crate::{
    running::until,
    served::{Served, scripts},
    world::World,
};

/// A service whose script runs a command for longer than it may be idle.
fn slow() -> Served {
    let steps = json!([
        { "call": [{ "tool": "shell", "arguments": { "command": "sleep 1; echo done" } }] },
        { "say": "It said {{result:1.1#/stdout | trim}}." },
    ]);
    let mut served = Served::start(&json!([{ "steps": steps }]));
    served.stop();
    served
}

#[test]
fn it_ends_when_it_is_idle_and_not_before_its_runs() {
    let mut served = slow();
    served.start_in_background("300ms");
    served.world.ok(&["send", "s", "work"]);
    served.has_ended();
    let shown = served.world.ok(&["runs", "list", "--json"]);
    assert!(
        shown.contains(r#""outcome": "completed""#) || shown.contains(r#""outcome":"completed""#),
        "{shown}"
    );
}

#[test]
fn a_schedule_keeps_it() {
    let mut served = slow();
    served.world.ok(&["schedules", "add", "soon", "--every", "1s", "--text", "work"]);
    served.start_in_background("100ms");
    let history = || served.world.ok(&["schedules", "history", "soon", "--json"]);
    until("an occurrence runs", || history().contains("ran"));
    served.world.ok(&["schedules", "remove", "soon"]);
    served.has_ended();
}

#[test]
fn another_service_takes_its_place_and_its_runs() {
    let mut served = Served::start(&scripts());
    served.stop();
    served.start_in_background("10m");
    let run = served.begin_waiting();
    served.replace();
    served.world.release();
    assert_eq!(served.outcome(&run), "completed");
    assert_eq!(served.world.times_run(), 1);
    // A service that is none in the background stays.
    served.world.fails(&["serve", "--rehearse", "--listen", "127.0.0.1:0"], 75, "");
}

#[test]
fn a_client_starts_it_or_tells_why_it_cannot() {
    let world = World::new();
    world.configure("model = \"rehearsal/none\"\n");
    world.fails(&["send", "s", "hello"], 2, "with --start");
    fs::create_dir_all(world.state()).unwrap();
    fs::write(world.state().join("hermod.redb"), "no store").unwrap();
    world.fails(
        &["send", "s", "hello", "--start"],
        70,
        "the service in the background has ended at its start",
    );
}
