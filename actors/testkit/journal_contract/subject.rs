//! The journal under test with its checks, and builders of test data.

use std::{fmt::Debug, panic::Location, sync::Arc};

use super::StoreOpener;
use hermod_actors::{
    model::{
        AccountId, Body, BudgetAccount, CallEnd, CallEnded, CallId, CallStatus, Incarnation, Record, RunId,
        RunRow, RunState, Seq, SessionId, SessionRow, Timestamp, Usage,
    },
    port::{
        Append, AppendReceipt, InboxRow, IndexRow, Journal, OpenedSession, ReadFuture, RowReader,
        StoredRecord, WriteOp, WriteOutcome, WriteRefusal,
    },
};

/// The journal under test, which can be reopened.
pub(super) struct Subject {
    open: StoreOpener,
    journal: Option<Box<dyn Journal>>,
}

impl Subject {
    pub(super) fn new(mut open: StoreOpener) -> Self {
        let journal = Some(open());
        Self { open, journal }
    }

    /// Ends the process that holds the store, and starts the next.
    pub(super) fn reopen(&mut self) {
        self.journal = None;
        self.journal = Some((self.open)());
    }

    pub(super) async fn batch(&self, batch: Vec<WriteOp>) -> Vec<WriteOutcome> {
        let writes = batch.len();
        let written = self.journal().commit(batch).await.expect("the store takes writes");
        assert_eq!(written.len(), writes, "one answer for each write");
        written
    }

    pub(super) async fn take_over(&self, session: SessionId) -> OpenedSession {
        match self.batch(vec![WriteOp::Open(session)]).await.remove(0) {
            WriteOutcome::Opened(opened) => opened,
            other @ (WriteOutcome::Appended(_)
            | WriteOutcome::Closed(_)
            | WriteOutcome::Delivered(_)
            | WriteOutcome::DeliveryUpdated(_)
            | WriteOutcome::ScheduleWritten(_)
            | WriteOutcome::Refused(_)) => {
                panic!("opening {session}: {other:?}")
            }
        }
    }

    pub(super) async fn close(&self, session: SessionId, incarnation: Incarnation) -> WriteOutcome {
        self.batch(vec![WriteOp::Close(session, incarnation)]).await.remove(0)
    }

    pub(super) async fn append(&self, append: Append) -> AppendReceipt {
        appended(self.batch(vec![WriteOp::Append(Box::new(append))]).await.remove(0))
    }

    pub(super) async fn check_refused(&self, append: Append, expect: WriteRefusal) {
        let written = self.batch(vec![WriteOp::Append(Box::new(append))]).await;
        assert_eq!(written, [WriteOutcome::Refused(expect)]);
    }

    pub(super) async fn check_malformed(&self, append: Append) {
        let written = self.batch(vec![WriteOp::Append(Box::new(append))]).await;
        assert!(matches!(written[..], [WriteOutcome::Refused(WriteRefusal::Malformed(_))]), "{written:?}");
    }

    /// Expects the session's journal to hold these records and no others.
    pub(super) async fn check_journal(&self, session: SessionId, records: &[Arc<Record>]) {
        let expect = (1..).zip(records).map(|(seq, record)| StoredRecord { seq, record: Arc::clone(record) });
        check(self.journal().records(session, 0, usize::MAX), expect.collect()).await;
    }

    pub(super) async fn check_inbox(&self, session: SessionId, items: &[&str]) -> Vec<InboxRow> {
        let rows = self.rows().inbox(session).await.expect("the inbox is read");
        assert_eq!(rows.iter().map(|row| &*row.item).collect::<Vec<_>>(), items);
        assert!(rows.is_sorted_by_key(|row| row.id));
        rows
    }

    pub(super) async fn check_account(&self, id: AccountId, account: Option<&BudgetAccount>) {
        check(self.rows().account(id), account.copied()).await;
    }

    pub(super) fn rows(&self) -> &dyn RowReader {
        self.journal().rows()
    }

    pub(super) fn journal(&self) -> &dyn Journal {
        self.journal.as_deref().expect("the store is open")
    }
}

/// Expects this answer of a read.
#[track_caller]
pub(super) fn check<T: Debug + PartialEq>(read: ReadFuture<T>, expect: T) -> impl Future<Output = ()> {
    let caller = Location::caller();
    async move { assert_eq!(read.await, Ok(expect), "{caller}") }
}

pub(super) fn appended(written: WriteOutcome) -> AppendReceipt {
    match written {
        WriteOutcome::Appended(appended) => appended,
        other @ (WriteOutcome::Opened(_)
        | WriteOutcome::Closed(_)
        | WriteOutcome::Delivered(_)
        | WriteOutcome::DeliveryUpdated(_)
        | WriteOutcome::ScheduleWritten(_)
        | WriteOutcome::Refused(_)) => {
            panic!("not appended: {other:?}")
        }
    }
}

/// An append of one record.
pub(super) fn one(session: SessionId, fence: Incarnation, expected: Seq) -> Append {
    Append::new(session, fence, expected, vec![record(expected)])
}

pub(super) fn record(n: u64) -> Arc<Record> {
    record_of(n, &format!("result {n}: \"ok\"\n"))
}

pub(super) fn record_of(n: u64, content: &str) -> Arc<Record> {
    let call = CallId { run: run(1), iteration: 1, n: 1 };
    let end = CallEnd::new(CallStatus::Ok, content);
    let body = Body::CallEnded(CallEnded::new(call, 1, end));
    Arc::new(Record { at: Timestamp(1_700_000_000_000), active_ms: n, body })
}

pub(super) fn session(n: u128) -> SessionId {
    SessionId::from_bits(n << 64 | 5)
}

pub(super) fn run(n: u128) -> RunId {
    RunId::from_bits(n << 64 | 7)
}

pub(super) fn account(n: u128) -> AccountId {
    AccountId::from_bits(n << 64 | 9)
}

pub(super) fn session_row(n: u128, key: &str) -> SessionRow {
    SessionRow::new(session(n), key, Timestamp(17))
}

pub(super) fn run_row(n: u128, of: SessionId, state: RunState) -> RunRow {
    RunRow {
        state,
        iterations: 3,
        usage: Usage { input_tokens: 5, ..Usage::default() },
        ..RunRow::new(run(n), of, Timestamp(18), 1)
    }
}

pub(super) fn index_run(n: u128, of: SessionId, state: RunState) -> IndexRow {
    IndexRow::Run(Box::new(run_row(n, of, state)))
}
