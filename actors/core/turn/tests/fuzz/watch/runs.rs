//! Checks how runs are accepted, stopped, exhausted, ended and reopened.

use std::sync::Arc;

use super::{Run, RunHold, State, Watch};
use crate::{
    model::{
        BudgetRaised, DropReason, FinishReason, HookedRun, Message, MessageCollected, MessageDropped,
        MessageSteered, Outcome, OutcomeCause, OutcomeDetail, QueueMode, RunAccepted, RunEnded, RunExhausted,
        RunId, RunReopened, RunStopping, RunVerified, Timestamp, Usage,
    },
    turn::{
        Turn,
        tests::fuzz::{hold, money::Held},
    },
};

impl Watch {
    pub(super) fn accepted(&mut self, accepted: &RunAccepted, at: Timestamp) -> Result<(), String> {
        let id = accepted.run;
        hold!(self.run(id).is_err(), "{id} is accepted twice");
        let queued = |run| self.runs.iter().any(|of| of.id == run && of.state == State::Queued);
        self.shown.follow_up(id, &queued);
        if accepted.queueing.is_some() {
            self.shown.said(id, id)?;
        }
        let collects = accepted.queueing.is_some_and(|queueing| queueing.mode == QueueMode::Collect);
        let until = accepted.hold.and_then(|hold| hold.until);
        hold!(collects == until.is_some(), "only a run that collects has such a time: {accepted:?}");
        let hold = accepted.hold.map(|hold| RunHold {
            until,
            accepted_at: at,
            needs_permission: hold.lane.is_some() || hold.hooks,
        });
        let interrupts = accepted.queueing.is_some_and(|queueing| queueing.mode == QueueMode::Interrupt);
        let first_queued = self.runs.iter().position(|run| run.state == State::Queued);
        let place = first_queued.filter(|_| interrupts).unwrap_or(self.runs.len());
        let is_busy = self.runs.iter().any(|run| matches!(run.state, State::Running | State::Stopping));
        let is_first = first_queued.is_none() || interrupts;
        let state = if is_first && !is_busy && hold.is_none() { State::Running } else { State::Queued };
        self.runs.iter_mut().for_each(|run| run.reopenable = false);
        let (spec, usage, held) = (Arc::clone(&accepted.spec), Usage::default(), Held::default());
        let run = Run {
            id,
            spec,
            state,
            exhausted: None,
            usage,
            made: (0, 0),
            unmade: 0,
            held,
            legs: 1,
            missed: 0,
            reopenable: false,
            hold,
        };
        self.runs.insert(place, run);
        Ok(())
    }

    pub(super) fn stopping(&mut self, stopping: &RunStopping) -> Result<(), String> {
        let run = self.running(stopping.run)?;
        hold!(run.state == State::Running, "{stopping:?} again");
        run.state = State::Stopping;
        self.family.stopping(stopping.run, &stopping.ended);
        Ok(())
    }

    pub(super) fn exhausted(&mut self, exhausted: &RunExhausted) -> Result<(), String> {
        hold!(self.asked.is_none() && self.summaries.is_idle(), "{exhausted:?} while a model is asked");
        let run = self.running(exhausted.run)?;
        hold!(run.state == State::Running, "{exhausted:?} while its run is being stopped");
        hold!(run.exhausted.is_none(), "{exhausted:?} again");
        hold!(run.made.0 > 0, "{exhausted:?} of a run without an answer");
        run.exhausted = Some(exhausted.refusal.clone());
        Ok(())
    }

    pub(super) fn ended(&mut self, ended: &RunEnded, turn: &Turn) -> Result<(), String> {
        let (asked, finish) = (self.asked.is_some() || !self.summaries.is_idle(), self.finish);
        let run = self.run(ended.run)?;
        let was = std::mem::replace(&mut run.state, State::Ended);
        hold!(was != State::Ended, "{ended:?} again");
        run.reopenable = was != State::Queued && ended.ended.outcome == Outcome::BudgetExhausted;
        hold!((run.usage, run.made.0) == (ended.usage, ended.iterations), "{run:?} ends as {ended:?}");
        if was == State::Queued {
            self.shown.forget(ended.run);
            self.begin_next();
            return Ok(());
        }
        self.looped(ended)?;
        let run = self.run(ended.run)?;
        hold!(!asked, "{ended:?} while a model is asked");
        if let (Some(refusal), State::Running) = (run.exhausted.clone(), was) {
            let in_time =
                matches!(ended.ended.cause, Some(OutcomeCause::Stop { .. } | OutcomeCause::Time { .. }));
            let as_it_began = ended.ended
                == OutcomeDetail::with_cause(Outcome::BudgetExhausted, OutcomeCause::Limit { refusal });
            hold!(in_time || as_it_began, "an exhausted run ends as {ended:?}");
        }
        self.calls.close()?;
        self.family.run_ended(ended.run)?;
        if matches!(ended.ended.cause, Some(OutcomeCause::Expectation { .. })) {
            let run = self.run(ended.run)?;
            hold!(run.missed == 2, "{ended:?} after {} checks with a miss", run.missed);
        }
        if ended.ended.outcome == Outcome::Completed {
            let (is_expected, holds) = (!self.run(ended.run)?.spec.expects.is_empty(), self.holds);
            hold!(!is_expected || holds == Some(true), "completed, and its expectations hold: {holds:?}");
            hold!(
                matches!(finish, Some(FinishReason::Stop | FinishReason::ToolCalls)),
                "completed by {finish:?}"
            );
            let (view, _) = turn.render(crate::turn::RenderCursor::default());
            let mut said = view.iter().rev().filter_map(|message| match message {
                Message::Assistant(said) if said.calls.is_empty() => Some(&said.text),
                Message::Assistant(_) | Message::System(_) | Message::User(_) | Message::Tool { .. } => None,
            });
            hold!(said.next().is_some_and(|text| !text.trim().is_empty()), "completed without a word");
            let untold = self.shown.untold(ended.run);
            hold!(untold.is_none(), "completed, and its model was not shown {untold:?}");
        }
        (self.again, self.failed) = (false, None);
        self.begin_next();
        Ok(())
    }

    /// The first queued run begins, unless a run is under way or it is held.
    fn begin_next(&mut self) {
        if self.runs.iter().any(|run| matches!(run.state, State::Running | State::Stopping)) {
            return;
        }
        let next = self.runs.iter_mut().find(|run| run.state == State::Queued);
        if let Some(next) = next.filter(|next| next.hold.is_none()) {
            next.state = State::Running;
            self.runs.iter_mut().for_each(|run| run.reopenable = false);
        }
    }

    pub(super) fn begun(&mut self, id: RunId, at: Timestamp) -> Result<(), String> {
        let is_busy = self.runs.iter().any(|run| matches!(run.state, State::Running | State::Stopping));
        hold!(!is_busy, "{id} begins while another run is under way");
        let first = self.runs.iter_mut().find(|run| run.state == State::Queued);
        let Some(run) = first.filter(|run| run.id == id) else {
            return Err(format!("{id} begins out of order"));
        };
        let Some(hold) = run.hold.take() else { return Err(format!("{id} is not held")) };
        let has_collected = hold.until.is_none_or(|until| until <= at || at < hold.accepted_at);
        hold!(has_collected, "{id} begins at {at:?}: {hold:?}");
        hold!(!hold.needs_permission || self.permitted.contains(&id), "{id} begins without permission");
        self.begin_next();
        Ok(())
    }

    /// Notes that the run may begin, unless hooks have refused it.
    pub(in crate::turn::tests::fuzz) fn permitted(&mut self, run: RunId, hooks: Option<&HookedRun>) {
        if hooks.is_none_or(|hooks| hooks.refusal_text().is_none()) {
            self.permitted.insert(run);
        }
    }

    pub(super) fn collected(&mut self, collected: &MessageCollected) -> Result<(), String> {
        let last = self.runs.iter_mut().rfind(|run| run.state == State::Queued);
        let Some(run) = last.filter(|run| run.id == collected.run) else {
            return Err(format!("{collected:?} is not of the last queued run"));
        };
        let Some(RunHold { until: Some(until), .. }) = &mut run.hold else {
            return Err(format!("{collected:?} to {run:?}"));
        };
        *until = collected.until;
        self.shown.said(collected.run, collected.message)
    }

    pub(super) fn dropped(&mut self, dropped: &MessageDropped) -> Result<(), String> {
        let DropReason::QueueFull { cap } = dropped.reason;
        hold!(self.shown.unread() >= cap as usize, "{dropped:?} while few messages wait");
        self.shown.drop_message(dropped)
    }

    pub(super) fn steered(&mut self, message: &MessageSteered) -> Result<(), String> {
        let state = self.run(message.run)?.state;
        hold!(matches!(state, State::Queued | State::Running), "{message:?} to a run that is {state:?}");
        if state == State::Running {
            self.loops.reset();
        }
        self.shown.said(message.run, message.followup_run)
    }

    pub(super) fn verified(&mut self, verified: &RunVerified) -> Result<(), String> {
        let is_asked = self.asked.is_some();
        hold!(self.holds.is_none() && !is_asked, "{verified:?} without a new answer");
        let run = self.running(verified.call.run)?;
        let may_complete = run.state == State::Running && run.exhausted.is_none();
        hold!(may_complete && !run.spec.expects.is_empty(), "{verified:?} of {run:?}");
        let holds = verified.misses.is_empty();
        run.missed += u32::from(!holds);
        if run.missed == 1 && !holds {
            self.loops.reset();
        }
        self.holds = Some(holds);
        Ok(())
    }

    pub(super) fn raised(&mut self, raised: &BudgetRaised) -> Result<(), String> {
        let run = self.run(raised.run)?;
        hold!(matches!(run.state, State::Queued | State::Running), "{raised:?} of {run:?}");
        Ok(())
    }

    pub(super) fn reopened(&mut self, reopened: &RunReopened) -> Result<(), String> {
        let is_idle = self.runs.iter().all(|run| run.state == State::Ended);
        hold!(is_idle, "{reopened:?} while another run has not ended");
        let run = self.run(reopened.run)?;
        hold!(run.reopenable && reopened.leg == run.legs + 1, "{reopened:?} of {run:?}");
        (run.state, run.legs, run.exhausted) = (State::Running, reopened.leg, None);
        Ok(())
    }
}
