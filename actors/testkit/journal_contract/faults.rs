//! What holds when a store fails. What was acknowledged is there; what failed is there as a whole or not at all; and after
//! a failure nothing is written any more.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt;

use super::{
    Open,
    subject::{Subject, account, index_run, record, run, session},
};
use crate::{
    model::{Amounts, Incarnation, NewAccount, RunState},
    port::{Append, Journal, JournalError, Read, Refusal, Rows, Write, Written},
    testkit::{FaultyJournal, JournalFault},
};

/// The commit that meets the fault.
const AT: usize = 4;

/// Every fault after which a store has failed.
pub const FAULTS: &[JournalFault] = &[
    JournalFault::Error,
    JournalFault::FullDisk,
    JournalFault::LostAnswer,
    JournalFault::AmbiguousWritten,
    JournalFault::AmbiguousUnwritten,
    JournalFault::Panic,
];

/// Runs all faults, each on a store that `make` makes.
pub async fn fault_contract(mut make: impl FnMut() -> Open) {
    for fault in FAULTS {
        tracing::info!(?fault, "journal contract");
        a_failure_is_whole_and_final(make(), *fault).await;
    }
}

async fn a_failure_is_whole_and_final(mut open: Open, fault: JournalFault) {
    let (id, other) = (session(1), session(2));
    let journal = FaultyJournal::new(Arc::from(open()), fault, AT);
    let fence = opened(commit(&journal, vec![Write::Open(id)]).await);
    let first = Append::new(id, fence, 1, vec![record(1)]);
    let acknowledged = commit(&journal, vec![Write::Append(Box::new(first))]).await;
    assert!(matches!(acknowledged, Came::Written(_)), "{acknowledged:?}");
    let refused = Append::new(id, fence, 9, vec![record(9)]);
    let refused = commit(&journal, vec![Write::Append(Box::new(refused)), Write::Open(other)]).await;
    let Came::Written(written) = refused else { panic!("{refused:?}") };
    assert_eq!(written[0], Written::Refused(Refusal::WrongSeq { expected: 9, last: 1 }));

    let failed = commit(&journal, vec![Write::Append(Box::new(whole(id, fence)))]).await;
    failed.check(fault);
    for seq in [2, 5] {
        let later = Append::new(id, fence, seq, vec![record(seq)]);
        commit(&journal, vec![Write::Append(Box::new(later)), Write::Open(other)]).await.check(fault);
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

/// An append that has all that an append can have.
fn whole(id: crate::model::SessionId, fence: Incarnation) -> Append {
    let mut append = Append::new(id, fence, 2, (2..=4).map(record).collect());
    let limits = Amounts { tokens: Some(5), ..Amounts::default() };
    append.ledger.open.push(NewAccount { id: account(1), parent: None, limits, apart: false });
    append.index = vec![index_run(3, id, RunState::Running)];
    append.key = Some(("key".into(), run(3)));
    append.send = vec![(session(3), "\"hello\"".into())];
    append
}

/// Expects the append of the fault to be there as a whole, or not at all, and nothing after it.
async fn check_whole(subject: &Subject, fault: JournalFault) {
    let count = if fault.is_written() { 4 } else { 1 };
    let records: Vec<_> = (1..=count).map(record).collect();
    subject.check_journal(session(1), &records).await;
    let inbox: &[&str] = if fault.is_written() { &["\"hello\""] } else { &[] };
    subject.check_inbox(session(3), inbox).await;
    for (what, rows) in [
        (Read::OpenRuns, usize::from(fault.is_written())),
        (Read::RunOfKey("key".into()), usize::from(fault.is_written())),
    ] {
        let Ok(Rows::Runs(found)) = subject.read(what.clone()).await else { panic!("{what:?}") };
        assert_eq!(found.len(), rows, "{fault:?}: {what:?}");
    }
    let Ok(Rows::Account(found)) = subject.read(Read::Account(account(1))).await else { panic!("{fault:?}") };
    assert_eq!(found.is_some(), fault.is_written(), "{fault:?}");
}

/// What came of a commit.
#[derive(Debug)]
enum Came {
    Written(Vec<Written>),
    Failed(JournalError),
    /// Nothing, for as long as anybody would wait.
    Nothing,
    Panicked,
}

impl Came {
    fn check(&self, fault: JournalFault) {
        match (fault.error(), self) {
            (Some(expect), Self::Failed(error)) => assert_eq!(*error, expect),
            (None, Self::Panicked) => assert_eq!(fault, JournalFault::Panic),
            (None, Self::Nothing) => assert_eq!(fault, JournalFault::LostAnswer),
            (Some(_) | None, other) => panic!("{fault:?}: {other:?}"),
        }
    }
}

async fn commit(journal: &FaultyJournal, batch: Vec<Write>) -> Came {
    let commit = AssertUnwindSafe(async { journal.commit(batch).await }).catch_unwind();
    match tokio::time::timeout(Duration::from_millis(200), commit).await {
        Err(_) => Came::Nothing,
        Ok(Err(_)) => Came::Panicked,
        Ok(Ok(Err(error))) => Came::Failed(error),
        Ok(Ok(Ok(written))) => Came::Written(written),
    }
}

fn opened(came: Came) -> Incarnation {
    match came {
        Came::Written(written) => match &written[..] {
            [Written::Opened(opened)] => opened.incarnation,
            other => panic!("{other:?}"),
        },
        other @ (Came::Failed(_) | Came::Nothing | Came::Panicked) => panic!("{other:?}"),
    }
}
