//! Force-fail: the supervisor ends runs that cannot be continued, without folding their journal, so that no caller
//! waits for ever.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::{
    model::{
        AccountId, Amounts, Body, BudgetAccount, InboxMessage, Incarnation, LedgerChange, Outcome,
        OutcomeCause, OutcomeDetail, Record, RunEnded, RunId, RunRow, RunState, Seq, SessionId, Settlement,
        StopReason, SubagentRef,
    },
    persistence::{DurableOutcome, PersistenceMsg},
    port::{
        Append, InboxItem, IndexRow, Journal, JournalError, OpenedSession, ReadError, WriteOp, WriteRefusal,
    },
    session::SessionDependencies,
    supervisor::{
        PersistenceRef,
        opening::{OpenSessionError, unexpected_answer},
    },
    turn::ONE_CHILD,
};

/// Takes a session over with the write `opening`, and ends its open runs, or only the named one, as `failed` with this
/// cause. The reservations of their calls count as spent: their real cost stays unknown. Returns the new incarnation.
pub(super) async fn force_fail_runs(
    journal: &dyn Journal,
    wiring: &SessionDependencies,
    (session, only): (SessionId, Option<RunId>),
    cause: OutcomeCause,
    opening: impl Future<Output = Result<DurableOutcome, JournalError>> + Send,
) -> Result<Incarnation, OpenSessionError> {
    // Fenced before anything is read: pending writes of the old incarnation are durable by then, or never will be.
    let OpenedSession { incarnation, last, .. } = match opening.await? {
        DurableOutcome::Opened(opened) => opened,
        DurableOutcome::Refused(refusal) => return Err(OpenSessionError::Unreadable(refusal.to_string())),
        DurableOutcome::Appended(_) | DurableOutcome::Closed(_) | DurableOutcome::Delivered => {
            return Err(unexpected_answer());
        }
    };
    let all = journal.rows().open_runs().await.map_err(OpenSessionError::Read)?;
    let is_it = |row: &&RunRow| row.session == session && only.is_none_or(|only| row.id == only);
    let open: Vec<RunRow> = all.iter().filter(is_it).cloned().collect();
    if open.is_empty() {
        return Ok(incarnation);
    }
    let mut append = Append::new(session, incarnation, last + 1, Vec::new());
    let (at, ended) = (wiring.clock.at(), OutcomeDetail::with_cause(Outcome::Failed, cause));
    let active_ms = active_ms(journal, (session, last)).await.map_err(OpenSessionError::Read)?;
    for (row, seq) in open.iter().zip(last + 1..) {
        let (run, iterations, usage) = (row.id, row.iterations, row.usage);
        let body = Body::RunEnded(RunEnded { run, ended: ended.clone(), iterations, usage });
        append.records.push(Arc::new(Record { at, active_ms, body }));
        append
            .ledger
            .settlements
            .extend(final_settlement(journal, row, &all).await.map_err(OpenSessionError::Read)?);
        append.deliver.extend(end_notices(session, row, &all));
        append.ledger.settlements.extend(row.parent.map(|parent| Settlement {
            account: parent.call.run.into(),
            reserved: ONE_CHILD,
            spent: Amounts::default(),
            refund: Amounts::default(),
        }));
        append.index.push(IndexRow::Run(Box::new(RunRow {
            state: RunState::Ended,
            ended_at: Some(at),
            ended: Some(ended.clone()),
            last: seq,
            ..row.clone()
        })));
    }
    let rings: Vec<SessionId> = append.deliver.iter().map(|(session, _)| *session).collect();
    let bare = Append { ledger: LedgerChange::default(), ..append.clone() };
    let mut stored = write(&wiring.persistence, WriteOp::Append(Box::new(append))).await?;
    // An unreadable account, its own or an ancestor's, must not keep the runs from ending.
    if let DurableOutcome::Refused(WriteRefusal::Malformed(error)) = &stored {
        tracing::error!(%session, error, "the accounts of its runs are left as they are");
        stored = write(&wiring.persistence, WriteOp::Append(Box::new(bare))).await?;
    }
    match stored {
        DurableOutcome::Appended(records) => {
            wiring.hub.publish_records(session, last + 1, &records);
            open.iter().for_each(|row| wiring.tools.abandon(row.id));
            rings.into_iter().for_each(|session| wiring.notify_inbox(session));
            Ok(incarnation)
        }
        DurableOutcome::Refused(refusal) => Err(OpenSessionError::Unreadable(refusal.to_string())),
        DurableOutcome::Opened(_) | DurableOutcome::Closed(_) | DurableOutcome::Delivered => {
            Err(unexpected_answer())
        }
    }
}

/// The inbox messages about the end: to the parent run, and to its open subagents.
fn end_notices<'a>(
    session: SessionId,
    row: &'a RunRow,
    open: &'a [RunRow],
) -> impl Iterator<Item = (SessionId, InboxItem)> + 'a {
    let child = SubagentRef { session, run: row.id };
    let parent = row
        .parent
        .map(|parent| (parent.session, InboxMessage::ChildEnded { call: parent.call, child }.to_json()));
    let own = open.iter().filter(|other| is_subagent_of(other, row));
    let stop = |run| InboxMessage::Stop { run, reason: StopReason::Parent };
    parent.into_iter().chain(own.map(move |own| (own.session, stop(own.id).to_json())))
}

/// The session's active time by its last record, from which the time limits of its other runs continue. Zero if that
/// record cannot be read: no run of that session can continue.
async fn active_ms(journal: &dyn Journal, (session, last): (SessionId, Seq)) -> Result<u64, ReadError> {
    match journal.records(session, last, 1).await {
        Ok(records) => Ok(records.first().map_or(0, |stored| stored.record.active_ms)),
        Err(ReadError::Record { .. }) => Ok(0),
        Err(error @ (ReadError::Unavailable(_) | ReadError::Row { .. })) => Err(error),
    }
}

/// Settles the reservations of a run's calls as spent. Reservations of its subagents and their places remain: they
/// return these themselves.
async fn final_settlement(
    journal: &dyn Journal,
    row: &RunRow,
    open: &[RunRow],
) -> Result<Option<Settlement>, ReadError> {
    let mut before = read_account(journal, row.account).await?;
    while let Some(known) = before {
        let mut own = known.reserved;
        for worker in open.iter().filter(|other| is_subagent_of(other, row)) {
            if let Some(BudgetAccount { mut reserved, owns_iterations: apart, .. }) =
                read_account(journal, worker.account).await?
            {
                reserved.iterations = reserved.iterations.filter(|_| !apart);
                own.reduce(&reserved);
            }
        }
        own.children = None;
        before = read_account(journal, row.account).await?;
        // The session is fenced, so its own reservations cannot change; its subagents continue.
        if before == Some(known) {
            let settle =
                Settlement { account: row.account, reserved: own, spent: own, refund: Amounts::default() };
            return Ok(Some(settle).filter(|_| !own.is_empty()));
        }
    }
    Ok(None)
}

async fn read_account(journal: &dyn Journal, id: AccountId) -> Result<Option<BudgetAccount>, ReadError> {
    match journal.rows().account(id).await {
        Err(ReadError::Row { table, error }) => {
            tracing::error!(account = %id, table, error, "what it has reserved is not known");
            Ok(None)
        }
        read => read,
    }
}

fn is_subagent_of(worker: &RunRow, row: &RunRow) -> bool {
    worker.parent.is_some_and(|parent| parent.call.run == row.id)
}

/// Writes in the order of calls to this function, whether awaited or not; resolves when durable or refused.
pub(super) fn write(
    writer: &PersistenceRef,
    write: WriteOp,
) -> impl Future<Output = Result<DurableOutcome, JournalError>> + Send + use<> {
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
