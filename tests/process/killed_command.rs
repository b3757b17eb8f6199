//! A command that ends together with its runner, so that its end is unknown.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::{running::until, world::World};

/// Kills the only command that runs, whose pid is the last line of `ran`, and its runner before that can see it.
pub(crate) fn kill_command(world: &World) {
    let pid = |pid: i64| Pid::from_raw(pid.try_into().unwrap()).unwrap();
    let folders = fs::read_dir(world.state().join("spool")).unwrap().map(|entry| entry.unwrap().path());
    let started: Vec<Value> = folders
        .filter_map(|folder| serde_json::from_slice(&fs::read(folder.join("started")).ok()?).ok())
        .collect();
    assert_eq!(started.len(), 1, "{started:?}");
    let runner = pid(started[0]["pid"].as_i64().unwrap());
    let command =
        pid(fs::read_to_string(world.work().join("ran")).unwrap().lines().last().unwrap().parse().unwrap());
    kill_process(runner, Signal::STOP).unwrap();
    until("the runner is held", || {
        let stat = fs::read_to_string(format!("/proc/{runner}/stat")).unwrap();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
    });
    kill_process(command, Signal::KILL).unwrap();
    kill_process(runner, Signal::KILL).unwrap();
}
