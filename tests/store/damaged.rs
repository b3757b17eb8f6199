//! A damaged session beside healthy ones: whatever is wrong with it, every command works, names it where it matters, and
//! the others go on; `hermod store repair` sets it aside.

use std::{fs, path::Path, process::Command};

use hermod_actors::model::{RunId, SessionId};
use redb::{Database, ReadableTable, TableDefinition, WriteTransaction};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    running::{Lines, texts},
    world::{World, object},
};

const LOG: TableDefinition<u64, &[u8]> = TableDefinition::new("appends");
const TAILS: TableDefinition<u128, (u64, u64, u64)> = TableDefinition::new("tails");
const MARKS: TableDefinition<(u128, u64), u64> = TableDefinition::new("marks");
const INBOX: TableDefinition<(u128, u64), &[u8]> = TableDefinition::new("inbox");
const ACCOUNTS: TableDefinition<u128, &[u8]> = TableDefinition::new("accounts");
const SESSIONS: TableDefinition<u128, &[u8]> = TableDefinition::new("sessions");
const SESSION_KEYS: TableDefinition<&str, u128> = TableDefinition::new("session_keys");
const RUNS: TableDefinition<u128, &[u8]> = TableDefinition::new("runs");
const BY_SESSION: TableDefinition<(u128, u128), ()> = TableDefinition::new("runs_by_session");
const OPEN: TableDefinition<u128, ()> = TableDefinition::new("open_runs");
/// Where the first record of a row begins: behind the row's own 32 bytes and the record's length.
const RECORD: usize = 32 + 4;
/// Where its body begins.
const BODY: usize = RECORD + 20;

/// A run and its session.
#[derive(Debug, Clone, Copy)]
struct Ids {
    run: RunId,
    session: SessionId,
}

/// The session that is damaged, and one that must not notice.
struct Both {
    bad: Ids,
    good: Ids,
}

type Spoil = fn(&WriteTransaction, &Both);

/// Changes the first row of the damaged session in the log.
fn first_row(txn: &WriteTransaction, both: &Both, change: impl FnOnce(&mut Vec<u8>)) {
    let mut log = txn.open_table(LOG).unwrap();
    let owner = both.bad.session.bits().to_le_bytes();
    let rows = log.iter().unwrap().map(|row| row.unwrap());
    let mut rows = rows.map(|(place, row)| (place.value(), row.value().to_vec()));
    let (place, mut row) = rows.find(|(_, row)| row.starts_with(&owner)).unwrap();
    drop(rows);
    change(&mut row);
    log.insert(place, &*row).unwrap();
}

const UNLISTED: &str = "a run that is not listed as unfinished";

/// Each kind of damage.
const DAMAGES: &[(&str, Spoil)] = &[
    ("a record whose body is no JSON", |txn, both| first_row(txn, both, |row| row[BODY] = 0xff)),
    ("a record of an unknown kind", |txn, both| {
        first_row(txn, both, |row| row[RECORD + 2..RECORD + 4].copy_from_slice(&999_u16.to_le_bytes()));
    }),
    ("a record of a newer version", |txn, both| first_row(txn, both, |row| row[RECORD] = 9)),
    ("a row that is cut", |txn, both| first_row(txn, both, |row| row.truncate(row.len() - 10))),
    ("a row that is too short to say whose it is", |txn, both| first_row(txn, both, |row| row.truncate(9))),
    ("a row of another session", |txn, both| {
        first_row(txn, both, |row| row[..16].copy_from_slice(&both.good.session.bits().to_le_bytes()));
    }),
    ("a row that is missing", |txn, both| {
        let (place, ..) =
            txn.open_table(TAILS).unwrap().get(both.bad.session.bits()).unwrap().unwrap().value();
        txn.open_table(LOG).unwrap().remove(place).unwrap().unwrap();
    }),
    ("no end", |txn, both| {
        txn.open_table(TAILS).unwrap().remove(both.bad.session.bits()).unwrap().unwrap();
    }),
    ("a wrong end", |txn, both| {
        let mut tails = txn.open_table(TAILS).unwrap();
        let (place, last, unmarked) = tails.get(both.bad.session.bits()).unwrap().unwrap().value();
        tails.insert(both.bad.session.bits(), (place, last + 5, unmarked)).unwrap();
    }),
    ("a mark that is none", |txn, both| {
        txn.open_table(MARKS).unwrap().insert((both.bad.session.bits(), 1), 9_999).unwrap();
    }),
    ("a run's row that is no JSON", |txn, both| {
        txn.open_table(RUNS).unwrap().insert(both.bad.run.bits(), &b"{}"[..]).unwrap();
    }),
    ("a run without a row", |txn, both| {
        txn.open_table(RUNS).unwrap().remove(both.bad.run.bits()).unwrap().unwrap();
    }),
    ("a run that no session lists", |txn, both| {
        let listed = (both.bad.session.bits(), both.bad.run.bits());
        txn.open_table(BY_SESSION).unwrap().remove(listed).unwrap().unwrap();
    }),
    (UNLISTED, |txn, both| {
        txn.open_table(OPEN).unwrap().remove(both.bad.run.bits()).unwrap().unwrap();
    }),
    ("an account that cannot be read", |txn, both| {
        txn.open_table(ACCOUNTS).unwrap().insert(both.bad.run.bits(), &[9_u8, 9][..]).unwrap();
    }),
    ("no account", |txn, both| {
        txn.open_table(ACCOUNTS).unwrap().remove(both.bad.run.bits()).unwrap().unwrap();
    }),
    ("a session's row that is no JSON", |txn, both| {
        txn.open_table(SESSIONS).unwrap().insert(both.bad.session.bits(), &b"{}"[..]).unwrap();
    }),
    ("a key that stands for nothing", |txn, _| {
        txn.open_table(SESSION_KEYS).unwrap().remove("bad").unwrap().unwrap();
    }),
    ("a message that is no text", |txn, both| {
        txn.open_table(INBOX).unwrap().insert((both.bad.session.bits(), 1), &[0xff_u8, 0xfe][..]).unwrap();
    }),
];

/// A store with a finished session, and two whose runs were suspended at their first model call.
fn store(world: &World) -> Both {
    let done = world.script(&json!([{ "say": "done" }]));
    world.ok(&["run", &done, "--session", "done", "do it"]);
    let slow = world.script(&json!([{ "say": "done", "delay": "500ms" }]));
    let [bad, good] = ["bad", "good"].map(|key| {
        let mut running = world.running(&["run", &slow, "--session", key, "do it"]);
        let mut lines = Lines::of(&mut running);
        lines.until("asks");
        running.signal(Signal::TERM);
        drop(lines.rest());
        assert_eq!(running.end().status.code(), Some(143));
        let shown = object(&world.ok(&["sessions", "show", "--json", key]));
        let id = |value: &Value| value.as_str().unwrap().to_owned();
        let session = id(&shown["id"]).parse().unwrap();
        Ids { run: id(&shown["runs"][0]["id"]).parse().unwrap(), session }
    });
    Both { bad, good }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (kind, to) = (entry.file_type().unwrap(), to.join(entry.file_name()));
        if kind.is_dir() {
            copy(&entry.path(), &to);
        } else if kind.is_file() {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// `hermod` on one damaged copy of the store.
struct Patient<'w> {
    world: &'w World,
    state: std::path::PathBuf,
    name: &'w str,
}

impl Patient<'_> {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.world.hermod(args);
        command.env("HERMOD_HOME", &self.state);
        command
    }

    /// Expects one of these codes and no panic; gives standard output and standard error.
    #[track_caller]
    fn check(&self, args: &[&str], codes: &[i32]) -> (String, String) {
        let output = self.command(args).output().unwrap();
        let (stdout, stderr) = texts(&output);
        let told = format!("{}: {args:?}: {:?}\n{stdout}\n{stderr}", self.name, output.status.code());
        assert!(output.status.code().is_some_and(|code| codes.contains(&code)), "{told}");
        assert!(!stderr.contains("panicked"), "{told}");
        (stdout, stderr)
    }

    #[track_caller]
    fn ok(&self, args: &[&str]) -> String {
        self.check(args, &[0]).0
    }

    /// Expects success, or a failure of the store that names the session or its run, and the remedy.
    #[track_caller]
    fn ok_or_named(&self, args: &[&str], Ids { run, session }: Ids) {
        let output = self.command(args).output().unwrap();
        let (stdout, stderr) = texts(&output);
        let told = format!("{}: {args:?}: {:?}\n{stdout}\n{stderr}", self.name, output.status.code());
        let names = [session.to_string(), run.to_string()].iter().any(|id| stderr.contains(id));
        let names = names && stderr.contains("hermod store repair");
        assert!(output.status.success() || output.status.code() == Some(74) && names, "{told}");
        assert!(!stderr.contains("panicked"), "{told}");
    }
}

/// What concerns all sessions works, and shows the healthy one.
#[track_caller]
fn check_looks(patient: &Patient<'_>, both: &Both) {
    let [bad, good] = [both.bad, both.good].map(|ids| ids.run.to_string());
    let listed = patient.ok(&["runs", "list"]);
    assert!(listed.contains(&good), "{}: {listed}", patient.name);
    let listed = object(&patient.ok(&["runs", "list", "--json"]));
    let row = |id: &str| listed.as_array().unwrap().iter().find(|row| row["id"] == id).cloned();
    assert!(row(&good).unwrap()["unreadable"].is_null(), "{}: {listed}", patient.name);
    if let Some(row) = row(&bad).filter(|row| row["input"] == "") {
        assert!(row["unreadable"].is_string(), "{}: {row}", patient.name);
    }
    assert!(patient.ok(&["runs", "show", &good]).contains("do it"));
    assert!(patient.ok(&["sessions", "list"]).contains("good"));
    assert!(patient.ok(&["journal", "good"]).contains("run.accepted"));
    assert!(patient.ok(&["tree"]).contains(&good));
    assert!(patient.ok(&["store", "footprint"]).contains("sessions"));
    patient.ok(&["gc"]);
    patient.ok(&["approvals", "list"]);
    for verb in [&["runs", "show"][..], &["journal"], &["sessions", "show"], &["budget", "show"]] {
        patient.ok_or_named(&[verb, &[&*bad]].concat(), both.bad);
    }
    let (checked, _) = patient.check(&["store", "check"], &[74]);
    assert!(checked.contains("damaged: ") && checked.contains("hermod store repair"), "{checked}");
}

/// A backup is made of the damaged store, says so, and can be restored.
#[track_caller]
fn check_backup(patient: &Patient<'_>) {
    let backup = patient.state.with_extension("backup");
    let backup = backup.to_str().unwrap();
    let (_, told) = patient.check(&["backup", "create", backup], &[0]);
    assert!(told.contains("damaged   in the store itself"), "{}: {told}", patient.name);
    let (_, told) = patient.check(&["backup", "verify", backup], &[0]);
    assert!(told.contains("damaged   in the store itself, when this was made"), "{told}");
    let restored = Patient { state: patient.state.with_extension("restored"), ..*patient };
    restored.ok(&["backup", "restore", backup]);
    assert!(restored.ok(&["runs", "list"]).contains("completed"));
}

/// The healthy run goes on to its end, and the damaged one gets one, whichever.
#[track_caller]
fn check_resume(patient: &Patient<'_>, both: &Both) {
    let _ = patient.check(&["runs", "resume", "--all", "--wait"], &[0, 70, 74]);
    let shown = object(&patient.ok(&["runs", "show", "--json", &both.good.run.to_string()]));
    assert_eq!(shown["outcome"], "completed", "{}: {shown}", patient.name);
    // What the list of unfinished runs lacks is not found; `store check` finds it.
    if patient.name != UNLISTED {
        let listed = patient.ok(&["runs", "list"]);
        assert!(!listed.contains("running") && !listed.contains("suspended"), "{}: {listed}", patient.name);
    }
}

/// The damaged session goes into a file; then nothing is damaged, and the healthy ones are as they were.
#[track_caller]
fn check_repair(patient: &Patient<'_>, both: &Both) {
    let before = patient.ok(&["journal", "good"]);
    let dry = patient.ok(&["store", "repair", "--all", "--dry-run"]);
    assert!(dry.contains("would") && dry.contains("nothing was changed"), "{}: {dry}", patient.name);
    let repaired = object(&patient.ok(&["store", "repair", "--all", "--json"]));
    assert_eq!(repaired["damages"], json!([]), "{}: {repaired}", patient.name);
    assert!(patient.ok(&["store", "check"]).contains("nothing is damaged"));
    assert_eq!(patient.ok(&["journal", "good"]), before, "{}", patient.name);
    assert!(patient.ok(&["runs", "list"]).contains("completed"));
    let named = |list: &Value, session: SessionId| list.to_string().contains(&session.to_string());
    assert!(!named(&repaired["set_aside"], both.good.session), "{}: {repaired}", patient.name);
    for file in repaired["set_aside"].as_array().unwrap() {
        let lines = fs::read_to_string(file["file"].as_str().unwrap()).unwrap();
        assert_eq!(lines.lines().count() as u64, file["rows"].as_u64().unwrap());
        for line in lines.lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            assert!(line["table"].is_string(), "{line}");
        }
    }
    let _ = patient.check(&["runs", "resume", "--all", "--wait"], &[0]);
    let shown = object(&patient.ok(&["runs", "show", "--json", &both.good.run.to_string()]));
    assert_eq!(shown["outcome"], "completed", "{}: {shown}", patient.name);
    assert!(patient.ok(&["store", "check"]).contains("nothing is damaged"));
}

/// Does this on a copy of the store for each kind of damage.
fn each(check: impl Fn(&Patient<'_>, &Both)) {
    let world = World::new();
    let both = store(&world);
    for (n, (name, spoil)) in DAMAGES.iter().enumerate() {
        let state = world.state().with_file_name(format!("damaged-{n}"));
        copy(&world.state(), &state);
        let db = Database::open(state.join("hermod.redb")).unwrap();
        let txn = db.begin_write().unwrap();
        spoil(&txn, &both);
        txn.commit().unwrap();
        drop(db);
        check(&Patient { world: &world, state, name }, &both);
    }
}

#[test]
fn every_command_works_beside_a_damaged_session() {
    each(|patient, both| {
        check_looks(patient, both);
        check_backup(patient);
    });
}

#[test]
fn healthy_runs_go_on_beside_a_damaged_session() {
    each(check_resume);
}

#[test]
fn a_damaged_session_is_set_aside_and_all_others_stay() {
    each(check_repair);
}

#[test]
fn a_run_of_a_damaged_session_can_be_stopped() {
    each(|patient, both| {
        let run = both.bad.run.to_string();
        let _ = patient.check(&["stop", &run], &[0]);
        let shown = object(&patient.ok(&["runs", "show", "--json", &run]));
        assert_eq!(shown["state"], "ended", "{}: {shown}", patient.name);
    });
}

#[test]
fn a_session_that_is_whole_is_not_set_aside() {
    let world = World::new();
    let done = world.script(&json!([{ "say": "done" }]));
    world.ok(&["run", &done, "--session", "k", "do it"]);
    let before = world.journal("k").len();
    world.fails(&["store", "repair", "k"], 2, "is not damaged, so it is not set aside");
    assert!(world.ok(&["store", "repair", "--all"]).contains("nothing is damaged"));
    world.fails(&["store", "repair"], 2, "or give --all for every one");
    assert_eq!(world.journal("k").len(), before);
}
