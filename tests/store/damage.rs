//! Damage to the files of a store, under the commands: each answer is that of the undamaged store, or exit 74 with the file
//! and the remedy, and no panic.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::json;

use crate::world::{World, stderr};

const PAGE: usize = 4096;
/// What reads, what writes, and what goes on.
const COMMANDS: [&[&str]; 4] = [
    // The table has ages.
    &["runs", "list", "--json"],
    &["runs", "show", "last"],
    &["journal", "last"],
    &["runs", "resume", "--all", "--wait"],
];

/// A world with a run whose output is an artifact, and the path of that.
fn world() -> (World, PathBuf) {
    let world = World::new();
    let script = world.script(&json!([
        { "call": [{ "tool": "shell", "arguments": { "command": "seq 1 30000" } }] },
        { "say": "done" },
    ]));
    world.ok(&["run", &script, "--session", "a", "count"]);
    let session = fs::read_dir(world.state().join("artifacts")).expect("a folder");
    let is_session = |path: &PathBuf| path.file_name().is_some_and(|name| name != "unfinished");
    let session = session.map(|entry| entry.expect("an entry").path()).find(is_session).expect("a session");
    let artifact = fs::read_dir(session).expect("a folder").next().expect("an artifact").expect("an entry");
    (world, artifact.path())
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("made");
    for entry in fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        match entry.file_type().expect("a type") {
            kind if kind.is_dir() => copy(&entry.path(), &target),
            kind if kind.is_file() => drop(fs::copy(entry.path(), target).expect("copied")),
            _ => {}
        }
    }
}

#[test]
fn a_page_of_the_store_that_is_lost_is_told_and_is_no_panic() {
    let (world, _) = world();
    let file = fs::read(world.state().join("hermod.redb")).expect("a file");
    let home = world.work().with_file_name("damaged");
    let answer = |args: &[&str], page: Option<usize>| {
        let _ = fs::remove_dir_all(&home);
        copy(&world.state(), &home);
        if let Some(page) = page {
            let mut damaged = file.clone();
            damaged[page * PAGE..(page + 1) * PAGE].fill(0);
            fs::write(home.join("hermod.redb"), damaged).expect("written");
        }
        world.hermod(args).env("HERMOD_HOME", &home).output().expect("hermod starts")
    };
    let whole: Vec<_> = COMMANDS.iter().map(|args| answer(args, None)).collect();
    let mut errors = 0;
    for page in 0..file.len() / PAGE {
        // Each page under half of the commands: a process takes its time.
        for (args, whole) in COMMANDS.iter().zip(&whole).skip(page % 2).step_by(2) {
            let output = answer(args, Some(page));
            let text = stderr(&output);
            assert!(!text.contains("panicked"), "{args:?} without page {page}: {text}");
            if output.status.code() == Some(0) {
                // What is lost of one run is named; all else is as it was.
                let told = String::from_utf8_lossy(&output.stdout).into_owned() + &text;
                let is_named =
                    told.contains("is not what was written to it") && told.contains("store repair");
                assert!(output.stdout == whole.stdout || is_named, "{args:?} without page {page}: {told}");
                continue;
            }
            errors += 1;
            assert_eq!(output.status.code(), Some(74), "{args:?} without page {page}: {text}");
            assert!(text.contains("hermod.redb"), "{args:?} without page {page}: {text}");
            assert!(text.contains("backup"), "{args:?} without page {page}: {text}");
        }
    }
    assert!(errors > 8, "{errors} errors, and some pages are needed by every command");
}

#[test]
fn a_store_that_was_cut_to_nothing_is_no_new_one() {
    let (world, _) = world();
    fs::write(world.state().join("hermod.redb"), "").expect("written");
    world.fails(&["runs", "list"], 74, "it is empty");
}

#[test]
fn an_altered_artifact_is_told_by_all_that_look_at_it() {
    let (world, artifact) = world();
    let backup = |name: &str| world.state().with_file_name(name).to_str().expect("UTF-8").to_owned();
    world.ok(&["store", "check"]);
    world.ok(&["backup", "create", &backup("whole")]);
    let mut content = fs::read(&artifact).expect("read");
    content[70_000] ^= 1;
    fs::write(&artifact, &content).expect("written");
    let checked = world.run(&["store", "check"]);
    let text = String::from_utf8_lossy(&checked.stdout);
    assert_eq!(checked.status.code(), Some(74), "{text}");
    assert!(text.contains("was altered: its content is not the one that was kept"), "{text}");
    let made = world.run(&["backup", "create", &backup("altered")]);
    let text = stderr(&made);
    assert_eq!(made.status.code(), Some(0), "a true copy of what is there: {text}");
    assert!(text.contains("it was altered") && text.contains("warning"), "{text}");
    let handle = artifact.file_name().and_then(|name| name.to_str()).expect("a handle");
    let script = world.script(&json!([
        { "call": [{ "tool": "read_artifact", "arguments": { "handle": handle, "limit": 10 } }] },
        { "say": "{{result:1.1}}" },
    ]));
    let told = world.ok(&["run", &script, "--session", "a", "read it"]);
    assert!(told.contains(&format!("`{handle}` was altered")), "{told}");
    content[70_000] ^= 1;
    fs::write(&artifact, &content).expect("written");
    let told = world.ok(&["run", &script, "--session", "a", "read it again"]);
    assert!(told.contains("[bytes 0-10 of"), "{told}");
}
