//! Decides the delegation of tasks to subagents: admission, start, end, stop, and the report of a subagent's own end to
//! its parent. The state is in `subagents.rs`; the arguments are parsed in `policy/delegation/`.
//!
//! Invariant: one append starts the delegating call and creates the subagents: session, accepted run, account, and the
//! reservation of `children` on all accounts above. One append records the end of a subagent and deletes the inbox row
//! that reports it. A run does not end before its subagents.

use std::sync::Arc;

use crate::{
    journal::{Append, InboxItem, IndexRow, SpawnedSession},
    model::{
        Amounts, BadArguments, Body, CallEnd, CallId, CallStarted, ChildEnded, Dimension, Hash, Hasher,
        InboxMessage, Incarnation, Lane, NewAccount, ParentRef, Record, RunAccepted, RunCounts, RunId,
        RunRow, RunState, SessionId, SessionOpened, SessionRow, StopReason, SubagentRef, Timestamp,
    },
    policy::{
        delegation::{DelegatedTask, DelegationRequest, parse_delegation, subagent_input, subagent_spec},
        parse_arguments,
    },
    turn::{
        Input,
        active_run::{ActiveRun, LoopState},
        decision::DecisionBuilder,
        ledger_and_index::settle,
        subagents::Subagent,
        tool_calls::ActiveToolCall,
    },
};

/// A task that has failed this often in a run with the same outcome is not delegated again.
const MAX_EQUAL_FAILURES: u32 = 3;

impl ActiveRun {
    /// Whether the model has given its final answer and every subagent has ended.
    pub(super) fn has_final_answer(&self) -> bool {
        matches!(self.state, LoopState::Answered(_)) && !self.subagents.has_live()
    }

    /// The tasks of a delegating call; `None` if its arguments are invalid.
    pub(super) fn delegation_request(&self, call: CallId) -> Option<DelegationRequest> {
        parse_delegation(&parse_arguments(self.arguments(call)).ok()?, &self.spec).ok()
    }

    /// Adds the subagents of a delegating call that starts.
    pub(super) fn track_subagents(&mut self, started: &CallStarted, at: Timestamp) {
        if started.children.is_empty() {
            return;
        }
        let request = self.delegation_request(started.call);
        let tasks = request.iter().flat_map(|request| &request.tasks);
        let tasks: Vec<Hash> = tasks.map(DelegatedTask::signature).collect();
        self.subagents.on_started(started, &tasks, at);
    }
}

impl DecisionBuilder {
    /// Starts the subagents of each admitted delegating call, or ends the call with the reason. Such a call needs no
    /// permit. `input` is the input that was decided before this.
    pub(super) fn delegate(&mut self, input: &Input) {
        // In the same decision a `BudgetRefused` may still follow, so nothing is reserved yet.
        if matches!(input, Input::Revived(_)) {
            return;
        }
        let is_ready = |call: &&ActiveToolCall| call.delegates() && call.is_admitted();
        while let Some(run) =
            self.run().filter(|run| run.planned_end.is_none() && run.budget.exhausted.is_none())
            && let Some(call) = run.tool_calls().iter().find(is_ready).map(|call| call.id)
        {
            match self.admitted_tasks(call) {
                Ok(_) if self.refused_dimension().is_some() => return,
                Ok(request) => self.start_subagents(call, &request),
                Err(bad) => {
                    let error = format!("not delegated: {}", bad.error);
                    self.end_call(call.attempt(0), BadArguments { error, ..bad }.into());
                }
            }
        }
    }

    /// The tasks of a delegating call, if it is admitted; the error is for the model.
    fn admitted_tasks(&self, call: CallId) -> Result<DelegationRequest, BadArguments> {
        let Some(run) = self.run() else {
            return Err(BadArguments::new(None, "the run has ended", "nothing to do"));
        };
        let arguments = parse_arguments(run.arguments(call))
            .map_err(|error| BadArguments::new(None, error.to_string(), "send JSON"))?;
        let request = parse_delegation(&arguments, &run.spec)?;
        let delegation = run.spec.delegation.filter(|delegation| delegation.depth < delegation.max_depth);
        let Some(delegation) = delegation else {
            return Err(BadArguments::new(None, "you are as deep as subagents may be", "do it yourself"));
        };
        let (live, more) = (run.subagents.live().count(), request.tasks.len());
        let max_children = usize::try_from(delegation.max_children).unwrap_or(usize::MAX);
        if live + more > max_children {
            let error = format!(
                "{more} more subagents beside {live} that live are over the limit of {max_children} at once"
            );
            let hint = if more > max_children {
                "give fewer tasks at a time"
            } else {
                "wait for the results of those that live"
            };
            return Err(BadArguments::new(Some("tasks"), error, hint));
        }
        if let Some(refusal) = self.refused_reservation.as_ref().map(|refused| &refused.refusal)
            && refusal.dimension == Dimension::Children
        {
            let hint = "do it yourself, or give it away when other subagents of this tree have ended";
            return Err(BadArguments::new(None, refusal.to_string(), hint));
        }
        let failed = request.tasks.iter().filter_map(|task| run.subagents.failure_of(task.signature()));
        if let Some(failed) = failed.into_iter().find(|failed| failed.count >= MAX_EQUAL_FAILURES) {
            let error = format!("this task has ended as {} {} times", failed.outcome, failed.count);
            return Err(BadArguments::new(None, error, "change the task, or do it yourself"));
        }
        Ok(request)
    }

    /// Starts a delegating call together with its subagents.
    fn start_subagents(&mut self, call: CallId, request: &DelegationRequest) {
        let Some(run) = self.run() else { return };
        let (spec, at) = (Arc::clone(&run.spec), self.now.at);
        let mut children = Vec::new();
        for (task, n) in request.tasks.iter().zip(0_u32..) {
            let id = |what: &[u8]| derived_id(at, &[what, call.to_string().as_bytes(), &n.to_le_bytes()]);
            let child = SubagentRef {
                session: SessionId::from_bits(id(b"session")),
                run: RunId::from_bits(id(b"run")),
            };
            let Some(spec) = subagent_spec(task, &spec, child.run) else { continue };
            let parent = ParentRef { session: self.turn.session, call, n };
            let accepted = RunAccepted::new(child.run, subagent_input(task), Arc::new(spec));
            let hold = self.turn.begin_rules.hold(accepted.spec.lane, None);
            self.spawn_session(child.session, RunAccepted { parent: Some(parent), hold, ..accepted });
            children.push(child);
        }
        self.record_call_start(call.attempt(1), children.into());
    }

    /// Adds a subagent's session, account and index rows to the decision.
    fn spawn_session(&mut self, session: SessionId, accepted: RunAccepted) {
        let (at, run, parent, is_held) =
            (self.now.at, accepted.run, accepted.parent, accepted.hold.is_some());
        let shared = accepted.spec.delegation.is_some_and(|delegation| delegation.shares_iterations);
        self.append.ledger.new_accounts.push(NewAccount {
            id: run.into(),
            parent: parent.map(|parent| parent.call.run.into()),
            limits: accepted.spec.limits.budget,
            owns_iterations: !shared,
        });
        let key: Arc<str> = format!("task:{run}").into();
        let agent = accepted.spec.agent.clone();
        let opened = SessionOpened {
            key: Arc::clone(&key),
            agent: agent.clone(),
            prompt: Arc::clone(&self.turn.prompt),
            incarnation: Incarnation::default(),
            boot: self.turn.boot.to_string(),
        };
        let bodies = [Body::SessionOpened(opened), Body::RunAccepted(Box::new(accepted))];
        let records = bodies.into_iter().map(|body| Arc::new(Record { at, active_ms: 0, body })).collect();
        self.append.spawned.push(SpawnedSession { session, records });
        let row = SessionRow { agent: agent.clone(), ..SessionRow::new(session, key, at) };
        self.append.index.push(IndexRow::Session(row));
        self.append.index.push(IndexRow::Run(Box::new(RunRow {
            agent,
            state: if is_held { RunState::Queued } else { RunState::Running },
            started_at: (!is_held).then_some(at),
            parent,
            lane: Lane::Subagent,
            counts: (!is_held).then(RunCounts::default),
            ..RunRow::new(run, session, at, 2)
        })));
    }

    /// Reacts to the end of a subagent. A call in the foreground ends with its last subagent.
    pub(super) fn on_subagent_end(&mut self, ended: &ChildEnded) {
        let is_it = |of: &Subagent| of.call == ended.call && of.child.run == ended.child.run;
        if !self.run().is_some_and(|run| run.subagents.live().any(is_it)) {
            return;
        }
        self.record(Body::ChildEnded(Box::new(ended.clone())));
        let is_open = self.call(ended.call).is_some_and(|call| call.started().is_some());
        let results = self.run().filter(|_| is_open).and_then(|run| run.subagents.results_of(ended.call));
        if let Some(content) = results {
            return self.end_call(ended.call.attempt(1), CallEnd::ok(content));
        }
        self.end_if_stopped();
    }

    /// Sends a stop to all live subagents, unless the run's end lets started calls finish.
    pub(super) fn stop_subagents(&mut self) {
        let Some(run) = self.run().filter(|run| !run.lets_calls_end()) else { return };
        let children: Vec<SubagentRef> = run.subagents.live().map(|subagent| subagent.child).collect();
        self.append.deliver.extend(children.into_iter().map(stop_message));
    }

    /// Reports the end of a run to its parent's session, and releases its reservation of `children`.
    pub(super) fn notify_parent(&mut self, run: RunId) {
        let current = self.run().filter(|current| current.id == run).map(|current| current.parent);
        let queued = || self.turn.queue.iter().find(|queued| queued.accepted.run == run)?.accepted.parent;
        if let Some(parent) = current.unwrap_or_else(queued) {
            let child = SubagentRef { session: self.turn.session, run };
            report_to_parent(&mut self.append, parent, child);
        }
    }
}

/// Reports the end of a subagent to its parent's session, and releases the parent's reservation of `children`.
pub(super) fn report_to_parent(append: &mut Append, parent: ParentRef, child: SubagentRef) {
    let report = InboxMessage::ChildEnded { call: parent.call, child };
    append.deliver.push((parent.session, report.to_json()));
    settle(&mut append.ledger, parent.call.run.into(), &ONE_CHILD, &Amounts::default());
}

/// The message that stops a subagent, and the session that receives it.
pub(super) fn stop_message(child: SubagentRef) -> (SessionId, InboxItem) {
    let stop = InboxMessage::Stop { run: child.run, reason: StopReason::Parent };
    (child.session, stop.to_json())
}

/// The reservation for one live subagent.
pub(super) const ONE_CHILD: Amounts =
    Amounts { iterations: None, tokens: None, usd: None, tool_calls: None, children: Some(1) };

/// A ULID derived from the time and these parts: the core has no randomness.
pub(super) fn derived_id(at: Timestamp, parts: &[&[u8]]) -> u128 {
    let mut hasher = Hasher::default();
    parts.iter().for_each(|part| hasher.part(part));
    let hash = hasher.finish();
    let chance = hash.as_bytes().iter().take(10).fold(0_u128, |bits, byte| bits << 8 | u128::from(*byte));
    let ms = u128::try_from(at.0).unwrap_or(0) & ((1 << 48) - 1);
    ms << 80 | chance
}
