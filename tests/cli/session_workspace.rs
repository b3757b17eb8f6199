//! `sandbox.workspace = "session"`: each session works in a folder of its own.

use std::{fs, path::PathBuf};

use serde_json::json;

use crate::world::{World, object, stderr};

/// Runs two calls that tell where they are, and returns the workspace that the run records and its journal.
#[track_caller]
fn run(world: &World, more: &[&str]) -> (PathBuf, String) {
    let steps = json!([
        { "call": [{ "tool": "shell", "arguments": { "command": "pwd; ls; echo x >> by-shell" } }] },
        { "call": [{ "tool": "write_file", "arguments": { "path": "by-tool", "content": "x" } }] },
        { "say": "done" },
    ]);
    let script = world.script(&steps);
    let mut command = world.hermod(&["run", &script, "do it"]);
    let output = command.args(more).env("HERMOD_SANDBOX__WORKSPACE", "session").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{more:?}: {}", stderr(&output));
    let shown = object(&world.ok(&["runs", "show", "last", "--json"]));
    let workspace = PathBuf::from(shown["spec"]["workspace"].as_str().unwrap());
    (workspace, world.ok(&["journal", "last"]))
}

#[test]
fn each_session_works_in_its_own_folder_and_keeps_it() {
    let world = World::new();
    let sessions = world.work().canonicalize().unwrap().join("sessions");
    let (first, journal) = run(&world, &[]);
    assert_eq!(first.parent(), Some(&*sessions));
    assert!(journal.contains(&format!("Workspace: {}", first.display())), "the prompt names it: {journal}");
    let (again, _) = run(&world, &["--resume", "last"]);
    assert_eq!(again, first);
    assert_eq!(fs::read_to_string(first.join("by-shell")).unwrap(), "x\nx\n");
    assert_eq!(fs::read_to_string(first.join("by-tool")).unwrap(), "x");
    let (second, journal) = run(&world, &[]);
    assert_eq!((second.parent(), second != first), (Some(&*sessions), true));
    assert!(!journal.contains("by-shell\\\\n"), "{journal}");
    assert_eq!(fs::read_dir(&sessions).unwrap().count(), 2);
    assert_eq!(fs::read_dir(world.work()).unwrap().count(), 1, "nothing else is made");
}

#[test]
fn a_named_workspace_is_the_root_of_the_folders() {
    let world = World::new();
    let (first, _) = run(&world, &["--session", "mail/1", "--workspace", "root", "--create"]);
    let root = world.work().join("root").canonicalize().unwrap();
    assert_eq!(first.parent(), Some(&*root.join("sessions")));
    assert!(first.file_name().unwrap().to_str().unwrap().starts_with("mail_1-"), "{}", first.display());
    let check = |more: &[&str], expect: &PathBuf| assert_eq!(run(&world, more).0, *expect, "{more:?}");
    check(&["--session", "mail/1"], &first);
    check(&["--session", "mail/1", "--workspace", "root"], &first);
    let other = root.parent().unwrap().join("sessions").join(first.file_name().unwrap());
    check(&["--session", "mail/1", "--workspace", "."], &other);
}

#[test]
fn a_session_that_began_in_a_shared_folder_stays_there() {
    let world = World::new();
    world.ok(&["run", &world.script(&json!([{ "say": "yes" }])), "hi"]);
    assert_eq!(run(&world, &["--resume", "last"]).0, world.work().canonicalize().unwrap());
}
