//! The functions that send writes to Persistence: one for each kind of write, with the type of its answer. Records of
//! an acknowledged append are marked as durable here.

use ractor::ActorRef;
use tokio::sync::oneshot;

use super::{AppendResult, OutcomeReply, PersistenceMsg, WriteResult};
use crate::{
    model::{
        Durable, Incarnation, ScheduleName, ScheduleOutcome, ScheduleWrite, SessionId, StoredDelivery,
        Timestamp,
    },
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
        Some(records.into_iter().map(Durable::mark_durable).collect())
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
    send(writer, move |reply| append_with(append, reply))
}

/// Takes a session over: the store gives it a new incarnation and fences all earlier ones.
pub(crate) fn open(
    writer: &ActorRef<PersistenceMsg>,
    session: SessionId,
) -> impl Future<Output = WriteResult<OpenedSession>> + Send + use<> {
    let opened = |outcome| if let WriteOutcome::Opened(opened) = outcome { Some(opened) } else { None };
    send(writer, move |reply| PersistenceMsg::Write(WriteOp::Open(session), typed(opened, reply)))
}

/// Closes a session as this incarnation; false if its inbox has messages.
pub(crate) fn close(
    writer: &ActorRef<PersistenceMsg>,
    session: SessionId,
    incarnation: Incarnation,
) -> impl Future<Output = WriteResult<bool>> + Send + use<> {
    let closed = |outcome| if let WriteOutcome::Closed(is_closed) = outcome { Some(is_closed) } else { None };
    send(writer, move |reply| {
        PersistenceMsg::Write(WriteOp::Close(session, incarnation), typed(closed, reply))
    })
}

/// Writes the state of a delivery; false if it is not pending any more.
pub(crate) fn update_delivery(
    writer: &ActorRef<PersistenceMsg>,
    delivery: StoredDelivery,
) -> impl Future<Output = WriteResult<bool>> + Send + use<> {
    send_delivery(writer, WriteOp::UpdateDelivery(Box::new(delivery)))
}

/// Makes a dead delivery pending again; false if it is not dead any more.
pub(crate) fn retry_delivery(
    writer: &ActorRef<PersistenceMsg>,
    number: u64,
    now: Timestamp,
) -> impl Future<Output = WriteResult<bool>> + Send + use<> {
    send_delivery(writer, WriteOp::RetryDelivery(number, now))
}

fn send_delivery(
    writer: &ActorRef<PersistenceMsg>,
    write: WriteOp,
) -> impl Future<Output = WriteResult<bool>> + Send + use<> {
    let updated = |outcome| {
        if let WriteOutcome::DeliveryUpdated(is_updated) = outcome { Some(is_updated) } else { None }
    };
    send(writer, move |reply| PersistenceMsg::Write(write, typed(updated, reply)))
}

/// Creates or replaces a schedule.
pub(crate) fn write_schedule(
    writer: &ActorRef<PersistenceMsg>,
    write: ScheduleWrite,
) -> impl Future<Output = WriteResult<ScheduleOutcome>> + Send + use<> {
    send_schedule(writer, WriteOp::Schedule(Box::new(write)))
}

/// Removes the schedule if it has this revision.
pub(crate) fn remove_schedule(
    writer: &ActorRef<PersistenceMsg>,
    name: ScheduleName,
    revision: u64,
) -> impl Future<Output = WriteResult<ScheduleOutcome>> + Send + use<> {
    send_schedule(writer, WriteOp::RemoveSchedule(name, revision))
}

fn send_schedule(
    writer: &ActorRef<PersistenceMsg>,
    write: WriteOp,
) -> impl Future<Output = WriteResult<ScheduleOutcome>> + Send + use<> {
    let written =
        |outcome| if let WriteOutcome::ScheduleWritten(outcome) = outcome { Some(outcome) } else { None };
    send(writer, move |reply| PersistenceMsg::Write(write, typed(written, reply)))
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

/// Sends a write, and awaits the result that its reply gets.
fn send<T: Send + 'static, W: FnOnce(Box<dyn FnOnce(WriteResult<T>) + Send>) -> PersistenceMsg>(
    writer: &ActorRef<PersistenceMsg>,
    write: W,
) -> impl Future<Output = WriteResult<T>> + Send + use<T, W> {
    let (sender, result) = oneshot::channel();
    let reply = Box::new(|result| {
        if sender.send(result).is_err() {
            tracing::debug!("the result of a write was dropped by its caller");
        }
    });
    let unavailable = || JournalError::Unavailable("persistence is gone".into());
    let sent = writer.cast(write(reply));
    async move {
        sent.map_err(|_| unavailable())?;
        result.await.map_err(|_| unavailable())?
    }
}
