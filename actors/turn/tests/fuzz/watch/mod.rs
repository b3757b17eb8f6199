//! Whoever reads a journal as it grows and minds every promise: a second opinion on what records mean. Each record costs
//! the same, however long the journal is.

mod summaries;

use std::sync::Arc;

use self::summaries::Summaries;
use super::{
    calls::Calls,
    family::{Family, ONE_CHILD},
    hold,
    money::{Held, Money},
    view::Shown,
};
use crate::{
    model::{
        Amounts, Attempt, Body, BudgetRaised, CallEnded, CallId, CallLost, CallStarted, Cause, Dimension,
        Ended, Finish, Incarnation, LateSettled, Ledger, Message, ModelAnswered, ModelFailed, ModelStarted,
        NoAllowance, Outcome, Record, RunEnded, RunExhausted, RunId, RunReopened, RunSpec, RunState,
        RunStopping, Seq, Settle, TodoList, Usage, WhyAgain,
    },
    policy::{Billing, billing},
    port::Index,
    turn::{Effect, Input, Turn, run::Phase},
};

#[derive(Debug, Default)]
pub(super) struct Watch {
    seq: Seq,
    incarnation: Incarnation,
    runs: Vec<Run>,
    asked: Option<ModelStarted>,
    /// The last attempt of the model call under way that has failed, and the hash of its request.
    failed: Option<(CallId, Attempt, crate::model::Hash)>,
    /// Whether the next question shows nothing new.
    again: bool,
    finish: Option<Finish>,
    /// Attempts whose answers may still come, and what is booked for them.
    cancelled: Vec<(CallId, Attempt, Option<u64>)>,
    /// The attempts that the append starts.
    fresh: Vec<(CallId, Attempt)>,
    calls: Calls,
    summaries: Summaries,
    pub(super) family: Family,
    pub(super) shown: Shown,
    money: Money,
    /// The list that was recorded last.
    todo: Arc<TodoList>,
    rows: Vec<(RunId, RunState)>,
}

#[derive(Debug)]
struct Run {
    id: RunId,
    spec: Arc<RunSpec>,
    state: State,
    exhausted: Option<NoAllowance>,
    usage: Usage,
    /// Model calls but for those given up in the append that starts them, and attempts of tool calls but for those that
    /// were never begun.
    made: (u32, u64),
    /// Of the attempts of tool calls, those that ended in the append that starts them, and so are in nobody's account.
    unmade: u64,
    held: Held,
    legs: u32,
    /// Whether it has ended for want of budget, and no other run has begun since.
    reopenable: bool,
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
    pub(super) fn post(&mut self, ledger: &Ledger) -> Result<Option<NoAllowance>, String> {
        self.money.post(ledger)
    }

    /// One more record, and the state that it has led to.
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
            Body::RunAccepted(accepted) => self.accepted(accepted.run, &accepted.spec)?,
            Body::RunStopping(stopping) => self.stopping(stopping)?,
            Body::RunEnded(ended) => self.ended(ended, turn)?,
            Body::ModelStarted(started) => self.started(started, turn)?,
            Body::ModelAnswered(answered) => self.answered(answered)?,
            Body::ModelFailed(failed) => self.failed(failed)?,
            Body::ModelWaiting(waiting) => {
                hold!(self.asked.is_none(), "{waiting:?} while {:?}", self.asked);
                self.running(waiting.call.run)?;
            }
            Body::LateSettled(late) => self.late(late)?,
            Body::CallAdmitted(admitted) => self.calls.admitted(admitted)?,
            Body::CallStarted(started) => self.call_started(started)?,
            Body::CallEnded(ended) => self.call_ended(ended)?,
            Body::CallLost(lost) => self.lost(lost)?,
            Body::MessageSteered(message) => {
                let state = self.run(message.run)?.state;
                hold!(
                    matches!(state, State::Queued | State::Running),
                    "{message:?} to a run that is {state:?}"
                );
                self.shown.said(message)?;
            }
            Body::ApprovalRequested(request) => {
                let run = self.running(request.call.run)?;
                hold!(run.state == State::Running, "{request:?} while its run is being stopped");
                let spec = Arc::clone(&run.spec);
                self.calls.asked(request.call, request.attempt, &spec)?;
            }
            Body::ApprovalAnswered(answered) => self.calls.answered(answered.call, answered.verdict)?,
            Body::RunExhausted(exhausted) => self.exhausted(exhausted)?,
            Body::RunReopened(reopened) => self.reopened(reopened)?,
            Body::BudgetRaised(raised) => self.raised(raised)?,
            Body::ContextCompacted(_)
            | Body::SummaryStarted(_)
            | Body::SummaryAnswered(_)
            | Body::SummaryFailed(_) => self.summary(&record.body, turn)?,
            Body::ChildEnded(ended) => {
                self.running(ended.call.run)?;
                self.family.ended(ended)?;
                self.shown.told(ended.call.run, &ended.told);
            }
            Body::TodoChanged(changed) => {
                self.running(changed.call.run)?;
                self.calls.changes(changed.call)?;
                self.todo = Arc::clone(&changed.items);
            }
        }
        self.agrees(turn)?;
        self.shown.check_tail(turn).map(drop)
    }

    /// The state speaks of the same run.
    fn agrees(&self, turn: &Turn) -> Result<(), String> {
        let current = self.runs.iter().find(|run| matches!(run.state, State::Running | State::Stopping));
        let (ours, theirs) = (current.map(|run| run.id), turn.current().map(|(run, _)| run));
        hold!(ours == theirs, "{theirs:?} is under way and not {ours:?}");
        hold!(turn.todo == self.todo, "the list is {:?} and not {:?}", turn.todo, self.todo);
        hold!(turn.last() == self.seq, "the last record is {} and not {}", turn.last(), self.seq);
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

    fn accepted(&mut self, id: RunId, spec: &Arc<RunSpec>) -> Result<(), String> {
        hold!(self.run(id).is_err(), "{id} is accepted twice");
        let is_idle = self.runs.iter().all(|run| run.state == State::Ended);
        let state = if is_idle { State::Running } else { State::Queued };
        if is_idle {
            self.runs.iter_mut().for_each(|run| run.reopenable = false);
        }
        let (spec, usage, held) = (Arc::clone(spec), Usage::default(), Held::default());
        self.runs.push(Run {
            id,
            spec,
            state,
            exhausted: None,
            usage,
            made: (0, 0),
            unmade: 0,
            held,
            legs: 1,
            reopenable: false,
        });
        Ok(())
    }

    fn stopping(&mut self, stopping: &RunStopping) -> Result<(), String> {
        let run = self.running(stopping.run)?;
        hold!(run.state == State::Running, "{stopping:?} again");
        run.state = State::Stopping;
        self.family.stopping(stopping.run, &stopping.ended);
        Ok(())
    }

    fn call_ended(&mut self, ended: &CallEnded) -> Result<(), String> {
        if self.calls.ended(ended)? {
            let is_unmade = self.fresh.contains(&(ended.call, ended.attempt));
            let run = self.running(ended.call.run)?;
            run.held.give_back(&ONE_CALL);
            run.unmade += u64::from(is_unmade);
        }
        self.family.call_ended(ended)
    }

    /// A subagent of a run gives its place back.
    pub(super) fn child_left(&mut self, run: RunId) -> Result<(), String> {
        let settle = Settle {
            account: run.into(),
            reserved: ONE_CHILD,
            spent: Amounts::default(),
            refund: Amounts::default(),
        };
        self.money.post(&Ledger { settle: vec![settle], ..Ledger::default() })?;
        self.running(run)?.held.give_back(&ONE_CHILD);
        Ok(())
    }

    fn exhausted(&mut self, exhausted: &RunExhausted) -> Result<(), String> {
        hold!(self.asked.is_none() && self.summaries.is_idle(), "{exhausted:?} while a model is asked");
        let run = self.running(exhausted.run)?;
        hold!(run.state == State::Running, "{exhausted:?} while its run is being stopped");
        hold!(run.exhausted.is_none(), "{exhausted:?} again");
        hold!(run.made.0 > 0, "{exhausted:?} of a run without an answer");
        run.exhausted = Some(exhausted.refusal.clone());
        Ok(())
    }

    fn ended(&mut self, ended: &RunEnded, turn: &Turn) -> Result<(), String> {
        let (asked, finish) = (self.asked.is_some() || !self.summaries.is_idle(), self.finish);
        let run = self.run(ended.run)?;
        let was = std::mem::replace(&mut run.state, State::Ended);
        hold!(was != State::Ended, "{ended:?} again");
        run.reopenable = was != State::Queued && ended.ended.outcome == Outcome::BudgetExhausted;
        hold!((run.usage, run.made.0) == (ended.usage, ended.iterations), "{run:?} ends as {ended:?}");
        if was == State::Queued {
            self.shown.forget(ended.run);
            return Ok(());
        }
        hold!(!asked, "{ended:?} while a model is asked");
        if let (Some(refusal), State::Running) = (run.exhausted.clone(), was) {
            let in_time = matches!(ended.ended.cause, Some(Cause::Stop { .. } | Cause::Time { .. }));
            let as_it_began =
                ended.ended == Ended::because(Outcome::BudgetExhausted, Cause::Limit { refusal });
            hold!(in_time || as_it_began, "an exhausted run ends as {ended:?}");
        }
        self.calls.close()?;
        self.family.run_ended(ended.run)?;
        if ended.ended.outcome == Outcome::Completed {
            hold!(matches!(finish, Some(Finish::Stop | Finish::ToolCalls)), "completed by {finish:?}");
            let (view, _) = turn.render(crate::turn::Cursor::default());
            let mut said = view.iter().rev().filter_map(|message| match message {
                Message::Assistant(said) if said.calls.is_empty() => Some(&said.text),
                Message::Assistant(_) | Message::System(_) | Message::User(_) | Message::Tool { .. } => None,
            });
            hold!(said.next().is_some_and(|text| !text.trim().is_empty()), "completed without a word");
            let untold = self.shown.untold(ended.run);
            hold!(untold.is_none(), "completed, and its model was not shown {untold:?}");
        }
        (self.again, self.failed) = (false, None);
        if let Some(next) = self.runs.iter_mut().find(|run| run.state == State::Queued) {
            next.state = State::Running;
            self.runs.iter_mut().for_each(|run| run.reopenable = false);
        }
        Ok(())
    }

    fn raised(&mut self, raised: &BudgetRaised) -> Result<(), String> {
        let run = self.run(raised.run)?;
        hold!(matches!(run.state, State::Queued | State::Running), "{raised:?} of {run:?}");
        Ok(())
    }

    fn reopened(&mut self, reopened: &RunReopened) -> Result<(), String> {
        let is_idle = self.runs.iter().all(|run| run.state == State::Ended);
        hold!(is_idle, "{reopened:?} while another run has not ended");
        let run = self.run(reopened.run)?;
        hold!(run.reopenable && reopened.leg == run.legs + 1, "{reopened:?} of {run:?}");
        (run.state, run.legs, run.exhausted) = (State::Running, reopened.leg, None);
        Ok(())
    }

    fn started(&mut self, started: &ModelStarted, turn: &Turn) -> Result<(), String> {
        hold!(self.asked.is_none(), "{started:?} while {:?}", self.asked);
        hold!(started.view + 1 == self.seq, "{started:?} is record {}", self.seq);
        hold!(started.incarnation == self.incarnation, "{started:?} in {}", self.incarnation);
        let run = self.running(started.call.run)?;
        hold!(run.state == State::Running, "{started:?} while its run is being stopped");
        hold!(run.spec.chain.contains(&started.model), "{started:?} asks nobody of {:?}", run.spec.chain);
        run.held.reserve(&started.reserved);
        let is_grace = run.exhausted.is_some();
        run.made.0 += u32::from(started.attempt == 1 && !is_grace);
        hold!(started.reserved.iterations.is_none() || !is_grace, "{started:?} costs an iteration");
        hold!(started.reserved.tokens > Some(started.max_tokens), "{started:?} reserves too little");
        self.fresh.push((started.call, started.attempt));
        let failed = self.failed.take().filter(|(call, ..)| *call == started.call);
        if let Some((_, attempt, request)) = failed {
            hold!(started.attempt == attempt + 1, "{started:?} after attempt {attempt}");
            let changed = self.summaries.changed;
            hold!(changed || started.request == request, "a retry has another request");
        } else {
            hold!(started.attempt == 1, "{started:?} is the first attempt");
        }
        let changed = std::mem::take(&mut self.summaries.changed);
        let is_repeated = failed.is_some() || self.again;
        if is_repeated && !changed {
            self.shown.asked_again(turn, started)?;
        } else {
            let later = |id| {
                is_repeated
                    || self.runs.iter().any(|run| {
                        run.id == id
                            && (run.state == State::Queued || is_grace && run.state == State::Running)
                    })
            };
            self.shown.asked(turn, later)?;
        }
        if failed.is_none() || changed {
            self.shown.note_postscript(turn);
        }
        self.asked = Some(started.clone());
        Ok(())
    }

    fn call_started(&mut self, started: &CallStarted) -> Result<(), String> {
        hold!(started.incarnation == self.incarnation, "{started:?} in {}", self.incarnation);
        let waits = self.shown.waits(started.call.run);
        self.calls.started(started, self.seq, waits)?;
        let run = self.running(started.call.run)?;
        hold!(run.state == State::Running, "{started:?} while its run is being stopped");
        hold!(run.exhausted.is_none(), "{started:?} while its run is exhausted");
        let children = u64::try_from(started.children.len()).ok();
        run.held.reserve(&Amounts { children, ..ONE_CALL });
        run.made.1 += 1;
        let spec = Arc::clone(&run.spec);
        self.fresh.push((started.call, started.attempt));
        self.family.started(started, &spec)
    }

    /// Takes the attempt under way, if it is this one.
    fn take(&mut self, call: CallId, attempt: Attempt) -> Result<ModelStarted, String> {
        let asked = self.asked.take_if(|asked| (asked.call, asked.attempt) == (call, attempt));
        let asked =
            asked.ok_or_else(|| format!("{call} attempt {attempt} is not under way: {:?}", self.asked))?;
        self.running(call.run)?.held.give_back(&asked.reserved);
        Ok(asked)
    }

    fn answered(&mut self, answered: &ModelAnswered) -> Result<(), String> {
        let asked = self.take(answered.call, answered.attempt)?;
        (self.again, self.finish, self.failed) = (answered.is_asked_again(), Some(answered.finish), None);
        self.running(answered.call.run)?;
        if let Some(usage) = &answered.usage {
            self.used(answered.call.run, usage, &asked)?;
        }
        if !self.again {
            self.calls.proposed(answered.call, &answered.message);
            self.family.asked(answered.call, &answered.message);
        }
        Ok(())
    }

    fn failed(&mut self, failed: &ModelFailed) -> Result<(), String> {
        let asked = self.take(failed.call, failed.attempt)?;
        if self.fresh.contains(&(failed.call, failed.attempt)) {
            let iterations = asked.reserved.iterations.and_then(|one| u32::try_from(one).ok());
            self.running(failed.call.run)?.made.0 -= iterations.unwrap_or(0);
        }
        self.failed = Some((failed.call, failed.attempt, asked.request));
        if billing(&failed.failure.class) == Billing::Everything {
            self.may_be_late(failed.call, failed.attempt, asked.reserved.tokens);
        }
        Ok(())
    }

    fn late(&mut self, late: &LateSettled) -> Result<(), String> {
        let at = self.cancelled.iter().position(|(call, attempt, tokens)| {
            (*call, *attempt, *tokens) == (late.call, late.attempt, late.booked.get(Dimension::Tokens))
        });
        let Some(at) = at else { return Err(format!("{late:?} out of nowhere, or again")) };
        self.cancelled.remove(at);
        let run = self.run(late.call.run)?;
        run.held.excess += late.usage.total().saturating_sub(late.booked.tokens.unwrap_or(0));
        // Of a run that has ended nobody asks, unless it goes on.
        run.usage.add(&late.usage);
        Ok(())
    }

    /// What late answers have cost is booked.
    pub(super) fn is_settled(&self, inputs: &[Input]) -> Result<(), String> {
        for input in inputs {
            let Input::Answered { started, answer, .. } = input else { continue };
            let own = |(call, attempt, _): &(CallId, Attempt, _)| {
                (*call, *attempt) == (started.call, started.attempt)
            };
            hold!(
                answer.usage.is_none() || !self.cancelled.iter().any(own),
                "nobody books the late {answer:?}"
            );
        }
        Ok(())
    }

    fn lost(&mut self, lost: &CallLost) -> Result<(), String> {
        let run = self.running(lost.call.run)?;
        run.held.give_back(&ONE_CALL);
        run.made.1 -= u64::from(lost.why == WhyAgain::NeverBegun);
        let spec = Arc::clone(&run.spec);
        self.calls.lost(lost, &spec)
    }

    /// An append is taken in as a whole: accounts and rows say the same as its records.
    pub(super) fn appended(
        &mut self,
        (ledger, index): (&Ledger, &[Index]),
        turn: &Turn,
    ) -> Result<(), String> {
        for row in index {
            let Index::Run(row) = row else { continue };
            match self.rows.iter_mut().find(|(id, _)| *id == row.id) {
                Some((_, state)) => *state = row.state,
                None => self.rows.push((row.id, row.state)),
            }
        }
        self.fresh.clear();
        for run in &self.runs {
            let is_touched = ledger.settle.iter().any(|settle| settle.account == run.id.into())
                || ledger.reserve.iter().any(|reserve| reserve.account == run.id.into());
            if is_touched || run.state != State::Ended {
                self.money.check(run.id, &run.held)?;
                self.check_row(run, turn)?;
            }
            if run.state == State::Running {
                let booked = (run.made.0.into(), run.made.1 - run.unmade);
                self.money.check_counts(run.id, booked)?;
            }
        }
        if let Phase::Running(run) = &turn.phase {
            let (folded, booked) = (run.spent.tokens.unwrap_or(0), self.money.tokens(run.id));
            let booked = booked - self.family.spent(run.id);
            hold!(
                folded == booked,
                "{} has spent {folded} tokens by its records, {booked} by its account",
                run.id
            );
        }
        Ok(())
    }

    fn check_row(&self, run: &Run, turn: &Turn) -> Result<(), String> {
        let row = self.rows.iter().find(|(id, _)| *id == run.id).map(|(_, state)| *state);
        let expected = match run.state {
            State::Queued => RunState::Queued,
            State::Running | State::Stopping if turn.parked() == Some(run.id) => RunState::Parked,
            State::Running | State::Stopping => RunState::Running,
            State::Ended => RunState::Ended,
        };
        hold!(row == Some(expected), "the row of {} says {row:?} and not {expected:?}", run.id);
        Ok(())
    }

    /// What is due stands in the journal, and a run under way has something due.
    pub(super) fn due(&self, due: &[Effect]) -> Result<(), String> {
        for (n, effect) in due.iter().enumerate() {
            hold!(!due[..n].contains(effect), "{effect:?} is due twice");
            self.calls.check(effect)?;
            let asked = self.asked.as_ref().map(|asked| (asked.call, asked.attempt));
            let fits = match *effect {
                Effect::Ask { call, .. } | Effect::Seek { call, .. } if call.is_summary() => {
                    self.summaries.fits(effect)
                }
                Effect::Ask { call, attempt } => asked == Some((call, attempt)),
                Effect::Seek { call, .. } => call.n > 0 || asked.is_none(),
                Effect::Run { .. }
                | Effect::End { .. }
                | Effect::Await { .. }
                | Effect::WakeAt(_)
                | Effect::WakeAtActive(_) => true,
            };
            hold!(fits, "{effect:?} is due while {:?}", self.asked);
        }
        let is_idle = self.runs.iter().all(|run| run.state == State::Ended);
        let current = self.runs.iter().find(|run| matches!(run.state, State::Running | State::Stopping));
        self.family.due(due, current.map(|run| run.id))?;
        hold!(is_idle == due.is_empty(), "a run is under way and nothing is due, or {due:?} without one");
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

    /// All is over: every run has its end, and nothing is reserved.
    pub(super) fn over(&self, turn: &Turn) -> Result<(), String> {
        for run in &self.runs {
            hold!(run.state == State::Ended, "{run:?} has no end");
            self.money.check(run.id, &Held { reserved: Amounts::default(), ..run.held })?;
            self.check_row(run, turn)?;
        }
        self.shown.check_all(turn)
    }
}
