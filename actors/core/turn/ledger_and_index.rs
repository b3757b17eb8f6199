//! Effects of a record outside of its journal: changes of budget accounts, index rows, and the report of a run's end to
//! its parent. Derived from the records alone, and written in the same transaction.

use std::sync::Arc;

use crate::{
    journal::IndexRow,
    model::{
        AccountId, Amounts, AsideJob, Body, Dimension, LedgerChange, LimitRaise, ModelFailed, ModelLate,
        ModelStarted, NewAccount, Occurrence, Reservation, RetryReason, RunCounts, RunEnded, RunId, RunRow,
        RunState, Seq, SessionRow, Settlement, Timestamp, Usage,
    },
    mutants::{Mutant, mutant_enabled},
    policy::spent_by_failure,
    turn::{active_run::ActiveRun, decision::DecisionBuilder, run_budget::ONE_CALL},
};

impl DecisionBuilder {
    /// Adds the changes of accounts that a record causes; called before the record is folded.
    pub(super) fn update_ledger(&mut self, body: &Body) {
        if let Body::RunEnded(ended) = body {
            self.notify_parent(ended.run);
        }
        let attempt = self.ended_attempt(body).cloned();
        let never_made = self.ends_call_started_here(body);
        let periods = || self.turn.store_limits.accounts(self.now.at);
        let ledger = &mut self.append.ledger;
        match body {
            Body::RunAccepted(accepted) => ledger.new_accounts.push(NewAccount {
                id: accepted.run.into(),
                parent: None,
                limits: accepted.spec.limits.budget,
                owns_iterations: false,
            }),
            Body::ModelStarted(it) | Body::AsideStarted(it) => reserve_attempt(ledger, it, periods),
            Body::SummaryStarted(started) => reserve_attempt(ledger, &started.started, periods),
            Body::ModelAnswered(answered) => settle_answer(ledger, attempt.as_deref(), answered.usage),
            Body::SummaryAnswered(answered) | Body::AsideAnswered(answered) => {
                settle_answer(ledger, attempt.as_deref(), answered.usage);
            }
            Body::ModelFailed(_) | Body::SummaryFailed(_) | Body::AsideFailed(_) if never_made => {
                unreserve_attempt(ledger, attempt.as_deref());
            }
            Body::CallEnded(ended) if never_made => unreserve(ledger, ended.call.run.into(), &ONE_CALL),
            Body::ModelFailed(failed) | Body::SummaryFailed(failed) | Body::AsideFailed(failed) => {
                settle_failure(ledger, attempt.as_deref(), failed);
            }
            Body::ModelLate(late) => settle_late(ledger, late),
            Body::CallStarted(started) => {
                let children = Some(started.children.len() as u64).filter(|children| *children > 0);
                reserve(ledger, started.call.run.into(), Amounts { children, ..ONE_CALL });
            }
            Body::RunReopened(reopened) => raise(ledger, reopened.run.into(), reopened.increase.budget),
            Body::BudgetRaised(raised) => raise(ledger, raised.run.into(), raised.increase.budget),
            Body::CallEnded(ended) if ended.attempt > 0 => spend_call(ledger, ended.call.run.into()),
            Body::CallLost(lost) if lost.reason == RetryReason::NeverStarted => {
                settle(ledger, lost.call.run.into(), &ONE_CALL, &Amounts::default());
            }
            Body::CallLost(lost) => spend_call(ledger, lost.call.run.into()),
            Body::CallEnded(_)
            | Body::CallAdmitted(_)
            | Body::ModelWaiting(_)
            | Body::SessionOpened(_)
            | Body::SessionRevived(_)
            | Body::RunStopping(_)
            | Body::RunEnded(_)
            | Body::MessageSteered(_)
            | Body::MessageCollected(_)
            | Body::MessageDropped(_)
            | Body::RunBegun(_)
            | Body::ApprovalRequested(_)
            | Body::RunExhausted(_)
            | Body::ChildEnded(_)
            | Body::ContextCompacted(_)
            | Body::TodoChanged(_)
            | Body::QueueChanged(_)
            | Body::RunVerified(_)
            | Body::MemorySaved(_)
            | Body::ApprovalAnswered(_) => {}
        }
    }

    /// The attempt of a model call or aside that a record ends.
    fn ended_attempt(&self, body: &Body) -> Option<&Arc<ModelStarted>> {
        let title = self.turn.ended_title_attempt(body).map(|(started, _)| started);
        self.run().and_then(|run| run.ended_attempt(body)).or(title)
    }

    /// Whether a record ends a call that starts in this same draft.
    fn ends_call_started_here(&self, body: &Body) -> bool {
        if let Body::ModelFailed(failed) | Body::SummaryFailed(failed) | Body::AsideFailed(failed) = body {
            return self.is_started_here(failed.call.attempt(failed.attempt));
        }
        matches!(body, Body::CallEnded(ended) if self.is_started_here(ended.call.attempt(ended.attempt)))
    }

    /// Adds the index rows that a record changes; called after the record is folded.
    #[expect(clippy::wildcard_enum_match_arm, reason = "other kinds change no row")]
    pub(super) fn index_record(&mut self, body: &Body) {
        match body {
            Body::SessionOpened(_) | Body::QueueChanged(_) => self.index_session(),
            Body::AsideAnswered(answered)
                if answered.call.job() == Some(AsideJob::Title) && answered.unusable.is_none() =>
            {
                self.index_session();
            }
            Body::RunAccepted(accepted) => {
                if let Some(row) = self.row_of(accepted.run) {
                    self.put_run_row(row);
                }
                if let Some(id) = accepted.occurrence.clone() {
                    let row = Occurrence::ran(id, accepted.run, self.now.at);
                    self.append.index.push(IndexRow::Occurrence(row));
                }
            }
            Body::RunEnded(ended) => {
                if !mutant_enabled(Mutant::NoEndRow) {
                    self.put_run_row(self.ended_row(ended));
                }
                self.index_running();
            }
            Body::RunReopened(_) | Body::RunBegun(_) => self.index_running(),
            _ => {}
        }
    }

    /// The row of the run whose aside this record settles after its end; called before the record is folded.
    pub(super) fn row_of_settled_aside(&self, body: &Body) -> Option<RunRow> {
        self.turn.ended_title_attempt(body)?;
        let (run, (ended, at, seq)) = self.turn.title.run()?;
        let row = ended_row(self.running_row(run), ended, *at, *seq);
        Some(RunRow { asides_until: Some(self.turn.last + 1), ..row })
    }

    /// Adds the row of the session, with its title.
    fn index_session(&mut self) {
        let title = self.turn.title.title.clone();
        let row = SessionRow { title, ..SessionRow::clone(&self.turn.row) };
        self.append.index.retain(|index| !matches!(index, IndexRow::Session(_)));
        self.append.index.push(IndexRow::Session(row));
    }

    /// Replaces an earlier row of the same run in this draft.
    pub(super) fn put_run_row(&mut self, row: RunRow) {
        let same = |index: &IndexRow| matches!(index, IndexRow::Run(earlier) if earlier.id == row.id);
        self.append.index.retain(|index| !same(index));
        self.append.index.push(IndexRow::Run(Box::new(row)));
    }

    pub(super) fn index_running(&mut self) {
        if let Some(row) = self.run().map(|run| self.running_row(run)) {
            self.put_run_row(row);
        }
    }

    /// The row of a run that is under way or queued.
    pub(super) fn row_of(&self, id: RunId) -> Option<RunRow> {
        if let Some(run) = self.run().filter(|run| run.id == id) {
            return Some(self.running_row(run));
        }
        let queued = self.turn.queue.iter().find(|queued| queued.accepted.run == id)?;
        let row = self.new_row(id, queued.at, queued.seq);
        let (lane, deliver_to) = (queued.accepted.spec.lane, queued.accepted.spec.deliver_to.clone());
        let schedule = queued.accepted.occurrence.as_ref().map(|occurrence| occurrence.schedule.clone());
        Some(RunRow { parent: queued.accepted.parent, deliver_to, lane, schedule, ..row })
    }

    fn running_row(&self, run: &ActiveRun) -> RunRow {
        let (at, seq) = run.accepted;
        let started_at = Some(run.clock.started.at);
        let (state, approvals) = match run.is_parked() {
            true => (RunState::Parked, Some(self.turn.open_approvals())),
            false => (RunState::Running, None),
        };
        let counts = Some(RunCounts { iterations: run.answers, usage: run.budget.usage });
        let row = self.new_row(run.id, at, seq);
        let (lane, deliver_to) = (run.spec.lane, run.spec.deliver_to.clone());
        let (leg, parent, schedule) = (run.leg, run.parent, run.schedule.clone());
        RunRow { state, started_at, parent, leg, counts, approvals, deliver_to, lane, schedule, ..row }
    }

    fn ended_row(&self, ended: &RunEnded) -> RunRow {
        let known = self.row_before_end.as_ref().filter(|row| row.id == ended.run).cloned();
        let row = known.unwrap_or_else(|| self.new_row(ended.run, self.now.at, self.turn.last));
        ended_row(row, ended, self.now.at, self.turn.last)
    }

    fn new_row(&self, id: RunId, at: Timestamp, first: Seq) -> RunRow {
        let agent = self.turn.row.agent.clone();
        RunRow { agent, last: self.turn.last, ..RunRow::new(id, self.turn.session, at, first) }
    }
}

/// The row of a run that ends with the record at this time and sequence.
pub(super) fn ended_row(row: RunRow, ended: &RunEnded, at: Timestamp, seq: Seq) -> RunRow {
    RunRow {
        state: RunState::Ended,
        ended_at: Some(at),
        ended: Some(ended.ended.clone()),
        iterations: ended.iterations,
        usage: ended.usage,
        last: seq,
        counts: None,
        approvals: None,
        ..row
    }
}

/// Reserves for an attempt: on its run, and on the accounts of the period that it names, which are made ready for it.
fn reserve_attempt(
    ledger: &mut LedgerChange,
    started: &ModelStarted,
    periods: impl FnOnce() -> Vec<NewAccount>,
) {
    reserve(ledger, started.call.run.into(), started.reserved);
    if let Some(period) = started.period {
        // All attempts of an append start at the same time.
        ledger.period_accounts = periods();
        reserve(ledger, period, started.reserved.in_periods());
    }
}

/// Adds to the reservation on this account; an append has one for each account.
fn reserve(ledger: &mut LedgerChange, account: AccountId, amounts: Amounts) {
    match ledger.reservations.iter_mut().find(|reserve| reserve.account == account) {
        _ if mutant_enabled(Mutant::DebitLate) => {}
        Some(reserve) => reserve.amounts.add(&amounts),
        None => ledger.reservations.push(Reservation { account, amounts }),
    }
}

fn raise(ledger: &mut LedgerChange, account: AccountId, by: Amounts) {
    if !by.is_empty() {
        ledger.raises.push(LimitRaise { account, amounts: by });
    }
}

/// Takes back a reservation of this same append.
fn unreserve(ledger: &mut LedgerChange, account: AccountId, amounts: &Amounts) {
    if let Some(reserve) = ledger.reservations.iter_mut().find(|reserve| reserve.account == account) {
        reserve.amounts.reduce(amounts);
    }
    let is_left = |amounts: &Amounts| Dimension::ALL.iter().any(|of| amounts.get(*of).is_some_and(|n| n > 0));
    ledger.reservations.retain(|reserve| is_left(&reserve.amounts));
}

fn unreserve_attempt(ledger: &mut LedgerChange, attempt: Option<&ModelStarted>) {
    let Some(attempt) = attempt else { return };
    unreserve(ledger, attempt.call.run.into(), &attempt.reserved);
    if let Some(period) = attempt.period {
        unreserve(ledger, period, &attempt.reserved.in_periods());
    }
}

pub(super) fn settle(ledger: &mut LedgerChange, account: AccountId, reserved: &Amounts, spent: &Amounts) {
    match ledger.settlements.iter_mut().find(|settle| settle.account == account) {
        Some(settle) => {
            settle.reserved.add(reserved);
            settle.spent.add(spent);
        }
        None => ledger.settlements.push(Settlement {
            account,
            reserved: *reserved,
            spent: *spent,
            refund: Amounts::default(),
        }),
    }
}

fn spend_call(ledger: &mut LedgerChange, account: AccountId) {
    settle(ledger, account, &ONE_CALL, &ONE_CALL);
}

/// Settles an attempt where it was reserved: on its run, and on the period that it names.
fn settle_attempt(ledger: &mut LedgerChange, attempt: &ModelStarted, spent: &Amounts) {
    settle(ledger, attempt.call.run.into(), &attempt.reserved, spent);
    if let Some(period) = attempt.period {
        settle(ledger, period, &attempt.reserved.in_periods(), &spent.in_periods());
    }
}

fn settle_answer(ledger: &mut LedgerChange, attempt: Option<&ModelStarted>, usage: Option<Usage>) {
    let Some(attempt) = attempt else { return };
    settle_attempt(ledger, attempt, &attempt.spent(usage.as_ref()));
}

/// Books the real cost of an attempt instead of its reservation, which an earlier settlement booked.
fn settle_late(ledger: &mut LedgerChange, late: &ModelLate) {
    let accounts = [Some(late.call.run.into()), late.period].into_iter().flatten();
    ledger.settlements.extend(accounts.map(|account| Settlement {
        account,
        reserved: Amounts::default(),
        spent: late.spent(),
        refund: late.booked,
    }));
}

fn settle_failure(ledger: &mut LedgerChange, attempt: Option<&ModelStarted>, failed: &ModelFailed) {
    let Some(attempt) = attempt else { return };
    let spent =
        Amounts { iterations: attempt.reserved.iterations, ..spent_by_failure(attempt, &failed.failure) };
    settle_attempt(ledger, attempt, &spent);
}
