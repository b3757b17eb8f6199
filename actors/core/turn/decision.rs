//! Builds a decision: each input becomes records, and each record is folded into a private copy of the state. The next
//! input is decided on that copy. Submissions and starts of tool calls are decided here, other inputs in the modules
//! beside this one. Also tells with which leases and permits the draft could continue.

use std::sync::Arc;

use crate::{
    journal::{Append, IndexRow},
    model::{
        AgentName, AttemptId, Body, BudgetRefusal, CallId, CallLost, CallStarted, Dimension, Record,
        RetryReason, RunAccepted, RunRow, Seq, SessionTime, SubagentRef,
    },
    mutants::{Mutant, mutant_enabled},
    policy::Candidate,
    turn::{
        DueAction, GrantRequest, Input, Turn,
        active_run::ActiveRun,
        run_budget::RefusedReservation,
        tool_calls::{ActiveToolCall, ToolCallState},
    },
};

/// The index row of the run under way is written again after this many records of its session. Readers add the later
/// records to its counts.
const ROW_INTERVAL: Seq = 128;

/// A decision under construction. `apply_input` adds an input, `finish` returns the append.
#[derive(Debug)]
pub struct DecisionBuilder {
    pub(super) turn: Turn,
    pub(super) now: SessionTime,
    pub(super) append: Append,
    /// The reservation that the ledger refused when the same inputs were decided before.
    pub(super) refused_reservation: Option<RefusedReservation>,
    /// The index row of the ending run, as it was before its terminal record.
    pub(super) row_before_end: Option<RunRow>,
}

impl DecisionBuilder {
    pub(super) fn new(turn: Turn, now: SessionTime) -> Self {
        let append = Append::new(turn.session, turn.incarnation, turn.last + 1, Vec::new());
        Self { turn, now, append, refused_reservation: None, row_before_end: None }
    }

    /// Decides one more input.
    pub fn apply_input(&mut self, input: &Input) {
        if self.on_aside_input(input) {
            return;
        }
        match input {
            Input::Opened(opened) => self.record(Body::SessionOpened(opened.clone())),
            Input::Revived(revived) => self.revive(revived),
            // A repeated submission: the session crashed before it could answer.
            Input::Submitted { accepted, .. } if self.turn.is_known(accepted.run) => {}
            Input::Submitted { accepted, key } => {
                if let Some(key) = key {
                    self.append.key = Some((Arc::clone(key), accepted.run));
                }
                match &accepted.queueing {
                    Some(queueing) => self.accept_message(accepted, queueing),
                    None => self.accept_run(RunAccepted::clone(accepted), None),
                }
            }
            Input::MayBegin { run, hooks } => self.on_may_begin(*run, hooks.as_ref()),
            Input::Leased { id, model } => self.start_model_call(*id, model),
            Input::NoLease { id, skipped } => self.on_no_lease(*id, skipped),
            Input::Permitted(id) => self.start_tool_call(*id),
            Input::Answered { started, answer, admissions } => self.on_answer(started, answer, admissions),
            Input::ModelFailed { id, failure, failover } => self.on_model_failure(*id, failure, failover),
            Input::ToolEnded { id, end } => {
                if self.is_started(*id) {
                    self.send_with_files(id.call, end);
                    self.end_call(*id, end.clone());
                }
            }
            Input::Lost(id) if id.call.is_model_call() => self.on_model_task_lost(*id),
            Input::Lost(id) => self.on_tool_lost(*id),
            Input::NeverStarted(id) if id.call.is_model_call() => self.on_model_never_started(*id),
            Input::NeverStarted(id) => self.on_tool_never_started(*id),
            Input::Approval { call, answer } => self.on_person_answer(*call, answer),
            Input::Stop { run, reason } => self.stop(*run, *reason),
            Input::Steer(message) => self.steer(message),
            Input::Raise { run, by } => self.raise(*run, by),
            Input::SetQueue(queue) => self.set_queue(*queue),
            Input::ChildEnded(ended) => self.on_subagent_end(ended),
            Input::Verified { call, misses } => self.on_verified(*call, misses),
            Input::MemorySaved { call, save } => self.on_memory_saved(*call, save),
            Input::FromInbox { row, input } => {
                self.append.consumed.push(*row);
                self.apply_input(input);
            }
            // `on_aside_input` has taken the first.
            Input::SummaryLeased { .. } | Input::EmptyInboxRow => {}
            Input::TimerFired => self.on_timer(),
            Input::BudgetRefused(refusal) => self.on_budget_refusal(refusal),
        }
        self.answer_todo_calls();
        self.answer_message_calls();
        self.ask_questions();
        self.end_if_looping();
        self.delegate(input);
        self.end_if_looping();
        self.begin_held_run();
        self.compact_if_needed();
    }

    fn on_budget_refusal(&mut self, refusal: &BudgetRefusal) {
        let run = self.run().map(|run| run.id);
        self.refused_reservation = Some(RefusedReservation { refusal: refusal.clone(), run });
    }

    /// Whether the input submits a run with an imported history to a session that has already accepted a run.
    pub fn has_history_conflict(&self, input: &Input) -> bool {
        let Input::Submitted { accepted, .. } = input else { return false };
        let known = &self.turn.accepted;
        !accepted.history.is_empty() && !known.is_empty() && !known.contains(&accepted.run)
    }

    /// The agent of the session, if the input submits a run of another one.
    pub fn agent_conflict(&self, input: &Input) -> Option<&AgentName> {
        let Input::Submitted { accepted, .. } = input else { return None };
        let is_known = self.turn.accepted.contains(&accepted.run);
        Some(&self.turn.row.agent).filter(|agent| !is_known && **agent != accepted.spec.agent)
    }

    /// The leases and permits with which the draft could continue at once.
    pub fn grant_requests(&self) -> Vec<GrantRequest> {
        if self.is_refused() {
            return Vec::new();
        }
        if let Some((run, lane)) = self.turn.wanted_place(self.now.at) {
            return vec![GrantRequest::Place(run, lane)];
        }
        let due = self.turn.due(self.now);
        let requests = due.iter().filter_map(DueAction::acquired_attempt).filter_map(|id| {
            if id.call.is_model_call() {
                return Some(GrantRequest::Lease(id));
            }
            let call = self.call(id.call).filter(|call| !call.delegates())?;
            Some(GrantRequest::Permit(id, call.access.class()))
        });
        requests.collect()
    }

    /// The actions that would be due if this draft were durable.
    pub fn due(&self) -> Vec<DueAction> {
        self.turn.due(self.now)
    }

    /// Ends the draft and returns its append, which is empty if nothing needs to be written. A refused reservation
    /// takes effect here, unless this decision raises limits: it gives up a summary, or exhausts or ends the run.
    pub fn finish(mut self) -> Append {
        let ends = self.refused_dimension().is_some() && !self.has_raised();
        if let Some(refused) = self.refused_reservation.take() {
            // No view was compacted while the refusal concerned the run. Later inputs may have made it possible.
            self.compact_if_needed();
            if ends {
                self.on_refused_reservation(&refused);
            }
        }
        self.append.fence = self.turn.incarnation;
        self.append
    }

    pub(super) fn record(&mut self, body: Body) {
        self.record_measured(body, |_, _| {});
    }

    /// Adds a record. `measure` then sets what depends on the state after it, such as the tokens of the view. It may
    /// change only fields that no fold reads.
    pub(super) fn record_measured(&mut self, body: Body, measure: impl FnOnce(&Turn, &mut Body)) {
        if let Body::RunEnded(ended) = &body {
            self.row_before_end = self.row_of(ended.run);
            // Observations about the run's models, for later runs.
            let run = self.turn.run().filter(|current| current.id == ended.run);
            let rows = run.map(|run| self.turn.observations.new_rows(&run.spec)).unwrap_or_default();
            self.append.index.extend(rows.into_iter().map(IndexRow::Model));
            self.send_results(ended);
        }
        let mut record = Record { at: self.now.at, active_ms: self.now.active_ms, body };
        self.update_ledger(&record.body);
        let settled_aside = self.row_of_settled_aside(&record.body);
        let parked_calls = self.run().and_then(ActiveRun::parked_calls);
        let waiting = self.turn.joined_messages();
        self.turn.fold(&record);
        measure(&self.turn, &mut record.body);
        self.index_record(&record.body);
        settled_aside.into_iter().for_each(|row| self.put_run_row(row));
        self.index_messages(&record.body, waiting);
        if parked_calls != self.run().and_then(ActiveRun::parked_calls)
            || self.turn.last.is_multiple_of(ROW_INTERVAL)
        {
            self.index_running();
        }
        if !(mutant_enabled(Mutant::NoEnd) && matches!(record.body, Body::RunEnded(_))) {
            self.append.records.push(Arc::new(record));
        }
    }

    pub(super) fn run(&self) -> Option<&ActiveRun> {
        self.turn.run()
    }

    pub(super) fn call(&self, id: CallId) -> Option<&ActiveToolCall> {
        self.run()?.tool_calls().iter().find(|call| call.id == id)
    }

    /// Whether this attempt of a tool call is under way.
    pub(super) fn is_started(&self, id: AttemptId) -> bool {
        self.call(id.call).and_then(ActiveToolCall::started).is_some_and(|started| started.id() == id)
    }

    /// The models that may still be called for this model call or aside.
    pub fn candidates_of(&self, call: CallId) -> Option<Vec<Candidate>> {
        self.turn.candidates_of(call)
    }

    /// Whether a refused reservation keeps the run under way from starting calls. The refusal of a queued run does not:
    /// the run under way has to end first, as when the reservation was requested.
    pub(super) fn is_refused(&self) -> bool {
        let current = self.run().map(|run| run.id);
        let is_refused =
            |refused: &RefusedReservation| !self.is_of_another(refused) || refused.run != current;
        self.refused_reservation.as_ref().is_some_and(is_refused)
    }

    /// Whether the run under way may start a call.
    pub(super) fn may_start(&self) -> bool {
        !self.is_refused() && self.run().is_some_and(|run| run.planned_end.is_none())
    }

    /// The dimension of the refused reservation; `None` without one, and for `children`. A refusal of `children`
    /// becomes the result of the delegating call.
    pub(super) fn refused_dimension(&self) -> Option<Dimension> {
        let refused = self.refused_reservation.as_ref().map(|refused| refused.refusal.dimension);
        refused.filter(|dimension| *dimension != Dimension::Children)
    }

    fn start_tool_call(&mut self, id: AttemptId) {
        let AttemptId { call, attempt } = id;
        let is_waiting = |call: &ActiveToolCall| {
            matches!(call.state, ToolCallState::Admitted(n) if n == attempt) && !call.delegates()
        };
        let admitted = self.may_start() && self.call(call).is_some_and(is_waiting);
        if admitted {
            self.record_call_start(id, Arc::default());
        }
    }

    pub(super) fn record_call_start(&mut self, id: AttemptId, children: Arc<[SubagentRef]>) {
        let AttemptId { call, attempt } = id;
        let (incarnation, boot) = (self.turn.incarnation, Arc::clone(&self.turn.boot));
        self.record(Body::CallStarted(CallStarted { call, attempt, incarnation, boot, children }));
    }

    /// Records that this attempt of a tool call was lost or never started. Another attempt follows.
    pub(super) fn record_loss(&mut self, id: AttemptId, reason: RetryReason) {
        let AttemptId { call, attempt } = id;
        self.record(Body::CallLost(CallLost { call, attempt, reason }));
    }
}
