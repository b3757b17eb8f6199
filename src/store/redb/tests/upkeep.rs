//! Tests of the work at an opening, such as migration and vacuum, with a power cut in the middle. Also of how the next
//! opening recognises the last shutdown, and damage.

use futures::executor::block_on;
use hermod_actors::{
    model::{Artifact, RunId, SessionId, encode},
    port::{Journal, Presence},
};
use redb::{Builder, ReadableTable, ReadableTableMetadata, StorageBackend, TableDefinition};

use super::{
    chance::Chance,
    model::{Book, Model},
    power::Disk,
    work,
};
use crate::store::redb::{
    Damage, OpenError, RedbJournal,
    check::{ReferencedFiles, check_over},
    log::LogRow,
    previous_epoch::{self, ShutdownKind},
    quick_check::quick_check,
    tables::{INBOX, KEYS, LOG, MARKS, META, OPEN_RUNS, RUNS, RUNS_BY_SESSION, SESSION_KEYS, TAILS},
    vacuum::{COUNTED_AT, vacuum},
};

/// The table of schema 1: a row for each record.
const RECORDS: TableDefinition<(u128, u64), &[u8]> = TableDefinition::new("log");

/// A store after this number of batches, and the model of its content.
fn filled(batches: usize) -> (Disk, Model) {
    let (mut disk, mut chance) = (Disk::new(Vec::new()), Chance::of(5));
    let (spinning, journal) = disk.reopen(1).unwrap();
    let mut book = Book::default();
    for _ in 0..batches {
        let batch = work::batch(&book.model, &mut chance);
        book.begins(&batch);
        book.acknowledged(&block_on(journal.commit(batch)).unwrap());
    }
    drop(journal);
    disk.cut(&spinning, &mut chance);
    book.settle(book.strict().into(), &disk.reopen(1).unwrap().1).unwrap();
    (disk, book.model)
}

/// Changes the store's file without the journal.
fn by_hand(disk: &mut Disk, change: impl FnOnce(&redb::WriteTransaction)) {
    let spinning = disk.spin(None);
    let db = Builder::new().create_with_backend(spinning.platter()).unwrap();
    let txn = db.begin_write().unwrap();
    change(&txn);
    txn.commit().unwrap();
    drop(db);
    disk.cut(&spinning, &mut Chance::of(1));
}

/// Cuts the power at many operations of `work` on the disk. What is left opens, and passes `judge`.
fn cut_within(
    disk: &mut Disk,
    mut work: impl FnMut(&Disk, &super::power::Spinning),
    judge: impl Fn(&RedbJournal),
) {
    let image = disk.image.clone();
    let mut cuts = 0;
    for operations in 1.. {
        // Later operations repeat the same, so each seventh is enough.
        let operations = if operations < 40 { operations } else { 40 + (operations - 40) * 7 };
        let spinning = disk.spin(Some(operations));
        work(disk, &spinning);
        let done = !spinning.is_lost();
        disk.cut(&spinning, &mut Chance::of(operations));
        let (_, journal) =
            disk.reopen(operations).unwrap_or_else(|why| panic!("operation {operations}: {why}"));
        judge(&journal);
        disk.image.clone_from(&image);
        if done {
            break;
        }
        cuts += 1;
    }
    assert!(cuts > 10, "{cuts} cuts");
}

#[test]
fn a_power_loss_while_compacting_loses_nothing() {
    let (mut disk, model) = filled(40);
    // Removed rows leave free space between the remaining ones.
    let junk = TableDefinition::<u64, &[u8]>::new("junk");
    by_hand(&mut disk, |txn| {
        let mut table = txn.open_table(junk).unwrap();
        for n in 0..300 {
            table.insert(n, &*vec![7; 3_000]).unwrap();
        }
    });
    by_hand(&mut disk, |txn| assert!(txn.delete_table(junk).unwrap()));
    let compact = |_: &Disk, spinning: &super::power::Spinning| {
        let Ok(mut db) = Builder::new().create_with_backend(spinning.platter()) else { return };
        let before = spinning.platter().len().unwrap();
        if db.compact().is_ok() && !spinning.is_lost() {
            assert!(spinning.platter().len().unwrap() < before, "there was room");
        }
    };
    cut_within(&mut disk, compact, |journal| model.compare(journal).unwrap());
}

#[test]
fn a_store_of_which_most_was_deleted_is_compacted_once() {
    let (mut disk, _) = filled(40);
    let compacted = |disk: &mut Disk| {
        let spinning = disk.spin(None);
        let bytes = disk.image.len() as u64;
        let mut db = Builder::new().create_with_backend(spinning.platter()).unwrap();
        let counted = vacuum(&mut db, bytes, 0).unwrap();
        if let Some(deleted_rows) = counted {
            let txn = db.begin_write().unwrap();
            txn.open_table(META).unwrap().insert(COUNTED_AT, deleted_rows).unwrap();
            txn.commit().unwrap();
        }
        drop(db);
        disk.cut(&spinning, &mut Chance::of(1));
        (counted.is_some(), bytes, disk.image.len() as u64)
    };
    assert!(!compacted(&mut disk).0, "nothing was deleted");
    by_hand(&mut disk, |txn| {
        let mut log = txn.open_table(LOG).unwrap();
        let rows = log.len().unwrap();
        (rows / 10..rows).for_each(|position| drop(log.remove(position).unwrap()));
    });
    let (counted, before, after) = compacted(&mut disk);
    assert!(counted && after < before / 2, "{before} {after}");
    assert!(!compacted(&mut disk).0, "it was counted, and nothing has gone since");
}

/// Turns the store into one of schema 1, with the same records.
fn into_schema_1(disk: &mut Disk, model: &Model) {
    let mut records: Vec<(SessionId, u64, Vec<u8>)> = Vec::new();
    for (session, of) in model.records() {
        records.extend((1..).zip(of).map(|(seq, record)| (*session, seq, encode(record))));
    }
    by_hand(disk, |txn| {
        txn.delete_table(LOG).unwrap();
        txn.delete_table(TAILS).unwrap();
        txn.delete_table(MARKS).unwrap();
        let mut rows = txn.open_table(RECORDS).unwrap();
        for (session, seq, record) in &records {
            rows.insert((session.bits(), *seq), &**record).unwrap();
        }
        txn.open_table(META).unwrap().insert("schema_version", 1).unwrap();
    });
}

#[test]
fn a_power_loss_while_migrating_leaves_the_old_store() {
    let (mut disk, model) = filled(15);
    into_schema_1(&mut disk, &model);
    let migrate = |disk: &Disk, spinning: &super::power::Spinning| drop(disk.open(spinning, 1));
    cut_within(&mut disk, migrate, |journal| model.compare(journal).unwrap());
}

#[test]
fn how_a_store_ended_is_known() {
    let (disk, _) = filled(5);
    let check = |disk: &Disk, boot: u64, expected: ShutdownKind| {
        let db = Builder::new().create_with_backend(disk.spin(None).platter()).unwrap();
        assert_eq!(previous_epoch::read(&db, disk.dir(), boot).unwrap().shutdown, expected);
    };
    let mut disk = disk;
    let (spinning, journal) = disk.reopen(3).unwrap();
    let killed = spinning.platter().cut(&mut Chance::of(1));
    drop(journal);
    disk.cut(&spinning, &mut Chance::of(1));
    check(&disk, 3, ShutdownKind::Clean);
    check(&disk, 4, ShutdownKind::Clean);
    // A program that does not know the mark of a clean shutdown raises the epoch too.
    by_hand(&mut disk, |txn| drop(txn.open_table(META).unwrap().insert("epoch", 99).unwrap()));
    check(&disk, 3, ShutdownKind::Unclean);
    disk.image = killed;
    check(&disk, 3, ShutdownKind::Unclean);
    check(&disk, 4, ShutdownKind::OtherBoot);
}

/// After `spoil` and a kill: what the quick check finds, what the full check finds, and whether the store opens.
fn spoiled(spoil: impl FnOnce(&redb::WriteTransaction)) -> (Vec<Damage>, Vec<Damage>, Result<(), OpenError>) {
    let (mut disk, _) = filled(30);
    by_hand(&mut disk, |txn| {
        spoil(txn);
        txn.open_table(META).unwrap().insert("epoch", 50).unwrap();
    });
    let spinning = disk.spin(None);
    let mut db = Builder::new().create_with_backend(spinning.platter()).unwrap();
    let blobs = crate::store::redb::blobs::Blobs::new(disk.dir().join("blobs"));
    let seen = quick_check(&db, &blobs).unwrap();
    let missing = |_, _: &Artifact| Ok(Presence::Missing);
    let checked = check_over(&mut db, ReferencedFiles { blobs: &blobs, artifacts: Some(&missing) }).unwrap();
    drop(db);
    let opened = disk.open(&disk.spin(None), 1).map(drop);
    (seen.damages, checked.damages, opened)
}

fn first_run(txn: &redb::WriteTransaction) -> u128 {
    let open = txn.open_table(OPEN_RUNS).unwrap();
    let (run, _) = open.first().unwrap().unwrap();
    run.value()
}

#[track_caller]
fn check_damage(damages: &[Damage], table: &str, text: &str) {
    let found = damages.iter().any(|damage| damage.table == table && damage.what.contains(text));
    assert!(found, "{table}, {text}: {damages:?}");
}

#[test]
fn what_is_one_sessions_is_told() {
    let (seen, _, opened) = spoiled(|_| {});
    assert_eq!(seen, []);
    opened.unwrap();
    // The last row of a session is gone.
    let (seen, checked, opened) = spoiled(|txn| {
        let mut log = txn.open_table(LOG).unwrap();
        let tails = txn.open_table(TAILS).unwrap();
        for tail in tails.iter().unwrap() {
            log.remove(tail.unwrap().1.value().0).unwrap();
        }
    });
    check_damage(&seen, "appends", "is missing");
    check_damage(&checked, "tails", "it should end with record");
    assert!(seen.iter().all(|damage| damage.session.is_some()), "{seen:?}");
    opened.unwrap();
    // An index row of a session is gone.
    let (seen, checked, opened) = spoiled(|txn| {
        let run = first_run(txn);
        txn.open_table(RUNS_BY_SESSION).unwrap().retain(|(_, other), ()| other != run).unwrap();
        txn.open_table(SESSION_KEYS).unwrap().retain(|_, _| false).unwrap();
    });
    for damages in [&seen, &checked] {
        check_damage(damages, "runs_by_session", "is missing");
        check_damage(damages, "session_keys", "its key");
    }
    opened.unwrap();
}

#[test]
fn a_run_without_a_row_is_told_and_the_others_are_none_the_worse() {
    // The row of an unfinished run is gone.
    let (seen, checked, opened) = spoiled(|txn| {
        txn.open_table(RUNS).unwrap().remove(first_run(txn)).unwrap();
    });
    check_damage(&checked, "runs_by_session", "has no row");
    check_damage(&seen, "open_runs", "has no row");
    check_damage(&checked, "open_runs", "has no row");
    opened.unwrap();
    let mut run = 0;
    let (seen, _, opened) = spoiled(|txn| {
        run = first_run(txn);
        txn.open_table(RUNS).unwrap().insert(run, &b"{}"[..]).unwrap();
    });
    check_damage(&seen, "runs", &format!("the row of run {} cannot be read", RunId::from_bits(run)));
    opened.unwrap();
    // Nothing says what the store is.
    let (mut disk, _) = filled(1);
    by_hand(&mut disk, |txn| assert!(txn.delete_table(META).unwrap()));
    assert!(matches!(disk.open(&disk.spin(None), 1), Err(OpenError::Corrupt { .. })));
}

#[test]
fn what_cannot_be_read_now_is_not_taken_for_lost() {
    let (mut disk, _) = filled(30);
    by_hand(&mut disk, |txn| {
        let reference = [&[0][..], &[7; 32], &20_000_u64.to_le_bytes()].concat();
        txn.open_table(RUNS).unwrap().insert(first_run(txn), &*reference).unwrap();
        txn.open_table(META).unwrap().insert("epoch", 50).unwrap();
    });
    // A folder cannot be read as a file.
    let blob = disk.dir().join("blobs/07").join("07".repeat(32));
    std::fs::create_dir_all(&blob).unwrap();
    let opened = disk.open(&disk.spin(None), 1).map(drop);
    assert!(matches!(&opened, Err(OpenError::Io { .. })), "{opened:?}");
    std::fs::remove_dir(&blob).unwrap();
    disk.open(&disk.spin(None), 1).map(drop).unwrap();
}

#[test]
fn an_index_row_of_a_run_that_is_not_there_is_told_whatever_else_is_damaged() {
    let (_, checked, _) = spoiled(|txn| {
        let mut log = txn.open_table(LOG).unwrap();
        let positions: Vec<u64> = log.iter().unwrap().map(|row| row.unwrap().0.value()).collect();
        for position in positions {
            let mut row = log.get(position).unwrap().unwrap().value().to_vec();
            row.pop();
            log.insert(position, &*row).unwrap();
        }
        txn.open_table(RUNS).unwrap().retain(|_, _| false).unwrap();
        txn.open_table(KEYS).unwrap().insert("lost", 99).unwrap();
        txn.open_table(INBOX).unwrap().insert((1, 1), &b"no JSON"[..]).unwrap();
    });
    for table in ["keys", "open_runs", "runs_by_session"] {
        let expect = if table == "keys" { "which is not there" } else { "has no row" };
        check_damage(&checked, table, expect);
    }
    check_damage(&checked, "inbox", "row 1: ");
}

/// Removes the `nth` row from the end of the session with most records. That session cannot be read, and all others
/// can.
#[track_caller]
fn check_without_row(nth: usize) {
    let (mut disk, model) = filled(30);
    let (session, _) = model.records().max_by_key(|(_, records)| records.len()).unwrap();
    by_hand(&mut disk, |txn| {
        let (mut position, ..) = txn.open_table(TAILS).unwrap().get(session.bits()).unwrap().unwrap().value();
        let mut log = txn.open_table(LOG).unwrap();
        for _ in 0..nth {
            let row = log.get(position).unwrap().unwrap();
            position = LogRow::parse(*session, position, row.value()).unwrap().previous;
        }
        assert!(log.remove(position).unwrap().is_some());
    });
    let (_, journal) = disk.reopen(1).unwrap();
    let read = |session: &SessionId| block_on(journal.records(*session, 1, usize::MAX));
    let error = read(session).unwrap_err();
    assert!(error.to_string().contains("is missing"), "{error}");
    for (other, records) in model.records().filter(|(other, _)| *other != session) {
        assert_eq!(read(other).unwrap().len(), records.len());
    }
}

#[test]
fn a_session_that_lacks_a_row_is_not_read() {
    check_without_row(0);
    check_without_row(1);
    check_without_row(2);
}
