//! Ends tool calls, and ends runs: with a final answer, by a stop, or by a limit of time. A run with open calls or live
//! subagents is stopped first, and ends with the last of them. The end of a budget is in `grace_call.rs`.

use std::sync::Arc;

use crate::{
    model::{
        AttemptId, Body, CallEnd, CallEnded, CallId, Failure, FailureClass, ModelFailed, Outcome,
        OutcomeCause, OutcomeDetail, RunEnded, RunId, RunStopping, StopReason,
    },
    turn::{
        active_run::ActiveRun,
        decision::DecisionBuilder,
        tool_calls::{ActiveToolCall, ToolCallState},
    },
};

impl DecisionBuilder {
    /// Records the end of a tool call and of its duplicates. With the last open call a run that is being stopped ends
    /// too.
    ///
    /// The last call of an answer notes the repetition that its step is. The run ends with it only after the whole
    /// input is decided (`end_if_looping`).
    pub(super) fn end_call(&mut self, id: AttemptId, end: CallEnd) {
        let AttemptId { call, attempt } = id;
        let is_same =
            |other: &&ActiveToolCall| matches!(other.state, ToolCallState::SameAs(n) if n == call.n);
        let run = self.run();
        let same: Vec<CallId> =
            run.map_or(&[][..], ActiveRun::tool_calls).iter().filter(is_same).map(|call| call.id).collect();
        for same in same {
            self.record(Body::CallEnded(CallEnded::new(same, 0, end.clone())));
        }
        let ended = CallEnded::new(call, attempt, end);
        let repetition = self.run().and_then(|run| run.repetition_with(&ended, self.now));
        self.record(Body::CallEnded(CallEnded { repetition, ..ended }));
        self.end_if_stopped();
    }

    /// Ends the run if its last answer has repeated earlier ones too often.
    pub(super) fn end_if_looping(&mut self) {
        if let Some(repetition) = self.run().and_then(|run| run.loop_guard.final_repetition()).cloned() {
            let cause = OutcomeCause::Repetition { repetition };
            self.wind_down(OutcomeDetail::with_cause(Outcome::LoopDetected, cause));
        }
    }

    pub(super) fn stop(&mut self, run: Option<RunId>, reason: StopReason) {
        let current = self.run().map(|run| run.id);
        let Some(id) = run.or(current) else { return };
        let ended = OutcomeDetail::with_cause(Outcome::Stopped, OutcomeCause::Stop { reason });
        if current == Some(id) {
            self.wind_down(ended);
        } else if self.turn.queued(id).is_some() {
            self.end_queued(id, reason);
        }
    }

    pub(super) fn on_timer(&mut self) {
        self.expire_approvals();
        // The last expired call may be a repetition that ends the run, which then has reached no other limit.
        self.end_if_looping();
        let Some(run) = self.run().filter(|run| run.planned_end.is_none()) else { return };
        let reached = run.time_limits(self.now).find(|(end, ..)| *end <= self.now.active_ms);
        if let Some((_, limit_ms, outcome)) = reached {
            self.wind_down(OutcomeDetail::with_cause(outcome, OutcomeCause::Time { limit_ms }));
        } else if let Some((_, limit_ms)) =
            run.no_progress_deadline(self.now).filter(|(end, _)| *end <= self.now.active_ms)
        {
            self.wind_down(OutcomeDetail::with_cause(
                Outcome::TimedOut,
                OutcomeCause::NoProgress { limit_ms },
            ));
        }
    }

    /// Stops the run: nothing further starts, and started calls and live subagents are awaited. If there are none, the
    /// run ends at once.
    pub(super) fn wind_down(&mut self, ended: OutcomeDetail) {
        let Some(run) = self.run() else { return };
        if run.planned_end.is_some() {
            return;
        }
        self.cancel_asides();
        let Some(run) = self.run() else { return };
        let id = run.id;
        let unstarted: Vec<_> = run.unstarted_calls().collect();
        let model_attempt = run.model_started().map(|started| started.id());
        // Tool calls that start in this same draft were not executed, and will not be.
        let is_here = |call: &&ActiveToolCall| {
            call.started().is_some_and(|started| self.is_started_here(started.id())) && !call.delegates()
        };
        let revoked: Vec<_> = run.tool_calls().iter().filter(is_here).map(|call| call.id).collect();
        let parked = run.parked_tool_calls();
        let is_at_rest = run.running_tool_calls() == 0 && !run.subagents.has_live();
        if is_at_rest && unstarted.is_empty() && parked.is_empty() && model_attempt.is_none() {
            return self.end_run(ended);
        }
        self.record(Body::RunStopping(RunStopping { run: id, ended: ended.clone() }));
        self.stop_subagents();
        if let Some(id) = model_attempt {
            let failure = self.cancelled_failure(id, "the run was stopped");
            self.record(Body::ModelFailed(ModelFailed::new(id, failure, None)));
        }
        for call in unstarted.into_iter().chain(revoked) {
            let end = CallEnd::not_started(&format!("the run ends: {ended}"));
            self.end_call(call.attempt(self.started_attempt(call)), end);
        }
        for parked in parked {
            self.end_parked(&parked, None, &format!("the run ends: {ended}"));
        }
        self.end_if_stopped();
    }

    /// The failure of a model attempt that is not needed any more. An attempt that starts in this same draft was never
    /// sent and costs nothing.
    pub(super) fn cancelled_failure(&self, id: AttemptId, why: &str) -> Failure {
        let is_here = self.is_started_here(id);
        Failure::new(if is_here { FailureClass::NotSent } else { FailureClass::Cancelled }, why)
    }

    /// Ends a run that is being stopped, once all its calls and subagents have ended.
    pub(super) fn end_if_stopped(&mut self) {
        let Some(run) = self.run() else { return };
        let has_open = run.tool_calls().iter().any(|call| !matches!(call.state, ToolCallState::Ended(_)));
        if let (Some(ended), false) = (&run.planned_end, has_open || run.subagents.has_live()) {
            let ended = ended.clone();
            self.end_run(ended);
        }
    }

    /// Writes the terminal record of the run under way, or stops the run first if subagents are live.
    pub(super) fn end_run(&mut self, ended: OutcomeDetail) {
        if self.run().is_some_and(|run| run.subagents.has_live()) {
            return self.wind_down(ended);
        }
        self.cancel_asides();
        if let Some(run) = self.run() {
            let (id, spec) = (run.id, Arc::clone(&run.spec));
            let (iterations, usage) = (run.iterations(), run.budget.usage);
            self.record(Body::RunEnded(RunEnded { run: id, ended: ended.clone(), iterations, usage }));
            self.follow_up(&spec, &ended);
        }
    }

    /// The started attempt of a tool call; 0 if none was started.
    fn started_attempt(&self, call: CallId) -> u32 {
        match self.call(call).map(|call| &call.state) {
            Some(ToolCallState::Started(started, _)) => started.attempt,
            Some(ToolCallState::Parked(parked)) => parked.request.attempt,
            Some(_) | None => 0,
        }
    }

    /// Whether this attempt starts in this same draft, so that it certainly had no effect.
    pub(super) fn is_started_here(&self, id: AttemptId) -> bool {
        self.append.records.iter().any(|record| record.body.started_attempt() == Some(id))
    }
}
