//! Observations of a simulation: what the store applied and what callers were told, recorded as it happens.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use tokio::sync::Notify;

use hermod_actors::{
    AcceptedRun, RunResult,
    model::{
        AccountId, ApprovalDecision, Attempt, AttemptId, Body, BudgetAccount, CallId, Dimension,
        OutcomeCause, OutcomeDetail, QueueOverrides, Record, RunId, Seq, SessionId,
    },
    port::{Append, AppendReceipt, InboxItem},
};

/// A violated invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The invariant's name.
    pub invariant: &'static str,
    /// Where and how it was violated.
    pub what: String,
}

/// State that accumulates over all lives of one simulation.
#[derive(Debug, Default)]
pub(super) struct Observations {
    pub(super) violations: Vec<Violation>,
    /// Every record the store applied, in order.
    pub(super) journals: BTreeMap<SessionId, Vec<Arc<Record>>>,
    pub(super) accounts: BTreeMap<AccountId, BudgetAccount>,
    started: BTreeSet<AttemptId>,
    /// Attempts started and ended in one append: they were never made.
    revoked: BTreeSet<AttemptId>,
    open: BTreeSet<RunId>,
    /// Runs that were reopened after their end.
    reopened: BTreeSet<RunId>,
    /// By subagent run: its parent run and the subagent's session.
    parents: BTreeMap<RunId, (RunId, SessionId)>,
    pending_approvals: BTreeSet<CallId>,
    /// Number of compactions of each session's view.
    compactions: BTreeMap<SessionId, u32>,
    /// Notified after each append.
    pub(super) changed: Arc<Notify>,
    /// Number of commits started, over all lives.
    pub(super) commits: u64,
    /// Records acknowledged as durable: by the store's answers, or shown to watchers.
    pub(super) acknowledged: BTreeMap<(SessionId, Seq), Arc<Record>>,
    /// Runs of the plan that were submitted. `accepted` has those known to be accepted.
    pub(super) submitted: BTreeSet<usize>,
    pub(super) accepted: BTreeMap<usize, AcceptedRun>,
    pub(super) results: BTreeMap<RunId, RunResult>,
    pub(super) stopped: BTreeSet<RunId>,
    /// Runs whose raise was acknowledged, one entry per raise.
    pub(super) raised: Vec<RunId>,
    /// Accepted steering messages: the message's number, the steered run, and the run that the message may become.
    pub(super) steered: Vec<(usize, RunId, RunId)>,
    /// Accepted messages to sessions, by their number.
    pub(super) messages: BTreeMap<usize, RunId>,
    /// Acknowledged settings of the queues of sessions.
    pub(super) queues_set: Vec<(SessionId, QueueOverrides)>,
    /// Messages whose acceptance is unknown. By number of the event: the run's number in the plan, and how
    /// often the message was sent.
    pub(super) unconfirmed_steers: BTreeMap<usize, (usize, usize)>,
    pub(super) decided: Vec<(CallId, ApprovalDecision)>,
    /// How each life ended, as text for the report.
    pub(super) lives: Vec<String>,
    /// Numbers of the planned faults that occurred.
    pub(super) injected: BTreeSet<usize>,
    /// Names of everything that went wrong, planned faults included.
    pub(super) fault_names: BTreeSet<&'static str>,
}

impl Observations {
    pub(super) fn report_violation(&mut self, invariant: &'static str, what: impl Into<String>) {
        self.violations.push(Violation { invariant, what: what.into() });
    }

    pub(super) fn has_started(&self, call: CallId, attempt: Attempt) -> bool {
        self.started.contains(&AttemptId { call, attempt })
    }

    /// The last started attempt of a call; 0 if none.
    pub(super) fn last_started(&self, call: CallId) -> Attempt {
        let attempts =
            self.started.range(AttemptId { call, attempt: 0 }..=AttemptId { call, attempt: Attempt::MAX });
        attempts.last().map_or(0, |AttemptId { attempt, .. }| *attempt)
    }

    /// Whether one append started and ended the attempt, so that it was never made.
    pub(super) fn is_revoked(&self, call: CallId, attempt: Attempt) -> bool {
        self.revoked.contains(&AttemptId { call, attempt })
    }

    /// The runs that have not ended.
    pub(super) fn open(&self) -> Vec<RunId> {
        self.open.iter().copied().collect()
    }

    /// Number of compactions of a session's view.
    pub(super) fn compactions(&self, session: SessionId) -> u32 {
        self.compactions.get(&session).copied().unwrap_or(0)
    }

    /// Whether a message was sent and its sender does not know yet whether it is durable.
    pub(super) fn has_unconfirmed_messages(&self) -> bool {
        !self.unconfirmed_steers.is_empty()
    }

    /// Whether a run is open again after an earlier end.
    pub(super) fn is_reopened(&self, run: RunId) -> bool {
        self.open.contains(&run) && self.reopened.contains(&run)
    }

    /// Session and run of an open subagent: `which` modulo their number. `None` if none is open.
    pub(super) fn subagent(&self, which: usize) -> Option<(SessionId, RunId)> {
        let live: Vec<_> = self.parents.iter().filter(|(run, _)| self.open.contains(run)).collect();
        let (run, (_, session)) = live.get(which.checked_rem(live.len())?)?;
        Some((*session, **run))
    }

    /// The given inbox items whose session has no open run, each with the session's number of records.
    pub(super) fn left_in_inboxes(
        &self,
        inboxes: Vec<(SessionId, InboxItem)>,
    ) -> Vec<(SessionId, InboxItem, usize)> {
        let records = |session| self.journals.get(&session).map_or(&[][..], Vec::as_slice);
        let left = inboxes.into_iter().filter(|(session, _)| !self.has_open(records(*session)));
        left.map(|(session, item)| (session, item, records(session).len())).collect()
    }

    /// Whether a run in a session's records is open.
    fn has_open(&self, records: &[Arc<Record>]) -> bool {
        records.iter().filter_map(|record| record.body.run()).any(|run| self.open.contains(&run))
    }

    /// The last four records, newest first, of each session with an open run, as text.
    pub(super) fn open_positions(&self) -> Vec<String> {
        let open = self.journals.iter().filter(|(_, records)| self.has_open(records));
        let stand = |(session, records): (&SessionId, &Vec<Arc<Record>>)| {
            let last = records.iter().rev().take(4).map(|record| record.body.kind().name());
            format!("{session} stands at {:?}", last.collect::<Vec<_>>())
        };
        open.map(stand).collect()
    }

    /// Accepted runs whose outcome was never reported, as text.
    pub(super) fn missing_results(&self) -> Vec<String> {
        let runs = self.accepted.iter().filter(|(_, accepted)| !self.results.contains_key(&accepted.run));
        runs.map(|(n, accepted)| format!("nobody was told how run {n} has ended, {}", accepted.run)).collect()
    }

    /// Calls waiting for approval.
    pub(super) fn pending_approvals(&self) -> Vec<CallId> {
        self.pending_approvals.iter().copied().collect()
    }

    /// A session's id by its number in the plan; `None` before it is opened.
    pub(super) fn session(&self, key: usize) -> Option<SessionId> {
        let key = session_key(key);
        let is_it = |records: &[Arc<Record>]| matches!(records.first().map(|record| &record.body), Some(Body::SessionOpened(opened)) if *opened.key == *key);
        self.journals.iter().find(|(_, records)| is_it(records)).map(|(session, _)| *session)
    }

    /// The store applied an append.
    pub(super) fn on_appended(&mut self, append: &Append, appended: &AppendReceipt) {
        self.extend(append.session, append.expected, &append.records);
        append.spawned.iter().for_each(|founded| self.extend(founded.session, 1, &founded.records));
        let before =
            |at: usize, id| append.records[..at].iter().any(|record| started_attempt(record) == Some(id));
        for (at, record) in append.records.iter().enumerate() {
            self.revoked.extend(ended_attempt(record).filter(|id| before(at, *id)));
        }
        for (id, account) in &appended.accounts {
            self.accounts.insert(*id, *account);
            self.check_limits(*id, account);
        }
        self.changed.notify_one();
    }

    fn extend(&mut self, session: SessionId, first: Seq, records: &[Arc<Record>]) {
        let journal = self.journals.entry(session).or_default();
        let last = Seq::try_from(journal.len()).unwrap_or(Seq::MAX);
        journal.extend(records.iter().cloned());
        if first != last + 1 {
            self.report_violation(
                "sequence is dense",
                format!("{first} was written behind {last} of {session}"),
            );
        }
        for record in records {
            self.track_session(session, record);
            self.track_record(record);
        }
    }

    /// A record was reported as durable. Every later report must equal the first.
    pub(super) fn on_acknowledged(&mut self, session: SessionId, seq: Seq, record: &Arc<Record>) {
        let first = self.acknowledged.entry((session, seq)).or_insert_with(|| Arc::clone(record));
        if *first != *record {
            let what = format!("record {seq} of {session} was told as {first:?} and as {record:?}");
            self.report_violation("what was acknowledged stays", what);
        }
    }

    /// Counts compactions and tracks parents of subagents. Checks that a subagent's end is received only after its end,
    /// and that no run ends before its subagents.
    fn track_session(&mut self, session: SessionId, record: &Record) {
        match &record.body {
            Body::ContextCompacted(_) => *self.compactions.entry(session).or_default() += 1,
            Body::RunAccepted(accepted) => {
                if let Some(parent) = accepted.parent {
                    self.parents.insert(accepted.run, (parent.call.run, session));
                }
            }
            Body::ChildEnded(ended) if self.open.contains(&ended.child.run) => {
                self.report_violation(
                    "a subagent is heard once",
                    format!("{} before it has ended", ended.child.run),
                );
            }
            Body::RunEnded(ended) if !is_force_fail(&ended.ended) => {
                let of = |(run, (parent, _)): &(&RunId, &(RunId, SessionId))| {
                    *parent == ended.run && self.open.contains(run)
                };
                let left: Vec<RunId> = self.parents.iter().filter(of).map(|(run, _)| *run).collect();
                if !left.is_empty() {
                    self.report_violation(
                        "nobody ends before its subagents",
                        format!("{} has {left:?}", ended.run),
                    );
                }
            }
            _ => {}
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "other kinds are not tracked")]
    fn track_record(&mut self, record: &Record) {
        self.started.extend(record.body.started_attempt());
        match &record.body {
            Body::RunAccepted(accepted) => drop(self.open.insert(accepted.run)),
            Body::RunReopened(reopened) => {
                self.open.insert(reopened.run);
                self.reopened.insert(reopened.run);
                self.results.remove(&reopened.run);
            }
            Body::RunEnded(ended) => {
                self.open.remove(&ended.run);
                self.pending_approvals.retain(|call| call.run != ended.run);
            }
            Body::ApprovalRequested(request) => drop(self.pending_approvals.insert(request.call)),
            Body::ApprovalAnswered(answered) => drop(self.pending_approvals.remove(&answered.call)),
            Body::CallEnded(ended) => drop(self.pending_approvals.remove(&ended.call)),
            _ => {}
        }
    }

    /// Simulated providers never exceed their reservation, so even a settlement must stay within the limits.
    fn check_limits(&mut self, id: AccountId, account: &BudgetAccount) {
        for dimension in Dimension::ALL {
            let of = |amounts: &hermod_actors::model::Amounts| amounts.get(dimension).unwrap_or(0);
            let used = of(&account.spent) + of(&account.reserved);
            if account.limits.get(dimension).is_some_and(|limit| used > limit) {
                self.report_violation(
                    "accounts keep their limits",
                    format!("{id}: {} of {account:?}", dimension.name()),
                );
            }
        }
    }
}

/// Whether the run was force-failed, not ended by its own session.
pub(super) const fn is_force_fail(ended: &OutcomeDetail) -> bool {
    matches!(ended.cause, Some(OutcomeCause::CrashLoop { .. } | OutcomeCause::Unreadable { .. }))
}

/// The attempt that a record starts.
fn started_attempt(record: &Record) -> Option<AttemptId> {
    if let Body::ModelStarted(started) | Body::AsideStarted(started) = &record.body {
        return Some(started.id());
    }
    if let Body::SummaryStarted(started) = &record.body {
        return Some(started.started.id());
    }
    if let Body::CallStarted(started) = &record.body { Some(started.id()) } else { None }
}

/// The attempt that a record ends.
fn ended_attempt(record: &Record) -> Option<AttemptId> {
    if let Body::ModelFailed(failed) | Body::SummaryFailed(failed) | Body::AsideFailed(failed) = &record.body
    {
        return Some(AttemptId { call: failed.call, attempt: failed.attempt });
    }
    if let Body::CallEnded(ended) = &record.body {
        Some(AttemptId { call: ended.call, attempt: ended.attempt })
    } else {
        None
    }
}

/// The key of a session of the plan.
pub(super) fn session_key(session: usize) -> Arc<str> {
    format!("session-{session}").into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hermod_actors::model::{LimitIncrease, Outcome, RunEnded, RunReopened, Timestamp, Usage};

    #[test]
    fn only_what_lies_with_sessions_without_an_open_run_is_left_over() {
        let (session, run, mut book) =
            (SessionId::from_bits(1), RunId::from_bits(2), Observations::default());
        let record = |body| Arc::new(Record { at: Timestamp::default(), active_ms: 0, body });
        let ended = OutcomeDetail { outcome: Outcome::Completed, cause: None };
        let end = Body::RunEnded(RunEnded { run, ended, iterations: 1, usage: Usage::default() });
        let begin = Body::RunReopened(RunReopened { run, leg: 2, increase: LimitIncrease::default() });
        for (body, seq, is_left) in [(end.clone(), 1, true), (begin, 2, false), (end, 3, true)] {
            book.extend(session, seq, &[record(body)]);
            let item: InboxItem = "1".into();
            let left = book.left_in_inboxes(vec![(session, Arc::clone(&item))]);
            let last = usize::try_from(seq).unwrap_or(0);
            assert_eq!(left, if is_left { vec![(session, item, last)] } else { Vec::new() }, "{seq}");
        }
    }
}
