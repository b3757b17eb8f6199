//! Every journal keeps the one contract; and what only the store on disk promises.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, sync::Arc, time::Duration};

use hermod::store::redb::{Durability, OpenError, RedbJournal};
use hermod_actors::{
    model::{
        Body, CallEnd, CallEnded, CallId, CallStatus, DecodeError, Incarnation, Record, RunId, SessionId,
        Timestamp, encode,
    },
    port::{Append, Journal, JournalError, ReadError, StoredRecord, WriteOp, WriteOutcome},
};
use hermod_testkit::{
    FaultyJournal, JournalFault, MemoryJournal, StoreOpener, fault_contract, journal_contract,
};
use redb::{Database, ReadableDatabase, TableDefinition};
use tempfile::{TempDir, tempdir};

/// Rows of records. In these tests an append is a row, and its record begins at `RECORD`.
const LOG: TableDefinition<u64, &[u8]> = TableDefinition::new("appends");
/// Behind the row's own 32 bytes and the record's length.
const RECORD: usize = 32 + 4;
/// What schema 1 had instead: a row for each record.
const LOG_1: TableDefinition<(u128, u64), &[u8]> = TableDefinition::new("log");
const META: TableDefinition<&str, u64> = TableDefinition::new("meta");
const SESSION: SessionId = SessionId::from_bits(1 << 70);

#[tokio::test]
async fn memory_keeps_the_contract() {
    journal_contract(memory).await;
}

#[tokio::test]
async fn redb_keeps_the_contract() {
    for durability in [Durability::Strict, Durability::Relaxed] {
        journal_contract(|| -> StoreOpener {
            let dir = tempdir().unwrap();
            Box::new(move || Box::new(RedbJournal::open(dir.path(), durability).unwrap()))
        })
        .await;
    }
}

#[test]
fn a_process_that_has_ended_writes_no_more() {
    let old = MemoryJournal::new();
    let new = old.reopened();
    let commit =
        |journal: &MemoryJournal| futures::executor::block_on(journal.commit(vec![WriteOp::Open(SESSION)]));
    assert!(matches!(commit(&old), Err(JournalError::Unavailable(_))));
    assert!(commit(&new).is_ok());
}

#[test]
fn reads_need_no_runtime() {
    let (dir, journal) = strict();
    futures::executor::block_on(async {
        let fence = take_over(&journal, SESSION).await;
        append(&journal, SESSION, fence, 1, &"x".repeat(200_000)).await.unwrap();
        assert_eq!(records(&journal, SESSION).await.unwrap(), 1);
    });
    drop(dir);
}

#[test]
fn a_second_process_is_told_who_has_the_store() {
    let (dir, journal) = strict();
    let second = RedbJournal::open(dir.path(), Durability::Strict).unwrap_err();
    let pid = std::process::id();
    assert!(matches!(second, OpenError::Busy { pid: Some(named), .. } if named == pid), "{second}");
    assert!(second.to_string().contains(&format!("in use by process {pid}")), "{second}");
    drop(journal);
    drop(RedbJournal::open(dir.path(), Durability::Strict).unwrap());
}

#[test]
fn only_the_owner_may_look_inside() {
    let parent = tempdir().unwrap();
    let dir = parent.path().join("a/b");
    let journal = RedbJournal::open(&dir, Durability::Strict).unwrap();
    futures::executor::block_on(async {
        let fence = take_over(&journal, SESSION).await;
        append(&journal, SESSION, fence, 1, &"x".repeat(200_000)).await.unwrap();
    });
    let mut folders = vec![dir];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        assert_eq!(mode(&folder), 0o700, "{}", folder.display());
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                assert_eq!(mode(&path), 0o600, "{}", path.display());
                files += 1;
            }
        }
    }
    assert_eq!(files, 3, "the store, its owner and one blob");
}

#[tokio::test]
async fn after_a_failed_commit_nothing_is_written() {
    let (dir, journal) = strict();
    let fence = take_over(&journal, SESSION).await;
    append(&journal, SESSION, fence, 1, "before").await.unwrap();
    fs::remove_dir(dir.path().join("blobs")).unwrap();
    fs::write(dir.path().join("blobs"), "in the way").unwrap();
    let failed = append(&journal, SESSION, fence, 2, &"x".repeat(20_000)).await.unwrap_err();
    let JournalError::Unavailable(told) = failed else { panic!("{failed}") };
    assert!(told.contains("blobs/new: Not a directory"), "{told}");
    fs::remove_file(dir.path().join("blobs")).unwrap();
    let later = append(&journal, SESSION, fence, 2, "small").await.unwrap_err();
    assert_eq!(later, JournalError::Unavailable(format!("an earlier commit failed: {told}")));
    let opening = journal.commit(vec![WriteOp::Open(SESSION)]).await;
    assert!(matches!(opening, Err(JournalError::Unavailable(_))), "{opening:?}");
    assert_eq!(records(&journal, SESSION).await.unwrap(), 1, "it can still be read");
    drop(journal);
    let journal = RedbJournal::open(dir.path(), Durability::Strict).unwrap();
    let fence = take_over(&journal, SESSION).await;
    append(&journal, SESSION, fence, 2, &"x".repeat(20_000)).await.unwrap();
}

#[tokio::test]
async fn a_record_that_cannot_be_read_concerns_its_session_only() {
    let (dir, journal) = strict();
    let [unknown, lost, fine] = [1, 2, 3].map(|n| SessionId::from_bits(n << 80));
    for session in [unknown, lost, fine] {
        let fence = take_over(&journal, session).await;
        append(&journal, session, fence, 1, "first").await.unwrap();
        append(&journal, session, fence, 2, &format!("{session} {}", "x".repeat(20_000))).await.unwrap();
    }
    drop(journal);
    let db = Database::create(dir.path().join("hermod.redb")).unwrap();
    let txn = db.begin_write().unwrap();
    let mut log = txn.open_table(LOG).unwrap();
    // The sessions have written two rows each, one session after the other.
    let mut first = log.remove(1).unwrap().unwrap().value().to_vec();
    first[RECORD + 2..RECORD + 4].copy_from_slice(&999_u16.to_le_bytes());
    log.insert(1, &*first).unwrap();
    let reference = log.remove(4).unwrap().unwrap().value().to_vec();
    log.insert(4, &reference[..RECORD + 9]).unwrap();
    drop(log);
    txn.commit().unwrap();
    drop(db);
    let journal = RedbJournal::open(dir.path(), Durability::Strict).unwrap();
    let error = DecodeError::UnknownKind(999);
    let expect = ReadError::Record { session: unknown, seq: 1, error };
    assert_eq!(records(&journal, unknown).await, Err(expect));
    let missing = records(&journal, lost).await;
    let Err(ReadError::Record { session, seq: 2, error: DecodeError::Malformed(_) }) = missing else {
        panic!("{missing:?}")
    };
    assert_eq!(session, lost);
    assert_eq!(records(&journal, fine).await, Ok(2));
    let fence = take_over(&journal, unknown).await;
    append(&journal, unknown, fence, 3, "the supervisor's last word").await.unwrap();
}

#[tokio::test]
async fn a_long_journal_is_read_page_by_page() {
    let (_dir, journal) = strict();
    let other = SessionId::from_bits(2 << 70);
    let fences = [take_over(&journal, SESSION).await, take_over(&journal, other).await];
    for seq in 1..=300 {
        for (session, fence) in [SESSION, other].into_iter().zip(fences) {
            append(&journal, session, fence, seq, &format!("{session} {seq}")).await.unwrap();
        }
    }
    for (from, max) in
        [(0, 0), (0, 7), (1, 1), (1, 64), (60, 10), (64, 1), (128, 130), (299, 9), (300, 1), (301, 5)]
    {
        let records = journal.records(SESSION, from, max).await.unwrap();
        let expect: Vec<u64> = (from.max(1)..=300).take(max).collect();
        let seqs: Vec<u64> = records.iter().map(|stored| stored.seq).collect();
        assert_eq!(seqs, expect, "{max} from {from}");
        let whose = |stored: &StoredRecord| {
            matches!(&stored.record.body, Body::CallEnded(ended)
                if *ended.end.content == *format!("{SESSION} {}", stored.seq))
        };
        assert!(records.iter().all(whose));
    }
}

#[tokio::test]
async fn a_store_of_schema_1_is_brought_up_to_date() {
    let (dir, journal) = strict();
    drop(journal);
    let path = dir.path().join("hermod.redb");
    let sessions = [1, 2, u128::MAX].map(SessionId::from_bits);
    let txn = Database::create(&path).unwrap().begin_write().unwrap();
    txn.delete_table(LOG).unwrap();
    txn.open_table(META).unwrap().insert("schema_version", 1).unwrap();
    for session in sessions {
        for seq in 1..=200 {
            let WriteOp::Append(append) = one(session, Incarnation { epoch: 1, revival: 1 }, seq, "old")
            else {
                panic!("not an append")
            };
            let key = (session.bits(), seq);
            txn.open_table(LOG_1).unwrap().insert(key, &*encode(&append.records[0])).unwrap();
        }
    }
    txn.commit().unwrap();
    let journal = RedbJournal::open(dir.path(), Durability::Strict).unwrap();
    for session in sessions {
        assert_eq!(records(&journal, session).await, Ok(200));
        let fence = take_over(&journal, session).await;
        append(&journal, session, fence, 201, "new").await.unwrap();
        assert_eq!(records(&journal, session).await, Ok(201));
    }
    drop(journal);
    let txn = Database::create(&path).unwrap().begin_read().unwrap();
    assert!(txn.open_table(LOG_1).is_err(), "the old rows are gone");
}

#[test]
fn what_is_no_store_of_ours_is_not_opened() {
    let check = |spoil: &dyn Fn(&Path), expect: &str| {
        let (dir, journal) = strict();
        drop(journal);
        spoil(&dir.path().join("hermod.redb"));
        let error = RedbJournal::open(dir.path(), Durability::Strict).unwrap_err().to_string();
        assert!(error.contains(expect), "{error}");
        assert!(error.contains("hermod.redb"), "{error}");
    };
    let newer = |path: &Path| {
        let txn = Database::create(path).unwrap().begin_write().unwrap();
        txn.open_table(META).unwrap().insert("schema_version", 7).unwrap();
        txn.commit().unwrap();
    };
    check(&newer, "schema version 7, and this program knows 3");
    check(&|path| fs::write(path, "no database at all").unwrap(), "cannot be used as a store");
    let foreign = |path: &Path| {
        fs::remove_file(path).unwrap();
        let txn = Database::create(path).unwrap().begin_write().unwrap();
        txn.open_table(TableDefinition::<u64, u64>::new("cookies")).unwrap();
        txn.commit().unwrap();
    };
    check(&foreign, "belongs to another program (tables: cookies)");
    let other_types = |path: &Path| {
        let txn = Database::create(path).unwrap().begin_write().unwrap();
        txn.delete_table(LOG).unwrap();
        txn.open_table(TableDefinition::<u64, u64>::new("appends")).unwrap();
        txn.commit().unwrap();
    };
    check(&other_types, "appends is of type Table<u64, u64>");
    let folder = |path: &Path| {
        fs::remove_file(path).unwrap();
        fs::create_dir(path).unwrap();
    };
    check(&folder, "Is a directory");
}

#[tokio::test]
async fn what_is_queued_is_written_before_the_store_closes() {
    for durability in [Durability::Strict, Durability::Relaxed] {
        let dir = tempdir().unwrap();
        let journal = RedbJournal::open(dir.path(), durability).unwrap();
        let fence = take_over(&journal, SESSION).await;
        let queued: Vec<_> =
            (1..=20).map(|seq| journal.commit(vec![one(SESSION, fence, seq, "queued")])).collect();
        drop(journal);
        for answer in queued {
            assert!(matches!(answer.await.unwrap()[..], [WriteOutcome::Appended(_)]));
        }
        let journal = RedbJournal::open(dir.path(), durability).unwrap();
        assert_eq!(records(&journal, SESSION).await, Ok(20));
    }
}

fn strict() -> (TempDir, RedbJournal) {
    let dir = tempdir().expect("a temporary folder");
    let journal = RedbJournal::open(dir.path(), Durability::Strict).expect("an empty folder");
    (dir, journal)
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").permissions().mode() & 0o777
}

async fn take_over(journal: &RedbJournal, session: SessionId) -> Incarnation {
    match journal.commit(vec![WriteOp::Open(session)]).await.expect("the store works").remove(0) {
        WriteOutcome::Opened(opened) => opened.incarnation,
        other @ (WriteOutcome::Appended(_)
        | WriteOutcome::Closed(_)
        | WriteOutcome::Delivered(_)
        | WriteOutcome::DeliveryUpdated(_)
        | WriteOutcome::ScheduleWritten(_)
        | WriteOutcome::Refused(_)) => {
            panic!("{other:?}")
        }
    }
}

async fn append(
    journal: &RedbJournal,
    session: SessionId,
    fence: Incarnation,
    seq: u64,
    content: &str,
) -> Result<(), JournalError> {
    let written = journal.commit(vec![one(session, fence, seq, content)]).await?;
    assert!(matches!(written[..], [WriteOutcome::Appended(_)]), "{written:?}");
    Ok(())
}

async fn records(journal: &RedbJournal, session: SessionId) -> Result<usize, ReadError> {
    Ok(journal.records(session, 0, usize::MAX).await?.len())
}

fn one(session: SessionId, fence: Incarnation, seq: u64, content: &str) -> WriteOp {
    let call = CallId { run: RunId::from_bits(1), iteration: 1, n: 1 };
    let end = CallEnd::new(CallStatus::Ok, content);
    let body = Body::CallEnded(CallEnded::new(call, 1, end));
    let record = Arc::new(Record { at: Timestamp(1), active_ms: 1, body });
    WriteOp::Append(Box::new(Append::new(session, fence, seq, vec![record])))
}

fn memory() -> StoreOpener {
    let mut journal: Option<MemoryJournal> = None;
    Box::new(move || {
        let next = journal.as_ref().map_or_else(MemoryJournal::new, MemoryJournal::reopened);
        Box::new(journal.insert(next).clone())
    })
}

fn on_disk() -> StoreOpener {
    let dir = tempdir().expect("a temporary folder");
    Box::new(move || Box::new(RedbJournal::open(dir.path(), Durability::Strict).expect("a store")))
}

#[tokio::test(start_paused = true)]
async fn a_slow_journal_keeps_the_contract() {
    let slow = JournalFault::Slow(Duration::from_secs(3));
    journal_contract(|| -> StoreOpener {
        let mut open = memory();
        Box::new(move || Box::new(FaultyJournal::new(Arc::from(open()), slow, 1)))
    })
    .await;
}

#[tokio::test]
async fn what_a_failing_journal_leaves_is_whole() {
    fault_contract(memory).await;
    fault_contract(on_disk).await;
}
