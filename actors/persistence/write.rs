//! The functions that send writes to Persistence: one for each kind of write, with the type of its answer. Records of
//! an acknowledged append are marked as durable here.

use std::sync::Arc;

use ractor::ActorRef;
use tokio::sync::oneshot;

use super::{AppendResult, OutcomeReply, PersistenceMsg, WriteResult};
use crate::{
    model::{Durable, Incarnation, Record, SessionId},
    port::{Append, JournalError, OpenedSession, WriteOp, WriteOutcome},
};

/// An append whose result `reply` receives. Called from the committing task, so `reply` must only forward.
pub(crate) fn append_with(
    append: Append,
    reply: impl FnOnce(AppendResult) + Send + 'static,
) -> PersistenceMsg {
    let records = append.records.clone();
    let appended = |outcome| {
        let WriteOutcome::Appended(_) = outcome else { return None };
        Some(mark_all_durable(records))
    };
    PersistenceMsg::Write(WriteOp::Append(Box::new(append)), typed(appended, reply))
}

/// Appends to a session's journal.
///
/// Like all functions here it writes in the order of the calls, whether its future is awaited or not.
pub(crate) fn append(
    writer: &ActorRef<PersistenceMsg>,
    append: Append,
) -> impl Future<Output = AppendResult> + Send + use<> {
    let (sender, receiver) = oneshot::channel();
    send(writer, append_with(append, forward_to(sender)), receiver)
}

/// Takes a session over: the store gives it a new incarnation and fences all earlier ones.
pub(crate) fn open(
    writer: &ActorRef<PersistenceMsg>,
    session: SessionId,
) -> impl Future<Output = WriteResult<OpenedSession>> + Send + use<> {
    let opened = |outcome| {
        let WriteOutcome::Opened(opened) = outcome else { return None };
        Some(opened)
    };
    let (sender, receiver) = oneshot::channel();
    let reply = typed(opened, forward_to(sender));
    send(writer, PersistenceMsg::Write(WriteOp::Open(session), reply), receiver)
}

/// Closes a session as this incarnation; false if its inbox has messages.
pub(crate) fn close(
    writer: &ActorRef<PersistenceMsg>,
    session: SessionId,
    incarnation: Incarnation,
) -> impl Future<Output = WriteResult<bool>> + Send + use<> {
    let closed = |outcome| {
        let WriteOutcome::Closed(is_closed) = outcome else { return None };
        Some(is_closed)
    };
    let (sender, receiver) = oneshot::channel();
    let reply = typed(closed, forward_to(sender));
    send(writer, PersistenceMsg::Write(WriteOp::Close(session, incarnation), reply), receiver)
}

/// Records that are on disk.
fn mark_all_durable(records: Vec<Arc<Record>>) -> Vec<Durable<Arc<Record>>> {
    records.into_iter().map(Durable::mark_durable).collect()
}

/// Passes the answer that `extract` takes from an outcome. An outcome of another write means a defective adapter.
fn typed<T>(
    extract: impl FnOnce(WriteOutcome) -> Option<T> + Send + 'static,
    reply: impl FnOnce(WriteResult<T>) + Send + 'static,
) -> OutcomeReply {
    Box::new(move |outcome| {
        reply(match outcome {
            Ok(WriteOutcome::Refused(refusal)) => Ok(Err(refusal)),
            Ok(outcome) => {
                let other = || JournalError::Unavailable("the adapter answered another write".into());
                extract(outcome).ok_or_else(other).map(Ok)
            }
            Err(error) => Err(error),
        });
    })
}

fn forward_to<T: Send>(sender: oneshot::Sender<WriteResult<T>>) -> impl FnOnce(WriteResult<T>) + Send {
    |result| {
        if sender.send(result).is_err() {
            tracing::debug!("the result of a write was dropped by its caller");
        }
    }
}

fn send<T: Send>(
    writer: &ActorRef<PersistenceMsg>,
    write: PersistenceMsg,
    result: oneshot::Receiver<WriteResult<T>>,
) -> impl Future<Output = WriteResult<T>> + Send + use<T> {
    let unavailable = || JournalError::Unavailable("persistence is gone".into());
    let sent = writer.cast(write);
    async move {
        sent.map_err(|_| unavailable())?;
        result.await.map_err(|_| unavailable())?
    }
}
