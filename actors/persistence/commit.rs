//! From a batch to the disk, and the answers to whoever waits for it.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex},
};

use futures::{FutureExt, future::BoxFuture};
use ractor::ActorRef;

use super::{
    Failed, PersistenceMsg, Stored, Writing,
    queue::{Batch, Queue, lock},
};
#[cfg(feature = "testkit")]
use crate::model::Body;
use crate::{
    model::{Durable, Record},
    port::{Journal, JournalError, Write, Written},
};

/// Commits one batch after the other until nothing waits, and says if the store has failed: a writer that waits for ever
/// would be silent.
pub(super) async fn commit(
    (journal, writing): (Arc<dyn Journal>, Arc<Writing>),
    queue: Arc<Mutex<Queue>>,
    first: Batch,
    persistence: ActorRef<PersistenceMsg>,
) {
    let committing = async {
        writing.begins();
        let mut under_way = Some(begin(&*journal, first));
        while let Some((committing, tell)) = under_way {
            let committed = committing.await;
            writing.ended();
            let failed = committed.as_ref().err().cloned();
            // The disk has its next batch before anybody hears of this one.
            under_way = match &failed {
                None => lock(&queue).cut().map(|batch| {
                    writing.begins();
                    begin(&*journal, batch)
                }),
                Some(_) => None,
            };
            tell(committed);
            failed.map_or(Ok(()), Err)?;
        }
        Ok(())
    };
    let error = match AssertUnwindSafe(committing).catch_unwind().await {
        Ok(Ok(())) => return,
        Ok(Err(error)) => error,
        Err(_) => JournalError::Unavailable("whoever waited for a commit panicked".into()),
    };
    if persistence.cast(PersistenceMsg::Inner(Failed(error))).is_err() {
        tracing::debug!("a commit failed after its writer had gone");
    }
}

type Committed = Result<Vec<Written>, JournalError>;

/// Hands a batch to the adapter, and gives what it will say and who is to be told. A panic of the adapter is a failed
/// store.
fn begin(
    journal: &dyn Journal,
    (batch, replies): Batch,
) -> (BoxFuture<'static, Committed>, impl FnOnce(Committed) + Send + use<>) {
    let records: Vec<Vec<Arc<Record>>> = batch
        .iter()
        .map(|write| match write {
            Write::Append(append) => append.records.clone(),
            Write::Open(_) | Write::Close(..) | Write::Deliver(..) => Vec::new(),
        })
        .collect();
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
    let tell = move |committed: Committed| match committed {
        Ok(written) => {
            for ((written, records), reply) in written.into_iter().zip(records).zip(replies) {
                reply(Ok(vouched(written, records)));
            }
        }
        Err(error) => replies.into_iter().for_each(|reply| reply(Err(error.clone()))),
    };
    (committing.boxed(), tell)
}

/// What the committer says of a write, with its records vouched for.
pub(crate) fn vouched(written: Written, records: Vec<Arc<Record>>) -> Stored {
    match written {
        Written::Appended(_) => Stored::Appended(records.into_iter().map(Durable::vouch).collect()),
        Written::Opened(opened) => Stored::Opened(opened),
        Written::Closed(is_gone) => Stored::Closed(is_gone),
        Written::Delivered(_) => Stored::Delivered,
        Written::Refused(refusal) => Stored::Refused(refusal),
    }
}

/// Never, but for the wrong twins of this actor; nobody else could be one, since nobody else vouches.
#[cfg(feature = "testkit")]
pub(super) fn is_vouched_early(message: &PersistenceMsg) -> bool {
    use crate::mutation::{Mutation, planted};
    let PersistenceMsg::Write(Write::Append(append), _) = message else { return false };
    let revives = || append.records.iter().any(|record| matches!(record.body, Body::SessionRevived(_)));
    planted(Mutation::AcknowledgeEarly) || planted(Mutation::DueEarly) && revives()
}

/// An append about which nobody hears any more: it was said to be durable.
#[cfg(feature = "testkit")]
pub(super) fn vouched_early(message: PersistenceMsg) -> PersistenceMsg {
    let PersistenceMsg::Write(Write::Append(append), reply) = message else { return message };
    reply(Ok(Stored::Appended(append.records.iter().cloned().map(Durable::vouch).collect())));
    PersistenceMsg::Write(Write::Append(append), Box::new(drop))
}
