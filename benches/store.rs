//! What the journal adds to the engine: the same rows by redb alone and through `RedbJournal`, both strict. The target
//! is 10 % at most.
//!
//! `bare` writes encoded records and account rows of the same size; `journal` does all that an append does. Each append has
//! 3 records of about 300 bytes and, with `ledger`, settles and reserves on an account and its parent.
#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::unchecked_time_subtraction
)] // figures are read to three digits

use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use futures::executor::block_on;
use hermod::store::redb::{Durability, RedbJournal};
use hermod_actors::{
    model::{
        AccountId, Amounts, Body, CallEnd, CallEnded, CallId, CallStatus, Incarnation, LedgerChange,
        NewAccount, Record, Reservation, RunId, Seq, SessionId, Settlement, Timestamp, encode,
    },
    port::{Append, Journal, WriteOp, WriteOutcome},
};
use redb::{Builder, Database, TableDefinition};
use tempfile::tempdir;

const LOG: TableDefinition<(u128, u64), &[u8]> = TableDefinition::new("log");
const ACCOUNTS: TableDefinition<u128, &[u8]> = TableDefinition::new("accounts");
/// An account row with limits, spent and reserved of one dimension and a parent.
const ACCOUNT: [u8; 45] = [7; 45];
const RECORDS: u64 = 3;

#[derive(Debug, Clone, Copy)]
struct Load {
    sessions: u64,
    accounts: bool,
}

fn session(n: u64) -> SessionId {
    SessionId::from_bits(1 << 100 | u128::from(n) << 64)
}

fn account(n: u64) -> AccountId {
    AccountId::from_bits(1 << 101 | u128::from(n) << 64)
}

/// The account above all.
fn root() -> AccountId {
    AccountId::from_bits(1)
}

fn record() -> Arc<Record> {
    let call = CallId { run: RunId::from_bits(1 << 100), iteration: 1, n: 1 };
    let end = CallEnd::new(CallStatus::Ok, "0123456789".repeat(20));
    let body = Body::CallEnded(CallEnded::new(call, 1, end));
    Arc::new(Record { at: Timestamp(1_700_000_000_000), active_ms: 1, body })
}

struct Bare {
    db: Database,
    next: Seq,
}

impl Bare {
    fn commit(&mut self, load: Load, record: &Record) {
        let mut txn = self.db.begin_write().expect("one writer");
        txn.set_quick_repair(true);
        let mut log = txn.open_table(LOG).expect("a table");
        for n in 0..load.sessions {
            for seq in self.next..self.next + RECORDS {
                log.insert((session(n).bits(), seq), &*encode(record)).expect("a row");
            }
        }
        drop(log);
        if load.accounts {
            let mut accounts = txn.open_table(ACCOUNTS).expect("a table");
            for n in 0..load.sessions {
                accounts.insert(account(n).bits(), &ACCOUNT[..]).expect("a row");
                accounts.insert(root().bits(), &ACCOUNT[..]).expect("a row");
            }
        }
        txn.commit().expect("a commit");
        self.next += RECORDS;
    }
}

struct Appends {
    journal: RedbJournal,
    fences: Vec<Incarnation>,
    next: Seq,
}

impl Appends {
    fn new(journal: RedbJournal, load: Load, record: &Arc<Record>) -> Self {
        let open = (0..load.sessions).map(|n| WriteOp::Open(session(n))).collect();
        let opened = block_on(journal.commit(open)).expect("the store works").into_iter();
        let fences = opened.map(|written| match written {
            WriteOutcome::Opened(opened) => opened.incarnation,
            other @ (WriteOutcome::Appended(_)
            | WriteOutcome::Closed(_)
            | WriteOutcome::Delivered(_)
            | WriteOutcome::DeliveryUpdated(_)
            | WriteOutcome::ScheduleWritten(_)
            | WriteOutcome::Refused(_)) => {
                panic!("{other:?}")
            }
        });
        let mut appends = Self { fences: fences.collect(), journal, next: 1 };
        let limits = Amounts { tokens: Some(u64::MAX), ..Amounts::default() };
        appends.commit(load, record, |n| {
            let mut open =
                vec![NewAccount { id: account(n), parent: Some(root()), limits, owns_iterations: false }];
            if n == 0 {
                open.insert(0, NewAccount { id: root(), parent: None, limits, owns_iterations: false });
            }
            LedgerChange { new_accounts: open, ..LedgerChange::default() }
        });
        appends
    }

    fn commit(&mut self, load: Load, record: &Arc<Record>, ledger: impl Fn(u64) -> LedgerChange) {
        let append = |(n, fence): (u64, &Incarnation)| {
            let records = vec![Arc::clone(record); 3];
            let append = Append::new(session(n), *fence, self.next, records);
            let ledger = if load.accounts { ledger(n) } else { LedgerChange::default() };
            WriteOp::Append(Box::new(Append { ledger, ..append }))
        };
        let batch: Vec<_> = (0..).zip(&self.fences).map(append).collect();
        let written = block_on(self.journal.commit(batch)).expect("the store works");
        assert!(written.iter().all(|written| matches!(written, WriteOutcome::Appended(_))), "{written:?}");
        self.next += RECORDS;
    }
}

/// Settles one reservation and makes the next.
fn spend(n: u64) -> LedgerChange {
    let tokens = |n| Amounts { tokens: Some(n), ..Amounts::default() };
    let account = account(n);
    LedgerChange {
        settlements: vec![Settlement {
            account,
            reserved: tokens(9),
            spent: tokens(5),
            refund: Amounts::default(),
        }],
        reservations: vec![Reservation { account, amounts: tokens(9) }],
        ..LedgerChange::default()
    }
}

fn commits(c: &mut Criterion) {
    let record = record();
    let loads = [("records", 1, false), ("records", 64, false), ("ledger", 1, true), ("ledger", 64, true)];
    for (name, sessions, accounts) in loads {
        let load = Load { sessions, accounts };
        let mut group = c.benchmark_group(format!("commit {name} of {sessions}"));
        group.throughput(Throughput::Elements(RECORDS * sessions));
        group.bench_function("bare", |b| {
            let dir = tempdir().expect("a folder");
            let db =
                Builder::new().set_cache_size(256 << 20).create(dir.path().join("bare")).expect("a store");
            let mut bare = Bare { db, next: 1 };
            b.iter(|| bare.commit(load, &record));
        });
        group.bench_function("journal", |b| {
            let dir = tempdir().expect("a folder");
            let journal = RedbJournal::open(dir.path(), Durability::Strict).expect("a store");
            let mut appends = Appends::new(journal, load, &record);
            b.iter(|| appends.commit(load, &record, spend));
        });
        group.finish();
    }
}

criterion_group!(benches, commits);
criterion_main!(benches);
