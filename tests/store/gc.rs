//! `hermod gc` and `hermod store footprint`: what goes, what stays, who does it, and what is said of what went.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    thread::sleep,
    time::Duration,
};

use hermod::store::redb::{Durability, GcMode, RedbJournal};
use hermod_actors::model::Timestamp;
use image::ImageFormat;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    pictures::picture,
    running::{Running, kinds, until},
    world::{World, object, stderr},
};

/// What a command says that writes more than a model reads at once.
const LONG: &str = "seq 1 30000";

/// `hermod` with these times after which things go.
fn keeping(world: &World, args: &[&str], times: &[(&str, &str)]) -> Command {
    let mut command = world.hermod(args);
    command.envs(times.iter().map(|(key, value)| (format!("HERMOD_RETENTION__{key}"), *value)));
    command
}

/// What `hermod gc` says.
#[track_caller]
fn gc(world: &World, more: &[&str], times: &[(&str, &str)]) -> Value {
    let output = keeping(world, &[&["gc", "--json"], more].concat(), times).output().expect("hermod starts");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    object(&String::from_utf8_lossy(&output.stdout))
}

/// Seen, removed, and what stays, of one class.
#[track_caller]
fn class(report: &Value, class: &str) -> (u64, u64, BTreeMap<String, u64>) {
    let classes = report["classes"].as_array().expect("a list");
    let found = classes.iter().find(|found| found["class"] == class).expect("the class");
    let kept = serde_json::from_value(found["kept"].clone()).expect("numbers");
    (found["seen"].as_u64().expect("a number"), found["removed"].as_u64().expect("a number"), kept)
}

#[track_caller]
fn check(report: &Value, name: &str, seen: u64, removed: u64, kept: &[(&str, u64)]) {
    let kept = kept.iter().map(|(why, count)| ((*why).to_owned(), *count)).collect();
    assert_eq!(class(report, name), (seen, removed, kept), "{name}: {report}");
}

/// A run in the session of this key that runs a command and says a word; its id.
#[track_caller]
fn ran(world: &World, session: &str, command: &str) -> String {
    let script = world.script(&json!([
        { "call": [{ "tool": "shell", "arguments": { "command": command } }] },
        { "say": format!("done {}", "word ".repeat(6_000)) },
    ]));
    let out = world.ok(&["run", &script, "--json", "--session", session, "--key", session, "do it"]);
    object(&out)["run"].as_str().expect("an id").to_owned()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut found: Vec<_> =
        paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect();
    found.sort();
    found
}

/// Makes files as old as if they were written long ago.
fn age(paths: &[PathBuf]) {
    for path in paths {
        let file = fs::File::options().append(true).open(path).expect("it is there");
        file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1)).expect("it is ours");
    }
}

#[test]
fn without_a_time_nothing_that_was_written_goes() {
    let world = World::new();
    let run = ran(&world, "a", LONG);
    let before = files(&world.state());
    let report = gc(&world, &[], &[]);
    check(&report, "sessions", 1, 0, &[("forever", 1)]);
    check(&report, "keys", 1, 0, &[("its run stays", 1)]);
    check(&report, "artifacts", 1, 0, &[("forever", 1)]);
    check(&report, "blobs", class(&report, "blobs").0, 0, &[("referred to", class(&report, "blobs").0)]);
    check(&report, "scripts", 1, 0, &[("referred to", 1)]);
    assert!(class(&report, "blobs").0 > 0, "{report}");
    assert_eq!(files(&world.state()), before);
    assert_eq!(object(&world.ok(&["runs", "show", &run, "--json"]))["outcome"], "completed");
}

#[test]
fn what_is_over_goes_and_a_dry_run_says_so_before() {
    let world = World::new();
    let old = ran(&world, "old", LONG);
    age(&files(&world.state().join("scripts")));
    sleep(Duration::from_millis(1_500));
    let young = ran(&world, "young", "seq 2 30000");
    let times = [("SESSIONS", "1500ms")];
    let before = files(&world.state());
    let dry = gc(&world, &["--dry-run"], &times);
    assert_eq!((files(&world.state()), &dry["dry_run"]), (before, &json!(true)));
    let report = gc(&world, &[], &times);
    check(&report, "sessions", 2, 1, &[("not old enough", 1)]);
    check(&report, "keys", 2, 1, &[("its run stays", 1)]);
    check(&report, "artifacts", 2, 1, &[("forever", 1)]);
    check(&report, "scripts", 2, 1, &[("referred to", 1)]);
    for class in ["sessions", "keys", "artifacts", "blobs", "scripts", "spool", "leftovers"] {
        let of = |report: &Value| {
            report["classes"]
                .as_array()
                .expect("a list")
                .iter()
                .find(|found| found["class"] == class)
                .cloned()
        };
        assert_eq!(of(&dry), of(&report), "a dry run says the same");
    }
    world.fails(&["runs", "show", &old], 2, &old);
    world.fails(&["sessions", "show", "old"], 2, "old");
    assert_eq!(kinds(&world.journal("young")).last(), Some(&"run.ended"));
    assert_eq!(object(&world.ok(&["runs", "show", &young, "--json"]))["outcome"], "completed");
    assert_eq!(files(&world.state().join("artifacts")).len(), 1);
    // The key is free again, and so is the name of the session.
    assert_ne!(ran(&world, "old", "true"), old);
}

#[test]
fn an_artifact_that_went_says_when() {
    let world = World::new();
    ran(&world, "a", LONG);
    let records = world.journal("a");
    let ended = records.iter().find(|record| record["kind"] == "call.ended").expect("the call");
    let handle = ended["artifact"]["handle"].as_str().expect("an artifact").to_owned();
    sleep(Duration::from_millis(20));
    let report = gc(&world, &[], &[("ARTIFACTS", "10ms")]);
    check(&report, "artifacts", 1, 1, &[]);
    check(&report, "sessions", 1, 0, &[("forever", 1)]);
    assert_eq!(world.journal("a"), records, "the records stay");
    let script = world.script(&json!([
        { "call": [{ "tool": "read_artifact", "arguments": { "handle": handle } }] },
        { "say": "{{result:1.1}}" },
    ]));
    let told = world.ok(&["run", &script, "--session", "a", "read it"]);
    assert!(told.contains(&format!("`{handle}` was removed at 2")), "{told}");
    assert!(told.contains("make the output again"), "{told}");
    check(&gc(&world, &[], &[("ARTIFACTS", "10ms")]), "artifacts", 0, 0, &[]);
}

#[test]
fn an_artifact_that_went_is_no_damage_and_says_so_when_it_is_restored() {
    let world = World::new();
    ran(&world, "a", LONG);
    let artifact = files(&world.state().join("artifacts")).remove(0);
    let handle = artifact.file_name().and_then(|name| name.to_str()).expect("a handle");
    sleep(Duration::from_millis(20));
    check(&gc(&world, &[], &[("ARTIFACTS", "10ms")]), "artifacts", 1, 1, &[]);
    assert!(world.ok(&["store", "check"]).contains("nothing is damaged"));
    let [backup, restored] = ["backup", "restored"].map(|name| world.state().with_file_name(name));
    let backup = backup.to_str().expect("UTF-8");
    world.ok(&["backup", "create", backup]);
    world.ok(&["backup", "verify", backup]);
    let script = world.script(&json!([
        { "call": [{ "tool": "read_artifact", "arguments": { "handle": handle } }] },
        { "say": "{{result:1.1}}" },
    ]));
    for args in [&["backup", "restore", backup][..], &["run", &script, "--session", "a", "read it"]] {
        let output = world.hermod(args).env("HERMOD_HOME", &restored).output().expect("hermod starts");
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(args[0] == "backup" || told.contains(&format!("`{handle}` was removed at 2")), "{told}");
    }
}

#[test]
fn a_store_that_is_held_keeps_what_is_unfinished() {
    let world = World::new();
    let running = world.started(&[]);
    let unfinished = world.state().join("artifacts/unfinished/x.y.0");
    fs::create_dir_all(unfinished.parent().unwrap()).unwrap();
    fs::write(&unfinished, "so far").unwrap();
    world.fails(&["store", "check"], 75, "is in use by process");
    assert!(unfinished.exists());
    world.release();
    assert_eq!(running.end().status.code(), Some(0));
}

#[test]
fn a_picture_stays_with_its_conversation() {
    let world = World::new();
    fs::write(world.work().join("p.png"), picture(ImageFormat::Png, (2, 2))).expect("written");
    let script = world.script(&json!([{ "say": "seen" }]));
    world.ok(&["run", &script, "--session", "a", "--image", "p.png", "look"]);
    sleep(Duration::from_millis(20));
    let report = gc(&world, &[], &[("ARTIFACTS", "10ms")]);
    check(&report, "artifacts", 1, 0, &[("referred to", 1)]);
    check(&gc(&world, &[], &[("SESSIONS", "10ms")]), "artifacts", 1, 1, &[]);
    assert_eq!(files(&world.state().join("artifacts")), Vec::<PathBuf>::new());
}

#[test]
fn what_is_left_behind_goes_when_it_is_old() {
    let world = World::new();
    ran(&world, "a", "true");
    let state = world.state();
    let blob = state.join("blobs/ab").join("ab".repeat(32));
    let stray = state.join("artifacts/00000000000000000000000001/00000000000000000000000007.1.1-1");
    let spool = state.join("spool/00000000000000000000000007.1.1.1/output");
    let removed = state.join("spool/00000000000000000000000007.1.2.1.removed-1-0/output");
    let script = state.join("scripts").join(format!("{}.json", "0a".repeat(16)));
    let parts = [state.join("scripts/x.part"), state.join("artifacts/unfinished/x.y.0")];
    let others = [state.join("notes"), state.join("blobs/ab/notes"), state.join("spool/notes/x")];
    let strays = [vec![blob.clone(), stray.clone(), spool, removed, script.clone()], parts.to_vec()].concat();
    for path in strays.iter().chain(&others) {
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, "left").expect("written");
    }
    let report = gc(&world, &[], &[]);
    check(&report, "artifacts", 1, 0, &[("not old enough", 1)]);
    check(&report, "spool", 2, 2, &[]);
    check(&report, "leftovers", 2, 0, &[("not old enough", 2)]);
    assert_eq!((class(&report, "blobs").1, class(&report, "scripts").1), (1, 0));
    age(&[[stray, script].as_slice(), &parts].concat());
    let report = gc(&world, &[], &[]);
    check(&report, "artifacts", 1, 1, &[]);
    check(&report, "leftovers", 2, 2, &[]);
    assert_eq!(class(&report, "scripts").1, 1);
    assert!(strays.iter().all(|path| !path.exists()) && others.iter().all(|path| path.exists()));
}

#[test]
fn who_holds_the_store_does_it_beside_its_run() {
    let world = World::new();
    ran(&world, "old", LONG);
    let running = world.started(&["--session", "held"]);
    sleep(Duration::from_millis(20));
    let times = [("SESSIONS", "10ms"), ("ARTIFACTS", "10ms")];
    let dry = gc(&world, &["--dry-run"], &times);
    let report = gc(&world, &[], &times);
    assert_eq!(class(&dry, "sessions"), class(&report, "sessions"));
    check(&report, "sessions", 2, 1, &[("unfinished", 1)]);
    check(&report, "spool", 1, 0, &[("unfinished", 1)]);
    let footprint = object(&world.ok(&["store", "footprint", "--json"]));
    assert_eq!((&footprint["store"]["sessions"], &footprint["store"]["unfinished"]), (&json!(1), &json!(1)));
    world.release();
    let output = running.end();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(world.times_run(), 1);
    assert_eq!(kinds(&world.journal("held")).last(), Some(&"run.ended"));
}

#[test]
fn a_footprint_says_what_takes_up_how_much() {
    let world = World::new();
    ran(&world, "a", LONG);
    fs::create_dir(world.state().join("replaced-1")).expect("made");
    fs::write(world.state().join("replaced-1/hermod.redb"), [0; 1_000]).expect("written");
    fs::create_dir(world.state().join("memories")).expect("made");
    fs::write(world.state().join("memories/MEMORY.md"), "it rains").expect("written");
    let footprint = object(&world.ok(&["store", "footprint", "--json"]));
    let classes = footprint["classes"].as_array().expect("a list");
    let room = |class: &str| {
        let room = classes.iter().find(|room| room["class"] == class).expect("the class");
        (room["bytes"].as_u64().expect("a number"), room["files"].as_u64().expect("a number"))
    };
    assert_eq!((room("replaced"), room("memories")), ((1_000, 1), (8, 1)));
    assert_eq!((room("store").1, room("artifacts").1, room("scripts").1), (1, 1, 1));
    assert!(room("artifacts").0 > 100_000 && room("blobs").0 > 20_000, "{footprint}");
    let files: u64 = classes.iter().map(|room| room["files"].as_u64().expect("a number")).sum();
    assert_eq!(files, files_below(&world.state()));
    assert_eq!(footprint["store"]["runs"], 1);
    let text = world.ok(&["store", "footprint"]);
    assert!(text.contains("1 sessions, 1 runs, 0 of them unfinished"), "{text}");
    let told = world.ok(&["gc", "--dry-run"]);
    assert!(told.starts_with("CLASS") && told.contains("WOULD GO") && told.contains("1 forever"), "{told}");
}

fn files_below(folder: &Path) -> u64 {
    files(folder).len() as u64
}

#[test]
fn a_wrong_time_is_told() {
    let world = World::new();
    for wrong in ["soon", "0s", "-1day", "1"] {
        let output = keeping(&world, &["gc"], &[("SESSIONS", wrong)]).output().expect("hermod starts");
        assert_eq!(output.status.code(), Some(78), "{wrong}");
        let told = stderr(&output);
        assert!(told.contains("retention.sessions") && told.contains("\"30days\""), "{told}");
    }
    assert!(!world.state().join("hermod.redb").exists());
    check(&gc(&world, &[], &[("SESSIONS", "10years"), ("ARTIFACTS", "forever")]), "sessions", 0, 0, &[]);
}

/// Killed at many instants while it removes the sessions: each is there whole, or not at all.
#[test]
fn a_kill_in_the_middle_leaves_nothing_half() {
    let world = World::new();
    for n in 0..6 {
        ran(&world, &format!("old {n}"), &format!("seq {n} 30000"));
    }
    let times = [("SESSIONS", "1ms")];
    for delay in [1, 3, 5, 8, 12, 18, 25, 40] {
        let running = Running::new(keeping(&world, &["gc"], &times).spawn().expect("hermod starts"));
        sleep(Duration::from_millis(delay));
        running.signal(Signal::KILL);
        running.end();
        let sessions = object(&world.ok(&["sessions", "list", "--json"]));
        for session in sessions.as_array().expect("a list") {
            let key = session["key"].as_str().expect("a key");
            assert_eq!(session["quarantined"], Value::Null);
            assert_eq!(kinds(&world.journal(key)).last(), Some(&"run.ended"));
        }
        let runs = object(&world.ok(&["runs", "list", "--json"]));
        let runs = runs.as_array().expect("a list");
        assert_eq!(runs.len(), sessions.as_array().expect("a list").len());
        for run in runs {
            world.ok(&["runs", "show", run["id"].as_str().expect("an id")]);
        }
    }
    gc(&world, &[], &times);
    // What lost its session by a kill is removed when it is old.
    age(&files(&world.state().join("artifacts")));
    let report = gc(&world, &[], &times);
    check(&report, "sessions", 0, 0, &[]);
    check(&report, "blobs", 0, 0, &[]);
    assert_eq!(files(&world.state().join("artifacts")), Vec::<PathBuf>::new());
}

#[test]
fn whoever_comes_while_it_is_done_waits_or_is_told() {
    let world = World::new();
    ran(&world, "a", "true");
    let journal = Arc::new(RedbJournal::open(&world.state(), Durability::Strict).expect("a store"));
    let mut caring = journal.garbage_collector().start(GcMode::Remove).expect("nobody else");
    let (tally, ..) = caring.remove_sessions(Some(Timestamp(i64::MAX))).expect("it goes");
    assert_eq!(tally.removed, 1);
    world.fails(&["gc"], 75, "in use by process");
    drop((caring, journal));
    until("it is free", || world.run(&["gc"]).status.success());
}
