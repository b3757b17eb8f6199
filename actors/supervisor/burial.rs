//! The end of runs that cannot be brought to their end: written by the supervisor, without folding their journal, so that
//! nobody waits for ever.

use std::sync::Arc;

use ractor::ActorRef;
use tokio::sync::oneshot;

use crate::{
    model::{Body, Cause, Ended, Outcome, Record, RunEnded, RunRow, RunState, SessionId},
    persistence::{PersistenceMsg, Stored},
    port::{Append, Clock, Index, Journal, Opened, Read, Rows, Write},
};

/// Takes a session over and ends its open runs as `failed(crash_loop)`; says which they were.
pub(super) async fn bury(
    journal: &dyn Journal,
    writer: &ActorRef<PersistenceMsg>,
    clock: &dyn Clock,
    session: SessionId,
    error: &str,
) -> Result<Vec<RunRow>, String> {
    let open: Vec<RunRow> = match journal.read(Read::OpenRuns).await.map_err(|error| error.to_string())? {
        Rows::Runs(rows) => rows.into_iter().filter(|row| row.session == session).collect(),
        Rows::Records(_) | Rows::Inbox(_) | Rows::Sessions(_) | Rows::Account(_) => Vec::new(),
    };
    if open.is_empty() {
        return Ok(open);
    }
    let Opened { incarnation, last, .. } = match write(writer, Write::Open(session)).await? {
        Stored::Opened(opened) => opened,
        Stored::Refused(refusal) => return Err(refusal.to_string()),
        Stored::Appended(_) | Stored::Delivered => return Err("the store answered another question".into()),
    };
    let at = clock.at();
    let ended = Ended::because(Outcome::Failed, Cause::CrashLoop { error: error.into() });
    let mut append = Append::new(session, incarnation, last + 1, Vec::new());
    for (row, seq) in open.iter().zip(last + 1..) {
        let (run, iterations, usage) = (row.id, row.iterations, row.usage);
        let body = Body::RunEnded(RunEnded { run, ended: ended.clone(), iterations, usage });
        append.records.push(Arc::new(Record { at, active_ms: 0, body }));
        append.index.push(Index::Run(Box::new(RunRow {
            state: RunState::Ended,
            ended_at: Some(at),
            ended: Some(ended.clone()),
            last: seq,
            ..row.clone()
        })));
    }
    match write(writer, Write::Append(Box::new(append))).await? {
        Stored::Appended(_) => Ok(open),
        Stored::Refused(refusal) => Err(refusal.to_string()),
        Stored::Opened(_) | Stored::Delivered => Err("the store answered another question".into()),
    }
}

/// Writes, and waits until it is durable or refused.
pub(super) async fn write(writer: &ActorRef<PersistenceMsg>, write: Write) -> Result<Stored, String> {
    let (sender, receiver) = oneshot::channel();
    let reply = Box::new(move |stored| {
        if sender.send(stored).is_err() {
            tracing::debug!("nobody waits for the write any more");
        }
    });
    writer.cast(PersistenceMsg::Write(write, reply)).map_err(|_| "persistence is gone".to_owned())?;
    let stored = receiver.await.map_err(|_| "persistence is gone".to_owned())?;
    stored.map_err(|error| error.to_string())
}
