//! The end of runs that cannot be brought to their end: written by the supervisor, without folding their journal, so that
//! nobody waits for ever.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::{
    model::{
        Account, AccountId, Amounts, Body, Cause, Child, Ended, Inbox, Incarnation, Ledger, Outcome, Record,
        RunEnded, RunId, RunRow, RunState, Seq, SessionId, Settle, StopReason,
    },
    persistence::{PersistenceMsg, Stored},
    port::{Append, InboxItem, Index, Journal, JournalError, Opened, Read, ReadError, Refusal, Rows, Write},
    session::Wiring,
    supervisor::{
        Writer,
        opening::{Unopened, other_question},
    },
    turn::ONE_CHILD,
};

/// Takes a session over and ends its open runs, or the one of them that is named, as `failed` for this cause. What their
/// calls had reserved counts as spent: nobody will know better. Says as which incarnation that was done. `opening` is the
/// write that takes it over.
pub(super) async fn bury(
    journal: &dyn Journal,
    wiring: &Wiring,
    (session, only): (SessionId, Option<RunId>),
    cause: Cause,
    opening: impl Future<Output = Result<Stored, JournalError>> + Send,
) -> Result<Incarnation, Unopened> {
    // Fenced before anything is read: what the dead session still had on its way to disk is there then, or never will be.
    let Opened { incarnation, last, .. } = match opening.await? {
        Stored::Opened(opened) => opened,
        Stored::Refused(refusal) => return Err(Unopened::Unreadable(refusal.to_string())),
        Stored::Appended(_) | Stored::Closed(_) | Stored::Delivered => return Err(other_question()),
    };
    let all: Vec<RunRow> = match journal.read(Read::OpenRuns).await.map_err(Unopened::Read)? {
        Rows::Runs(rows) => rows,
        Rows::Records(_) | Rows::Inbox(_) | Rows::Sessions(_) | Rows::Account(_) | Rows::Models(_) => {
            Vec::new()
        }
    };
    let is_it = |row: &&RunRow| row.session == session && only.is_none_or(|only| row.id == only);
    let open: Vec<RunRow> = all.iter().filter(is_it).cloned().collect();
    if open.is_empty() {
        return Ok(incarnation);
    }
    let mut append = Append::new(session, incarnation, last + 1, Vec::new());
    let (at, ended) = (wiring.clock.at(), Ended::because(Outcome::Failed, cause));
    let active_ms = active_ms(journal, (session, last)).await.map_err(Unopened::Read)?;
    for (row, seq) in open.iter().zip(last + 1..) {
        let (run, iterations, usage) = (row.id, row.iterations, row.usage);
        let body = Body::RunEnded(RunEnded { run, ended: ended.clone(), iterations, usage });
        append.records.push(Arc::new(Record { at, active_ms, body }));
        append.ledger.settle.extend(settled(journal, row, &all).await.map_err(Unopened::Read)?);
        append.send.extend(heirs(session, row, &all));
        append.ledger.settle.extend(row.parent.map(|parent| Settle {
            account: parent.call.run.into(),
            reserved: ONE_CHILD,
            spent: Amounts::default(),
            refund: Amounts::default(),
        }));
        append.index.push(Index::Run(Box::new(RunRow {
            state: RunState::Ended,
            ended_at: Some(at),
            ended: Some(ended.clone()),
            last: seq,
            ..row.clone()
        })));
    }
    let rings: Vec<SessionId> = append.send.iter().map(|(session, _)| *session).collect();
    let bare = Append { ledger: Ledger::default(), ..append.clone() };
    let mut stored = write(&wiring.persistence, Write::Append(Box::new(append))).await?;
    // An account that cannot be read, its own or one above, must not keep the runs from their end.
    if let Stored::Refused(Refusal::Malformed(error)) = &stored {
        tracing::error!(%session, error, "the accounts of its runs are left as they are");
        stored = write(&wiring.persistence, Write::Append(Box::new(bare))).await?;
    }
    match stored {
        Stored::Appended(records) => {
            wiring.hub.recorded(session, last + 1, &records);
            open.iter().for_each(|row| wiring.tools.abandon(row.id));
            rings.into_iter().for_each(|session| wiring.ring(session));
            Ok(incarnation)
        }
        Stored::Refused(refusal) => Err(Unopened::Unreadable(refusal.to_string())),
        Stored::Opened(_) | Stored::Closed(_) | Stored::Delivered => Err(other_question()),
    }
}

/// Who hears of it: the run that had given it its task, and the subagents that worked for it.
fn heirs<'a>(
    session: SessionId,
    row: &'a RunRow,
    open: &'a [RunRow],
) -> impl Iterator<Item = (SessionId, InboxItem)> + 'a {
    let child = Child { session, run: row.id };
    let parent =
        row.parent.map(|parent| (parent.session, Inbox::ChildEnded { call: parent.call, child }.item()));
    let own = open.iter().filter(|other| works_for(other, row));
    let stop = |run| Inbox::Stop { run, reason: StopReason::Parent };
    parent.into_iter().chain(own.map(move |own| (own.session, stop(own.id).item())))
}

/// How long the session has been alive, by its last record: for the limits of its other runs time goes on from there. What
/// cannot be read goes on for nobody.
async fn active_ms(journal: &dyn Journal, (session, last): (SessionId, Seq)) -> Result<u64, ReadError> {
    match journal.read(Read::Records { session, from: last, max: 1 }).await {
        Ok(Rows::Records(records)) => Ok(records.first().map_or(0, |stored| stored.record.active_ms)),
        Ok(Rows::Inbox(_) | Rows::Sessions(_) | Rows::Runs(_) | Rows::Account(_) | Rows::Models(_))
        | Err(ReadError::Record { .. }) => Ok(0),
        Err(error @ (ReadError::Unavailable(_) | ReadError::Row { .. })) => Err(error),
    }
}

/// What a run's calls have reserved, as spent. What its subagents have is theirs, and so are their places: they give all
/// of it back themselves.
async fn settled(journal: &dyn Journal, row: &RunRow, open: &[RunRow]) -> Result<Option<Settle>, ReadError> {
    let mut before = account(journal, row.account).await?;
    while let Some(known) = before {
        let mut own = known.reserved;
        for worker in open.iter().filter(|other| works_for(other, row)) {
            if let Some(Account { mut reserved, apart, .. }) = account(journal, worker.account).await? {
                reserved.iterations = reserved.iterations.filter(|_| !apart);
                own.reduce(&reserved);
            }
        }
        own.children = None;
        before = account(journal, row.account).await?;
        // What the run itself has reserved stands still, for its session is fenced; its subagents go on.
        if before == Some(known) {
            let settle =
                Settle { account: row.account, reserved: own, spent: own, refund: Amounts::default() };
            return Ok(Some(settle).filter(|_| !own.is_empty()));
        }
    }
    Ok(None)
}

async fn account(journal: &dyn Journal, id: AccountId) -> Result<Option<Account>, ReadError> {
    let rows = match journal.read(Read::Account(id)).await {
        Err(ReadError::Row { table, error }) => {
            tracing::error!(account = %id, table, error, "what it has reserved is not known");
            return Ok(None);
        }
        rows => rows?,
    };
    Ok(match rows {
        Rows::Account(account) => account.map(|account| *account),
        Rows::Records(_) | Rows::Inbox(_) | Rows::Sessions(_) | Rows::Runs(_) | Rows::Models(_) => None,
    })
}

fn works_for(worker: &RunRow, row: &RunRow) -> bool {
    worker.parent.is_some_and(|parent| parent.call.run == row.id)
}

/// Writes, in the order in which this is called, whether or not it is awaited; resolves when it is durable or refused.
pub(super) fn write(
    writer: &Writer,
    write: Write,
) -> impl Future<Output = Result<Stored, JournalError>> + Send + use<> {
    let gone = || JournalError::Unavailable("persistence is gone".into());
    let (sender, receiver) = oneshot::channel();
    let reply = Box::new(move |stored| {
        if sender.send(stored).is_err() {
            tracing::debug!("nobody waits for the write any more");
        }
    });
    let sent = writer.cast(PersistenceMsg::Write(write, reply));
    async move {
        sent.map_err(|_| gone())?;
        receiver.await.map_err(|_| gone())?
    }
}
