//! The real binary, killed at random instants: `hermod chaos` counts what came of it, and is not blind.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use hermod::store::redb::{Durability, RedbJournal};
use hermod_actors::{
    model::{Body, SessionId},
    port::{Append, Journal, WriteOp, WriteOutcome},
};
use serde_json::Value;

use crate::world::{World, object, stderr};

/// What `hermod chaos` reports, and with which code it exits.
#[track_caller]
fn chaos(world: &World, args: &[&str]) -> (Value, i32) {
    let output = world.run(&[&["chaos", "--json"], args].concat());
    let code = output.status.code().expect("an exit code");
    assert!(!output.stdout.is_empty(), "exit {code}: {}", stderr(&output));
    (object(&String::from_utf8_lossy(&output.stdout)), code)
}

#[track_caller]
fn check(report: &Value, counts: &[(&str, u64)]) {
    for (name, count) in counts {
        assert_eq!(report[*name], *count, "{name}: {report}");
    }
}

#[test]
fn killed_twenty_times_nothing_is_lost_and_nothing_done_twice() {
    let world = World::new();
    let (report, code) = chaos(&world, &["--kills", "20", "--seed", "6"]);
    let none = [
        "lost",
        "changed",
        "gaps",
        "twice",
        "missing",
        "unasked",
        "unrecorded",
        "not_completed",
        "ended_twice",
    ];
    check(&report, &none.map(|name| (name, 0)));
    assert_eq!(report["bad_ends"], Value::Array(Vec::new()), "{report}");
    check(&report, &[("kills", 20)]);
    let at_least = |name: &str, count: u64| assert!(report[name].as_u64() >= Some(count), "{name}: {report}");
    at_least("runs", 4);
    at_least("commands", 80);
    at_least("acknowledged", 80);
    assert_eq!((code, &report["ok"]), (0, &Value::Bool(true)), "{report}");
}

#[test]
fn a_relaxed_store_may_lose_the_last_moments_and_is_whole() {
    let world = World::new();
    let args = ["--kills", "6", "--seed", "6", "--commands", "8", "--durability", "relaxed"];
    let (report, code) = chaos(&world, &args);
    check(&report, &["changed", "gaps", "unasked", "not_completed", "ended_twice"].map(|name| (name, 0)));
    check(&report, &[("kills", 6)]);
    assert_eq!((code, &report["ok"]), (0, &Value::Bool(true)), "{report}");
}

/// A folder that a small test has left.
struct Left {
    world: World,
    folder: PathBuf,
}

impl Left {
    fn new() -> Self {
        let world = World::new();
        let args = ["--kills", "3", "--seed", "6", "--runs", "2", "--commands", "6", "--keep", "--dir", "."];
        let (report, code) = chaos(&world, &args);
        assert_eq!(code, 0, "{report}");
        let folder = report["folder"].as_str().expect("it is kept").into();
        let left = Self { world, folder };
        left.check(&[]);
        left
    }

    /// The lines of the first run that was accepted.
    fn lines(&self) -> PathBuf {
        let is_there = |number: &u32| self.folder.join(format!("work/{number}/lines")).exists();
        let number = (1..100).find(is_there).expect("a run has written lines");
        self.folder.join(format!("work/{number}/lines"))
    }

    fn state(&self) -> PathBuf {
        self.folder.join("state")
    }

    /// Judges once more: just these are found, each at least so often.
    #[track_caller]
    fn check(&self, found: &[(&str, u64)]) {
        let (report, code) = chaos(&self.world, &["--again", self.folder.to_str().expect("a path")]);
        assert_eq!(code, i32::from(!found.is_empty()), "{report}");
        for (name, count) in found {
            assert!(report[*name].as_u64() >= Some(*count), "{name}: {report}");
        }
    }
}

#[test]
fn lines_that_were_tampered_with_are_found() {
    let left = Left::new();
    let lines = left.lines();
    let whole = fs::read_to_string(&lines).expect("lines");
    let first = whole.lines().next().expect("a line");
    fs::write(&lines, format!("{whole}{first}\n")).expect("written");
    left.check(&[("twice", 1)]);
    fs::write(&lines, format!("{whole}99.1\n")).expect("written");
    left.check(&[("unasked", 1)]);
    fs::remove_file(&lines).expect("removed");
    left.check(&[("missing", 1)]);
    fs::write(&lines, &whole).expect("written");
    left.check(&[]);
}

#[tokio::test]
async fn a_journal_that_was_tampered_with_is_found() {
    let left = Left::new();
    end_once_more(&left.state()).await;
    left.check(&[("ended_twice", 1)]);
    fs::remove_file(left.state().join("hermod.redb")).expect("removed");
    left.check(&[("lost", 1), ("changed", 10), ("unrecorded", 6)]);
}

/// Appends the outcome of the first run to its journal again.
async fn end_once_more(state: &Path) {
    let journal = RedbJournal::open(state, Durability::Strict).expect("a store");
    let session: SessionId = journal.rows().runs(None, 1).await.expect("a run")[0].session;
    let WriteOutcome::Opened(opened) = commit(&journal, WriteOp::Open(session)).await else {
        unreachable!("it is opened");
    };
    let records = journal.records(session, opened.last, 1).await.expect("its last record");
    let record = Arc::clone(&records[0].record);
    assert!(matches!(record.body, Body::RunEnded(_)), "{record:?}");
    let append = Append::new(session, opened.incarnation, opened.last + 1, vec![record]);
    let written = commit(&journal, WriteOp::Append(Box::new(append))).await;
    assert!(matches!(written, WriteOutcome::Appended(_)), "{written:?}");
}

async fn commit(journal: &RedbJournal, write: WriteOp) -> WriteOutcome {
    journal.commit(vec![write]).await.expect("it is written").remove(0)
}
