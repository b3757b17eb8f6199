//! The state of the run under way ([`ActiveRun`]): its position in the loop, its parts, its due actions, and what is
//! left of its limits. Folds records and decides nothing. More methods
//! of `ActiveRun` are in the files of their concern, such as `grace_call.rs` and `active_time.rs`.

use std::sync::Arc;

use crate::{
    model::{
        AsideJob, AssistantMessage, AttemptId, Body, CallEnded, CallId, CallStatus, Dimension, FailureClass,
        HistoryPosition, ModelAnswered, ModelFailed, ModelStarted, OutcomeCause, OutcomeDetail, ParentRef,
        Repetition, RunId, RunSpec, ScheduleName, Seq, SessionTime, Timestamp,
    },
    mutants::{Mutant, mutant_enabled},
    policy::message::MESSAGE,
    turn::{
        answer_recovery::AnswerRecovery,
        compaction_state::{CompactionState, PrefixSummary},
        input::DueAction,
        last_text::LastText,
        loop_guard::{LoopGuard, settled_calls},
        model_call::{AttemptFailure, ModelCallState},
        person_decisions::PersonDecisions,
        run_budget::RunBudget,
        run_clock::RunClock,
        run_queue::QueuedRun,
        sent_messages::SentMessages,
        subagents::Subagents,
        tool_calls::{ActiveStep, ActiveToolCall, ParkedCall, ToolCallState},
        vision_state::VisionState,
    },
};

/// The run under way.
#[derive(Debug, Clone)]
pub(super) struct ActiveRun {
    pub(super) id: RunId,
    /// Number of this leg, from 1; each leg ends with an outcome.
    pub(super) leg: u32,
    /// The delegating call, if this is a subagent's run.
    pub(super) parent: Option<ParentRef>,
    /// The schedule of whose occurrence it is the run.
    pub(super) schedule: Option<ScheduleName>,
    pub(super) spec: Arc<RunSpec>,
    /// The text of its task, for the session's title.
    pub(super) request: Arc<str>,
    pub(super) accepted: (Timestamp, Seq),
    pub(super) clock: RunClock,
    pub(super) budget: RunBudget,
    /// Number of the present iteration, from 1. It also counts the numbers in `RunBudget::skipped_numbers`, which are
    /// no iterations.
    pub(super) iteration: u32,
    /// Iterations that have their answer.
    pub(super) answers: u32,
    pub(super) answer_recovery: AnswerRecovery,
    pub(super) subagents: Subagents,
    pub(super) loop_guard: LoopGuard,
    /// Checks of its expectations with a miss.
    pub(super) missed_checks: u32,
    /// The outcome of a run that is being stopped.
    pub(super) planned_end: Option<OutcomeDetail>,
    /// The start of the part that no request has shown yet, after a run was reopened. Compaction keeps that part.
    pub(super) unseen_from: Option<HistoryPosition>,
    pub(super) compaction: CompactionState,
    pub(super) vision: VisionState,
    pub(super) decisions: PersonDecisions,
    pub(super) last_text: LastText,
    pub(super) sent: SentMessages,
    pub(super) state: LoopState,
}

/// Position of a run in its loop. Each variant owns the data that is valid only there.
#[derive(Debug, Clone)]
pub(super) enum LoopState {
    /// A model call is wanted or under way.
    CallingModel(ModelCallState),
    /// The tool calls of an answer are not all ended.
    RunningTools(ActiveStep),
    /// The model has given its final answer. The outcome follows, or another iteration with the results of subagents.
    Answered(Arc<AssistantMessage>),
}

impl ActiveRun {
    /// The first leg of a run that starts now.
    pub(super) fn start(queued: &QueuedRun, unused_summary: Option<PrefixSummary>, now: SessionTime) -> Self {
        let mut run = Self {
            id: queued.accepted.run,
            leg: 1,
            parent: queued.accepted.parent,
            schedule: queued.accepted.occurrence.as_ref().map(|occurrence| occurrence.schedule.clone()),
            spec: Arc::clone(&queued.accepted.spec),
            request: queued.user_message().text,
            accepted: (queued.at, queued.seq),
            clock: RunClock::new(now),
            budget: RunBudget::default(),
            iteration: 1,
            answers: 0,
            answer_recovery: AnswerRecovery::default(),
            subagents: Subagents::default(),
            loop_guard: LoopGuard::default(),
            missed_checks: 0,
            planned_end: None,
            unseen_from: None,
            compaction: CompactionState::of_new_run(unused_summary),
            vision: VisionState::new(),
            decisions: PersonDecisions::default(),
            last_text: LastText::default(),
            sent: SentMessages::default(),
            state: LoopState::CallingModel(ModelCallState::new(0)),
        };
        run.state = LoopState::CallingModel(run.next_call());
        run
    }

    /// Folds a record of this run; records of other runs are ignored. Each part of the run reads the kinds that it
    /// needs. `pressure` says how full the view is, for a request that starts.
    #[expect(clippy::wildcard_enum_match_arm, reason = "other kinds concern one part of the run, or none")]
    pub(super) fn apply(&mut self, body: &Body, pressure: Option<Arc<str>>, now: SessionTime) {
        if body.run() != Some(self.id) {
            return;
        }
        let ended = self.ended_attempt(body).cloned();
        self.budget.apply(body, ended.as_deref());
        let links = self.spec.compaction.as_deref().map_or(0, |policy| policy.chain.len());
        self.compaction.apply(body, links, now);
        if let LoopState::RunningTools(step) = &mut self.state {
            if let Body::ApprovalAnswered(answered) = body
                && let Some(call) = step.calls.iter().find(|call| call.id == answered.call)
            {
                self.decisions.apply(answered, call);
            }
            step.apply(body, now);
        }
        match body {
            Body::RunStopping(stopping) => self.planned_end = Some(stopping.ended.clone()),
            Body::RunExhausted(exhausted) => self.on_exhausted(exhausted, now),
            Body::BudgetRaised(raised) => self.on_raised(&raised.increase),
            Body::ModelStarted(started) => {
                self.end_pause(now);
                if let Some(call) = self.model_call_mut(started.call) {
                    call.on_started(started, pressure, now);
                }
            }
            Body::ModelAnswered(answered) => self.on_answered(answered),
            Body::ModelFailed(failed) => self.on_failed(failed, now),
            Body::ModelWaiting(waiting) => {
                self.end_pause(now);
                if let Some(call) = self.model_call_mut(waiting.call) {
                    call.on_waiting(waiting.until, now);
                }
            }
            Body::CallStarted(started) => self.track_subagents(started, now.at),
            Body::CallEnded(ended) => {
                self.subagents.on_call_ended(ended.call);
                self.note_sent(ended);
            }
            Body::ChildEnded(ended) => {
                self.subagents.on_ended(ended);
                if self.tool_calls().iter().all(|call| call.id != ended.call) {
                    self.loop_guard.reset();
                }
            }
            Body::MessageSteered(_) => self.loop_guard.reset(),
            _ => {}
        }
    }

    fn on_answered(&mut self, answered: &ModelAnswered) {
        self.unseen_from = None;
        self.answers += 1;
        self.last_text.on_answered(answered);
        match self.answer_recovery.on_answer(answered) {
            None => self.repeat_view(),
            Some(answer) if answer.calls.is_empty() || self.budget.exhausted.is_some() => {
                self.state = LoopState::Answered(answer);
            }
            Some(answer) => {
                self.state = LoopState::RunningTools(ActiveStep::new(answered.call, answer));
            }
        }
    }

    fn on_failed(&mut self, failed: &ModelFailed, now: SessionTime) {
        let Some(call) = self.model_call_mut(failed.call) else { return };
        let AttemptFailure { was_started, has_shown, output_cap } = call.on_failed(failed, now);
        self.budget.output_caps.extend(output_cap);
        self.unseen_from = self.unseen_from.filter(|_| !has_shown);
        // If a stop arrives in the append that starts the call, the call fails as `NotSent`. It is then no iteration,
        // and the account has no reservation for it.
        let is_uncounted =
            self.planned_end.is_some() && matches!(failed.failure.class, FailureClass::NotSent);
        let is_first = was_started && failed.attempt == 1;
        self.budget.skipped_numbers += u32::from(is_uncounted && is_first && !self.is_in_grace());
    }

    /// Folds the end of a call of the tool `message`.
    fn note_sent(&mut self, ended: &CallEnded) {
        let is_message = self.tool_calls().iter().any(|call| call.id == ended.call && *call.tool == *MESSAGE);
        if is_message && ended.end.status == CallStatus::Ok {
            let arguments = self.arguments(ended.call).to_owned();
            self.sent.note(&arguments);
        }
    }

    /// The repetition that the step of the present answer is, if this end of a call completes it.
    pub(super) fn repetition_with(&self, ended: &CallEnded, now: SessionTime) -> Option<Repetition> {
        let is_settled =
            |call: &ActiveToolCall| call.id == ended.call || matches!(call.state, ToolCallState::Ended(_));
        let is_guarded = self.is_guarded() && !mutant_enabled(Mutant::IgnoreLoops);
        let step = self.step().filter(|step| is_guarded && step.calls.iter().all(is_settled))?;
        let mut step = step.clone();
        step.apply(&Body::CallEnded(ended.clone()), now);
        self.loop_guard.clone().on_step(&settled_calls(&step, &self.decisions)?)
    }

    /// Folds the complete step of the present answer into the guard against loops. `recorded` is its repetition.
    pub(super) fn guard_step(&mut self, recorded: Option<&Repetition>) {
        if !self.is_guarded() {
            return;
        }
        if let Some(calls) = self.step().and_then(|step| settled_calls(step, &self.decisions)) {
            self.loop_guard.on_step(&calls);
        }
        if let Some(repetition) = recorded {
            self.loop_guard.on_recorded(repetition);
        }
    }

    /// Whether repetitions are looked for. A run that makes no further calls is not warned.
    fn is_guarded(&self) -> bool {
        self.spec.loop_guard && self.planned_end.is_none() && self.budget.exhausted.is_none()
    }

    /// Wants the model call of the next iteration.
    pub(super) fn start_iteration(&mut self) {
        self.iteration += 1;
        self.state = LoopState::CallingModel(self.next_call());
    }

    /// Wants another model call with the same view, because the last answer was discarded or the grace call is due.
    pub(super) fn repeat_view(&mut self) {
        self.iteration += 1;
        self.state = LoopState::CallingModel(ModelCallState { is_repeated: true, ..self.next_call() });
    }

    /// The present model call; `None` once it is answered.
    pub(super) const fn model_call_state(&self) -> Option<&ModelCallState> {
        if let LoopState::CallingModel(call) = &self.state { Some(call) } else { None }
    }

    /// The present answer, while not all of its calls have ended.
    const fn step(&self) -> Option<&ActiveStep> {
        if let LoopState::RunningTools(step) = &self.state { Some(step) } else { None }
    }

    /// The id of the present iteration's model call.
    pub(super) const fn model_call(&self) -> CallId {
        CallId { run: self.id, iteration: self.iteration, n: 0 }
    }

    /// Number of iterations. The present one counts once its model call was started; the grace call never counts.
    pub(super) fn iterations(&self) -> u32 {
        let is_unstarted = self.model_call_state().is_some_and(|call| call.since.is_none());
        let begun = self.iteration - u32::from(is_unstarted || self.is_in_grace());
        begun.saturating_sub(self.budget.skipped_numbers)
    }

    /// Whether a request may have shown the present view to a model.
    pub(super) fn has_sent_view(&self) -> bool {
        self.model_call_state().is_none_or(|call| call.may_be_read || call.started().is_some())
    }

    /// The record of the started model call.
    pub(super) fn model_started(&self) -> Option<&Arc<ModelStarted>> {
        self.model_call_state()?.started()
    }

    /// The state of this model call, if it is the present one.
    pub(super) fn model_call_mut(&mut self, call: CallId) -> Option<&mut ModelCallState> {
        let is_present = self.model_call() == call;
        match &mut self.state {
            LoopState::CallingModel(state) if is_present => Some(state),
            LoopState::CallingModel(_) | LoopState::RunningTools(_) | LoopState::Answered(_) => None,
        }
    }

    /// The attempt of a model call or aside that a record ends.
    pub(super) fn ended_attempt(&self, body: &Body) -> Option<&Arc<ModelStarted>> {
        let (id, _) = body.settled_usage()?;
        self.started_of(id.call).filter(|started| started.attempt == id.attempt)
    }

    /// The started attempt of this model call or aside.
    pub(super) fn started_of(&self, call: CallId) -> Option<&Arc<ModelStarted>> {
        let started = match call.job() {
            Some(AsideJob::Summary) => self.compaction.call.started(),
            Some(AsideJob::Vision) => self.vision.started(),
            Some(AsideJob::Memory) => self.compaction.flush.call.started(),
            Some(AsideJob::Title) => None,
            None => self.model_started(),
        };
        started.filter(|started| started.call == call)
    }

    /// The tool calls of the present answer.
    pub(super) fn tool_calls(&self) -> &[ActiveToolCall] {
        self.step().map_or(&[], |step| &step.calls)
    }

    /// The calls of which no attempt is under way, but one may start.
    pub(super) fn unstarted_calls(&self) -> impl Iterator<Item = CallId> {
        self.tool_calls().iter().filter(|call| call.may_start()).map(|call| call.id)
    }

    /// The arguments of a tool call of the present answer, as its tool gets them; empty without such a call.
    pub(super) fn arguments(&self, id: CallId) -> &str {
        self.step().and_then(|step| step.arguments(id)).unwrap_or("")
    }

    /// Whether text may still be added to the view of the next model call, because no attempt has shown it.
    pub(super) const fn may_extend_view(&self) -> bool {
        matches!(&self.state, LoopState::CallingModel(ModelCallState { since: None, is_repeated: false, .. }))
    }

    /// Number of started tool calls whose end is awaited. Calls that wait for a person do not count.
    pub(super) fn running_tool_calls(&self) -> usize {
        self.tool_calls().iter().filter_map(ActiveToolCall::started).count()
    }

    /// The calls about which a person is asked.
    pub(super) fn parked_tool_calls(&self) -> Vec<Arc<ParkedCall>> {
        let parked = self.tool_calls().iter().filter_map(|call| {
            let ToolCallState::Parked(parked) = &call.state else { return None };
            Some(Arc::clone(parked))
        });
        parked.collect()
    }

    /// Whether the run waits for a person and none of its calls can make progress.
    pub(super) fn is_parked(&self) -> bool {
        self.planned_end.is_none() && self.step().is_some_and(ActiveStep::waits_for_person)
    }

    /// The number of calls that a parked run waits for; `None` if it is not parked.
    pub(super) fn parked_calls(&self) -> Option<usize> {
        self.is_parked().then(|| self.parked_tool_calls().len())
    }

    /// Whether started calls may run to their end. False for a run that is being stopped, unless a reservation did not
    /// fit its budget. Limits of time end the calls.
    pub(super) fn lets_calls_end(&self) -> bool {
        let is_at_limit = |ended: &OutcomeDetail| matches!(ended.cause, Some(OutcomeCause::Limit { .. }));
        self.planned_end.as_ref().is_none_or(is_at_limit)
    }

    /// The limit of the run's own budget account.
    pub(super) fn budget_limit(&self, dimension: Dimension) -> Option<u64> {
        self.spec.limits.budget.get(dimension)
    }

    /// What the run's own calls have left of its limit; `None` without a limit. Subagents spend from the same account
    /// and are not subtracted, so the ledger may refuse an amount that fits here.
    pub(super) fn budget_left(&self, dimension: Dimension) -> Option<u64> {
        let limit = self.budget_limit(dimension)?;
        Some(limit.saturating_sub(self.budget.spent.get(dimension).unwrap_or(0)))
    }

    /// Whether this is the next attempt of the model call, and has not started.
    pub(super) fn is_wanted(&self, id: AttemptId) -> bool {
        self.is_model_wanted()
            && self.model_call_state().is_some_and(|call| self.model_call().attempt(call.attempt) == id)
    }

    /// Whether the model call needs an attempt that has not started.
    pub(super) fn is_model_wanted(&self) -> bool {
        self.model_call_state().is_some_and(|call| call.started().is_none())
    }

    /// The actions that should be in flight, without those of a summary.
    pub(super) fn due(&self, now: SessionTime) -> Vec<DueAction> {
        let mut due = Vec::new();
        match &self.state {
            LoopState::CallingModel(call) if self.planned_end.is_none() => {
                due.push(call.due(self.model_call(), now));
            }
            LoopState::RunningTools(step) => due.extend(step.due(self.lets_calls_end())),
            LoopState::Answered(_) => due.extend(self.unverified_answer().map(DueAction::Verify)),
            LoopState::CallingModel(_) => {}
        }
        due.extend(self.subagents.due(!self.lets_calls_end()));
        if self.planned_end.is_none() && !self.is_uncounted(now) {
            due.extend(self.time_limits(now).map(|(end, ..)| DueAction::WakeAtActive(end)));
            due.extend(self.no_progress_deadline(now).map(|(end, _)| DueAction::WakeAtActive(end)));
        }
        // Two approval requests, or two limits, may expire at the same time.
        let mut timers: Vec<_> = due.extract_if(.., |action| action.is_timer()).collect();
        timers.sort_unstable();
        timers.dedup();
        due.extend(timers);
        due
    }
}
