//! Force-fail: ends runs that cannot be continued, without opening their session, so that no caller waits for ever.
//! Reads the rows, accounts and records that the decision needs, and writes its append. `core/turn/force_fail.rs`
//! decides; `session_restart.rs` says when.

use crate::{
    model::{
        AccountId, Amounts, BudgetAccount, Incarnation, LedgerChange, Outcome, OutcomeCause, OutcomeDetail,
        RunCounts, RunId, RunRow, Seq, SessionId, SessionTime, SubagentRef,
    },
    persistence::{self, WriteResult},
    port::{Append, Journal, OpenedSession, ReadError, WriteRefusal},
    supervisor::{RuntimeParts, opening::OpenSessionError},
    turn::{ForcedEnds, OpenRun, own_reservation},
};

/// Records of a session that are read at once.
const RECORDS_PER_READ: usize = 64;

/// Takes a session over with the write `opening`, and ends its open runs, or only the named one, as `failed` with this
/// cause. Returns the new incarnation.
pub(super) async fn force_fail_runs(
    parts: &RuntimeParts,
    (session, only_run): (SessionId, Option<RunId>),
    cause: OutcomeCause,
    opening: impl Future<Output = WriteResult<OpenedSession>> + Send,
) -> Result<Incarnation, OpenSessionError> {
    // Fenced before anything is read: pending writes of the old incarnation are durable by then, or never will be.
    let OpenedSession { incarnation, last, .. } = opening.await??;
    let journal = &*parts.journal;
    let runs = open_runs(journal, session, last, only_run).await.map_err(OpenSessionError::Read)?;
    if runs.is_empty() {
        return Ok(incarnation);
    }
    let ids: Vec<RunId> = runs.iter().map(|run| run.row.id).collect();
    let active_ms = active_ms(journal, session, last).await.map_err(OpenSessionError::Read)?;
    let now = SessionTime { at: parts.clock.at(), active_ms };
    let ended = OutcomeDetail::with_cause(Outcome::Failed, cause);
    let ends = ForcedEnds { session, fence: incarnation, last, now, ended };
    let append = ends.decide(runs);
    let notified: Vec<SessionId> = append.deliver.iter().map(|(session, _)| *session).collect();
    let without_ledger = Append { ledger: LedgerChange::default(), ..append.clone() };
    let mut stored = persistence::append(&parts.persistence, append).await?;
    // An unreadable account, its own or an ancestor's, must not keep the runs from ending.
    if let Err(WriteRefusal::Malformed(error)) = &stored {
        tracing::error!(%session, error, "the accounts of its runs are left as they are");
        stored = persistence::append(&parts.persistence, without_ledger).await?;
    }
    parts.hub.publish_records(session, last + 1, &stored?);
    ids.into_iter().for_each(|run| parts.executor.abandon(run));
    notified.into_iter().for_each(|session| parts.notify_inbox(session));
    Ok(incarnation)
}

/// The open runs of a session, or only the named one, with what each has counted by the record `last`, what it has
/// reserved, and its open subagents.
async fn open_runs(
    journal: &dyn Journal,
    session: SessionId,
    last: Seq,
    only_run: Option<RunId>,
) -> Result<Vec<OpenRun>, ReadError> {
    let all = journal.rows().open_runs().await?;
    let mut runs = Vec::new();
    for row in all.iter().filter(|row| row.session == session && only_run.is_none_or(|run| row.id == run)) {
        let is_subagent = |other: &&RunRow| other.parent.is_some_and(|parent| parent.call.run == row.id);
        let subagents: Vec<&RunRow> = all.iter().filter(is_subagent).collect();
        let accounts: Vec<AccountId> = subagents.iter().map(|subagent| subagent.account).collect();
        let reserved = match read_accounts(journal, row.account, &accounts).await? {
            Some((account, subagents)) => own_reservation(&account, &subagents),
            None => Amounts::default(),
        };
        let child = |row: &&RunRow| SubagentRef { session: row.session, run: row.id };
        let subagents = subagents.iter().map(child).collect();
        let counts = counts(journal, row, last).await?;
        runs.push(OpenRun { row: row.clone(), counts, reserved, subagents });
    }
    Ok(runs)
}

/// What the records of a run add up to: its row, and the records after it up to `last`. Records that cannot be read are
/// left out.
async fn counts(journal: &dyn Journal, row: &RunRow, last: Seq) -> Result<RunCounts, ReadError> {
    let mut counts = row.counts.unwrap_or_default();
    let mut from = if row.counts.is_some() { row.last + 1 } else { row.first };
    let mut max = RECORDS_PER_READ;
    while from <= last {
        match journal.records(row.session, from, max).await {
            Ok(records) if records.is_empty() => break,
            Ok(records) => {
                let bodies = records
                    .iter()
                    .map(|stored| &stored.record.body)
                    .filter(|body| body.run() == Some(row.id));
                bodies.for_each(|body| counts.take(body));
                (from, max) = (from + records.len() as u64, RECORDS_PER_READ);
            }
            Err(ReadError::Record { seq, .. }) if seq > from => {
                max = usize::try_from(seq - from).unwrap_or(RECORDS_PER_READ);
            }
            Err(ReadError::Record { .. }) => (from, max) = (from + 1, RECORDS_PER_READ),
            Err(error @ (ReadError::Unavailable(_) | ReadError::Row { .. })) => return Err(error),
        }
    }
    Ok(counts)
}

/// The session's active time by its last record, from which the time limits of its other runs continue. Zero if that
/// record cannot be read: no run of that session can continue.
async fn active_ms(journal: &dyn Journal, session: SessionId, last: Seq) -> Result<u64, ReadError> {
    match journal.records(session, last, 1).await {
        Ok(records) => Ok(records.first().map_or(0, |stored| stored.record.active_ms)),
        Err(ReadError::Record { .. }) => Ok(0),
        Err(error @ (ReadError::Unavailable(_) | ReadError::Row { .. })) => Err(error),
    }
}

/// The account of a fenced run and those of its subagents, which still work, as they are at one moment; `None` if its
/// own cannot be read.
async fn read_accounts(
    journal: &dyn Journal,
    account: AccountId,
    subagents: &[AccountId],
) -> Result<Option<(BudgetAccount, Vec<BudgetAccount>)>, ReadError> {
    let mut before = read_account(journal, account).await?;
    while let Some(known) = before {
        let mut accounts = Vec::new();
        for subagent in subagents {
            accounts.extend(read_account(journal, *subagent).await?);
        }
        before = read_account(journal, account).await?;
        if before == Some(known) {
            return Ok(Some((known, accounts)));
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
