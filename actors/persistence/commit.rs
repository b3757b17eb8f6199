//! Commits batches to the journal, one after the other, and answers the writers. `queue.rs` makes the batches. Also the
//! mutants that acknowledge a write early.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex},
};

use futures::{FutureExt, future::BoxFuture};
use ractor::ActorRef;

use super::{
    CommitMonitor, PersistenceMsg, StoreFailed,
    queue::{WriteBatch, WriteQueue},
};
use crate::{
    lock,
    port::{Journal, JournalError, WriteOutcome},
};
#[cfg(feature = "testkit")]
use crate::{
    model::Body,
    port::{AppendReceipt, WriteOp},
};

/// Commits one batch after the other until no write waits, and reports a failed store: otherwise writers would wait for
/// ever.
pub(super) async fn commit(
    journal: Arc<dyn Journal>,
    monitor: Arc<CommitMonitor>,
    queue: Arc<Mutex<WriteQueue>>,
    first: WriteBatch,
    persistence: ActorRef<PersistenceMsg>,
) {
    let committing = async {
        monitor.start();
        let mut pending = Some(start_commit(&*journal, first));
        while let Some((committing, reply)) = pending {
            let committed = committing.await;
            monitor.finish();
            let failed = committed.as_ref().err().cloned();
            // The next commit starts before the answers of this one are sent.
            pending = match &failed {
                None => lock(&queue).next_batch().map(|batch| {
                    monitor.start();
                    start_commit(&*journal, batch)
                }),
                Some(_) => None,
            };
            reply(committed);
            failed.map_or(Ok(()), Err)?;
        }
        Ok(())
    };
    let error = match AssertUnwindSafe(committing).catch_unwind().await {
        Ok(Ok(())) => return,
        Ok(Err(error)) => error,
        Err(_) => JournalError::Unavailable("the task that waited for a commit panicked".into()),
    };
    if persistence.cast(PersistenceMsg::Inner(StoreFailed(error))).is_err() {
        tracing::debug!("a commit failed after its writer had gone");
    }
}

type BatchResult = Result<Vec<WriteOutcome>, JournalError>;

/// Starts the commit of a batch. Returns its future and the function that sends the answers. A panic of the adapter
/// counts as a failed store.
fn start_commit(
    journal: &dyn Journal,
    (batch, replies): WriteBatch,
) -> (BoxFuture<'static, BatchResult>, impl FnOnce(BatchResult) + Send + use<>) {
    let (writes, unavailable) = (batch.len(), |text: &str| JournalError::Unavailable(text.into()));
    let committing = catch_unwind(AssertUnwindSafe(|| journal.commit(batch)));
    let committing = async move {
        let committed = match committing {
            Ok(committing) => AssertUnwindSafe(committing).catch_unwind().await,
            Err(panic) => Err(panic),
        };
        let committed = committed.unwrap_or_else(|_| Err(unavailable("the adapter panicked")))?;
        match committed.len() == writes {
            true => Ok(committed),
            false => Err(unavailable("the adapter did not answer every write")),
        }
    };
    let reply = move |committed: BatchResult| match committed {
        Ok(written) => written.into_iter().zip(replies).for_each(|(outcome, reply)| reply(Ok(outcome))),
        Err(error) => replies.into_iter().for_each(|reply| reply(Err(error.clone()))),
    };
    (committing.boxed(), reply)
}

/// Whether an enabled mutant acknowledges this write early.
#[cfg(feature = "testkit")]
pub(super) fn is_early_ack_mutant(message: &PersistenceMsg) -> bool {
    use crate::mutants::{Mutant, mutant_enabled};
    let PersistenceMsg::Write(WriteOp::Append(append), _) = message else { return false };
    let revives = || append.records.iter().any(|record| matches!(record.body, Body::SessionRevived(_)));
    mutant_enabled(Mutant::AcknowledgeEarly) || mutant_enabled(Mutant::DueEarly) && revives()
}

/// Answers an append as durable before it is written; its later result is dropped.
#[cfg(feature = "testkit")]
pub(super) fn ack_early(message: PersistenceMsg) -> PersistenceMsg {
    let PersistenceMsg::Write(WriteOp::Append(append), reply) = message else { return message };
    reply(Ok(WriteOutcome::Appended(AppendReceipt { last: 0, accounts: Vec::new() })));
    PersistenceMsg::Write(WriteOp::Append(append), Box::new(drop))
}
