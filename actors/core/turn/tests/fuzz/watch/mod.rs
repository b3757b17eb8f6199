//! Checks every record of a growing journal: a second implementation of what records mean. Each record costs the same,
//! however long the journal is.

mod attempts;
mod books;
mod descriptions;
mod flushes;
mod loops;
mod runs;
mod summaries;
mod titles;

use std::{collections::BTreeSet, sync::Arc};

use self::{
    descriptions::Descriptions,
    flushes::Flushes,
    loops::Loops,
    summaries::Summaries,
    titles::{Titles, is_for_title},
};
use super::{
    calls::Calls,
    family::Family,
    hold,
    money::{Held, Money},
    view::Shown,
};
use crate::{
    model::{
        Amounts, ApprovalAnswered, AsideJob, Attempt, AttemptId, Body, BudgetRefusal, CallId, FinishReason,
        Incarnation, LedgerChange, ModelStarted, QueueOverrides, Record, RunId, RunSpec, RunState, Seq,
        Timestamp, TodoChanged, TodoList, Usage,
    },
    turn::{DueAction, Turn},
};

#[derive(Debug, Default)]
pub(super) struct Watch {
    seq: Seq,
    incarnation: Incarnation,
    runs: Vec<Run>,
    asked: Option<ModelStarted>,
    /// The last attempt of the model call under way that has failed, and the hash of its request.
    failed: Option<(CallId, Attempt, crate::model::Hash)>,
    /// Whether the next request shows nothing new.
    again: bool,
    finish: Option<FinishReason>,
    /// Whether all expectations hold, by the check after the last answer.
    holds: Option<bool>,
    /// Attempts whose answers may still arrive, and the tokens booked for them.
    cancelled: Vec<(CallId, Attempt, Option<u64>)>,
    /// The attempts that the present append starts.
    fresh: Vec<AttemptId>,
    calls: Calls,
    summaries: Summaries,
    titles: Titles,
    descriptions: Descriptions,
    flushes: Flushes,
    loops: Loops,
    pub(super) family: Family,
    pub(super) shown: Shown,
    money: Money,
    /// The to-do list that was recorded last.
    todo: Arc<TodoList>,
    /// How messages queue, as it was recorded last.
    queue: QueueOverrides,
    rows: Vec<(RunId, RunState)>,
    /// The runs that got permission to begin.
    permitted: BTreeSet<RunId>,
}

#[derive(Debug)]
struct Run {
    id: RunId,
    spec: Arc<RunSpec>,
    state: State,
    exhausted: Option<BudgetRefusal>,
    usage: Usage,
    /// Model calls without those given up in the append that starts them, and attempts of tool calls without those that
    /// were never started.
    made: (u32, u64),
    /// Attempts of tool calls that ended in the append that starts them. No account has them.
    unmade: u64,
    held: Held,
    legs: u32,
    /// Checks with a miss.
    missed: u32,
    /// Whether it has ended because its budget was used up, and no other run has started since.
    reopenable: bool,
    hold: Option<RunHold>,
}

/// Why a queued run does not begin.
#[derive(Debug)]
struct RunHold {
    /// Until when it collects messages.
    until: Option<Timestamp>,
    accepted_at: Timestamp,
    needs_permission: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Queued,
    Running,
    Stopping,
    Ended,
}

const ONE_CALL: Amounts =
    Amounts { iterations: None, tokens: None, usd: None, tool_calls: Some(1), children: None };

impl Watch {
    /// Books an append, or says why it is refused.
    pub(super) fn post(&mut self, ledger: &LedgerChange) -> Result<Option<BudgetRefusal>, String> {
        self.money.post(ledger)
    }

    /// Checks the next record, and the state after it.
    pub(super) fn record(&mut self, record: &Record, turn: &Turn) -> Result<(), String> {
        self.seq += 1;
        match &record.body {
            Body::SessionOpened(opened) => {
                hold!(self.seq == 1, "opened again");
                self.incarnation = opened.incarnation;
            }
            Body::SessionRevived(revived) => {
                hold!(revived.incarnation > self.incarnation, "{revived:?} after {}", self.incarnation);
                self.incarnation = revived.incarnation;
            }
            Body::RunAccepted(accepted) => self.accepted(accepted, record.at)?,
            Body::RunBegun(begun) => self.begun(begun.run, record.at)?,
            Body::MessageCollected(collected) => self.collected(collected)?,
            Body::MessageDropped(dropped) => self.dropped(dropped)?,
            Body::RunStopping(stopping) => self.stopping(stopping)?,
            Body::RunEnded(ended) => self.ended(ended, turn)?,
            Body::ModelStarted(started) => self.started(started, turn)?,
            Body::ModelAnswered(answered) => self.answered(answered)?,
            Body::ModelFailed(failed) => self.failed(failed)?,
            Body::ModelWaiting(waiting) => {
                hold!(self.asked.is_none(), "{waiting:?} while {:?}", self.asked);
                self.running(waiting.call.run)?;
            }
            Body::ModelLate(late) => self.late(late)?,
            Body::CallAdmitted(admitted) => self.call_admitted(admitted)?,
            Body::CallStarted(started) => self.call_started(started)?,
            Body::CallEnded(ended) => self.call_ended(ended)?,
            Body::CallLost(lost) => self.lost(lost)?,
            Body::MessageSteered(message) => self.steered(message)?,
            Body::ApprovalRequested(request) => {
                let run = self.running(request.call.run)?;
                hold!(run.state == State::Running, "{request:?} while its run is being stopped");
                let spec = Arc::clone(&run.spec);
                self.loops.asked(request);
                self.calls.asked(request.call, request.attempt, &spec)?;
            }
            Body::ApprovalAnswered(answered) => self.approval_answered(answered)?,
            Body::RunVerified(verified) => self.verified(verified)?,
            Body::RunExhausted(exhausted) => self.exhausted(exhausted)?,
            Body::RunReopened(reopened) => self.reopened(reopened)?,
            Body::BudgetRaised(raised) => self.raised(raised)?,
            Body::ContextCompacted(_)
            | Body::SummaryStarted(_)
            | Body::SummaryAnswered(_)
            | Body::SummaryFailed(_) => self.summary(&record.body, turn)?,
            Body::MemorySaved(_) => self.flush(&record.body)?,
            Body::AsideStarted(_) | Body::AsideAnswered(_) | Body::AsideFailed(_) => {
                self.aside(&record.body, turn)?;
            }
            Body::ChildEnded(ended) => {
                self.running(ended.call.run)?;
                self.helped(ended);
                self.family.ended(ended)?;
                self.shown.told(ended.call.run, &ended.result);
            }
            Body::QueueChanged(queue) => self.queue_changed(*queue)?,
            Body::TodoChanged(changed) => self.todo_changed(changed)?,
        }
        self.agrees(turn)?;
        self.shown.check_tail(turn).map(drop)
    }

    fn queue_changed(&mut self, queue: QueueOverrides) -> Result<(), String> {
        hold!(queue != self.queue, "{queue:?} was set before");
        self.queue = queue;
        Ok(())
    }

    fn aside(&mut self, body: &Body, turn: &Turn) -> Result<(), String> {
        match job_of(body) {
            Some(AsideJob::Vision) => self.description(body),
            Some(AsideJob::Memory) => self.flush(body),
            Some(AsideJob::Title | AsideJob::Summary) | None => self.title(body, turn),
        }
    }

    fn todo_changed(&mut self, changed: &TodoChanged) -> Result<(), String> {
        self.running(changed.call.run)?;
        self.calls.changes(changed.call)?;
        self.todo = Arc::clone(&changed.items);
        Ok(())
    }

    fn approval_answered(&mut self, answered: &ApprovalAnswered) -> Result<(), String> {
        self.loops.answered(answered);
        self.calls.answered(answered.call, answered.decision)
    }

    /// Checks that the state names the same run, list and last record.
    fn agrees(&self, turn: &Turn) -> Result<(), String> {
        let current = self.runs.iter().find(|run| matches!(run.state, State::Running | State::Stopping));
        let (ours, theirs) = (current.map(|run| run.id), turn.current().map(|(run, _)| run));
        hold!(ours == theirs, "{theirs:?} is under way and not {ours:?}");
        hold!(turn.todo == self.todo, "the list is {:?} and not {:?}", turn.todo, self.todo);
        hold!(turn.last_seq() == self.seq, "the last record is {} and not {}", turn.last_seq(), self.seq);
        Ok(())
    }

    fn run(&mut self, id: RunId) -> Result<&mut Run, String> {
        self.runs.iter_mut().find(|run| run.id == id).ok_or_else(|| format!("there is no run {id}"))
    }

    fn running(&mut self, id: RunId) -> Result<&mut Run, String> {
        let run = self.run(id)?;
        hold!(matches!(run.state, State::Running | State::Stopping), "{run:?} is not under way");
        Ok(run)
    }

    /// Checks that the actions that are due have their records, and that a run under way has one.
    pub(super) fn due(&self, due: &[DueAction]) -> Result<(), String> {
        for (n, effect) in due.iter().enumerate() {
            hold!(!due[..n].contains(effect), "{effect:?} is due twice");
            self.calls.check(effect)?;
            let asked = self.asked.as_ref().map(|asked| (asked.call, asked.attempt));
            let fits = match *effect {
                DueAction::CallModel(AttemptId { call, .. }) | DueAction::Acquire(AttemptId { call, .. })
                    if call.is_summary() =>
                {
                    self.summaries.fits(effect)
                }
                DueAction::CallModel(AttemptId { call, .. }) | DueAction::Acquire(AttemptId { call, .. })
                    if call.job() == Some(AsideJob::Vision) =>
                {
                    self.descriptions.fits(effect)
                }
                DueAction::CallModel(AttemptId { call, .. }) | DueAction::Acquire(AttemptId { call, .. })
                    if call.job() == Some(AsideJob::Memory) =>
                {
                    self.flushes.fits(effect)
                }
                DueAction::SaveMemory(_) => self.flushes.fits(effect),
                DueAction::CallModel(AttemptId { call, attempt }) if call.is_aside() => {
                    self.titles.fits(call, attempt, true)
                }
                DueAction::Acquire(AttemptId { call, attempt }) if call.is_aside() => {
                    self.titles.fits(call, attempt, false)
                }
                DueAction::CallModel(AttemptId { call, attempt }) => asked == Some((call, attempt)),
                DueAction::Acquire(AttemptId { call, .. }) => call.n > 0 || asked.is_none(),
                DueAction::RunTool { .. }
                | DueAction::EndTool { .. }
                | DueAction::AwaitSubagent { .. }
                | DueAction::Begin(_)
                | DueAction::Verify(_)
                | DueAction::WakeAt(_)
                | DueAction::WakeAtActive(_) => true,
            };
            hold!(fits, "{effect:?} is due while {:?}", self.asked);
        }
        let is_idle = self.runs.iter().all(|run| run.state == State::Ended);
        let current = self.runs.iter().find(|run| matches!(run.state, State::Running | State::Stopping));
        self.family.due(due, current.map(|run| run.id))?;
        let is_fitting =
            if is_idle { due.iter().filter(|due| !is_save(due)).all(is_for_title) } else { !due.is_empty() };
        let is_fitting = is_fitting && (!is_idle || due.iter().filter(|due| !is_save(due)).count() <= 1);
        hold!(is_fitting, "a run is under way and nothing is due, or {due:?} without one");
        Ok(())
    }

    pub(super) fn leaves(&mut self, call: CallId) -> Attempt {
        self.calls.leaves(call)
    }

    pub(super) fn started_since(&self, call: CallId, since: Seq) -> bool {
        self.calls.started_since(call, since)
    }

    pub(super) const fn last(&self) -> Seq {
        self.seq
    }

    pub(super) fn runs(&self) -> usize {
        self.runs.len()
    }

    pub(super) fn ids(&self) -> Vec<RunId> {
        self.runs.iter().map(|run| run.id).collect()
    }
}

/// The job of the aside that the record is about.
#[expect(clippy::wildcard_enum_match_arm, reason = "other kinds are about no aside")]
fn job_of(body: &Body) -> Option<AsideJob> {
    let call = match body {
        Body::AsideStarted(started) => started.call,
        Body::AsideAnswered(answered) => answered.call,
        Body::AsideFailed(failed) => failed.call,
        _ => return None,
    };
    call.job()
}

const fn is_save(effect: &DueAction) -> bool {
    matches!(effect, DueAction::SaveMemory(_))
}
