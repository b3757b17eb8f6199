//! A decision in the making: inputs go in, records come out, and each is folded into a private copy of the state, so
//! that the next input meets what the one before has decided.

use std::sync::Arc;

use crate::{
    model::{
        Body, BudgetRefusal, CallId, CallStarted, Dimension, Incarnation, LedgerChange, Record, RunAccepted,
        RunId, RunRow, SessionId, SessionOpened, SessionTime,
    },
    mutants::{Mutant, mutant_enabled},
    policy::Candidate,
    port::{InboxItem, IndexRow, SpawnedSession},
    turn::{
        DueAction, GrantRequest, Input, Turn,
        active_run::{ActiveRun, ActiveToolCall, CurrentRun, LoopState, ToolCallState},
        grace_call::RefusedReservation,
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
    pub(crate) ledger: LedgerChange,
    /// The index rows they write.
    pub(crate) index: Vec<IndexRow>,
    /// The idempotency key they bring.
    pub(crate) key: Option<(Arc<str>, RunId)>,
    /// The rows of the inbox that they take in.
    pub(crate) take: Vec<u64>,
    /// What others find in their inboxes.
    pub(crate) send: Vec<(SessionId, InboxItem)>,
    /// The sessions that begin with them.
    pub(crate) found: Vec<SpawnedSession>,
}

impl Decision {
    /// Whether there is nothing to write.
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty() && self.take.is_empty()
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct DecisionBuilder {
    pub(super) turn: Turn,
    pub(super) now: SessionTime,
    pub(super) decision: Decision,
    /// What did not fit when this was decided before.
    pub(super) refused_reservation: Option<RefusedReservation>,
    /// The row of the run whose terminal record is being written, as it was before.
    pub(super) row_before_end: Option<RunRow>,
}

impl DecisionBuilder {
    pub(super) fn new(turn: Turn, now: SessionTime) -> Self {
        Self { turn, now, decision: Decision::default(), refused_reservation: None, row_before_end: None }
    }

    /// Decides what one more input means.
    pub(crate) fn apply_input(&mut self, input: &Input) {
        if self.on_summary_input(input) {
            return self.compact_if_needed();
        }
        match input {
            Input::Opened { key, prompt, incarnation, boot } => {
                self.record(Body::SessionOpened(SessionOpened {
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
                self.record(Body::RunAccepted(Box::new(RunAccepted {
                    run: *run,
                    input: Arc::clone(input),
                    images: Arc::clone(images),
                    history: Arc::clone(history),
                    spec: Arc::clone(spec),
                    parent: None,
                })));
            }
            Input::Leased { call, attempt, model } => self.start_model_call(*call, *attempt, model),
            Input::NoLease { call, attempt, skipped } => self.on_no_lease((*call, *attempt), skipped),
            Input::Permitted { call, attempt } => self.start_tool_call(*call, *attempt),
            Input::Answered { started, answer, admissions: plans } => self.on_answer(started, answer, plans),
            Input::ModelFailed { call, attempt, failure, failover: outlook } => {
                self.on_model_failure((*call, *attempt), failure, outlook);
            }
            Input::ToolEnded { call, attempt, end } => {
                if self.is_started(*call, *attempt) {
                    self.end_call(*call, *attempt, end.clone());
                }
            }
            Input::Lost { call, attempt } if call.is_model_call() => {
                self.on_model_task_lost((*call, *attempt));
            }
            Input::Lost { call, attempt } => self.on_tool_lost(*call, *attempt),
            Input::NeverBegun { call, attempt } if call.is_model_call() => {
                self.on_model_never_begun((*call, *attempt));
            }
            Input::NeverBegun { call, attempt } => self.on_never_begun(*call, *attempt),
            Input::Decided { call, verdict } => self.on_decision(*call, *verdict),
            Input::Stop { run, reason } => self.stop(*run, *reason),
            Input::Steer { run, text, next } => self.steer(*run, text, *next),
            Input::Raise { run, by } => self.raise(*run, by),
            Input::ChildEnded(ended) => self.on_subagent_end(ended),
            Input::FromInbox { row, input: says } => {
                self.decision.take.push(*row);
                self.apply_input(says);
            }
            Input::EmptyInboxRow => {}
            Input::TimerFired => self.on_timer(),
            Input::BudgetRefused(refusal) => self.on_budget_refusal(refusal),
        }
        self.answer_todo_calls();
        self.delegate(input);
        self.compact_if_needed();
    }

    fn on_budget_refusal(&mut self, refusal: &BudgetRefusal) {
        let run = self.run().map(|run| run.id);
        self.refused_reservation = Some(RefusedReservation { refusal: refusal.clone(), run });
    }

    /// Whether this is a submission with a history for a session that has one of its own.
    pub(crate) fn has_history_conflict(&self, input: &Input) -> bool {
        let Input::Submitted { run, history, .. } = input else { return false };
        !history.is_empty() && !self.turn.accepted.is_empty() && !self.turn.accepted.contains(run)
    }

    /// What would let it go on at once.
    pub(crate) fn grant_requests(&self) -> Vec<GrantRequest> {
        if self.refused_reservation.is_some() {
            return Vec::new();
        }
        let due = self.turn.due(self.now);
        let wants = due.iter().filter_map(DueAction::acquires).filter_map(|(call, attempt)| {
            if call.is_model_call() {
                Some(GrantRequest::Lease { call, attempt })
            } else if self.call(call).is_some_and(ActiveToolCall::delegates) {
                None
            } else {
                Some(GrantRequest::Permit { call, attempt })
            }
        });
        wants.collect()
    }

    /// Which attempts would be in flight if this became durable.
    pub(crate) fn due(&self) -> Vec<DueAction> {
        self.turn.due(self.now)
    }

    /// All that was decided.
    pub(crate) fn finish(mut self) -> Decision {
        let ends = self.refused_dimension().is_some() && !self.has_raised();
        if let Some(refused) = self.refused_reservation.take() {
            // What was heard meanwhile may have let the view change.
            self.compact_if_needed();
            if ends {
                self.on_refused_reservation(&refused);
            }
        }
        self.decision.fence = self.turn.incarnation;
        self.decision
    }

    /// Writes a record into the draft.
    pub(super) fn record(&mut self, body: Body) {
        self.record_measured(body, |_, _| {});
    }

    /// Writes a record that says how large the state is behind it: no fold looks at what `measure` changes.
    pub(super) fn record_measured(&mut self, body: Body, measure: impl FnOnce(&Turn, &mut Body)) {
        if let Body::RunEnded(ended) = &body {
            self.row_before_end = self.row_of(ended.run);
            self.index_observations(ended.run);
        }
        let mut record = Record { at: self.now.at, active_ms: self.now.active_ms, body };
        self.update_ledger(&record.body);
        let was_parked = self.run().is_some_and(ActiveRun::is_parked);
        self.turn.fold(&record);
        measure(&self.turn, &mut record.body);
        self.index_record(&record.body);
        if was_parked != self.run().is_some_and(ActiveRun::is_parked) {
            self.index_running();
        }
        if !(mutant_enabled(Mutant::NoEnd) && matches!(record.body, Body::RunEnded(_))) {
            self.decision.records.push(Arc::new(record));
        }
    }

    pub(super) const fn run(&self) -> Option<&ActiveRun> {
        match &self.turn.current {
            CurrentRun::Running(run) => Some(run),
            CurrentRun::Idle => None,
        }
    }

    pub(super) fn call(&self, id: CallId) -> Option<&ActiveToolCall> {
        self.run()?.calls().iter().find(|call| call.id == id)
    }

    /// The arguments of a call as the model wrote them.
    pub(super) fn arguments(&self, id: CallId) -> &str {
        let Some(LoopState::RunningTools(acting)) = self.run().map(|run| &run.state) else { return "" };
        let asked = usize::try_from(id.n).ok().and_then(|n| acting.answer.calls.get(n.checked_sub(1)?));
        asked.map_or("", |call| call.arguments.as_str())
    }

    fn is_started(&self, call: CallId, attempt: u32) -> bool {
        self.call(call).is_some_and(
            |call| matches!(&call.state, ToolCallState::Started(started, _) if started.attempt == attempt),
        )
    }

    /// The models that this call may still ask.
    pub(crate) fn candidates_of(&self, call: CallId) -> Option<Vec<Candidate>> {
        self.turn.candidates_of(call)
    }

    /// Whether the run under way may start anything.
    pub(super) fn may_start(&self) -> bool {
        self.refused_reservation.is_none() && self.run().is_some_and(|run| run.planned_end.is_none())
    }

    /// In which dimension a reservation was refused that the run cannot go on without. Of `children` its model is told.
    pub(super) fn refused_dimension(&self) -> Option<Dimension> {
        let refused = self.refused_reservation.as_ref().map(|refused| refused.refusal.dimension);
        refused.filter(|dimension| *dimension != Dimension::Children)
    }

    fn start_tool_call(&mut self, call: CallId, attempt: u32) {
        let waits = |call: &ActiveToolCall| {
            matches!(call.state, ToolCallState::Admitted(n) if n == attempt) && !call.delegates()
        };
        let admitted = self.may_start() && self.call(call).is_some_and(waits);
        if admitted {
            let (incarnation, boot) = (self.turn.incarnation, Arc::clone(&self.turn.boot));
            self.record(Body::CallStarted(CallStarted {
                call,
                attempt,
                incarnation,
                boot,
                children: Arc::default(),
            }));
        }
    }
}
