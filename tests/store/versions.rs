//! Stores that earlier versions have written are opened, read and gone on with: one folder per schema version in
//! `tests/fixtures/store/`, which stays as it is for ever.
//!
//! A change of the schema adds a folder: `HERMOD_MAKE_FIXTURE=4 cargo test --test store versions::` writes that of the schema
//! that this program writes.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use hermod::store::redb::{CheckReport, Durability, RedbJournal, check};
use hermod_actors::{
    RunRequest, Runtime, RuntimeDependencies, SessionChoice,
    model::{
        CallEnd, EffectClass, Outcome, RunState, Schedule, ScheduleDefinition, ScheduleRules, ScheduleSource,
        ScheduleWrite, ScheduledTask, SessionId, Timestamp, Timing,
    },
    port::{Journal, Presence, Tool, WriteOp},
};
use hermod_testkit::{ScriptedProvider, ScriptedTool, VirtualClock, calls, says, world};
use redb::{Database, ReadableTable, TableDefinition};
use serde_json::json;
use tempfile::tempdir;

/// What this program writes.
const TODAY: u64 = 3;
const META: TableDefinition<&str, u64> = TableDefinition::new("meta");
/// Records in today's form, and in that of schema 1: a row for each, by session and sequence.
const LOG: TableDefinition<u64, &[u8]> = TableDefinition::new("appends");
const LOG_1: TableDefinition<(u128, u64), &[u8]> = TableDefinition::new("log");
const FILE: &str = "hermod.redb";
/// Where the runs of a fixture stand.
const DONE: &str = "done";
const HELD: &str = "held";

fn fixture(version: u64) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/store").join(version.to_string())
}

/// A world on this store; the tool answers at once, or never.
fn on(store: &Path, answers: bool, chance: u64) -> RuntimeDependencies {
    let journal = RedbJournal::open(store, Durability::Strict).expect("the store opens");
    let provider = ScriptedProvider::new(Duration::ZERO, |view| {
        let held = view.iter().any(|message| message["text"] == HELD);
        match view.iter().filter(|message| message["role"] == "tool").count() {
            0 => Ok(calls(&[(if held { "hold" } else { "read" }, json!({}))])),
            seen => Ok(says(&format!("{seen} results"))),
        }
    });
    let read = ScriptedTool::fixed("read", EffectClass::Once, &"long ".repeat(4_000));
    let hold = match answers {
        true => ScriptedTool::fixed("hold", EffectClass::Pure, "released"),
        false => ScriptedTool::new("hold", EffectClass::Pure, |_| std::future::pending::<CallEnd>()),
    };
    let tools: Vec<Arc<dyn Tool>> = vec![Arc::new(hold), Arc::new(read)];
    RuntimeDependencies {
        clock: Arc::new(VirtualClock::new(chance)),
        ..world(Arc::new(journal), provider, tools)
    }
}

fn to(key: &str) -> RunRequest {
    RunRequest { session: SessionChoice::Key(key.into()), ..RunRequest::new(key) }
}

/// The schedule of the fixtures since schema 3.
fn schedule() -> Schedule {
    let (timing, rules) = (Timing::Once { at: Timestamp(9) }, ScheduleRules::default());
    Schedule {
        name: "s".parse().unwrap(),
        source: ScheduleSource::Command,
        definition: ScheduleDefinition { timing, task: ScheduledTask::new("text"), rules },
        created_at: Timestamp(1),
        next: Some(Timestamp(9)),
        paused: None,
        resumed_at: None,
        revision: 0,
    }
}

/// Writes the fixture of a version.
async fn make(version: u64) {
    let dir = fixture(version);
    assert!(!dir.exists(), "{} is there already, and stays as it is", dir.display());
    let runtime = Runtime::start(on(&dir, false, 1)).await.unwrap();
    runtime.run(to(DONE)).await.unwrap();
    let held = runtime.submit(to(HELD)).await.unwrap();
    let kinds = async || runtime.journal(held.session, 1).await.unwrap().len();
    while kinds().await < 6 {
        tokio::task::yield_now().await;
    }
    runtime.suspend().await;
    if version >= 3 {
        let journal = RedbJournal::open(&dir, Durability::Strict).unwrap();
        journal
            .commit(vec![WriteOp::Schedule(Box::new(ScheduleWrite::over(schedule(), vec![], vec![])))])
            .await
            .unwrap();
    }
    fs::remove_file(dir.join("owner")).unwrap();
    let mut db = Database::open(dir.join(FILE)).unwrap();
    if version == 1 {
        into_schema_1(&db);
    }
    while db.compact().unwrap() {}
}

/// Lays the records out as schema 1 had them, and forgets what it did not know.
fn into_schema_1(db: &Database) {
    let txn = db.begin_write().unwrap();
    let mut records = Vec::new();
    for row in txn.open_table(LOG).unwrap().iter().unwrap() {
        let row = row.unwrap().1.value().to_vec();
        let session = u128::from_le_bytes(row[..16].try_into().unwrap());
        let mut seq = u64::from_le_bytes(row[16..24].try_into().unwrap());
        let mut rest = &row[32..];
        while let Some((length, after)) = rest.split_first_chunk() {
            let (record, after) = after.split_at(u32::from_le_bytes(*length) as usize);
            records.push(((session, seq), record.to_vec()));
            (seq, rest) = (seq + 1, after);
        }
    }
    txn.delete_table(LOG).unwrap();
    txn.delete_table(TableDefinition::<u128, (u64, u64, u64)>::new("tails")).unwrap();
    txn.delete_table(TableDefinition::<(u128, u64), u64>::new("marks")).unwrap();
    let mut log = txn.open_table(LOG_1).unwrap();
    for (key, record) in records {
        log.insert(key, &*record).unwrap();
    }
    drop(log);
    let mut meta = txn.open_table(META).unwrap();
    meta.insert("schema_version", 1).unwrap();
    meta.retain(|key, _| ["schema_version", "epoch"].contains(&key)).unwrap();
    drop(meta);
    txn.commit().unwrap();
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn sound(store: &Path) -> CheckReport {
    let checked = check(store, &|_, _| Ok(Presence::Missing)).unwrap();
    assert_eq!((&checked.damages[..], checked.more_damages), (&[][..], 0));
    checked
}

/// A fixture is opened, all of it is read, and its unfinished run comes to its end.
async fn opens(version: u64) {
    let store = tempdir().unwrap();
    copy(&fixture(version), store.path());
    let journal = RedbJournal::open(store.path(), Durability::Strict).unwrap();
    let rows = journal.rows();
    let runs = rows.runs(None, 9).await.unwrap();
    assert_eq!(runs.iter().map(|run| run.state).collect::<Vec<_>>(), [RunState::Ended, RunState::Running]);
    for run in &runs {
        let account = rows.account(run.account).await.unwrap().expect("the run has an account");
        assert!(account.spent.tokens > Some(0), "{account:?}");
    }
    let schedules = rows.schedules().await.unwrap();
    let expected = (version >= 3).then(|| Schedule { revision: 1, ..schedule() });
    assert_eq!(schedules, expected.into_iter().collect::<Vec<_>>());
    let sessions = rows.sessions(9).await.unwrap();
    assert_eq!(sessions.iter().map(|row| &*row.key).collect::<Vec<_>>(), [DONE, HELD]);
    let kinds = async |session: SessionId| {
        let records = journal.records(session, 1, 99).await.unwrap();
        records.iter().map(|stored| stored.record.body.kind().name()).collect::<Vec<_>>()
    };
    let begun = ["session.opened", "run.accepted", "model.started", "model.answered", "call.admitted"];
    let held = [&begun[..], &["call.started"]].concat();
    // The suspension that ends the making of a fixture records the call since schema 3.
    let suspended: &[&str] = if version >= 3 { &["call.lost"] } else { &[] };
    let done = [&held[..], &["call.ended", "model.started", "model.answered", "run.ended"]].concat();
    assert_eq!(
        (kinds(sessions[0].id).await, kinds(sessions[1].id).await),
        (done, [&held[..], suspended].concat())
    );
    drop(journal);
    let counts = sound(store.path()).counts;
    assert_eq!(
        (counts.sessions, counts.records, counts.open_runs, counts.blobs),
        (2, 16 + suspended.len() as u64, 1, 1)
    );

    let runtime = Runtime::start(on(store.path(), true, 9)).await.unwrap();
    runtime.revive_all().await.unwrap();
    for run in runs {
        let result = runtime.wait(run.id, None).await.unwrap();
        assert_eq!((result.ended.outcome, result.text()), (Outcome::Completed, Some("1 results")));
    }
    runtime.suspend().await;
    assert_eq!(sound(store.path()).counts.open_runs, 0);
}

#[tokio::test]
async fn the_stores_of_all_versions_open() {
    if let Ok(version) = std::env::var("HERMOD_MAKE_FIXTURE") {
        make(version.parse().unwrap()).await;
    }
    for version in 1..=TODAY {
        opens(version).await;
    }
}

#[test]
fn the_command_names_what_is_damaged() {
    let world = crate::world::World::new();
    copy(&fixture(TODAY), &world.state());
    let report = crate::world::object(&world.ok(&["store", "check", "--json"]));
    assert_eq!((&report["checked"]["records"], &report["damages"]), (&json!(17), &json!([])));
    assert!(world.ok(&["store", "check"]).contains("nothing is damaged"));
    let blob = fs::read_dir(world.state().join("blobs")).unwrap().next().unwrap().unwrap().path();
    fs::remove_dir_all(blob).unwrap();
    let output = world.run(&["store", "check", "--json"]);
    let report = crate::world::object(&String::from_utf8_lossy(&output.stdout));
    assert_eq!(output.status.code(), Some(74));
    let damage = &report["damages"][0];
    assert_eq!((&damage["table"], &damage["seq"]), (&json!("appends"), &json!(7)), "{report}");
    let output = world.run(&["store", "check"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("record 7, appends: "), "{output:?}");
    let held = RedbJournal::open(&world.state(), Durability::Strict).unwrap();
    world.fails(&["store", "check"], 75, "is in use by process");
    drop(held);
    fs::remove_file(world.state().join(FILE)).unwrap();
    world.fails(&["store", "check"], 74, "hermod.redb");
}
