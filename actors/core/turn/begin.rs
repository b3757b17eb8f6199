//! Decides when accepted runs begin: what a run waits for is recorded with its acceptance, and `run.begun` ends the wait.
//! `run_queue.rs` has the runs that have not begun.

use std::sync::Arc;

use crate::{
    model::{
        Body, HookedRun, Outcome, OutcomeCause, OutcomeDetail, RunAccepted, RunBegun, RunEnded, RunId,
        StopReason, Timestamp, Usage,
    },
    turn::decision::DecisionBuilder,
};

impl DecisionBuilder {
    /// Records the acceptance of a run, with what it waits for. `until`: the end of the time in which it collects
    /// messages.
    pub(super) fn accept_run(&mut self, accepted: RunAccepted, until: Option<Timestamp>) {
        let hold = self.turn.begin_rules.hold(accepted.spec.lane, until);
        self.record(Body::RunAccepted(Box::new(RunAccepted { hold, ..accepted })));
    }

    /// Begins the run that its hold keeps from beginning, if that needs no permission and its time is over.
    pub(super) fn begin_held_run(&mut self) {
        if let Some((front, hold)) = self.turn.collected_front(self.now.at)
            && !hold.needs_permission()
        {
            let run = front.accepted.run;
            self.record(Body::RunBegun(RunBegun { run, hooks: None }));
        }
    }

    /// Begins the held run, unless it is not next any more, collects again, or is refused by a hook.
    pub(super) fn on_may_begin(&mut self, run: RunId, hooks: Option<&Arc<HookedRun>>) {
        let front = self.turn.collected_front(self.now.at);
        if front.is_none_or(|(front, _)| front.accepted.run != run) {
            return;
        }
        match hooks.and_then(|hooks| hooks.refusal_text()) {
            Some(refusal) => {
                self.record_unbegun_end(run, Outcome::Refused, OutcomeCause::Hook { refusal });
            }
            None => self.record(Body::RunBegun(RunBegun { run, hooks: hooks.cloned() })),
        }
    }

    pub(super) fn end_queued(&mut self, run: RunId, reason: StopReason) {
        self.record_unbegun_end(run, Outcome::Stopped, OutcomeCause::Stop { reason });
    }

    fn record_unbegun_end(&mut self, run: RunId, outcome: Outcome, cause: OutcomeCause) {
        let ended = OutcomeDetail::with_cause(outcome, cause);
        self.record(Body::RunEnded(RunEnded { run, ended, iterations: 0, usage: Usage::default() }));
    }
}
