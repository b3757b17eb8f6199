//! `hermod backup`: made while runs work, looked through, made a store again, and gone on with.

mod damage;
mod making;
mod restored;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

use crate::world::{World, object, stderr};

const ALL: [&str; 4] = ["runs", "resume", "--all", "--wait"];

/// What a shell is to do.
fn shell(command: &str) -> Value {
    json!({ "call": [{ "tool": "shell", "arguments": { "command": command } }] })
}

/// A folder beside the workspace.
fn beside(world: &World, name: &str) -> String {
    world.state().with_file_name(name).to_str().unwrap().to_owned()
}

/// `hermod` with this state directory.
fn elsewhere(world: &World, state: &str, args: &[&str]) -> Command {
    let mut command = world.hermod(args);
    command.env("HERMOD_HOME", state);
    command
}

#[track_caller]
fn ok(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// All files below a folder, and what they hold.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut found, mut open) = (BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                found.insert(path.clone(), fs::read(path).unwrap());
            }
        }
    }
    found
}

/// A store with all kinds of files in it, whose only run has ended; its key is `k`.
fn full(world: &World) -> String {
    let long = "x".repeat(20_000);
    let script = world.script(&json!([shell("seq 1 200000"), { "say": "{{user}}" }]));
    let run = object(&world.ok(&["run", &script, "--key", "k", "--json", &long]));
    // What other parts keep there.
    fs::create_dir(world.state().join("credentials")).unwrap();
    fs::write(world.state().join("credentials/acme.json"), "hunter2").unwrap();
    remember(world, "it rains");
    run["run"].as_str().unwrap().to_owned()
}

/// Makes this what agents remember, with what else lies there.
fn remember(world: &World, text: &str) {
    let folder = world.state().join("memories");
    fs::create_dir_all(&folder).unwrap();
    for (name, text) in [("MEMORY.md", text), (".lock", ""), (".USER.md.part", "hunter2")] {
        fs::write(folder.join(name), text).unwrap();
    }
}

fn remembered(state: &Path) -> String {
    fs::read_to_string(state.join("memories/MEMORY.md")).unwrap()
}

/// Adds eight files of `mib` MiB each to what a backup copies. They are holes: only a copy takes space on the disk.
fn heavy(world: &World, mib: u64) {
    fs::create_dir_all(world.state().join("scripts")).unwrap();
    for n in 0..8 {
        let file = fs::File::create(world.state().join(format!("scripts/{n}.json"))).unwrap();
        file.set_len(mib << 20).unwrap();
    }
}
