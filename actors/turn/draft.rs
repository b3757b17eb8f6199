//! A decision in the making: inputs go in, records come out, and each is folded into a private copy of the state, so
//! that the next input meets what the one before has decided.

use std::sync::Arc;

use crate::{
    model::{
        Body, CallEnd, CallEnded, CallId, CallStarted, CallStatus, Cause, Dimension, Ended, Failure,
        FailureClass, Incarnation, Ledger, ModelFailed, NoAllowance, Now, Outcome, Record, RunAccepted,
        RunEnded, RunId, RunRow, RunStopping, SessionId, SessionOpened, StopReason, Usage,
    },
    mutation::{Mutation, planted},
    policy::Candidate,
    port::{Founded, InboxItem, Index},
    turn::{
        Effect, Input, Turn, Want,
        grace::Refused,
        run::{Call, CallState, Phase, Run, Step},
    },
};

/// What was decided: everything that belongs into one append.
#[derive(Debug, Default)]
pub(crate) struct Decision {
    /// Who writes them.
    pub(crate) fence: Incarnation,
    /// The records.
    pub(crate) records: Vec<Arc<Record>>,
    /// What they do to accounts.
    pub(crate) ledger: Ledger,
    /// The index rows they write.
    pub(crate) index: Vec<Index>,
    /// The idempotency key they bring.
    pub(crate) key: Option<(Arc<str>, RunId)>,
    /// The rows of the inbox that they take in.
    pub(crate) take: Vec<u64>,
    /// What others find in their inboxes.
    pub(crate) send: Vec<(SessionId, InboxItem)>,
    /// The sessions that begin with them.
    pub(crate) found: Vec<Founded>,
}

impl Decision {
    /// Whether there is nothing to write.
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty() && self.take.is_empty()
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(super) turn: Turn,
    pub(super) now: Now,
    pub(super) decision: Decision,
    /// What did not fit when this was decided before.
    pub(super) refused: Option<Refused>,
    /// The row of the run whose terminal record is being written, as it was before.
    pub(super) before_end: Option<RunRow>,
}

impl Draft {
    pub(super) fn new(turn: Turn, now: Now) -> Self {
        Self { turn, now, decision: Decision::default(), refused: None, before_end: None }
    }

    /// Decides what one more input means.
    pub(crate) fn feed(&mut self, input: &Input) {
        if self.heard_of_summary(input) {
            return self.compress();
        }
        match input {
            Input::Opened { key, prompt, incarnation, boot } => {
                self.push(Body::SessionOpened(SessionOpened {
                    key: Arc::clone(key),
                    prompt: Arc::clone(prompt),
                    incarnation: *incarnation,
                    boot: boot.clone(),
                }));
            }
            Input::Revived { incarnation, boot } => self.revive(*incarnation, boot),
            // Said again, because the session died before it could answer.
            Input::Submitted { run, .. } if self.turn.accepted.contains(run) => {}
            Input::Submitted { run, input, images, history, spec, key } => {
                if let Some(key) = key {
                    self.decision.key = Some((Arc::clone(key), *run));
                }
                self.push(Body::RunAccepted(Box::new(RunAccepted {
                    run: *run,
                    input: Arc::clone(input),
                    images: Arc::clone(images),
                    history: Arc::clone(history),
                    spec: Arc::clone(spec),
                    parent: None,
                })));
            }
            Input::Leased { call, attempt, model } => self.ask(*call, *attempt, model),
            Input::NoLease { call, attempt, skipped } => self.no_lease((*call, *attempt), skipped),
            Input::Permitted { call, attempt } => self.start(*call, *attempt),
            Input::Answered { started, answer, plans } => self.answered(started, answer, plans),
            Input::ModelFailed { call, attempt, failure, outlook } => {
                self.model_failed((*call, *attempt), failure, outlook);
            }
            Input::ToolEnded { call, attempt, end } => {
                if self.is_started(*call, *attempt) {
                    self.end_call(*call, *attempt, end.clone());
                }
            }
            Input::Lost { call, attempt } if call.asks_model() => self.asking_lost((*call, *attempt)),
            Input::Lost { call, attempt } => self.tool_lost(*call, *attempt),
            Input::NeverBegun { call, attempt } if call.asks_model() => self.never_asked((*call, *attempt)),
            Input::NeverBegun { call, attempt } => self.never_begun(*call, *attempt),
            Input::Decided { call, verdict } => self.decided(*call, *verdict),
            Input::Stop { run, reason } => self.stop(*run, *reason),
            Input::Steer { run, text, next } => self.steer(*run, text, *next),
            Input::Raise { run, by } => self.raise(*run, by),
            Input::ChildEnded(ended) => self.hear_end(ended),
            Input::FromInbox { row, says } => {
                self.decision.take.push(*row);
                self.feed(says);
            }
            Input::Nothing => {}
            Input::Woke => self.check_time(),
            Input::Refused(refusal) => self.refuse(refusal),
        }
        self.keep_todo();
        self.delegate(input);
        self.compress();
    }

    fn refuse(&mut self, refusal: &NoAllowance) {
        let run = self.run().map(|run| run.id);
        self.refused = Some(Refused { refusal: refusal.clone(), run });
    }

    /// Whether this is a submission with a history for a session that has one of its own.
    pub(crate) fn refuses(&self, input: &Input) -> bool {
        let Input::Submitted { run, history, .. } = input else { return false };
        !history.is_empty() && !self.turn.accepted.is_empty() && !self.turn.accepted.contains(run)
    }

    /// What would let it go on at once.
    pub(crate) fn wants(&self) -> Vec<Want> {
        if self.refused.is_some() {
            return Vec::new();
        }
        let due = self.turn.due(self.now);
        let wants = due.iter().filter_map(Effect::sought).filter_map(|(call, attempt)| {
            if call.asks_model() {
                Some(Want::Lease { call, attempt })
            } else if self.call(call).is_some_and(Call::delegates) {
                None
            } else {
                Some(Want::Permit { call, attempt })
            }
        });
        wants.collect()
    }

    /// Which attempts would be in flight if this became durable.
    pub(crate) fn due(&self) -> Vec<Effect> {
        self.turn.due(self.now)
    }

    /// All that was decided.
    pub(crate) fn finish(mut self) -> Decision {
        let ends = self.refused_dimension().is_some() && !self.has_raised();
        if let Some(refused) = self.refused.take() {
            // What was heard meanwhile may have let the view change.
            self.compress();
            if ends {
                self.end_for_want_of(&refused);
            }
        }
        self.decision.fence = self.turn.incarnation;
        self.decision
    }

    /// Writes a record into the draft.
    pub(super) fn push(&mut self, body: Body) {
        self.push_measured(body, |_, _| {});
    }

    /// Writes a record that says how large the state is behind it: no fold looks at what `measure` changes.
    pub(super) fn push_measured(&mut self, body: Body, measure: impl FnOnce(&Turn, &mut Body)) {
        if let Body::RunEnded(ended) = &body {
            self.before_end = self.row_of(ended.run);
            self.list_news(ended.run);
        }
        let mut record = Record { at: self.now.at, active_ms: self.now.active_ms, body };
        self.account(&record.body);
        let was_parked = self.run().is_some_and(Run::is_parked);
        self.turn.fold(&record);
        measure(&self.turn, &mut record.body);
        self.list(&record.body);
        if was_parked != self.run().is_some_and(Run::is_parked) {
            self.list_running();
        }
        if !(planted(Mutation::NoEnd) && matches!(record.body, Body::RunEnded(_))) {
            self.decision.records.push(Arc::new(record));
        }
    }

    pub(super) const fn run(&self) -> Option<&Run> {
        match &self.turn.phase {
            Phase::Running(run) => Some(run),
            Phase::Idle => None,
        }
    }

    pub(super) fn call(&self, id: CallId) -> Option<&Call> {
        self.run()?.calls().iter().find(|call| call.id == id)
    }

    /// The arguments of a call as the model wrote them.
    pub(super) fn arguments(&self, id: CallId) -> &str {
        let Some(Step::Acting(acting)) = self.run().map(|run| &run.step) else { return "" };
        let asked = usize::try_from(id.n).ok().and_then(|n| acting.answer.calls.get(n.checked_sub(1)?));
        asked.map_or("", |call| call.arguments.as_str())
    }

    fn is_started(&self, call: CallId, attempt: u32) -> bool {
        self.call(call).is_some_and(
            |call| matches!(&call.state, CallState::Started(started, _) if started.attempt == attempt),
        )
    }

    /// The models that this call may still ask.
    pub(crate) fn candidates_of(&self, call: CallId) -> Option<Vec<Candidate>> {
        self.turn.candidates_of(call)
    }

    /// Whether the run under way may start anything.
    pub(super) fn may_start(&self) -> bool {
        self.refused.is_none() && self.run().is_some_and(|run| run.stopping.is_none())
    }

    /// In which dimension a reservation was refused that the run cannot go on without. Of `children` its model is told.
    pub(super) fn refused_dimension(&self) -> Option<Dimension> {
        let refused = self.refused.as_ref().map(|refused| refused.refusal.dimension);
        refused.filter(|dimension| *dimension != Dimension::Children)
    }

    /// The attempt of a tool call that was started, 0 if none was.
    fn attempt(&self, call: CallId) -> u32 {
        match self.call(call).map(|call| &call.state) {
            Some(CallState::Started(started, _)) => started.attempt,
            Some(CallState::Parked(doubtful)) => doubtful.attempt,
            Some(CallState::Proposed | CallState::Admitted(_) | CallState::Same(_) | CallState::Ended(_))
            | None => 0,
        }
    }

    /// Whether this attempt of a call starts in this draft, so that it is certain that nothing was done.
    pub(super) fn started_here(&self, call: CallId, attempt: u32) -> bool {
        self.decision.records.iter().any(|record| match &record.body {
            Body::ModelStarted(started) => started.call == call && started.attempt == attempt,
            Body::SummaryStarted(started) => (started.asked.call, started.asked.attempt) == (call, attempt),
            Body::CallStarted(started) => started.call == call && started.attempt == attempt,
            Body::SessionOpened(_)
            | Body::SessionRevived(_)
            | Body::RunAccepted(_)
            | Body::RunStopping(_)
            | Body::RunEnded(_)
            | Body::ModelAnswered(_)
            | Body::ModelFailed(_)
            | Body::ModelWaiting(_)
            | Body::LateSettled(_)
            | Body::CallAdmitted(_)
            | Body::CallEnded(_)
            | Body::CallLost(_)
            | Body::MessageSteered(_)
            | Body::ApprovalRequested(_)
            | Body::RunExhausted(_)
            | Body::RunReopened(_)
            | Body::BudgetRaised(_)
            | Body::ChildEnded(_)
            | Body::ContextCompacted(_)
            | Body::SummaryAnswered(_)
            | Body::SummaryFailed(_)
            | Body::TodoChanged(_)
            | Body::ApprovalAnswered(_) => false,
        })
    }

    fn start(&mut self, call: CallId, attempt: u32) {
        let waits =
            |call: &Call| matches!(call.state, CallState::Admitted(n) if n == attempt) && !call.delegates();
        let admitted = self.may_start() && self.call(call).is_some_and(waits);
        if admitted {
            let (incarnation, boot) = (self.turn.incarnation, Arc::clone(&self.turn.boot));
            self.push(Body::CallStarted(CallStarted {
                call,
                attempt,
                incarnation,
                boot,
                children: Arc::default(),
            }));
        }
    }

    /// Records the end of a call and of those that get its result; of the last open one of a run that is being stopped, the run's end too.
    pub(super) fn end_call(&mut self, call: CallId, attempt: u32, end: CallEnd) {
        let is_same = |other: &&Call| matches!(other.state, CallState::Same(n) if n == call.n);
        let run = self.run();
        let same: Vec<CallId> =
            run.map_or(&[][..], Run::calls).iter().filter(is_same).map(|call| call.id).collect();
        for same in same {
            self.push(Body::CallEnded(CallEnded { call: same, attempt: 0, end: end.clone() }));
        }
        self.push(Body::CallEnded(CallEnded { call, attempt, end }));
        self.end_if_stopped();
    }

    fn stop(&mut self, run: Option<RunId>, reason: StopReason) {
        let current = self.run().map(|run| run.id);
        let Some(id) = run.or(current) else { return };
        let ended = Ended::because(Outcome::Stopped, Cause::Stop { reason });
        if current == Some(id) {
            self.wind_down(ended);
        } else if self.turn.queue.iter().any(|queued| queued.accepted.run == id) {
            self.push(Body::RunEnded(RunEnded { run: id, ended, iterations: 0, usage: Usage::default() }));
        }
    }

    fn check_time(&mut self) {
        self.give_up_waiting();
        let Some(run) = self.run().filter(|run| run.stopping.is_none()) else { return };
        let over = run.time_limits(self.now).find(|(end, ..)| *end <= self.now.active_ms);
        if let Some((_, limit_ms, outcome)) = over {
            self.wind_down(Ended::because(outcome, Cause::Time { limit_ms }));
        } else if let Some((_, limit_ms)) = run.stall(self.now).filter(|(end, _)| *end <= self.now.active_ms)
        {
            self.wind_down(Ended::because(Outcome::TimedOut, Cause::NoProgress { limit_ms }));
        }
    }

    /// Brings the run to its end: what has not started never will, what has started is awaited.
    pub(super) fn wind_down(&mut self, ended: Ended) {
        let Some(run) = self.run() else { return };
        if run.stopping.is_some() {
            return;
        }
        self.cancel_summary();
        let Some(run) = self.run() else { return };
        let id = run.id;
        let waiting = |call: &&Call| matches!(call.state, CallState::Proposed | CallState::Admitted(_));
        let unstarted: Vec<_> = run.calls().iter().filter(waiting).map(|call| call.id).collect();
        let asking = run.asking().map(|started| (started.call, started.attempt));
        // Started in this very draft: nothing has been done yet, and nothing will be.
        let here = |call: &&Call| matches!(&call.state, CallState::Started(s, _) if self.started_here(s.call, s.attempt) && !call.delegates());
        let revoked: Vec<_> = run.calls().iter().filter(here).map(|call| call.id).collect();
        let doubtful = run.doubtful();
        let is_at_rest = run.open_calls() == 0 && !run.has_live();
        if is_at_rest && unstarted.is_empty() && doubtful.is_empty() && asking.is_none() {
            return self.end_run(ended);
        }
        self.push(Body::RunStopping(RunStopping { run: id, ended: ended.clone() }));
        self.stop_subagents();
        if let Some((call, attempt)) = asking {
            let failure = self.given_up((call, attempt), "the run was stopped");
            self.push(Body::ModelFailed(ModelFailed {
                call,
                attempt,
                failure,
                retry_at: None,
                fallback: None,
            }));
        }
        for call in unstarted.into_iter().chain(revoked) {
            let hint = format!("the run ends: {ended}");
            let end = CallEnd::error(CallStatus::NotStarted, "not started", None, &hint);
            self.end_call(call, self.attempt(call), end);
        }
        for doubtful in doubtful {
            self.stay_in_doubt(&doubtful, None);
        }
        self.end_if_stopped();
    }

    /// How an attempt of a model call ends that nobody wants any more: one that starts in this very draft was never made, and
    /// costs nothing.
    pub(super) fn given_up(&self, (call, attempt): (CallId, u32), why: &str) -> Failure {
        let is_here = self.started_here(call, attempt);
        Failure::new(if is_here { FailureClass::NotMade } else { FailureClass::Cancelled }, why)
    }

    pub(super) fn end_if_stopped(&mut self) {
        let Some(run) = self.run() else { return };
        let open = run.calls().iter().any(|call| !matches!(call.state, CallState::Ended(_)));
        if let (Some(ended), false) = (&run.stopping, open || run.has_live()) {
            let ended = ended.clone();
            self.end_run(ended);
        }
    }

    /// Writes the terminal record of the run under way; but not before its subagents have ended.
    pub(super) fn end_run(&mut self, ended: Ended) {
        if self.run().is_some_and(Run::has_live) {
            return self.wind_down(ended);
        }
        self.cancel_summary();
        if let Some(run) = self.run() {
            let (id, spec, iterations, usage) = (run.id, Arc::clone(&run.spec), run.made(), run.usage);
            self.push(Body::RunEnded(RunEnded { run: id, ended: ended.clone(), iterations, usage }));
            self.follow_up(&spec, &ended);
        }
    }
}
