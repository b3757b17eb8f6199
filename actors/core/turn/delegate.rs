//! Delegation of tasks to subagents: admission, results, and the rule that a run does not end before its subagents
//! have.
//!
//! Invariant: one append starts the delegating call and creates the subagents: session, accepted run, account, and the
//! reservation of `children` on all accounts above. The end of a subagent is taken in once, together with the inbox row
//! that reports it.

use std::sync::Arc;

use serde_json::json;

use crate::{
    journal::{InboxItem, IndexRow, SpawnedSession},
    model::{
        Amounts, Body, CallEnd, CallId, CallStarted, CallStatus, ChildEnded, Dimension, Hash, Hasher,
        InboxMessage, Incarnation, NewAccount, Outcome, OutcomeCause, ParentRef, RUNTIME_TEXT_PREFIX, Record,
        RunAccepted, RunCounts, RunId, RunRow, RunState, SessionId, SessionOpened, SessionRow, StopReason,
        SubagentRef, Timestamp,
    },
    policy::{
        delegation::{
            DELEGATE_TASK, DelegatedTask, DelegationRequest, parse_delegation, subagent_input, subagent_spec,
        },
        parse_arguments,
    },
    turn::{
        Input, Turn,
        active_run::{ActiveRun, CurrentRun, LoopState},
        decision::{Decision, DecisionBuilder},
        ledger_and_index::settle,
        model_call::ModelCallState,
        tool_calls::{ActiveToolCall, ToolCallState},
    },
};

/// A task that has failed this often with the same outcome is not delegated again.
const MAX_EQUAL_FAILURES: u32 = 3;

/// A subagent of the run under way whose end is not yet reported to the model.
#[derive(Debug, Clone)]
pub(super) struct Subagent {
    pub(super) call: CallId,
    /// Index among the tasks of its call.
    pub(super) n: u32,
    pub(super) child: SubagentRef,
    signature: Hash,
    ended: Option<Arc<ChildEnded>>,
}

/// When a delegating call ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DelegationMode {
    /// The call ends with its last subagent.
    Foreground,
    /// The call ends at once, with this result.
    Background(CallEnd),
}

/// A failed task with its outcome, and how often it ended so.
#[derive(Debug, Clone)]
pub(super) struct FailedTask {
    signature: Hash,
    outcome: Outcome,
    times: u32,
}

impl ActiveToolCall {
    /// Whether the call delegates tasks to subagents.
    pub(super) fn delegates(&self) -> bool {
        *self.tool == *DELEGATE_TASK
    }
}

impl ActiveRun {
    /// The subagents that have not ended.
    pub(super) fn live_subagents(&self) -> impl Iterator<Item = &Subagent> {
        self.subagents.iter().filter(|subagent| subagent.ended.is_none())
    }

    pub(super) fn has_live_subagents(&self) -> bool {
        self.live_subagents().next().is_some()
    }

    /// Whether the model has given its final answer and every subagent has ended.
    pub(super) fn has_final_answer(&self) -> bool {
        matches!(self.state, LoopState::Answered(_)) && !self.has_live_subagents()
    }

    fn is_open(&self, call: CallId) -> bool {
        self.calls().iter().any(|of| of.id == call && matches!(of.state, ToolCallState::Started(..)))
    }

    /// The most frequent failure of this task.
    fn failed_task(&self, signature: Hash) -> Option<&FailedTask> {
        self.failed_tasks
            .iter()
            .filter(|failed| failed.signature == signature)
            .max_by_key(|failed| failed.times)
    }
}

impl Turn {
    /// The subagent of task `n` of this call.
    pub fn subagent(&self, call: CallId, n: u32) -> Option<SubagentRef> {
        let CurrentRun::Running(run) = &self.current else { return None };
        run.subagents
            .iter()
            .find(|subagent| subagent.call == call && subagent.n == n)
            .map(|subagent| subagent.child)
    }

    /// The mode of a delegating call; `None` for any other call.
    pub fn delegation_mode(&self, id: CallId) -> Option<DelegationMode> {
        let CurrentRun::Running(run) = &self.current else { return None };
        let LoopState::RunningTools(acting) = &run.state else { return None };
        let (call, asked) = acting.calls.iter().zip(&acting.answer.calls).find(|(call, _)| call.id == id)?;
        if !call.delegates() {
            return None;
        }
        let order = parse_arguments(&asked.arguments)
            .ok()
            .and_then(|arguments| parse_delegation(&arguments, &run.spec).ok());
        let of_call = run.subagents.iter().filter(|subagent| subagent.call == id);
        let handles: Vec<_> = of_call.map(|subagent| json!(subagent.child.run.to_string())).collect();
        let goes_on = order.is_some_and(|order| order.background) && run.planned_end.is_none();
        if !goes_on {
            return Some(DelegationMode::Foreground);
        }
        let note =
            "they work in the background; each result comes to you by itself, and you cannot end before";
        Some(DelegationMode::Background(CallEnd::ok(
            json!({"background": true, "runs": handles, "note": note}).to_string(),
        )))
    }

    /// Number of subagents of each call that has some.
    pub fn subagent_counts(&self) -> Vec<(CallId, usize)> {
        let CurrentRun::Running(run) = &self.current else { return Vec::new() };
        let tasks =
            |call: &ActiveToolCall| run.subagents.iter().filter(|subagent| subagent.call == call.id).count();
        run.calls().iter().map(|call| (call.id, tasks(call))).filter(|(_, tasks)| *tasks > 0).collect()
    }

    /// Adds the subagents of a call whose start is folded; no effect without children.
    pub(super) fn track_delegation(&mut self, started: &CallStarted) {
        if started.children.is_empty() {
            return;
        }
        let CurrentRun::Running(run) = &mut self.current else { return };
        let LoopState::RunningTools(acting) = &run.state else { return };
        let mut calls = acting.calls.iter().zip(&acting.answer.calls);
        let asked =
            calls.find(|(call, _)| call.id == started.call).map(|(_, asked)| asked.arguments.as_str());
        let order = asked
            .and_then(|text| parse_arguments(text).ok())
            .and_then(|asked| parse_delegation(&asked, &run.spec).ok());
        let signatures: Vec<Hash> =
            order.iter().flat_map(|order| &order.tasks).map(DelegatedTask::signature).collect();
        for ((n, child), place) in (0..).zip(&*started.children).zip(0..) {
            let signature = signatures.get(place).copied().unwrap_or_else(|| Hash::of(b""));
            let subagent = Subagent { call: started.call, n, child: *child, signature, ended: None };
            run.subagents.push(subagent);
        }
    }

    /// Folds `child.ended`.
    pub(super) fn fold_child_ended(&mut self, ended: &ChildEnded) {
        let CurrentRun::Running(run) = &mut self.current else { return };
        let mut subagents = run.subagents.iter_mut();
        let Some(subagent) = subagents.find(|of| of.call == ended.call && of.child.run == ended.child.run)
        else {
            return;
        };
        subagent.ended = Some(Arc::new(ended.clone()));
        let (signature, outcome) = (subagent.signature, ended.ended.outcome);
        if !matches!(outcome, Outcome::Completed | Outcome::Stopped) {
            let same = |failed: &&mut FailedTask| failed.signature == signature && failed.outcome == outcome;
            match run.failed_tasks.iter_mut().find(same) {
                Some(failed) => failed.times += 1,
                None => run.failed_tasks.push(FailedTask { signature, outcome, times: 1 }),
            }
        }
        if matches!(
            &run.state,
            LoopState::CallingModel(ModelCallState { since: None, is_repeated: false, .. })
        ) {
            self.show_results();
        }
        self.resume_with_results();
    }

    /// Drops the subagents of an ended call if all of them have ended: its result contains theirs. Otherwise all stay,
    /// and the result of each is shown on its own.
    pub(super) fn forget_results(&mut self, call: CallId) {
        let CurrentRun::Running(run) = &mut self.current else { return };
        let has_live = run.live_subagents().any(|subagent| subagent.call == call);
        run.subagents.retain(|subagent| has_live || subagent.call != call);
    }

    /// Appends the results of background subagents to what the model reads next.
    pub(super) fn show_results(&mut self) {
        for told in self.take_results() {
            self.history.add_note(&format!("\n\n{told}"));
        }
    }

    fn take_results(&mut self) -> Vec<String> {
        let CurrentRun::Running(run) = &mut self.current else { return Vec::new() };
        let told = run.subagents.iter().filter_map(format_result).collect();
        run.subagents.retain(|subagent| subagent.ended.is_none());
        told
    }

    /// After a final answer before all results: once all have arrived, starts a round in which the model reads them.
    pub(super) fn resume_with_results(&mut self) {
        let CurrentRun::Running(run) = &self.current else { return };
        let LoopState::Answered(answer) = &run.state else { return };
        let ends = run.planned_end.is_some() || run.budget.exhausted.is_some();
        if ends || run.has_live_subagents() || run.subagents.is_empty() {
            return;
        }
        let mut answer = Arc::clone(answer);
        if answer.text.is_empty() {
            Arc::make_mut(&mut answer).text = "I wait for the subagents.".into();
        }
        self.history.end_with_answer(&answer);
        let told = self.take_results().join("\n\n");
        self.history.start_round(Arc::<str>::from(told));
        let CurrentRun::Running(run) = &mut self.current else { return };
        run.iteration += 1;
        run.state = LoopState::CallingModel(run.next_call());
        let id = run.id;
        self.show_messages(id);
    }
}

fn format_result(subagent: &Subagent) -> Option<String> {
    let ended = subagent.ended.as_ref()?;
    let run = subagent.child.run;
    Some(format!(
        "{RUNTIME_TEXT_PREFIX}a subagent in the background has ended, run {run}:]\n{}",
        ended.result
    ))
}

impl DecisionBuilder {
    /// Starts the subagents of each admitted delegating call, or ends the call with the reason. Such a call needs no
    /// permit.
    pub(super) fn delegate(&mut self, behind: &Input) {
        // After a revival a `BudgetRefused` may still follow.
        if matches!(behind, Input::Revived { .. }) {
            return;
        }
        let is_ready =
            |call: &&ActiveToolCall| call.delegates() && matches!(call.state, ToolCallState::Admitted(_));
        while let Some(run) =
            self.run().filter(|run| run.planned_end.is_none() && run.budget.exhausted.is_none())
            && let Some(call) = run.calls().iter().find(is_ready).map(|call| call.id)
        {
            match self.admitted_tasks(call) {
                Ok(_) if !self.may_delegate() => return,
                Ok(order) => self.start_subagents(call, &order),
                Err(end) => self.end_call(call.attempt(0), end),
            }
        }
    }

    /// Whether no reservation is refused that would end the run.
    fn may_delegate(&self) -> bool {
        self.refused_dimension().is_none()
    }

    /// The tasks of a call; the error is the call's result for the model.
    fn admitted_tasks(&self, call: CallId) -> Result<DelegationRequest, CallEnd> {
        let Some(run) = self.run() else {
            return Err(not_delegated("the run has ended", None, "nothing to do"));
        };
        let given = parse_arguments(self.arguments(call))
            .map_err(|error| not_delegated(&error.to_string(), None, "send JSON"))?;
        let order = parse_delegation(&given, &run.spec)
            .map_err(|bad| not_delegated(&bad.error, bad.field.as_deref(), &bad.hint))?;
        let delegation = run.spec.delegation.filter(|delegation| delegation.depth < delegation.max_depth);
        let Some(delegation) = delegation else {
            return Err(not_delegated("you are as deep as subagents may be", None, "do it yourself"));
        };
        let (live, more) = (run.live_subagents().count(), order.tasks.len());
        let most = usize::try_from(delegation.max_children).unwrap_or(usize::MAX);
        if live + more > most {
            let error =
                format!("{more} more subagents beside {live} that live are over the limit of {most} at once");
            let hint = if more > most {
                "give fewer tasks at a time"
            } else {
                "wait for the results of those that live"
            };
            return Err(not_delegated(&error, Some("tasks"), hint));
        }
        if let Some(refusal) = self.refused_reservation.as_ref().map(|refused| &refused.refusal)
            && refusal.dimension == Dimension::Children
        {
            let hint = "do it yourself, or give it away when other subagents of this tree have ended";
            return Err(not_delegated(&refusal.to_string(), None, hint));
        }
        let failed = order.tasks.iter().filter_map(|task| run.failed_task(task.signature()));
        if let Some(failed) = failed.into_iter().find(|failed| failed.times >= MAX_EQUAL_FAILURES) {
            let error = format!("this task has ended as {} {} times", failed.outcome, failed.times);
            return Err(not_delegated(&error, None, "change the task, or do it yourself"));
        }
        Ok(order)
    }

    /// Starts a delegating call together with its subagents.
    fn start_subagents(&mut self, call: CallId, order: &DelegationRequest) {
        let Some(run) = self.run() else { return };
        let (spec, at) = (Arc::clone(&run.spec), self.now.at);
        let mut children = Vec::new();
        for (task, n) in order.tasks.iter().zip(0..) {
            let child = SubagentRef {
                session: SessionId::from_bits(derived_id(at, b"session", (call, n))),
                run: RunId::from_bits(derived_id(at, b"run", (call, n))),
            };
            let Some(spec) = subagent_spec(task, &spec, child.run) else { continue };
            let parent = ParentRef { session: self.turn.session, call, n };
            let accepted = RunAccepted {
                run: child.run,
                input: subagent_input(task).into(),
                images: Arc::default(),
                history: Arc::default(),
                spec: Arc::new(spec),
                parent: Some(parent),
            };
            self.spawn_session(child.session, accepted);
            children.push(child);
        }
        let (incarnation, boot, attempt) = (self.turn.incarnation, Arc::clone(&self.turn.boot), 1);
        self.record(Body::CallStarted(CallStarted {
            call,
            attempt,
            incarnation,
            boot,
            children: children.into(),
        }));
    }

    /// Adds a subagent's session, account and index rows to the decision.
    fn spawn_session(&mut self, session: SessionId, accepted: RunAccepted) {
        let (at, run, parent) = (self.now.at, accepted.run, accepted.parent);
        let shared = accepted.spec.delegation.is_some_and(|delegation| delegation.shares_iterations);
        self.decision.ledger.new_accounts.push(NewAccount {
            id: run.into(),
            parent: parent.map(|parent| parent.call.run.into()),
            limits: accepted.spec.limits.budget,
            owns_iterations: !shared,
        });
        let key: Arc<str> = format!("task:{run}").into();
        let opened = SessionOpened {
            key: Arc::clone(&key),
            prompt: Arc::clone(&self.turn.header.prompt),
            incarnation: Incarnation::default(),
            boot: self.turn.boot.to_string(),
        };
        let bodies = [Body::SessionOpened(opened), Body::RunAccepted(Box::new(accepted))];
        let records = bodies.into_iter().map(|body| Arc::new(Record { at, active_ms: 0, body })).collect();
        self.decision.found.push(SpawnedSession { session, records });
        self.decision.index.push(IndexRow::Session(SessionRow { id: session, key, opened_at: at }));
        self.decision.index.push(IndexRow::Run(Box::new(RunRow {
            state: RunState::Running,
            started_at: Some(at),
            parent,
            counts: Some(RunCounts::default()),
            ..RunRow::new(run, session, at, 2)
        })));
    }

    /// Reacts to the end of a subagent: the call ends with its last subagent.
    pub(super) fn on_subagent_end(&mut self, ended: &ChildEnded) {
        let is_it = |of: &&Subagent| of.call == ended.call && of.child.run == ended.child.run;
        if !self.run().is_some_and(|run| run.live_subagents().any(|of| is_it(&of))) {
            return;
        }
        self.record(Body::ChildEnded(Box::new(ended.clone())));
        let Some(run) = self.run() else { return };
        let mut of_call = run.subagents.iter().filter(|of| of.call == ended.call);
        if run.is_open(ended.call) && of_call.all(|of| of.ended.is_some()) {
            let of_call = run.subagents.iter().filter(|of| of.call == ended.call);
            let told: Vec<&str> = of_call.filter_map(|of| Some(&*of.ended.as_ref()?.result)).collect();
            let content = match told[..] {
                [told] => told.to_owned(),
                _ => format!("{{\"results\":[{}]}}", told.join(",")),
            };
            return self.end_call(ended.call.attempt(1), CallEnd::ok(content));
        }
        self.end_if_stopped();
    }

    /// Sends a stop to all live subagents, unless the run's end lets started calls finish.
    pub(super) fn stop_subagents(&mut self) {
        let Some(run) = self.run() else { return };
        if matches!(&run.planned_end, Some(ended) if matches!(ended.cause, Some(OutcomeCause::Limit { .. })))
        {
            return;
        }
        let children: Vec<SubagentRef> = run.live_subagents().map(|subagent| subagent.child).collect();
        self.decision.send.extend(children.into_iter().map(stop_message));
    }

    /// Reports the end of a run to its parent's session, and releases its reservation of `children`.
    pub(super) fn notify_parent(&mut self, run: RunId) {
        let current = self.run().filter(|current| current.id == run).map(|current| current.parent);
        let queued = || self.turn.queue.iter().find(|queued| queued.accepted.run == run)?.accepted.parent;
        if let Some(parent) = current.unwrap_or_else(queued) {
            let child = SubagentRef { session: self.turn.session, run };
            report_to_parent(&mut self.decision, parent, child);
        }
    }
}

/// Reports the end of a subagent to its parent's session, and releases the parent's reservation of `children`.
pub(super) fn report_to_parent(decision: &mut Decision, parent: ParentRef, child: SubagentRef) {
    let report = InboxMessage::ChildEnded { call: parent.call, child };
    decision.send.push((parent.session, report.to_json()));
    settle(&mut decision.ledger, parent.call.run.into(), &ONE_CHILD, &Amounts::default());
}

/// The message that stops a subagent, and the session that receives it.
pub(super) fn stop_message(child: SubagentRef) -> (SessionId, InboxItem) {
    let stop = InboxMessage::Stop { run: child.run, reason: StopReason::Parent };
    (child.session, stop.to_json())
}

/// One live subagent.
pub(super) const ONE_CHILD: Amounts =
    Amounts { iterations: None, tokens: None, usd: None, tool_calls: None, children: Some(1) };

fn not_delegated(error: &str, field: Option<&str>, hint: &str) -> CallEnd {
    CallEnd::error(CallStatus::Error, &format!("not delegated: {error}"), field, hint)
}

/// A ULID derived from the task: the core has no randomness.
fn derived_id(at: Timestamp, what: &[u8], (call, n): (CallId, u32)) -> u128 {
    let mut hasher = Hasher::default();
    hasher.part(what);
    hasher.part(call.to_string().as_bytes());
    hasher.part(&n.to_le_bytes());
    let hash = hasher.finish();
    let chance = hash.as_bytes().iter().take(10).fold(0_u128, |bits, byte| bits << 8 | u128::from(*byte));
    let ms = u128::try_from(at.0).unwrap_or(0) & ((1 << 48) - 1);
    ms << 80 | chance
}
