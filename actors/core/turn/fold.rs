//! Folds a record into the state. Nothing here decides or fails: a record that does not fit the state, such as a late
//! second end of a call, changes nothing.

use std::sync::Arc;

use crate::{
    model::{
        Body, FailureClass, ModelAnswered, ModelFailed, ModelLate, ModelStarted, ModelWaiting, Record,
        RetryReason, RunAccepted, RunEnded, SessionTime,
    },
    turn::{
        RequestPrefix, SessionHeader, Turn,
        active_run::{ActiveRun, CurrentRun, LoopState, QueuedRun},
        answer_recovery::AnswerRecovery,
        compaction::CompactionState,
        ledger_and_index::ONE_CALL,
        model_call::{AttemptFailure, ModelCallState},
        run_budget::RunBudget,
        run_clock::RunClock,
        steer::delimited,
        tool_calls::ActiveStep,
        tool_calls::with_tool_names,
    },
};

impl Turn {
    /// Folds one record. `apply` calls it for durable records, a draft for records to be written.
    pub(super) fn fold(&mut self, record: &Record) {
        self.last += 1;
        self.active_ms = record.active_ms;
        record.body.artifacts().for_each(|artifact| self.artifacts.add(artifact));
        let now = SessionTime { at: record.at, active_ms: record.active_ms };
        match &record.body {
            Body::SessionOpened(opened) => {
                self.header = Arc::new(SessionHeader { prompt: Arc::clone(&opened.prompt) });
                self.incarnation = opened.incarnation;
                self.boot = opened.boot.as_str().into();
            }
            Body::SessionRevived(revived) => {
                self.track_revival(&revived.boot);
                self.incarnation = revived.incarnation;
                self.boot = revived.boot.as_str().into();
            }
            Body::RunAccepted(accepted) => self.fold_run_accepted(accepted, now),
            Body::RunStopping(stopping) => {
                if let CurrentRun::Running(run) = &mut self.current {
                    run.planned_end = Some(stopping.ended.clone());
                }
            }
            Body::RunEnded(ended) => self.fold_run_ended(ended, now),
            Body::ModelStarted(started) => self.fold_model_started(started, now),
            Body::ContextCompacted(_)
            | Body::SummaryStarted(_)
            | Body::SummaryAnswered(_)
            | Body::SummaryFailed(_) => self.fold_summary(&record.body, now),
            Body::ModelAnswered(answered) => self.fold_model_answered(answered),
            Body::ModelFailed(failed) => self.fold_model_failed(failed, now),
            Body::ModelWaiting(waiting) => self.fold_model_waiting(waiting, now),
            Body::ModelLate(late) => self.fold_model_late(late),
            Body::CallAdmitted(_) | Body::CallLost(_) | Body::ApprovalRequested(_) => {
                self.fold_tool_call(&record.body, now);
            }
            Body::CallStarted(started) => {
                self.fold_tool_call(&record.body, now);
                self.track_delegation(started);
            }
            Body::CallEnded(ended) => {
                self.track_write(ended, record.at);
                self.fold_tool_call(&record.body, now);
                self.forget_results(ended.call);
                self.close_step();
            }
            Body::MessageSteered(message) => self.fold_message_steered(message),
            Body::RunExhausted(exhausted) => self.fold_exhausted(exhausted, now),
            Body::RunReopened(reopened) => self.fold_run_reopened(reopened),
            Body::BudgetRaised(raised) => self.fold_budget_raised(raised),
            // The effects of an approval have records of their own.
            Body::ApprovalAnswered(_) => {}
            Body::ChildEnded(ended) => self.fold_child_ended(ended),
            Body::TodoChanged(changed) => self.todo = Arc::clone(&changed.items),
        }
        self.track_time(record.at);
        if let CurrentRun::Running(run) = &mut self.current {
            run.track_time(&record.body, now);
        }
    }

    fn fold_model_started(&mut self, started: &Arc<ModelStarted>, now: SessionTime) {
        let pressure = self.current_pressure();
        let offers_tools = self.offers_tools();
        if let CurrentRun::Running(run) = &mut self.current {
            run.end_pause(now);
            run.compaction.track_request(started.bytes, started.call.iteration, now.active_ms);
            let (model, spec) = (started.model.clone(), Arc::clone(&run.spec));
            self.prefix = Some(RequestPrefix { model, spec, offers_tools });
            if let Some(call) = run.model_call_mut(started.call) {
                call.on_started(started, pressure, now);
            }
        }
    }

    fn fold_run_accepted(&mut self, accepted: &RunAccepted, now: SessionTime) {
        self.accepted.insert(accepted.run);
        self.reopenable = None;
        self.adopt_followup(accepted);
        let queued = Arc::new(QueuedRun { accepted: accepted.clone(), at: now.at, seq: self.last });
        match &self.current {
            CurrentRun::Idle => self.start_run(&queued, now),
            CurrentRun::Running(_) => self.queue.push_back(queued),
        }
    }

    fn start_run(&mut self, queued: &QueuedRun, now: SessionTime) {
        self.history.import(&queued.accepted.history);
        self.history.start_round(queued.accepted.user_message());
        for message in self.messages_at_start() {
            self.history.add_note(&delimited(&message));
        }
        self.show_unsynced_note();
        let mut run = ActiveRun {
            id: queued.accepted.run,
            leg: 1,
            parent: queued.accepted.parent,
            spec: Arc::clone(&queued.accepted.spec),
            accepted: (queued.at, queued.seq),
            clock: RunClock::new(now),
            budget: RunBudget::default(),
            iteration: 1,
            answers: 0,
            answer_recovery: AnswerRecovery::default(),
            subagents: Vec::new(),
            failed_tasks: Vec::new(),
            planned_end: None,
            unseen_from: None,
            compaction: CompactionState::of_new_run(self.unused_summary.take()),
            state: LoopState::CallingModel(ModelCallState::new(0)),
        };
        run.state = LoopState::CallingModel(run.next_call());
        self.current = CurrentRun::Running(Box::new(run));
    }

    fn fold_run_ended(&mut self, ended: &RunEnded, now: SessionTime) {
        let current = match &self.current {
            CurrentRun::Running(run) if run.id == ended.run => run,
            CurrentRun::Running(_) | CurrentRun::Idle => {
                self.queue.retain(|queued| queued.accepted.run != ended.run);
                self.forget_messages(ended.run);
                return;
            }
        };
        match &current.state {
            LoopState::Answered(message) if ended.ended.outcome == crate::model::Outcome::Completed => {
                self.history.end_with_answer(message);
            }
            LoopState::Answered(message) if current.budget.exhausted.is_some() => {
                self.history.end_with_partial(&message.text, &ended.ended);
            }
            LoopState::Answered(_) | LoopState::CallingModel(_) | LoopState::RunningTools(_) => {
                self.history.end_unanswered(&ended.ended);
            }
        }
        if let CurrentRun::Running(run) = std::mem::replace(&mut self.current, CurrentRun::Idle) {
            self.unused_summary.clone_from(&run.compaction.summary);
            self.retain_reopenable(run, ended, now);
        }
        let queue = &self.queue;
        self.steering
            .retain_runs(|run| run == ended.run || queue.iter().any(|queued| queued.accepted.run == run));
        if let Some(next) = self.queue.pop_front() {
            self.start_run(&next, now);
        }
    }

    fn fold_model_answered(&mut self, answered: &ModelAnswered) {
        let CurrentRun::Running(run) = &mut self.current else { return };
        if let Some(started) = run.model_started().cloned() {
            self.observe_usage(&started, answered.usage.as_ref());
        }
        let CurrentRun::Running(run) = &mut self.current else { return };
        run.unseen_from = None;
        run.answers += 1;
        run.budget.usage.add(&answered.usage.unwrap_or_default());
        let spent = run.model_started().map(|started| started.spent(answered.usage.as_ref()));
        run.budget.spent.add(&spent.unwrap_or_default());
        let Some(answer) = run.answer_recovery.on_answer(answered) else {
            run.iteration += 1;
            run.state = LoopState::CallingModel(ModelCallState { is_repeated: true, ..run.next_call() });
            return;
        };
        if answer.calls.is_empty() || run.budget.exhausted.is_some() {
            run.state = LoopState::Answered(answer);
            return self.resume_with_results();
        }
        run.state = LoopState::RunningTools(ActiveStep::new(answered.call, answer));
    }

    fn fold_model_failed(&mut self, failed: &ModelFailed, now: SessionTime) {
        let class = &failed.failure.class;
        self.observe_too_long(class, failed.call);
        let CurrentRun::Running(run) = &mut self.current else { return };
        let Some(call) = run.model_call_mut(failed.call) else { return };
        let AttemptFailure { was_started, has_shown, spent, output_cap } = call.on_failed(failed, now);
        run.budget.output_caps.extend(output_cap);
        run.budget.spent.add(&spent);
        run.budget.usage.add(&failed.failure.usage.as_deref().copied().unwrap_or_default());
        run.unseen_from = run.unseen_from.filter(|_| !has_shown);
        // A call started and given up in one append is no iteration; its reservation is not in the account either.
        let is_uncounted = run.planned_end.is_some() && matches!(class, FailureClass::NotSent);
        let is_first = was_started && failed.attempt == 1;
        run.budget.skipped_numbers += u32::from(is_uncounted && is_first && !run.is_in_grace());
    }

    fn fold_model_waiting(&mut self, waiting: &ModelWaiting, now: SessionTime) {
        let CurrentRun::Running(run) = &mut self.current else { return };
        run.end_pause(now);
        if let Some(call) = run.model_call_mut(waiting.call) {
            call.on_waiting(waiting.until, now);
        }
    }

    /// Replaces the reserved amounts, which counted as spent until now, by the reported ones.
    fn fold_model_late(&mut self, late: &ModelLate) {
        let run = match &mut self.current {
            CurrentRun::Running(run) => Some(run),
            CurrentRun::Idle => self.reopenable.as_mut(),
        };
        if let Some(run) = run.filter(|run| run.id == late.call.run) {
            run.budget.usage.add(&late.usage);
            run.budget.spent.add(&late.spent());
            run.budget.spent.reduce(&late.booked);
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "other kinds spend nothing here")]
    fn fold_tool_call(&mut self, body: &Body, now: SessionTime) {
        let CurrentRun::Running(run) = &mut self.current else { return };
        match body {
            Body::CallStarted(_) => run.budget.spent.add(&ONE_CALL),
            Body::CallLost(lost) if lost.reason == RetryReason::NeverStarted => {
                run.budget.spent.reduce(&ONE_CALL);
            }
            _ => {}
        }
        if let LoopState::RunningTools(step) = &mut run.state {
            step.apply(body, now);
        }
    }

    /// Once every call of the answer has its result, moves the step to the history and makes the next model call due.
    fn close_step(&mut self) {
        let CurrentRun::Running(run) = &mut self.current else { return };
        let LoopState::RunningTools(step) = &run.state else { return };
        let Some(results) = step.results() else { return };
        run.answer_recovery.on_tool_results(&step.answer.text, results.iter().map(|result| &*result.tool));
        self.history.add_step(with_tool_names(&step.answer, &results), results);
        run.iteration += 1;
        run.state = LoopState::CallingModel(run.next_call());
        let id = run.id;
        self.show_messages(id);
        self.show_results();
    }
}
