//! A record that this version does not know concerns its session only.

use std::{fs, path::Path, process::Command, sync::Arc, time::Duration};

use hermod::store::redb::{Durability, RedbJournal};
use hermod_actors::{
    AcceptedRun, RunError, RunRequest, Runtime, RuntimeDependencies, SessionChoice, SessionPhase,
    SubmitError,
    model::{Outcome, OutcomeCause},
};
use hermod_testkit::{ScriptedProvider, says, world};
use redb::{Database, ReadableTable, TableDefinition};
use tempfile::tempdir;

const LOG: TableDefinition<u64, &[u8]> = TableDefinition::new("appends");
const UNKNOWN: &str = "record kind 999 is unknown to this program";

/// A world on this store whose model takes so long.
fn on(store: &Path, delay: Duration) -> RuntimeDependencies {
    let journal = RedbJournal::open(store, Durability::Strict).expect("the store opens");
    world(Arc::new(journal), ScriptedProvider::new(delay, |_| Ok(says("done"))), vec![])
}

fn to(key: &str) -> RunRequest {
    RunRequest { session: SessionChoice::Key(key.into()), ..RunRequest::new("do it") }
}

/// Gives the first record of a session a kind that nobody knows. It stands in the first row of the log that names the
/// session, behind the row's head (32 bytes) and the record's length.
fn spoil(store: &Path, session: AcceptedRun) {
    let db = Database::create(store.join("hermod.redb")).expect("the store's file");
    let txn = db.begin_write().expect("a transaction");
    let mut log = txn.open_table(LOG).expect("the log");
    let rows = log.iter().expect("it is read").map(|row| row.expect("a row"));
    let mut rows = rows.map(|(place, row)| (place.value(), row.value().to_vec()));
    let owner = session.session.bits().to_le_bytes();
    let (place, mut row) = rows.find(|(_, row)| row.starts_with(&owner)).expect("a row of the session");
    drop(rows);
    row[38..40].copy_from_slice(&999_u16.to_le_bytes());
    log.insert(place, &*row).expect("it is written");
    drop(log);
    txn.commit().expect("a commit");
}

fn hermod(store: &Path, work: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut command = Command::new(env!("CARGO_BIN_EXE_hermod"));
    command.args(args).env_clear().env("PATH", path).env("HERMOD_HOME", store).current_dir(work);
    let output = command.output().expect("hermod starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[tokio::test]
async fn an_unknown_kind_of_record_quarantines_its_session_only() {
    let home = tempdir().unwrap();
    let (state, work) = (home.path().join("state"), home.path().join("work"));
    fs::create_dir(&work).unwrap();
    let hermod = |args: &[&str]| hermod(&state, &work, args);
    let runtime = Runtime::start(on(&state, Duration::from_hours(1))).await.unwrap();
    let bad = runtime.submit(to("bad")).await.unwrap();
    let good = runtime.submit(to("good")).await.unwrap();
    runtime.suspend().await;
    spoil(&state, bad);

    let (code, listed, _) = hermod(&["sessions", "list"]);
    assert_eq!(code, Some(0));
    let line = |key: &str| listed.lines().find(|line| line.contains(key)).expect("it is listed").to_owned();
    assert!(line("bad").contains(&format!("quarantined: record 1 of session {}: {UNKNOWN}", bad.session)));
    assert!(line("good").contains("readable"), "{listed}");
    let (code, runs, _) = hermod(&["runs", "list"]);
    assert_eq!((code, runs.lines().count()), (Some(0), 3), "{runs}");

    let runtime = Runtime::start(on(&state, Duration::ZERO)).await.unwrap();
    runtime.revive_all().await.unwrap();
    assert_eq!(runtime.wait(good.run, None).await.unwrap().ended.outcome, Outcome::Completed);
    let ended = runtime.wait(bad.run, None).await.unwrap().ended;
    assert_eq!(ended.outcome, Outcome::Failed);
    assert!(
        matches!(&ended.cause, Some(OutcomeCause::Unreadable { error }) if error.contains(UNKNOWN)),
        "{ended}"
    );
    let refused = runtime.submit(to("bad")).await.unwrap_err();
    let RunError::NotAccepted(SubmitError::Quarantined { session, error }) = &refused else {
        panic!("{refused}")
    };
    assert_eq!(*session, bad.session);
    assert!(error.contains(UNKNOWN), "{error}");
    let sessions = runtime.supervision_tree().await.unwrap().sessions;
    let place_of = |of: AcceptedRun| {
        let status = sessions.iter().find(|status| status.session == of.session);
        status.map(|status| status.phase.clone())
    };
    assert_eq!(place_of(bad), Some(SessionPhase::Quarantined(error.clone())));
    assert_eq!(place_of(good), Some(SessionPhase::Live));
    assert_eq!(runtime.run(to("good")).await.unwrap().ended.outcome, Outcome::Completed);
    runtime.suspend().await;

    let go_on = ["run", "--rehearse", "--session", "bad", "--workspace", ".", "go on"];
    let (code, _, error) = hermod(&go_on);
    assert_eq!(code, Some(74), "{error}");
    assert!(error.contains(UNKNOWN), "{error}");
}
