//! The contract of a store that fails: acknowledged appends are in the store, and a failed append is there wholly or
//! not at all. After a failure the store writes nothing more.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt;

use super::{
    StoreOpener,
    subject::{Subject, account, index_run, record, run, session},
};
use crate::{FaultyJournal, JournalFault};
use hermod_actors::{
    model::{Amounts, Incarnation, NewAccount, RunState},
    port::{Append, Journal, JournalError, WriteOp, WriteOutcome, WriteRefusal},
};

/// Number of the commit that meets the fault, counted from 1.
const FAULTY_COMMIT: usize = 4;

/// Every fault after which a store has failed.
pub const FAULTS: &[JournalFault] = &[
    JournalFault::Error,
    JournalFault::FullDisk,
    JournalFault::LostAnswer,
    JournalFault::AmbiguousWritten,
    JournalFault::AmbiguousUnwritten,
    JournalFault::Panic,
];

/// Runs all faults, each on a new store from `make`. Panics where the contract is broken.
pub async fn fault_contract(mut make: impl FnMut() -> StoreOpener) {
    for fault in FAULTS {
        tracing::info!(?fault, "journal contract");
        a_failure_is_whole_and_final(make(), *fault).await;
    }
}

async fn a_failure_is_whole_and_final(mut open: StoreOpener, fault: JournalFault) {
    let (id, other) = (session(1), session(2));
    let journal = FaultyJournal::new(Arc::from(open()), fault, FAULTY_COMMIT);
    let fence = opened(commit(&journal, vec![WriteOp::Open(id)]).await);
    let first = Append::new(id, fence, 1, vec![record(1)]);
    let acknowledged = commit(&journal, vec![WriteOp::Append(Box::new(first))]).await;
    assert!(matches!(acknowledged, CommitEnd::Written(_)), "{acknowledged:?}");
    let refused = Append::new(id, fence, 9, vec![record(9)]);
    let refused = commit(&journal, vec![WriteOp::Append(Box::new(refused)), WriteOp::Open(other)]).await;
    let CommitEnd::Written(written) = refused else { panic!("{refused:?}") };
    assert_eq!(written[0], WriteOutcome::Refused(WriteRefusal::WrongSeq { expected: 9, last: 1 }));

    let failed = commit(&journal, vec![WriteOp::Append(Box::new(whole(id, fence)))]).await;
    failed.check(fault);
    for seq in [2, 5] {
        let later = Append::new(id, fence, seq, vec![record(seq)]);
        commit(&journal, vec![WriteOp::Append(Box::new(later)), WriteOp::Open(other)]).await.check(fault);
    }
    drop(journal);
    let mut subject = Subject::new(open);
    check_whole(&subject, fault).await;
    subject.reopen();
    check_whole(&subject, fault).await;
    let opened = subject.take_over(id).await;
    let next = Append::new(id, opened.incarnation, opened.last + 1, vec![record(7)]);
    assert_eq!(subject.append(next).await.last, opened.last + 1, "{fault:?}: the next process goes on");
}

/// An append of records, a new account, an index row, a key and an inbox message.
fn whole(id: hermod_actors::model::SessionId, fence: Incarnation) -> Append {
    let mut append = Append::new(id, fence, 2, (2..=4).map(record).collect());
    let limits = Amounts { tokens: Some(5), ..Amounts::default() };
    append.ledger.new_accounts.push(NewAccount {
        id: account(1),
        parent: None,
        limits,
        owns_iterations: false,
    });
    append.index = vec![index_run(3, id, RunState::Running)];
    append.key = Some(("key".into(), run(3)));
    append.deliver = vec![(session(3), "\"hello\"".into())];
    append
}

/// Expects the failed append to be there as a whole or not at all, as the fault says, and nothing after it.
async fn check_whole(subject: &Subject, fault: JournalFault) {
    let count = if fault.is_written() { 4 } else { 1 };
    let records: Vec<_> = (1..=count).map(record).collect();
    subject.check_journal(session(1), &records).await;
    let inbox: &[&str] = if fault.is_written() { &["\"hello\""] } else { &[] };
    subject.check_inbox(session(3), inbox).await;
    let rows = subject.rows();
    let is_open = !rows.open_runs().await.expect("open runs are read").is_empty();
    let has_key = rows.run_of_key("key").await.expect("the key is read").is_some();
    let has_account = rows.account(account(1)).await.expect("the account is read").is_some();
    assert_eq!([is_open, has_key, has_account], [fault.is_written(); 3], "{fault:?}");
}

/// How a commit ended.
#[derive(Debug)]
enum CommitEnd {
    Written(Vec<WriteOutcome>),
    Failed(JournalError),
    /// No answer within 200 ms.
    Nothing,
    Panicked,
}

impl CommitEnd {
    fn check(&self, fault: JournalFault) {
        match (fault.error(), self) {
            (Some(expect), Self::Failed(error)) => assert_eq!(*error, expect),
            (None, Self::Panicked) => assert_eq!(fault, JournalFault::Panic),
            (None, Self::Nothing) => assert_eq!(fault, JournalFault::LostAnswer),
            (Some(_) | None, other) => panic!("{fault:?}: {other:?}"),
        }
    }
}

async fn commit(journal: &FaultyJournal, batch: Vec<WriteOp>) -> CommitEnd {
    let commit = AssertUnwindSafe(async { journal.commit(batch).await }).catch_unwind();
    match tokio::time::timeout(Duration::from_millis(200), commit).await {
        Err(_) => CommitEnd::Nothing,
        Ok(Err(_)) => CommitEnd::Panicked,
        Ok(Ok(Err(error))) => CommitEnd::Failed(error),
        Ok(Ok(Ok(written))) => CommitEnd::Written(written),
    }
}

fn opened(end: CommitEnd) -> Incarnation {
    match end {
        CommitEnd::Written(written) => match &written[..] {
            [WriteOutcome::Opened(opened)] => opened.incarnation,
            other => panic!("{other:?}"),
        },
        other @ (CommitEnd::Failed(_) | CommitEnd::Nothing | CommitEnd::Panicked) => panic!("{other:?}"),
    }
}
