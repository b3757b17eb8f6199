//! The tool `memory` against real folders, alone, in crowds, and killed.

use std::{
    fs::{self, File, Permissions},
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    sync::Arc,
    thread::sleep,
    time::Duration,
};

use hermod::{
    memory::{MemoryEntries, MemoryFiles},
    tool::{MEMORY, Settings, TOOLS},
};
use hermod_actors::{
    model::{Access, CallEnd, CallStatus, EffectClass},
    port::{AttemptArtifacts, Invocation, Tool},
};
use hermod_testkit::{invocation, run_call};
use rustix::{
    fs::{FlockOperation, flock},
    process::Signal,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    running::{Running, kinds},
    world::World,
};

const LIMITS: (usize, usize) = (60, 30);

/// A state's folder and the tool on it.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn folder(&self) -> PathBuf {
        self.0.path().join("memories")
    }

    fn file(&self) -> PathBuf {
        self.folder().join("MEMORY.md")
    }

    fn tool(&self) -> Arc<dyn Tool> {
        let memory = Some(MemoryFiles::new(self.0.path(), LIMITS.0, LIMITS.1));
        let (_, make) = TOOLS.iter().find(|(name, _)| *name == MEMORY).unwrap();
        make(Settings { memory, ..Settings::default() })
    }

    async fn call(&self, arguments: Value) -> (CallStatus, Value) {
        said(run_call(&*self.tool(), &arguments, invocation("/nowhere")).await)
    }

    /// An attempt of a call, with what earlier ones have noted.
    async fn attempt(
        &self,
        (shelf, attempt): (&AttemptArtifacts, u32),
        arguments: &Value,
    ) -> (CallStatus, Value) {
        let shelf = shelf.for_attempt(attempt);
        let call = Invocation { artifacts: shelf, attempt, ..invocation("/nowhere") };
        said(run_call(&*self.tool(), arguments, call).await)
    }

    fn write(&self, content: impl AsRef<[u8]>) {
        fs::create_dir_all(self.folder()).unwrap();
        fs::write(self.file(), content).unwrap();
    }

    fn content(&self) -> String {
        fs::read_to_string(self.file()).unwrap()
    }
}

fn said(end: CallEnd) -> (CallStatus, Value) {
    (end.status, serde_json::from_str(&end.content).unwrap())
}

fn add(content: &str) -> Value {
    json!({ "action": "add", "target": "memory", "content": content })
}

fn replace(old_text: &str, content: &str) -> Value {
    json!({ "action": "replace", "target": "memory", "old_text": old_text, "content": content })
}

fn remove(old_text: &str) -> Value {
    json!({ "action": "remove", "target": "memory", "old_text": old_text })
}

/// The call goes well, and leaves this in the file.
async fn check(place: &Place, arguments: Value, content: &str) -> Value {
    let (status, told) = place.call(arguments.clone()).await;
    assert_eq!((status, place.content().as_str()), (CallStatus::Ok, content), "{arguments}: {told}");
    assert_eq!(told["used"], content.chars().count());
    told
}

/// The call fails with an error that has `part` in it, and leaves the file as it was.
async fn check_refused(place: &Place, arguments: Value, part: &str) -> Value {
    let before = fs::read(place.file()).ok();
    let (status, told) = place.call(arguments.clone()).await;
    let error = told["error"].as_str().unwrap();
    assert!(status == CallStatus::Error && error.contains(part), "{arguments}: {told}");
    assert!(!told["hint"].as_str().unwrap().is_empty());
    assert_eq!(fs::read(place.file()).ok(), before);
    told
}

#[tokio::test]
async fn entries_are_added_replaced_and_removed() {
    let place = Place::new();
    let told = check(&place, add("Tests need \"just\"."), "Tests need \"just\".").await;
    let entries = ["Tests need \"just\"."];
    assert_eq!(
        told,
        json!({ "ok": true, "action": "add", "target": "memory", "entries": entries, "used": 18, "limit": 60 })
    );
    check(&place, add("The port is 1."), "Tests need \"just\".\n§\nThe port is 1.").await;
    let told = check(&place, add("The port is 1."), "Tests need \"just\".\n§\nThe port is 1.").await;
    assert_eq!(told["unchanged"], true);
    check(&place, replace("port", "The port is 2."), "Tests need \"just\".\n§\nThe port is 2.").await;
    check(&place, remove("just"), "The port is 2.").await;
    let (_, told) = place.call(json!({ "action": "add", "target": "user", "content": "Likes tea." })).await;
    assert_eq!((&told["limit"], &told["used"]), (&json!(30), &json!(10)));
    assert_eq!(fs::read_to_string(place.folder().join("USER.md")).unwrap(), "Likes tea.");
    check(&place, remove("port"), "").await;
}

#[tokio::test]
async fn what_is_not_acceptable_is_named() {
    let place = Place::new();
    check(&place, add("The first."), "The first.").await;
    check(&place, add("The second."), "The first.\n§\nThe second.").await;
    let several = check_refused(&place, remove("The"), "`old_text` is in 2 of the entries").await;
    let entries =
        json!([{ "characters": 10, "text": "The first." }, { "characters": 11, "text": "The second." }]);
    assert_eq!((&several["entries"], &several["field"]), (&entries, &json!("old_text")));
    let none = check_refused(&place, replace("third", "x"), "`old_text` is in none").await;
    assert_eq!(none["entries"], entries);
    let long =
        check_refused(&place, add(&"x".repeat(40)), "67 characters long, 7 over its limit of 60").await;
    assert_eq!((&long["entries"], &long["used"], &long["limit"]), (&entries, &json!(24), &json!(60)));
    check_refused(&place, add("a\u{200b}b"), "U+200B as character 2").await;
    check_refused(&place, add("a\n§\nb"), "a line `§`").await;
    check_refused(&place, remove(""), "`old_text` is missing").await;
    check_refused(&place, json!({ "action": "forget", "target": "memory" }), "forget").await;
    check_refused(&place, json!({ "action": "add", "target": "self", "content": "x" }), "self").await;
}

#[tokio::test]
async fn a_file_that_is_none_of_entries_is_left_as_it_is() {
    let place = Place::new();
    place.write(b"tea\xff");
    check_refused(&place, add("milk"), "MEMORY.md is not text in UTF-8").await;
    place.write("x".repeat((1 << 20) + 1));
    check_refused(&place, add("milk"), "more than 1 MiB").await;
    fs::remove_file(place.file()).unwrap();
    let elsewhere = place.0.path().join("elsewhere");
    fs::write(&elsewhere, "mine").unwrap();
    symlink(&elsewhere, place.file()).unwrap();
    check_refused(&place, add("milk"), "MEMORY.md").await;
    assert_eq!(fs::read_to_string(elsewhere).unwrap(), "mine");
    fs::remove_file(place.file()).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        place.file(),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let (_, told) = place.call(add("milk")).await;
    assert!(told["error"].as_str().unwrap().contains("is no regular file"), "{told}");
}

#[tokio::test]
async fn nobody_else_may_read_it() {
    let place = Place::new();
    fs::create_dir(place.folder()).unwrap();
    fs::set_permissions(place.folder(), Permissions::from_mode(0o755)).unwrap();
    place.write("tea");
    check(&place, add("milk"), "tea\n§\nmilk").await;
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!((mode(&place.folder()), mode(&place.file())), (0o700, 0o600));
    assert_eq!(mode(&place.folder().join(".lock")), 0o600);
}

#[tokio::test]
async fn what_a_killed_writer_left_is_removed() {
    let place = Place::new();
    place.write("tea");
    let left = [".MEMORY.md.part", ".USER.md.part"].map(|name| place.folder().join(name));
    left.iter().for_each(|path| fs::write(path, "half a fi").unwrap());
    check(&place, add("milk"), "tea\n§\nmilk").await;
    assert!(left.iter().all(|path| !path.exists()));
}

#[tokio::test]
async fn a_call_that_is_repeated_after_a_crash_finds_its_own_result() {
    let (place, shelf) = (Place::new(), invocation("/").artifacts);
    // Each would do something again, so only the note tells that it was done.
    for (order, before, after) in [
        (remove("tea"), "tea\n§\nmilk", "milk"),
        (replace("tea", "green tea, tea"), "tea", "green tea, tea"),
        (add("tea"), "milk", "milk\n§\ntea"),
    ] {
        let shelf = &shelf;
        place.write(before);
        assert_eq!(place.attempt((shelf, 1), &order).await.0, CallStatus::Ok);
        assert_eq!(place.content(), after);
        let (status, told) = place.attempt((shelf, 2), &order).await;
        assert_eq!(
            (status, &told["unchanged"], place.content().as_str()),
            (CallStatus::Ok, &json!(true), after)
        );
        // The crash came behind the note and before the change: then it is made.
        place.write(before);
        assert_eq!(place.attempt((shelf, 3), &order).await.0, CallStatus::Ok);
        assert_eq!(place.content(), after);
    }
    // Without a note nothing was done, and what is not there cannot be removed.
    let fresh = invocation("/").artifacts;
    assert_eq!(place.attempt((&fresh, 2), &remove("coffee")).await.0, CallStatus::Error);
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_held_too_long_is_named() {
    let place = Place::new();
    place.write("tea");
    let lock = File::create(place.folder().join(".lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let held = check_refused(&place, add("milk"), ".lock has been held").await;
    assert!(held["error"].as_str().unwrap().contains("memories/.lock"), "{held}");
    drop(lock);
    check(&place, add("milk"), "tea\n§\nmilk").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_that_write_at_once_nobody_loses_anything() {
    let place = Arc::new(Place::new());
    let calls: Vec<_> = (10..26)
        .map(|n| {
            let place = Arc::clone(&place);
            tokio::spawn(async move { place.call(add(&n.to_string())).await })
        })
        .collect();
    let mut fitted = Vec::new();
    for (call, n) in calls.into_iter().zip(10..) {
        let (status, told) = call.await.unwrap();
        if status == CallStatus::Ok {
            fitted.push(n.to_string());
        } else {
            assert!(told["error"].as_str().unwrap().contains("over its limit"), "{told}");
        }
    }
    let mut there = MemoryEntries::parse(&place.content()).all().to_vec();
    there.sort_unstable();
    // Twelve of two characters each, and three between two of them.
    assert_eq!((fitted.len(), there), (12, fitted));
}

#[test]
fn two_calls_for_one_file_keep_their_order() {
    let place = Place::new();
    let plan = |arguments: &Value| place.tool().prepare(arguments, "/nowhere").unwrap().intent;
    let (one, other) = (plan(&add("a")), plan(&remove("a")));
    assert_eq!(one.effect, EffectClass::Idempotent);
    assert_eq!(one.access, Access::writes(place.file().to_str().unwrap()));
    let user = plan(&json!({ "action": "add", "target": "user", "content": "a" }));
    assert!(one.access.conflicts(&other.access) && !one.access.conflicts(&user.access));
}

/// The orders of a run, one a step, and what is in the file behind each, all different.
fn course() -> (Vec<Value>, Vec<String>) {
    let mut orders: Vec<_> = (1..=20).map(|n| add(&format!("fact {n} as it was learned"))).collect();
    for n in 1..=20 {
        orders.push(replace(
            &format!("fact {n} "),
            &format!("fact {n} was wrong, and is fact {n} as it is known now"),
        ));
        orders.push(if n % 2 == 0 { remove(&format!("fact {n} ")) } else { add(&format!("seen with {n}")) });
    }
    let mut entries: Vec<String> = Vec::new();
    let mut states = vec![String::new()];
    for order in &orders {
        let text = |field: &str| order[field].as_str().unwrap_or_default();
        let at = entries.iter().position(|entry| entry.contains(text("old_text")));
        match (text("action"), at) {
            ("add", _) => entries.push(text("content").into()),
            ("replace", Some(at)) => entries[at] = text("content").into(),
            ("remove", Some(at)) => drop(entries.remove(at)),
            other => panic!("{other:?}"),
        }
        states.push(entries.join("\n§\n"));
    }
    (orders, states)
}

/// How many orders the file shows to be carried out.
fn place_in(states: &[String], file: &Path) -> usize {
    let content = fs::read_to_string(file).unwrap_or_default();
    states.iter().position(|state| *state == content).unwrap_or_else(|| panic!("no state is {content}"))
}

/// How many calls have an end in the journal; all of them went well.
fn ended(world: &World) -> usize {
    let records = world.journal("last");
    let ends: Vec<_> = records.iter().filter(|record| record["kind"] == "call.ended").collect();
    assert!(ends.iter().all(|end| end["status"] == "ok"), "{ends:?}");
    ends.len()
}

/// Waits until a new content is being written, if that is met, or the file has come three states further.
fn until_written(running: &mut Running, (states, came_to): (&[String], usize), (file, part): (&Path, &Path)) {
    for _ in 0..600_000 {
        if part.exists() || place_in(states, file) >= came_to + 3 {
            return;
        }
        assert_eq!(running.child().try_wait().unwrap(), None, "the run ended at {came_to}");
        sleep(Duration::from_micros(100));
    }
    panic!("nothing is written behind {came_to}");
}

#[test]
fn a_process_that_is_killed_while_it_writes_loses_nothing_and_does_nothing_twice() {
    let world = World::new();
    let (orders, states) = course();
    let step = |order: &Value| json!({ "call": [{ "tool": MEMORY, "arguments": order }] });
    let last = json!({ "say": "known" });
    let script = world.script(&orders.iter().map(step).chain([last]).collect());
    let folder = world.state().join("memories");
    let (file, part) = (folder.join("MEMORY.md"), folder.join(".MEMORY.md.part"));
    let mut came_to = 0;
    for life in 0..8 {
        let mut running = match life {
            0 => world.running(&["run", &script, "learn"]),
            _ => world.running(&["run", "--resume", "last"]),
        };
        until_written(&mut running, (&states, came_to), (&file, &part));
        running.signal(Signal::KILL);
        running.end();
        let (now, ended) = (place_in(&states, &file), ended(&world));
        assert!(now >= came_to && (ended..=ended + 1).contains(&now), "{came_to}, then {now}, {ended} ended");
        came_to = now;
    }
    let answer = world.ok(&["run", "--resume", "last"]);
    assert!(answer.contains("known"), "{answer}");
    assert_eq!((place_in(&states, &file), ended(&world)), (orders.len(), orders.len()));
    assert!(!part.exists());
    let records = world.journal("last");
    assert!(kinds(&records).contains(&"call.lost"), "no call was under way when the process was killed");
}
