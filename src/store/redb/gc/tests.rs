//! Tests of gc: what must be retained stays readable, whatever is removed beside it and whenever appends happen.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    path::Path,
    sync::{Arc, mpsc::sync_channel},
};

use futures::executor::block_on;
use hermod_actors::{
    model::{
        AccountId, Amounts, Body, CallEnd, CallEnded, CallId, CallStatus, Incarnation, NewAccount, Outcome,
        OutcomeDetail, Record, RunId, RunRow, RunState, SessionId, SessionRow, Timestamp,
    },
    port::{Append, IndexRow, Journal, StoredRecord, WriteOp, WriteOutcome},
};
use proptest::prelude::*;

use super::*;
use crate::store::redb::{Durability, RedbJournal, blobs::Blobs, committer::Committer};

/// A store with sessions whose records share a few long contents.
struct Bench {
    dir: tempfile::TempDir,
    journal: Arc<RedbJournal>,
    /// The incarnation and the last sequence number of each open session.
    open: BTreeMap<u128, (Incarnation, u64)>,
}

fn session(n: u128) -> SessionId {
    SessionId::from_bits(n << 64)
}

fn run(n: u128) -> RunId {
    RunId::from_bits(n << 64 | 7)
}

/// The content with this number: every third one is short.
fn content(n: u8) -> String {
    format!("{n} ").repeat(if n.is_multiple_of(3) { 10 } else { 10_000 })
}

/// The same bytes in every session, so that sessions share blobs.
fn record(at: i64, text: String) -> Arc<Record> {
    let call = CallId { run: run(0), iteration: 1, n: 1 };
    let end = CallEnd::new(CallStatus::Ok, text);
    let body = Body::CallEnded(CallEnded::new(call, 1, end));
    Arc::new(Record { at: Timestamp(at), active_ms: 0, body })
}

fn row(n: u128, state: RunState) -> IndexRow {
    let ended = state == RunState::Ended;
    IndexRow::Run(Box::new(RunRow {
        state,
        ended_at: ended.then_some(Timestamp(1)),
        ended: ended.then_some(OutcomeDetail { outcome: Outcome::Completed, cause: None }),
        ..RunRow::new(run(n), session(n), Timestamp(0), 1)
    }))
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let journal = Arc::new(RedbJournal::open(dir.path(), Durability::Relaxed).unwrap());
        Self { dir, journal, open: BTreeMap::new() }
    }

    /// Opens the same store again, as another process does.
    fn again(self) -> Self {
        let Self { dir, journal, .. } = self;
        drop(Arc::into_inner(journal).unwrap());
        let journal = Arc::new(RedbJournal::open(dir.path(), Durability::Relaxed).unwrap());
        Self { dir, journal, open: BTreeMap::new() }
    }

    fn commit(&self, write: WriteOp) -> WriteOutcome {
        block_on(self.journal.commit(vec![write])).unwrap().pop().unwrap()
    }

    fn appended(&mut self, n: u128, change: impl FnOnce(&mut Append)) {
        let (fence, last) = *self.open.entry(n).or_insert_with(|| {
            let open = vec![WriteOp::Open(session(n))];
            let WriteOutcome::Opened(opened) = block_on(self.journal.commit(open)).unwrap().pop().unwrap()
            else {
                panic!("it is not opened")
            };
            (opened.incarnation, opened.last)
        });
        let mut append = Append::new(session(n), fence, last + 1, Vec::new());
        change(&mut append);
        let more = append.records.len() as u64;
        let written = self.commit(WriteOp::Append(Box::new(append)));
        assert!(matches!(written, WriteOutcome::Appended(_)), "{written:?}");
        self.open.get_mut(&n).unwrap().1 += more;
    }

    /// A session with one ended run and these contents, each in a row of its own.
    fn ended(&mut self, n: u128, at: i64, contents: &[u8]) {
        self.ended_under(None, n, at, contents);
    }

    /// The same, with the run that started its run.
    fn ended_under(&mut self, parent: Option<u128>, n: u128, at: i64, contents: &[u8]) {
        self.appended(n, |append| {
            append.records = vec![record(at, "first".into())];
            let row = SessionRow::new(session(n), format!("key {n}"), Timestamp(at));
            append.index = vec![IndexRow::Session(row)];
            append.index.push(self::row(n, RunState::Running));
            append.key = Some((format!("once {n}").into(), run(n)));
            let limits = Amounts::default();
            append.ledger.new_accounts = vec![NewAccount {
                id: AccountId::from(run(n)),
                parent: parent.map(|parent| run(parent).into()),
                limits,
                owns_iterations: false,
            }];
        });
        for content in contents {
            self.appended(n, |append| append.records = vec![record(0, self::content(*content))]);
        }
        self.appended(n, |append| {
            append.records = vec![record(at, "last".into())];
            append.index = vec![row(n, RunState::Ended)];
        });
    }

    fn records(&self, n: u128) -> Vec<StoredRecord> {
        block_on(self.journal.records(session(n), 1, usize::MAX)).unwrap()
    }

    /// Whether anything in the store names the session.
    fn is_known(&self, n: u128) -> bool {
        let rows = self.journal.rows();
        let known = [
            block_on(rows.session(session(n))).unwrap().is_some(),
            block_on(rows.session_of_key(&format!("key {n}"))).unwrap().is_some(),
            block_on(rows.run(run(n))).unwrap().is_some(),
            !block_on(rows.runs(Some(session(n)), 9)).unwrap().is_empty(),
            block_on(rows.run_of_key(&format!("once {n}"))).unwrap().is_some(),
            block_on(rows.account(run(n).into())).unwrap().is_some(),
            !self.records(n).is_empty(),
        ];
        assert!(known == [known[0]; 7], "session {n} is half there: {known:?}");
        known[0]
    }

    fn blobs(&self) -> BTreeSet<[u8; 32]> {
        Blobs::new(self.dir.path().join("blobs")).all().unwrap().into_iter().collect()
    }

    fn rows_of_log(&self) -> usize {
        use redb::ReadableTableMetadata;
        let reader = self.journal.reader().unwrap();
        usize::try_from(reader.txn.open_table(super::super::tables::LOG).unwrap().len().unwrap()).unwrap()
    }
}

fn long(contents: &[u8]) -> usize {
    contents.iter().filter(|n| !n.is_multiple_of(3)).collect::<BTreeSet<_>>().len()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn whatever_goes_what_stays_reads_as_before(
        sessions in prop::collection::vec((any::<bool>(), prop::collection::vec(0_u8..12, 0..20)), 1..12),
    ) {
        let mut bench = Bench::new();
        for ((old, contents), n) in sessions.iter().zip(1_u128..) {
            bench.ended(n, if *old { 100 } else { 200 }, contents);
        }
        let mut bench = bench.again();
        let before: Vec<_> = (1..).zip(&sessions).map(|(n, _)| bench.records(n)).collect();
        let (rows, blobs) = (bench.rows_of_log(), bench.blobs());
        let collector = bench.journal.garbage_collector();
        let told = |mode| {
            let mut pass = collector.start(mode).unwrap();
            let (sessions, keys, removed) = pass.remove_sessions(Some(Timestamp(150))).unwrap();
            (sessions, keys, pass.remove_blobs(&removed).unwrap())
        };
        let dry = told(GcMode::DryRun);
        prop_assert_eq!((bench.rows_of_log(), bench.blobs()), (rows, blobs));
        let real = told(GcMode::Remove);
        prop_assert_eq!(&dry, &real, "a dry run says the same");
        let old = sessions.iter().filter(|(old, _)| *old).count() as u64;
        prop_assert_eq!((real.0.removed, real.1.removed), (old, old));
        let kept: Vec<u8> = sessions.iter().filter(|(old, _)| !old).flat_map(|(_, all)| all.clone()).collect();
        prop_assert_eq!(bench.blobs().len(), long(&kept));
        let left: usize = sessions.iter().filter(|(old, _)| !old).map(|(_, all)| all.len() + 2).sum();
        prop_assert_eq!(bench.rows_of_log(), left);
        for (((old, _), before), n) in sessions.iter().zip(before).zip(1_u128..) {
            prop_assert_eq!(bench.is_known(n), !old);
            if !old {
                prop_assert_eq!(bench.records(n), before);
                bench.appended(n, |append| append.records = vec![record(300, "more".into())]);
            }
        }
    }
}

/// Runs single steps of the committer.
struct Steps<'b>(&'b mut Bench);

impl Steps<'_> {
    fn chore<T: Send + 'static>(&self, chore: impl FnOnce(&mut Committer) -> T + Send + 'static) -> T {
        let (reply, answer) = sync_channel(1);
        let step = move |committer: &mut Committer| reply.send(chore(committer)).unwrap();
        assert!(self.0.journal.send_gc_step(Box::new(step)));
        answer.recv().unwrap()
    }
}

/// A deterministic generator of random numbers.
fn next(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *seed >> 33
}

/// Removes blobs step by step, and between any two steps appends contents whose blobs may exist.
fn swept_between_appends(seed: u64) {
    let mut random = seed;
    let mut bench = Bench::new();
    for n in 1..=4_u8 {
        bench.ended(n.into(), 100, &[n * 2, 1, 2, 4, 5]);
    }
    let mut bench = bench.again();
    let collector = bench.journal.garbage_collector();
    collector.start(GcMode::Remove).unwrap().remove_sessions(Some(Timestamp(150))).unwrap();
    bench.ended(5, 200, &[1]);
    let mut appended: Vec<u8> = Vec::new();
    let mut write = |bench: &mut Bench, random: &mut u64| {
        for _ in 0..next(random) % 3 {
            let text = u8::try_from(next(random) % 12).unwrap();
            bench.appended(5, |append| append.records = vec![record(0, content(text))]);
            appended.push(text);
        }
    };
    write(&mut bench, &mut random);
    Steps(&mut bench).chore(|committer| committer.spiller.tracked = Some(HashSet::new()));
    write(&mut bench, &mut random);
    let reader = bench.journal.reader().unwrap();
    write(&mut bench, &mut random);
    let all = bench.blobs();
    write(&mut bench, &mut random);
    let referred = mark::referenced_blobs(&reader.txn, &RemovedSet::default()).unwrap().unwrap();
    drop(reader);
    let free: Vec<_> = all.into_iter().filter(|blob| !referred.contains(blob)).collect();
    for slice in free.chunks(1) {
        write(&mut bench, &mut random);
        let slice = slice.to_vec();
        Steps(&mut bench).chore(move |committer| drop(committer.unlink_blobs(&slice, GcMode::Remove)));
    }
    write(&mut bench, &mut random);
    Steps(&mut bench).chore(|committer| committer.spiller.tracked = None);
    write(&mut bench, &mut random);
    let texts: Vec<_> = bench.records(5).into_iter().filter_map(|stored| text_of(&stored.record)).collect();
    let expect: Vec<_> = appended.iter().map(|n| content(*n)).collect();
    assert!(texts.ends_with(&expect) && texts.contains(&content(1)), "seed {seed}");
}

fn text_of(record: &Record) -> Option<String> {
    if let Body::CallEnded(ended) = &record.body { Some(ended.end.content.to_string()) } else { None }
}

#[test]
fn a_blob_that_is_stored_again_while_it_is_swept_stays() {
    (0..24).for_each(swept_between_appends);
}

#[test]
fn what_somebody_has_open_or_has_changed_stays() {
    let mut bench = Bench::new();
    (1..=3).for_each(|n| bench.ended(n, 100, &[1]));
    let mut bench = bench.again();
    bench.appended(1, |append| append.records = vec![record(100, "still old".into())]);
    assert!(matches!(bench.commit(WriteOp::Deliver(session(2), "1".into())), WriteOutcome::Delivered(_)));
    let collector = bench.journal.garbage_collector();
    let mut pass = collector.start(GcMode::Remove).unwrap();
    assert_eq!(collector.start(GcMode::DryRun).unwrap_err(), GcError::Busy);
    let (tally, _, removed) = pass.remove_sessions(Some(Timestamp(150))).unwrap();
    assert_eq!(tally.retained, BTreeMap::from([(why::OPEN, 1), (why::MESSAGE, 1)]));
    assert_eq!(removed.sessions, [session(3)].into());
    assert_eq!([1, 2, 3].map(|n| bench.is_known(n)), [true, true, false]);
}

#[test]
fn a_session_that_is_written_into_after_it_was_looked_at_stays() {
    let mut bench = Bench::new();
    bench.ended(1, 100, &[1]);
    let mut bench = bench.again();
    let mut snapshot = GcSnapshot { reader: bench.journal.reader().unwrap() };
    let expired = snapshot.expired(Timestamp(150), &mut Tally::default()).unwrap().pop().unwrap();
    let removable = snapshot.removable(expired).unwrap().unwrap();
    bench.appended(1, |append| append.records = vec![record(100, "a word".into())]);
    let mut bench = bench.again();
    let outcomes =
        Steps(&mut bench).chore(|committer| committer.remove_sessions(&[removable], GcMode::Remove).unwrap());
    assert_eq!(outcomes, [Err(why::CHANGED)]);
    assert!(bench.is_known(1));
}

#[test]
fn a_parent_of_what_stays_stays() {
    let mut bench = Bench::new();
    (1..=2).for_each(|n| bench.ended(n, 100, &[]));
    bench.appended(3, |append| {
        append.records = vec![record(200, "young".into())];
        let row = SessionRow::new(session(3), "key 3", Timestamp(200));
        append.index = vec![IndexRow::Session(row)];
        let parent = Some(run(1).into());
        append.ledger.new_accounts = vec![NewAccount {
            id: run(3).into(),
            parent,
            limits: Amounts::default(),
            owns_iterations: false,
        }];
    });
    let bench = bench.again();
    let (tally, ..) = bench
        .journal
        .garbage_collector()
        .start(GcMode::Remove)
        .unwrap()
        .remove_sessions(Some(Timestamp(150)))
        .unwrap();
    assert_eq!((tally.removed, tally.retained.get(why::PARENT)), (1, Some(&1)));
    assert_eq!([1, 2].map(|n| bench.is_known(n)), [true, false]);
}

#[test]
fn a_session_goes_with_its_subagents_or_stays_with_them() {
    let mut bench = Bench::new();
    bench.ended(1, 100, &[1]);
    bench.ended_under(Some(1), 2, 100, &[3; 100]);
    bench.ended_under(Some(2), 3, 100, &[]);
    bench.ended(4, 100, &[]);
    let remove = |bench: &Bench, n: u128| {
        let collector = bench.journal.garbage_collector();
        collector.start(GcMode::Remove).unwrap().remove_session(session(n)).unwrap()
    };
    let mut bench = bench.again();
    bench.appended(3, |append| append.records = vec![record(100, "a word".into())]);
    assert_eq!(remove(&bench, 1), Err((session(3), why::OPEN)));
    assert_eq!([1, 2, 3, 4].map(|n| bench.is_known(n)), [true; 4]);
    let bench = bench.again();
    let removed = remove(&bench, 1).unwrap();
    assert_eq!(removed.sessions, [1, 2, 3].map(session).into());
    assert_eq!([1, 2, 3, 4].map(|n| bench.is_known(n)), [false, false, false, true]);
    assert_eq!(remove(&bench, 1), Err((session(1), why::UNREADABLE)));
    let bench = bench.again();
    assert_eq!((bench.is_known(2), bench.rows_of_log()), (false, 2));
}

#[test]
fn a_session_with_an_unfinished_run_stays() {
    let mut bench = Bench::new();
    bench.ended(1, 100, &[]);
    bench.appended(1, |append| {
        append.records = vec![record(100, "again".into())];
        append.index = vec![row(1, RunState::Running)];
    });
    let bench = bench.again();
    let mut pass = bench.journal.garbage_collector().start(GcMode::Remove).unwrap();
    assert_eq!(pass.remove_session(session(1)).unwrap(), Err((session(1), why::UNFINISHED)));
    assert!(bench.is_known(1));
}

/// Removes a long session in several steps, with a kill after each of them.
#[test]
fn what_a_kill_has_left_of_a_session_goes_the_next_time() {
    for steps in 0..4 {
        let mut bench = Bench::new();
        bench.ended(1, 100, &[3; 300]);
        bench.ended(2, 200, &[3; 5]);
        let mut bench = bench.again();
        let mut snapshot = GcSnapshot { reader: bench.journal.reader().unwrap() };
        let expired = snapshot.expired(Timestamp(150), &mut Tally::default()).unwrap().pop().unwrap();
        let removable = snapshot.removable(expired).unwrap().unwrap();
        let outcomes = Steps(&mut bench)
            .chore(|committer| committer.remove_sessions(&[removable], GcMode::Remove).unwrap());
        assert_eq!(outcomes, [Ok(())]);
        for _ in 0..steps {
            let snapshot = GcSnapshot { reader: bench.journal.reader().unwrap() };
            if let Some(tombstone) = snapshot.tombstones().unwrap().pop() {
                Steps(&mut bench).chore(move |committer| committer.remove_rest(&tombstone).unwrap());
            }
        }
        let bench = bench.again();
        assert!(!bench.is_known(1), "after {steps} steps");
        assert_eq!(bench.rows_of_log() > 7, steps < 3, "after {steps} steps");
        bench.journal.garbage_collector().start(GcMode::Remove).unwrap().remove_sessions(None).unwrap();
        assert_eq!((bench.rows_of_log(), bench.records(2).len()), (7, 7));
    }
}

#[test]
fn what_a_relaxed_store_has_removed_does_not_come_back() {
    let mut bench = Bench::new();
    bench.ended(1, 100, &[]);
    let bench = bench.again();
    let mut pass = bench.journal.garbage_collector().start(GcMode::Remove).unwrap();
    pass.remove_sessions(Some(Timestamp(200))).unwrap();
    // The store that another process would find if this one was killed now, before files are removed.
    let dir = tempfile::tempdir().unwrap();
    let file = bench.journal.db.file.path.clone();
    std::fs::copy(&file, dir.path().join(file.file_name().unwrap())).unwrap();
    let journal = Arc::new(RedbJournal::open(dir.path(), Durability::Relaxed).unwrap());
    assert!(!Bench { dir, journal, open: BTreeMap::new() }.is_known(1));
}

#[test]
fn a_store_with_a_damaged_row_keeps_its_blobs() {
    let mut bench = Bench::new();
    bench.ended(1, 100, &[1]);
    let Bench { dir, journal, .. } = bench;
    drop(Arc::into_inner(journal).unwrap());
    damage(dir.path());
    let journal = Arc::new(RedbJournal::open(dir.path(), Durability::Relaxed).unwrap());
    let tally = journal
        .garbage_collector()
        .start(GcMode::Remove)
        .unwrap()
        .remove_blobs(&RemovedSet::default())
        .unwrap();
    assert_eq!((tally.removed, tally.retained), (0, BTreeMap::from([(why::UNKNOWN, 1)])));
}

fn damage(dir: &Path) {
    let db = redb::Database::create(dir.join("hermod.redb")).unwrap();
    let txn = db.begin_write().unwrap();
    txn.open_table(super::super::tables::LOG).unwrap().insert(1, &[7_u8; 9][..]).unwrap();
    txn.commit().unwrap();
}

#[test]
fn a_care_of_a_closed_store_says_so() {
    let bench = Bench::new();
    let collector = bench.journal.garbage_collector();
    let mut pass = collector.start(GcMode::Remove).unwrap();
    drop(bench);
    assert_eq!(pass.remove_sessions(None).unwrap_err(), GcError::Closed);
    assert_eq!(collector.footprint().unwrap_err(), GcError::Closed);
}

#[test]
fn a_footprint_counts_what_there_is() {
    let mut bench = Bench::new();
    bench.ended(1, 100, &[1, 2, 1, 3]);
    let footprint = bench.journal.garbage_collector().footprint().unwrap();
    assert_eq!((footprint.sessions, footprint.runs, footprint.unfinished), (1, 1, 0));
    assert!(footprint.records > 500 && footprint.index > 300, "{footprint:?}");
    let file = bench.journal.db.file.path.metadata().unwrap().len();
    assert!(footprint.free > 0 && footprint.free < file, "{footprint:?}");
}
