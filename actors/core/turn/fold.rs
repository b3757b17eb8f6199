//! Folds a record into the state of the session. Nothing here decides or fails: a record that does not fit the state,
//! such as a late second end of a call, changes nothing.
//!
//! `ActiveRun::apply` folds what a record changes in the parts of the run. This file folds the rest: the session's
//! runs, their order, and its history.

use std::sync::Arc;

use crate::{
    model::{
        Body, BudgetRaised, CompactionMethod, ContextCompacted, ModelStarted, Outcome, Record, Repetition,
        RunEnded, RunId, RunReopened, RunSpec, SessionRow, SessionTime,
    },
    turn::{
        Turn,
        active_run::{ActiveRun, LoopState},
        compaction::replacement_text,
        compaction_state::ViewSize,
        estimates,
        request::RequestPrefix,
        run_queue::QueuedRun,
        steer::delimited,
        tool_calls::with_tool_names,
    },
};

impl Turn {
    /// Folds one record. `apply` calls it for durable records, a draft for records to be written.
    #[expect(clippy::wildcard_enum_match_arm, reason = "other kinds change a run alone, or nothing")]
    pub(super) fn fold(&mut self, record: &Record) {
        self.last += 1;
        self.active_ms = record.active_ms;
        record.body.artifacts().for_each(|artifact| self.artifacts.add(artifact));
        let now = SessionTime { at: record.at, active_ms: record.active_ms };
        self.apply_to_run(&record.body, now);
        match &record.body {
            Body::SessionOpened(opened) => {
                let (key, agent) = (Arc::clone(&opened.key), opened.agent.clone());
                self.row = Arc::new(SessionRow { agent, ..SessionRow::new(self.session, key, record.at) });
                self.prompt = Arc::clone(&opened.prompt);
                self.incarnation = opened.incarnation;
                self.boot = opened.boot.as_str().into();
            }
            Body::SessionRevived(revived) => {
                self.incarnation = revived.incarnation;
                self.boot = revived.boot.as_str().into();
                if self.run().is_some_and(ActiveRun::may_extend_view) {
                    self.show_unsynced_note();
                }
            }
            Body::RunAccepted(accepted) => self.fold_run_accepted(accepted, now),
            Body::RunBegun(begun) => self.fold_run_begun(begun, now),
            Body::RunEnded(ended) => self.fold_run_ended(ended, now),
            Body::RunReopened(reopened) => self.fold_run_reopened(reopened),
            Body::BudgetRaised(raised) => self.raise_queued(raised),
            Body::ModelStarted(started) => {
                if let Some(run) = &self.current {
                    let (model, spec) = (started.model.clone(), Arc::clone(&run.spec));
                    self.prefix = Some(RequestPrefix { model, spec, offers_tools: run.offers_tools() });
                }
            }
            Body::ModelAnswered(_) => self.resume_with_results(),
            Body::SummaryAnswered(_) | Body::SummaryFailed(_) => self.allow_summary_retry(),
            Body::AsideStarted(_) | Body::AsideAnswered(_) | Body::AsideFailed(_) => {
                self.fold_vision(&record.body, now);
            }
            Body::ContextCompacted(compacted) => self.fold_compacted(compacted),
            Body::CallEnded(ended) => self.close_step(ended.repetition.as_ref()),
            Body::ChildEnded(_) => {
                if self.run().is_some_and(ActiveRun::may_extend_view) {
                    self.show_results();
                }
                self.resume_with_results();
            }
            Body::RunVerified(verified) => self.fold_verified(verified),
            Body::MessageSteered(message) => {
                self.steering.add(self.last, message);
                if let Some(run) = self.run().filter(|run| run.may_extend_view()).map(|run| run.id) {
                    self.show_messages(run);
                }
            }
            Body::MessageCollected(collected) => self.fold_collected(collected),
            Body::MessageDropped(dropped) => self.fold_dropped(dropped),
            Body::QueueChanged(queue) => Arc::make_mut(&mut self.row).queue = *queue,
            Body::TodoChanged(changed) => self.todo = Arc::clone(&changed.items),
            _ => {}
        }
        if let Some(run) = &mut self.current {
            run.track_time(&record.body, now);
        }
    }

    /// Folds a record into the run under way, and into the observations of models and of unsynced writes.
    fn apply_to_run(&mut self, body: &Body, now: SessionTime) {
        let pressure = if matches!(body, Body::ModelStarted(_)) { self.current_pressure() } else { None };
        let calls = self.current.as_ref().map_or(&[][..], |run| run.tool_calls());
        self.unsynced_writes.apply(body, now.at, calls, &self.boot);
        if let Some((started, spec)) = self.ended_title_attempt(body) {
            let (started, spec) = (Arc::clone(started), Arc::clone(spec));
            self.observations.apply(body, &started, &spec);
        }
        self.title.apply(body, now);
        if let Some(run) = &mut self.current {
            if let Some(started) = run.ended_attempt(body) {
                self.observations.apply(body, started, &run.spec);
            }
            run.apply(body, pressure, now);
        } else if let (Body::ModelLate(_), Some(run)) = (body, &mut self.reopenable) {
            run.apply(body, None, now);
        }
        self.fold_flush(body, now);
    }

    /// The attempt for a title that a record ends, with the spec of its run.
    pub(super) fn ended_title_attempt(&self, body: &Body) -> Option<(&Arc<ModelStarted>, &Arc<RunSpec>)> {
        let (id, _) = body.settled_usage()?;
        self.title.started().filter(|(started, _)| started.id() == id)
    }

    /// Starts the run: its input becomes a new round, with the notes and messages that the model has not read.
    pub(super) fn start_run(&mut self, queued: &QueuedRun, now: SessionTime) {
        self.history.import(&queued.accepted.history);
        self.history.start_round(queued.user_message());
        self.show_messages_at_start();
        self.show_unsynced_note();
        let run = ActiveRun::start(queued, self.unused_summary.take(), now);
        self.current = Some(Box::new(run));
    }

    fn fold_run_ended(&mut self, ended: &RunEnded, now: SessionTime) {
        let current = match &self.current {
            Some(run) if run.id == ended.run => run,
            Some(_) | None => {
                self.queue.retain(|queued| queued.accepted.run != ended.run);
                self.steering.take(|message| message.run == ended.run);
                return self.begin_next(now);
            }
        };
        match &current.state {
            LoopState::Answered(message) if ended.ended.outcome == Outcome::Completed => {
                self.title.on_completed(current, &message.text, (ended, now.at, self.last));
                self.history.end_with_answer(message);
            }
            LoopState::Answered(message)
                if current.budget.exhausted.is_some() || current.has_unverified_text(&ended.ended) =>
            {
                self.history.end_with_partial(&message.text, &ended.ended);
            }
            LoopState::Answered(_) | LoopState::CallingModel(_) | LoopState::RunningTools(_) => {
                self.history.end_unanswered(&ended.ended);
            }
        }
        if let Some(mut run) = self.current.take() {
            self.unused_summary.clone_from(&run.compaction.summary);
            let is_reopenable = ended.ended.outcome == Outcome::BudgetExhausted && self.queue.is_empty();
            run.stop_clock(now);
            self.reopenable = is_reopenable.then_some(run);
        }
        let queue = &self.queue;
        self.steering
            .retain_runs(|run| run == ended.run || queue.iter().any(|queued| queued.accepted.run == run));
        self.begin_next(now);
    }

    /// Starts the next leg of the last run, with a new round.
    fn fold_run_reopened(&mut self, reopened: &RunReopened) {
        let Some(mut run) = self.reopenable.take_if(|run| run.id == reopened.run) else { return };
        let prompt = run.reopen(reopened, self.history.last_step_position());
        self.current = Some(run);
        self.history.start_round(prompt);
        self.show_messages_at_start();
        self.show_results();
        self.show_unsynced_note();
    }

    fn raise_queued(&mut self, raised: &BudgetRaised) {
        let queued = self.queue.iter_mut().find(|queued| queued.accepted.run == raised.run);
        if let Some(queued) = queued {
            *queued = Arc::new(queued.raised(&raised.increase));
        }
    }

    /// Once every call of the answer has its result, moves the step to the history and makes the next model call due.
    /// `repetition` is of the record with the last result.
    fn close_step(&mut self, repetition: Option<&Repetition>) {
        let Some(run) = &mut self.current else { return };
        let LoopState::RunningTools(step) = &run.state else { return };
        let Some(results) = step.results() else { return };
        run.answer_recovery.on_tool_results(&step.answer.text, results.iter().map(|result| &*result.tool));
        self.history.add_step(with_tool_names(&step.answer, &results), results);
        run.guard_step(repetition);
        if let Some(repetition) = repetition.filter(|repetition| !repetition.ends_run()) {
            self.history.add_note(&repetition.warning());
        }
        run.start_iteration();
        let id = run.id;
        self.show_messages(id);
        self.show_results();
    }

    /// After a final answer that the model gave while subagents were live: once all of them have ended, starts a round
    /// that shows their results.
    fn resume_with_results(&mut self) {
        let Some(run) = &mut self.current else { return };
        let LoopState::Answered(answer) = &run.state else { return };
        let ends = run.planned_end.is_some() || run.budget.exhausted.is_some();
        if ends || run.subagents.has_live() || run.subagents.is_empty() {
            return;
        }
        let mut answer = Arc::clone(answer);
        if answer.text.is_empty() {
            Arc::make_mut(&mut answer).text = "I wait for the subagents.".into();
        }
        self.history.end_with_answer(&answer);
        self.history.start_round(Arc::<str>::from(run.subagents.take_results().join("\n\n")));
        run.start_iteration();
        let id = run.id;
        self.show_messages(id);
    }

    /// Leaves out long results, or replaces the part before `compacted.end`, and notes the size that is left.
    fn fold_compacted(&mut self, compacted: &ContextCompacted) {
        let is_elided = matches!(compacted.method, CompactionMethod::Elided);
        if is_elided {
            self.history.elide(compacted.end);
        } else {
            let (first, todo) = (self.history.first_request(compacted.end), self.todo());
            let before = replacement_text(compacted, first, todo.as_deref());
            self.history.drop_before(compacted.end, before);
            self.summary.clone_from(&compacted.summary);
        }
        let Some(run) = self.run() else { return };
        let bytes = estimates::request_bytes(run, self);
        let size = ViewSize { bytes, milli_tokens: self.next_density(run).milli_tokens(bytes) };
        if let Some(run) = &mut self.current {
            run.compaction.on_compacted(is_elided, size);
            if let LoopState::CallingModel(call) = &mut run.state {
                (call.is_too_long, call.pressure) = (false, None);
            }
        }
    }

    /// Appends the results of background subagents that have ended to what the model reads next.
    fn show_results(&mut self) {
        let Some(run) = &mut self.current else { return };
        for result in run.subagents.take_results() {
            self.history.add_note(&format!("\n\n{result}"));
        }
    }

    /// Appends the unread steering messages of `run`, and the note about unsynced writes, to what the model reads next.
    pub(super) fn show_messages(&mut self, run: RunId) {
        self.show_unsynced_note();
        if self.is_exhausted() {
            return;
        }
        self.show_dropped_note();
        for message in self.steering.take(|message| message.run == run) {
            self.history.add_note(&delimited(&message));
        }
    }

    fn show_messages_at_start(&mut self) {
        self.show_dropped_note();
        for message in self.steering.take_for_next(&self.queue) {
            self.history.add_note(&delimited(&message));
        }
    }

    fn show_dropped_note(&mut self) {
        if let Some(note) = self.steering.take_dropped_note() {
            self.history.add_note(&note);
        }
    }

    fn show_unsynced_note(&mut self) {
        if let Some(note) = self.unsynced_writes.take_note() {
            self.history.add_note(&note);
        }
    }
}
