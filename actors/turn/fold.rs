//! What a record changes. Nothing here decides, and nothing here fails: a record that does not fit the state (a late
//! end of a call that has one, say) changes nothing.

use std::sync::Arc;

use crate::{
    model::{
        Access, Amounts, ApprovalRequested, AssistantMessage, Attempt, Body, CallAdmitted, CallEnded, CallId,
        CallLost, CallStarted, EffectClass, FailureClass, LateSettled, ModelAnswered, ModelFailed,
        ModelStarted, ModelWaiting, Now, Record, RunAccepted, RunEnded, Usage, WhyAgain,
    },
    policy::{Billing, billing, fit_name, may_pass, spent_by_failure},
    turn::{
        Head, Prefix, Turn,
        asking::{Asked, Asking, Patience, Pause},
        compaction::Compacting,
        history::CallResult,
        ladder::Ladder,
        rows::ONE_CALL,
        run::{Acting, Call, CallState, Doubtful, Phase, Queued, Run, Step},
        steer::fenced,
    },
};

impl Turn {
    /// Folds one record in; `apply` for what is durable, and for a draft what will be.
    pub(super) fn fold(&mut self, record: &Record) {
        self.last += 1;
        self.active_ms = record.active_ms;
        record.body.artifacts().for_each(|artifact| self.artifacts.add(artifact));
        let now = Now { at: record.at, active_ms: record.active_ms };
        match &record.body {
            Body::SessionOpened(opened) => {
                self.head = Arc::new(Head { prompt: Arc::clone(&opened.prompt) });
                self.incarnation = opened.incarnation;
                self.boot = opened.boot.as_str().into();
            }
            Body::SessionRevived(revived) => {
                self.taken_up(&revived.boot);
                self.incarnation = revived.incarnation;
                self.boot = revived.boot.as_str().into();
            }
            Body::RunAccepted(accepted) => self.accepted(accepted, now),
            Body::RunStopping(stopping) => {
                if let Phase::Running(run) = &mut self.phase {
                    run.stopping = Some(stopping.ended.clone());
                }
            }
            Body::RunEnded(ended) => self.ended(ended, now),
            Body::ModelStarted(started) => self.asks(started, now),
            Body::ContextCompacted(_)
            | Body::SummaryStarted(_)
            | Body::SummaryAnswered(_)
            | Body::SummaryFailed(_) => self.fold_summary(&record.body, now),
            Body::ModelAnswered(answered) => self.answered(answered),
            Body::ModelFailed(failed) => self.failed(failed, now),
            Body::ModelWaiting(waiting) => self.waits(waiting, now),
            Body::LateSettled(late) => self.late(late),
            Body::CallAdmitted(admitted) => self.admitted(admitted),
            Body::CallStarted(started) => self.started(started, now),
            Body::CallEnded(ended) => {
                self.wrote(ended, record.at);
                self.call_ended(ended);
            }
            Body::CallLost(lost) => self.call_lost(lost),
            Body::MessageSteered(message) => self.steered(message),
            Body::ApprovalRequested(request) => self.doubted(request, now),
            Body::RunExhausted(exhausted) => self.exhausted(exhausted, now),
            Body::RunReopened(reopened) => self.reopened(reopened),
            Body::BudgetRaised(raised) => self.raised(raised),
            // What follows from an answer is a record too.
            Body::ApprovalAnswered(_) => {}
            Body::ChildEnded(ended) => self.child_ended(ended),
            Body::TodoChanged(changed) => self.todo = Arc::clone(&changed.items),
        }
        self.seen(record.at);
        if let Phase::Running(run) = &mut self.phase {
            run.note_asked(record.active_ms);
            run.note_parked(record.active_ms);
            if matches!(record.body, Body::ModelAnswered(_) | Body::CallEnded(_) | Body::ChildEnded(_)) {
                run.note_progress(now);
            }
        }
    }

    fn asks(&mut self, started: &Arc<ModelStarted>, now: Now) {
        let started = Arc::clone(started);
        let pressure = self.current_pressure();
        let offers_tools = self.offers_tools();
        if let Phase::Running(run) = &mut self.phase {
            run.end_pause(now);
            let (model, spec) = (started.model.clone(), Arc::clone(&run.spec));
            self.prefix = Some(Prefix { model, spec, offers_tools });
        }
        if let Some(asking) = self.asked(started.call) {
            asking.since.get_or_insert(now.active_ms);
            asking.pressure = pressure;
            asking.state = Asked::Started(started);
        }
    }

    fn accepted(&mut self, accepted: &RunAccepted, now: Now) {
        self.accepted.insert(accepted.run);
        self.reopenable = None;
        self.became(accepted);
        let queued = Arc::new(Queued { accepted: accepted.clone(), at: now.at, seq: self.last });
        match &self.phase {
            Phase::Idle => self.begin(&queued, now),
            Phase::Running(_) => self.queue.push_back(queued),
        }
    }

    fn begin(&mut self, queued: &Queued, now: Now) {
        self.history.recall(&queued.accepted.history);
        self.history.begin(queued.accepted.user());
        for message in self.messages_at_begin() {
            self.history.note(&fenced(&message));
        }
        self.show_note();
        let mut run = Run {
            id: queued.accepted.run,
            leg: 1,
            parent: queued.accepted.parent,
            spec: Arc::clone(&queued.accepted.spec),
            accepted: (queued.at, queued.seq),
            began: now,
            uncounted_ms: 0,
            progress_ms: 0,
            parked_at: None,
            iteration: 1,
            usage: Usage::default(),
            spent: Amounts::default(),
            caps: Vec::new(),
            ladder: Ladder::default(),
            subagents: Vec::new(),
            failed_tasks: Vec::new(),
            not_iterations: 0,
            exhausted: None,
            stopping: None,
            unshown: None,
            compacting: Compacting::of_new_run(self.unused_summary.take()),
            asked_since: None,
            step: Step::Asking(Asking::first(0)),
        };
        run.step = Step::Asking(run.next_call());
        self.phase = Phase::Running(Box::new(run));
    }

    fn ended(&mut self, ended: &RunEnded, now: Now) {
        let current = match &self.phase {
            Phase::Running(run) if run.id == ended.run => run,
            Phase::Running(_) | Phase::Idle => {
                self.queue.retain(|queued| queued.accepted.run != ended.run);
                self.forget_messages(ended.run);
                return;
            }
        };
        match &current.step {
            Step::Said(message) if ended.ended.outcome == crate::model::Outcome::Completed => {
                self.history.answer(message);
            }
            Step::Said(message) if current.exhausted.is_some() => {
                self.history.close_behind(&message.text, &ended.ended);
            }
            Step::Said(_) | Step::Asking(_) | Step::Acting(_) => self.history.close(&ended.ended),
        }
        if let Phase::Running(run) = std::mem::replace(&mut self.phase, Phase::Idle) {
            self.unused_summary.clone_from(&run.compacting.summary);
            self.keep(run, ended, now);
        }
        let queue = &self.queue;
        self.steering
            .remember(|run| run == ended.run || queue.iter().any(|queued| queued.accepted.run == run));
        if let Some(next) = self.queue.pop_front() {
            self.begin(&next, now);
        }
    }

    fn answered(&mut self, answered: &ModelAnswered) {
        let Phase::Running(run) = &mut self.phase else { return };
        if let Some(started) = run.asking().cloned() {
            self.measure(&started, answered.usage.as_ref());
        }
        let Phase::Running(run) = &mut self.phase else { return };
        run.unshown = None;
        run.usage.add(&answered.usage.unwrap_or_default());
        let spent = run.asking().map(|started| started.spent(answered.usage.as_ref()));
        run.spent.add(&spent.unwrap_or_default());
        let Some(answer) = run.ladder.take(answered) else {
            run.iteration += 1;
            run.step = Step::Asking(Asking { is_repeated: true, ..run.next_call() });
            return;
        };
        if answer.calls.is_empty() || run.exhausted.is_some() {
            run.step = Step::Said(answer);
            return self.go_on_with_results();
        }
        let calls = answer.calls.iter().zip(1..).map(|(call, n)| Call {
            id: CallId { n, ..answered.call },
            tool: call.name.as_str().into(),
            effect: EffectClass::Once,
            access: Access::default(),
            detached: false,
            begun: false,
            lost: 0,
            state: CallState::Proposed,
        });
        let calls = calls.collect();
        run.step = Step::Acting(Acting { answer, calls });
    }

    fn failed(&mut self, failed: &ModelFailed, now: Now) {
        let class = &failed.failure.class;
        self.learn(class, failed.call);
        let Some(asking) = self.asked(failed.call) else { return };
        let was_started = asking.started().is_some();
        let (spent, was_read) = match &asking.state {
            Asked::Started(started) => {
                let was_read = billing(&failed.failure) != Billing::Nothing;
                (spent_by_failure(started, &failed.failure), was_read)
            }
            Asked::Wanted(_) => (Amounts::default(), false),
        };
        if let Some(model) = asking.started().map(|started| started.model.clone()) {
            let patience = match failed.fallback {
                None => Patience::Left,
                Some(_) if may_pass(class) => Patience::Resting,
                Some(_) => Patience::Spent,
            };
            asking.note(model, &failed.failure, patience);
        }
        let cap = match (class, asking.started()) {
            (FailureClass::OutputCap { limit }, Some(started)) => {
                // A limit that the request has kept says nothing.
                let limit = limit.filter(|limit| *limit > 0 && *limit < started.max_tokens);
                Some((started.model.clone(), limit.unwrap_or(started.max_tokens / 2).max(1)))
            }
            _ => None,
        };
        asking.attempt = failed.attempt + 1;
        let is_too_long = matches!(class, FailureClass::ContextTooLong { .. });
        asking.is_too_long |= is_too_long;
        // Of what is too long nothing could ever go otherwise.
        asking.has_shown |= was_read || was_started && is_too_long;
        let has_shown = asking.has_shown;
        let uncounted = class.reset_is_known().then_some(now.active_ms);
        asking.state = Asked::Wanted(failed.retry_at.map(|until| Pause { from: now.at, until, uncounted }));
        if let Phase::Running(run) = &mut self.phase {
            run.caps.extend(cap);
            run.spent.add(&spent);
            run.usage.add(&failed.failure.usage.as_deref().copied().unwrap_or_default());
            run.unshown = run.unshown.filter(|_| !has_shown);
            // Started and given up in one append: that is no iteration, as the account says too.
            let is_uncounted = run.stopping.is_some() && matches!(class, FailureClass::NotMade);
            let is_first = was_started && failed.attempt == 1;
            run.not_iterations += u32::from(is_uncounted && is_first && !run.is_in_grace());
        }
    }

    fn waits(&mut self, waiting: &ModelWaiting, now: Now) {
        if let Phase::Running(run) = &mut self.phase {
            run.end_pause(now);
        }
        if let Some(asking) = self.asked(waiting.call) {
            let pause = Pause { from: now.at, until: waiting.until, uncounted: Some(now.active_ms) };
            asking.state = Asked::Wanted(Some(pause));
        }
    }

    /// Until now all that was reserved counted as spent.
    fn late(&mut self, late: &LateSettled) {
        let run = match &mut self.phase {
            Phase::Running(run) => Some(run),
            Phase::Idle => self.reopenable.as_mut(),
        };
        if let Some(run) = run.filter(|run| run.id == late.call.run) {
            run.usage.add(&late.usage);
            run.spent.add(&late.spent());
            run.spent.reduce(&late.booked);
        }
    }

    fn admitted(&mut self, admitted: &CallAdmitted) {
        if let Some(call) = self.call(admitted.call) {
            call.tool = Arc::clone(&admitted.tool);
            call.effect = admitted.effect;
            call.access = admitted.access.clone();
            call.detached = admitted.detached;
            call.state = admitted.same_as.map_or(CallState::Admitted(1), CallState::Same);
        }
    }

    fn started(&mut self, started: &CallStarted, now: Now) {
        if let Phase::Running(run) = &mut self.phase {
            run.spent.add(&ONE_CALL);
        }
        if let Some(call) = self.call(started.call) {
            call.state = CallState::Started(Arc::new(started.clone()), now.at);
        }
        self.gave(started);
    }

    fn call_lost(&mut self, lost: &CallLost) {
        if let Phase::Running(run) = &mut self.phase
            && lost.why == WhyAgain::NeverBegun
        {
            run.spent.reduce(&ONE_CALL);
        }
        if let Some(call) = self.call(lost.call) {
            call.state = CallState::Admitted(lost.attempt + 1);
            call.begun |= lost.why != WhyAgain::NeverBegun;
            call.lost += Attempt::from(matches!(lost.why, WhyAgain::Lost | WhyAgain::InDoubt));
        }
    }

    fn doubted(&mut self, request: &ApprovalRequested, now: Now) {
        let Some(call) = self.call(request.call) else { return };
        if let CallState::Started(_, started_at) = call.state {
            call.state = CallState::Parked(Arc::new(Doubtful {
                request: request.clone(),
                attempt: request.attempt,
                started_at,
                asked_at: now.at,
            }));
        }
    }

    fn call_ended(&mut self, ended: &CallEnded) {
        if let Some(call) = self.call(ended.call) {
            call.state = CallState::Ended(Arc::new(ended.end.clone()));
        }
        self.forget_results(ended.call);
        self.close_step();
    }

    /// When every call of the answer has its result, the step enters the history and the model is to be asked again.
    fn close_step(&mut self) {
        let Phase::Running(run) = &mut self.phase else { return };
        let Step::Acting(acting) = &run.step else { return };
        let results: Option<Vec<_>> = acting.answer.calls.iter().zip(&acting.calls).map(result).collect();
        let Some(results) = results else { return };
        run.ladder.acted(&acting.answer.text, results.iter().map(|result| &*result.tool));
        self.history.step(named(&acting.answer, &results), results);
        run.iteration += 1;
        run.step = Step::Asking(run.next_call());
        let id = run.id;
        self.show_messages(id);
        self.show_results();
    }

    fn asked(&mut self, call: CallId) -> Option<&mut Asking> {
        match &mut self.phase {
            Phase::Running(run) if run.model_call() == call => match &mut run.step {
                Step::Asking(asking) => Some(asking),
                Step::Acting(_) | Step::Said(_) => None,
            },
            Phase::Running(_) | Phase::Idle => None,
        }
    }

    fn call(&mut self, id: CallId) -> Option<&mut Call> {
        let Phase::Running(run) = &mut self.phase else { return None };
        let Step::Acting(acting) = &mut run.step else { return None };
        acting.calls.iter_mut().find(|call| call.id == id && !matches!(call.state, CallState::Ended(_)))
    }
}

fn result((asked, call): (&crate::model::ToolCall, &Call)) -> Option<CallResult> {
    match &call.state {
        CallState::Ended(end) => Some(CallResult {
            id: asked.id.as_str().into(),
            tool: fit_name(&call.tool),
            end: Arc::clone(end),
        }),
        CallState::Proposed
        | CallState::Admitted(_)
        | CallState::Started(..)
        | CallState::Parked(_)
        | CallState::Same(_) => None,
    }
}

/// The answer with the names that its calls have in the view: the tools' own.
fn named(answer: &Arc<AssistantMessage>, results: &[CallResult]) -> Arc<AssistantMessage> {
    let mut calls = answer.calls.iter().zip(results);
    if calls.all(|(call, result)| call.name == *result.tool) {
        return Arc::clone(answer);
    }
    let mut named = AssistantMessage::clone(answer);
    for (call, result) in named.calls.iter_mut().zip(results) {
        call.name = result.tool.to_string();
    }
    Arc::new(named)
}
