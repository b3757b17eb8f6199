//! Tests of run trees and of the rows and records that `StoreReader` reads.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use futures::{executor::block_on, future::BoxFuture};
use hermod_actors::{
    model::{
        Amounts, ApprovalRequested, Body, CallId, CallStarted, FinishReason, ImportedHistory, Incarnation,
        ModelAnswered, NewAccount, Outcome, OutcomeDetail, ParentRef, PendingApproval, Record, RunAccepted,
        RunCounts, RunId, RunRow, RunSpec, RunState, Seq, SessionId, SessionRow, SubagentRef, Timestamp,
        Usage,
    },
    port::{
        Append, IndexRow, Journal, JournalError, ReadFuture, RowReader, StoredRecord, WriteOp, WriteOutcome,
    },
};
use hermod_testkit::MemoryJournal;

use super::{reader::StoreReader, tree::RunTreeCache};
use crate::view::{ApprovalView, NodeView};

/// A journal that records which records are read.
#[derive(Debug)]
struct RecordingJournal {
    inner: MemoryJournal,
    reads: Mutex<Vec<(u128, Seq)>>,
}

impl Journal for RecordingJournal {
    fn commit(&self, batch: Vec<WriteOp>) -> BoxFuture<'static, Result<Vec<WriteOutcome>, JournalError>> {
        self.inner.commit(batch)
    }

    fn records(&self, session: SessionId, from: Seq, max: usize) -> ReadFuture<Vec<StoredRecord>> {
        self.reads.lock().unwrap().push((session.bits(), from));
        self.inner.records(session, from, max)
    }

    fn rows(&self) -> &dyn RowReader {
        &self.inner
    }
}

/// A store of runs, each in the session with its number, and one client's cache of run trees.
struct Bench {
    journal: Arc<RecordingJournal>,
    fences: BTreeMap<u128, (Incarnation, Seq)>,
    forest: RunTreeCache,
}

fn accepted(n: u128) -> Body {
    let spec = RunSpec::new(Vec::new(), "/w");
    Body::RunAccepted(Box::new(RunAccepted {
        run: RunId::from_bits(n),
        input: format!("task {n}").as_str().into(),
        images: Arc::from([]),
        history: Arc::new(ImportedHistory::default()),
        spec: spec.into(),
        parent: None,
        request_hash: None,
        queueing: None,
        hold: None,
        occurrence: None,
    }))
}

/// The start of a call of run `n` with these subagents.
fn delegated(n: u128, children: &[u128]) -> Body {
    let child = |n: &u128| SubagentRef { session: SessionId::from_bits(*n), run: RunId::from_bits(*n) };
    Body::CallStarted(CallStarted {
        call: CallId { run: RunId::from_bits(n), iteration: 1, n: 1 },
        attempt: 1,
        incarnation: Incarnation::default(),
        boot: "b".into(),
        children: children.iter().map(child).collect(),
    })
}

fn row(n: u128, state: RunState, parent: u128) -> RunRow {
    let call = CallId { run: RunId::from_bits(parent), iteration: 1, n: 1 };
    RunRow {
        state,
        ended: (state == RunState::Ended)
            .then_some(OutcomeDetail { outcome: Outcome::Completed, cause: None }),
        parent: (parent > 0).then_some(ParentRef { session: SessionId::from_bits(parent), call, n: 0 }),
        ..RunRow::new(RunId::from_bits(n), SessionId::from_bits(n), Timestamp(0), 1)
    }
}

impl Bench {
    fn new() -> Self {
        let journal = RecordingJournal { inner: MemoryJournal::new(), reads: Mutex::default() };
        Self { journal: Arc::new(journal), fences: BTreeMap::new(), forest: RunTreeCache::default() }
    }

    fn commit(&self, write: WriteOp) -> WriteOutcome {
        block_on(self.journal.commit(vec![write])).unwrap().pop().unwrap()
    }

    fn append(&mut self, n: u128, bodies: Vec<Body>, change: impl FnOnce(&mut Append)) {
        let session = SessionId::from_bits(n);
        if !self.fences.contains_key(&n) {
            let WriteOutcome::Opened(opened) = self.commit(WriteOp::Open(session)) else {
                panic!("not opened")
            };
            self.fences.insert(n, (opened.incarnation, opened.last));
        }
        let (fence, last) = self.fences[&n];
        let record = |body| Arc::new(Record { at: Timestamp(0), active_ms: 0, body });
        let mut append = Append::new(session, fence, last + 1, bodies.into_iter().map(record).collect());
        change(&mut append);
        let last = last + append.records.len() as u64;
        let written = self.commit(WriteOp::Append(Box::new(append)));
        assert!(matches!(written, WriteOutcome::Appended(_)), "{written:?}");
        self.fences.insert(n, (fence, last));
    }

    /// Adds a run below `parent`, 0 for none, with subagents.
    fn run(&mut self, n: u128, state: RunState, (parent, children): (u128, &[u128])) {
        let mut bodies = vec![accepted(n)];
        if !children.is_empty() {
            bodies.push(delegated(n, children));
        }
        self.append(n, bodies, |append| {
            append.index = vec![IndexRow::Run(Box::new(row(n, state, parent)))];
            let limits = Amounts { tokens: Some(100), ..Amounts::default() };
            append.ledger.new_accounts = vec![NewAccount {
                id: RunId::from_bits(n).into(),
                parent: None,
                limits,
                owns_iterations: false,
            }];
        });
    }

    fn reader(&self) -> StoreReader {
        StoreReader::new(Arc::clone(&self.journal) as Arc<dyn Journal>)
    }

    fn grow(&mut self, root: Option<u128>) -> Vec<NodeView> {
        let reader = self.reader();
        let rows = match root {
            None => block_on(self.journal.rows().open_runs()).unwrap(),
            Some(root) => {
                block_on(self.journal.rows().run(RunId::from_bits(root))).unwrap().into_iter().collect()
            }
        };
        block_on(self.forest.build(&reader, None, rows)).unwrap()
    }

    #[track_caller]
    fn check(&mut self, root: Option<u128>, expect: &str) {
        assert_eq!(drawn(&self.grow(root)), expect);
    }
}

/// Formats trees like `1(2 3(4))`: a run, and its subagents in brackets.
fn drawn(nodes: &[NodeView]) -> String {
    let one = |node: &NodeView| {
        let below = drawn(&node.children);
        let id = node.run.id.bits().to_string();
        if below.is_empty() { id } else { format!("{id}({below})") }
    };
    nodes.iter().map(one).collect::<Vec<_>>().join(" ")
}

/// Run 3 has open subagents, the newer 6 first; the ended run 4 has an open one.
fn family() -> Bench {
    use RunState::{Ended, Queued, Running};
    let mut bench = Bench::new();
    bench.run(1, Ended, (0, &[2]));
    bench.run(2, Running, (1, &[]));
    bench.run(3, Running, (0, &[6, 4]));
    bench.run(4, Ended, (3, &[5]));
    bench.run(5, Queued, (4, &[]));
    bench.run(6, Running, (3, &[]));
    bench.run(8, Ended, (9, &[9]));
    bench.run(9, Ended, (8, &[8]));
    bench
}

#[test]
fn a_tree_has_every_run_below_its_root() {
    let mut bench = family();
    bench.check(Some(1), "1(2)");
    bench.check(Some(3), "3(6 4(5))");
    bench.check(Some(5), "5");
    bench.check(Some(7), "");
    bench.check(Some(8), "8(9)");
    let nodes = bench.grow(Some(5));
    assert_eq!((nodes[0].input.as_str(), nodes[0].limits.unwrap().tokens), ("task 5", Some(100)));
}

#[test]
fn without_a_root_there_is_what_has_not_ended() {
    family().check(None, "2 3(6 4(5))");
}

#[test]
fn the_root_of_a_tree_is_found_from_below() {
    let bench = family();
    let check = |n: u128, expect: u128| {
        let root = block_on(bench.reader().root(&RunId::from_bits(n).to_string())).unwrap();
        assert_eq!(root.id.bits(), expect);
    };
    check(5, 3);
    check(6, 3);
    check(2, 1);
    check(3, 3);
    // A cycle has no root; the search ends all the same.
    check(8, 9);
}

#[test]
fn the_last_run_is_the_youngest_that_is_no_subagents() {
    let mut bench = Bench::new();
    let last = |bench: &Bench| block_on(bench.reader().run("last")).map(|row| row.id.bits());
    assert!(last(&bench).unwrap_err().text.starts_with("there is no last run: "), "no run");
    bench.run(1, RunState::Ended, (9, &[]));
    assert!(last(&bench).unwrap_err().text.starts_with("there is no last run: "), "only a subagent's");
    bench.run(2, RunState::Ended, (0, &[]));
    bench.run(3, RunState::Running, (0, &[]));
    assert_eq!(last(&bench), Ok(3));
    // More than the first read returns.
    for child in 4..104 {
        bench.run(child, RunState::Running, (3, &[]));
    }
    assert_eq!(last(&bench), Ok(3));
    bench.run(104, RunState::Queued, (0, &[]));
    assert_eq!(last(&bench), Ok(104));
}

#[test]
fn a_run_is_named_by_the_end_of_its_id() {
    let bench = family();
    let found = |id: &str| block_on(bench.reader().run(id)).map(|row| row.id.bits());
    assert_eq!(found("00000005"), Ok(5));
    assert!(found("0000000Z").unwrap_err().text.contains("no run or session `0000000Z`"));
    assert!(found("00005").unwrap_err().text.contains("no run or session"), "too short");
    let mut bench = bench;
    bench.run(5 + (1 << 50), RunState::Running, (0, &[]));
    let error = block_on(bench.reader().run("00000005")).unwrap_err();
    assert!(error.text.contains("several runs or sessions have ids that end with `00000005`"), "{error}");
}

#[test]
fn who_asks_again_pays_for_what_is_new() {
    let mut bench = family();
    bench.check(Some(3), "3(6 4(5))");
    bench.journal.reads.lock().unwrap().clear();
    bench.append(6, vec![delegated(6, &[7])], |_| {});
    bench.run(7, RunState::Running, (6, &[]));
    bench.check(Some(3), "3(6(7) 4(5))");
    // Nothing is read of the ended 4, and only new records of the others.
    assert_eq!(*bench.journal.reads.lock().unwrap(), [(3, 3), (6, 2), (7, 1), (5, 2)]);
}

/// Run 1 with two answers in its journal, and a row that has these counts.
fn answered_twice(counts: Option<RunCounts>) -> Bench {
    let mut bench = Bench::new();
    bench.run(1, RunState::Running, (0, &[]));
    let answered = |iteration| {
        Body::ModelAnswered(Box::new(ModelAnswered {
            call: CallId { run: RunId::from_bits(1), iteration, n: 0 },
            attempt: 1,
            message: Arc::default(),
            finish: FinishReason::Stop,
            flaw: None,
            fallback: None,
            usage: Some(Usage { input_tokens: 10, ..Usage::default() }),
            anomaly: None,
        }))
    };
    bench.append(1, vec![answered(1)], |append| {
        append.index =
            vec![IndexRow::Run(Box::new(RunRow { counts, last: 2, ..row(1, RunState::Running, 0) }))];
    });
    bench.append(1, vec![answered(2)], |_| {});
    bench.journal.reads.lock().unwrap().clear();
    bench
}

#[test]
fn an_unfinished_run_is_counted_from_its_row() {
    let check = |counts, expect_from: Seq, iterations, input_tokens| {
        let bench = answered_twice(counts);
        let row = block_on(bench.journal.rows().run(RunId::from_bits(1))).unwrap().unwrap();
        let counted = block_on(bench.reader().with_current_counts(row)).unwrap();
        assert_eq!((counted.iterations, counted.usage.input_tokens), (iterations, input_tokens));
        assert_eq!(*bench.journal.reads.lock().unwrap(), [(1, expect_from)]);
    };
    let usage = Usage { input_tokens: 500, ..Usage::default() };
    check(Some(RunCounts { iterations: 40, usage }), 3, 41, 510);
    // The row of an earlier version.
    check(None, 1, 2, 20);
}

#[test]
fn pending_approvals_are_read_from_the_row_of_a_parked_run() {
    let mut bench = Bench::new();
    let approval = PendingApproval {
        request: ApprovalRequested {
            call: CallId { run: RunId::from_bits(1), iteration: 1, n: 1 },
            attempt: 1,
            question: "again?".into(),
            rules: Vec::new(),
            allow_rules: Vec::new(),
            wants_text: false,
            expires_at: Timestamp(9),
        },
        since: Timestamp(3),
    };
    bench.run(1, RunState::Parked, (0, &[]));
    let parked = RunRow { approvals: Some(vec![approval.clone()]), ..row(1, RunState::Parked, 0) };
    bench.append(1, vec![delegated(1, &[])], |append| append.index = vec![IndexRow::Run(Box::new(parked))]);
    let approvals = block_on(bench.reader().approvals()).unwrap();
    assert_eq!(approvals, [ApprovalView::new(SessionId::from_bits(1), approval)]);
    assert_eq!(*bench.journal.reads.lock().unwrap(), []);
}

#[test]
fn conversations_are_in_the_order_of_their_latest_runs_and_without_subagents() {
    let mut bench = Bench::new();
    let in_session = |session: u128, run: u128, parent| RunRow {
        session: SessionId::from_bits(session),
        ..row(run, RunState::Ended, parent)
    };
    // A session, its run, the run above it, and the first record of the run.
    for (session, run, parent, first) in [(10, 1, 0, 1), (20, 2, 0, 1), (30, 3, 1, 1), (10, 4, 0, 2)] {
        bench.append(session, vec![accepted(run)], |append| {
            let session = SessionRow::new(append.session, format!("key {session}"), Timestamp(0));
            let run = RunRow { first, ..in_session(session.id.bits(), run, parent) };
            append.index = vec![IndexRow::Session(session), IndexRow::Run(Box::new(run))];
        });
    }
    let list = |max| block_on(bench.reader().conversations(max, true)).unwrap();
    let all = list(10);
    let told: Vec<_> =
        all.conversations.iter().map(|one| (one.session.id.bits(), one.task.as_str(), one.title())).collect();
    assert_eq!(told, [(10, "task 1", "task 1"), (20, "task 2", "task 2")], "run 4 is the latest");
    assert!(!all.is_cut);
    let one = list(1);
    assert_eq!((one.conversations.len(), one.is_cut), (1, true));
    assert_eq!(one.conversations[0].workspace.as_deref(), Some("/w"));
}
