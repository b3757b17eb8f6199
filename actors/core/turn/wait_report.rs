//! What a run waits for, since when and until when: a read-only projection that drives no action. It is derived from
//! the run's due actions, and from those for a summary if the run cannot continue without it. Start times are the times
//! of records. Also the session's to-do list, and the active time that a run has used.

use std::collections::BTreeMap;

use crate::{
    model::{
        AttemptId, Body, CallId, Failure, ModelRef, Record, RunId, RunSpec, RunWait, SessionId, SessionTime,
        Timestamp, WaitKind,
    },
    turn::{
        DueAction, Turn,
        active_run::ActiveRun,
        model_call::ModelCallState,
        tool_calls::{ActiveToolCall, ToolCallState},
    },
};

/// The time limits that tasks have outside of the core, in milliseconds. Implemented in `session/task_deadlines.rs`.
pub trait TaskDeadlines {
    /// Limit of one attempt at this model by a run of this spec, with everything that belongs to the attempt.
    fn model(&self, model: &ModelRef, spec: &RunSpec) -> u64;
    /// Limit of an attempt of a tool call, until its result is stored.
    fn tool(&self, attempt: AttemptId) -> u64;
    /// Limit of the check of a run's expectations.
    fn verify(&self, spec: &RunSpec) -> u64;
    /// Limit of writing the entries of a memory flush.
    fn memory(&self) -> u64;
    /// Limit of bringing a call to its end.
    fn stop(&self) -> u64;
}

/// Waits of a session's runs, computed from its records. Needs every record, from the first on.
#[derive(Debug)]
pub struct WaitTracker {
    turn: Turn,
    /// Times of the last record.
    last: SessionTime,
    /// Start of this incarnation. Actions of an earlier one had other deadlines.
    alive_since: Timestamp,
    /// Step of the run under way: run, iteration, and whether it is a model call.
    step: Option<(RunId, u32, bool)>,
    step_since: Timestamp,
    stopping_since: Timestamp,
    /// The failure because of which no model may be called before a named time.
    wait_failure: Option<Failure>,
    /// Time of the last record of each call of the step.
    call_times: BTreeMap<CallId, Timestamp>,
}

impl WaitTracker {
    /// A tracker that has read no record of the session yet.
    pub fn new(session: SessionId) -> Self {
        Self {
            turn: Turn::empty(session),
            last: SessionTime::default(),
            alive_since: Timestamp::default(),
            step: None,
            step_since: Timestamp::default(),
            stopping_since: Timestamp::default(),
            wait_failure: None,
            call_times: BTreeMap::new(),
        }
    }

    /// Folds the next record of the session.
    #[expect(clippy::wildcard_enum_match_arm, reason = "other kinds start and end no wait")]
    pub fn take(&mut self, record: &Record) {
        self.turn.fold(record);
        self.last = SessionTime { at: record.at, active_ms: record.active_ms };
        let position = |run: &ActiveRun| (run.id, run.iteration, run.model_call_state().is_some());
        let step = self.turn.run().map(position);
        if step != self.step {
            (self.step, self.step_since) = (step, record.at);
            self.call_times.clear();
        }
        match &record.body {
            Body::SessionOpened(_) | Body::SessionRevived(_) => self.alive_since = record.at,
            Body::RunStopping(_) => self.stopping_since = record.at,
            Body::ModelStarted(started) | Body::AsideStarted(started) => self.track_call(started.call),
            Body::SummaryStarted(started) => self.track_call(started.started.call),
            Body::AsideAnswered(answered) => self.track_call(answered.call),
            Body::ModelFailed(_) => self.wait_failure = None,
            Body::ModelWaiting(waiting) => self.wait_failure = waiting.failure().cloned(),
            Body::CallAdmitted(admitted) => self.track_call(admitted.call),
            Body::CallStarted(started) => self.track_call(started.call),
            Body::CallEnded(ended) => self.track_call(ended.call),
            Body::CallLost(lost) => self.track_call(lost.call),
            _ => {}
        }
    }

    /// Waits of a run at time `at` while no process executes it. Only times from its records apply: no limit expires,
    /// and no action is in flight.
    pub fn waits_unowned(&self, run: RunId, at: Timestamp) -> Vec<RunWait> {
        let now = SessionTime { at, ..self.last };
        let mut waits = vec![RunWait { kind: WaitKind::NoProcess, since: self.last.at, until: None }];
        if let Some(current) = self.turn.run().filter(|current| current.id == run) {
            waits.extend(self.pause_wait(current, now));
            waits.extend(approval_waits(current));
            waits.extend(current.subagents.waits());
        } else if let Some(behind) = self.queue_wait(run, at) {
            waits.push(behind);
        } else {
            waits.clear();
        }
        waits
    }

    /// The to-do list of the session's model, one item a line; `None` if it is empty.
    pub fn todo(&self) -> Option<String> {
        self.turn.todo()
    }

    /// The active time, in milliseconds, that a run has used by its last record; `None` if it has not started, or has
    /// ended for good.
    pub fn active_ms(&self, run: RunId) -> Option<u64> {
        let last = self.turn.current.as_ref().or(self.turn.reopenable.as_ref());
        let last = last.filter(|last| last.id == run)?;
        Some(self.last.active_ms.saturating_sub(last.counted_from(self.last)))
    }

    /// Waits of a run of a live session at time `at`. `deadlines` are the limits of its tasks.
    pub fn waits_running(&self, run: RunId, at: Timestamp, deadlines: &dyn TaskDeadlines) -> Vec<RunWait> {
        let now =
            SessionTime { at, active_ms: self.last.active_ms.saturating_add(at.ms_since(self.last.at)) };
        match &self.turn.current {
            Some(current) if current.id == run => self.waits_of(current, now, deadlines),
            Some(_) | None => self.queue_wait(run, at).into_iter().collect(),
        }
    }

    fn queue_wait(&self, run: RunId, at: Timestamp) -> Option<RunWait> {
        let queued = self.turn.queued(run)?;
        let first = self.turn.queue.front().map(|first| first.accepted.run).filter(|first| *first != run);
        let behind = self.turn.run().map(|current| current.id).or(first);
        let hold = queued.hold.unwrap_or_default();
        let (kind, until) = match (behind, hold.lane) {
            (Some(behind), _) => (WaitKind::Queue { behind }, None),
            (None, _) if !hold.has_collected(at) => (WaitKind::Collect, hold.until),
            (None, Some(lane)) => (WaitKind::Lane { lane }, None),
            (None, None) if hold.hooks => (WaitKind::Hooks, None),
            (None, None) => (WaitKind::Collect, hold.until),
        };
        Some(RunWait { kind, since: queued.at, until })
    }

    fn waits_of(&self, run: &ActiveRun, now: SessionTime, deadlines: &dyn TaskDeadlines) -> Vec<RunWait> {
        let due = match self.turn.waits_for_compaction(run) {
            true => {
                self.turn.due_with_asides(run, now).into_iter().chain(self.turn.due_for_memory()).collect()
            }
            false => run.due(now),
        };
        let mut waits: Vec<RunWait> =
            due.iter().filter_map(|action| self.due_wait(run, *action, now, deadlines)).collect();
        waits.extend(self.conflict_waits(run, &due));
        waits.extend(approval_waits(run));
        waits.extend(subagent_waits(run));
        let ends_calls = waits.is_empty() && run.running_tool_calls() > 0;
        if run.planned_end.is_some() && ends_calls {
            let until = self.stopping_since.max(self.alive_since).plus_ms(deadlines.stop());
            waits.push(RunWait { kind: WaitKind::Stop, since: self.stopping_since, until: Some(until) });
        } else if waits.is_empty() {
            // A run without an action of its own ends when its last subagent has.
            waits.extend(run.subagents.waits());
        }
        waits.extend(time_limit_waits(run, now));
        waits
    }

    /// The wait of a due action.
    fn due_wait(
        &self,
        run: &ActiveRun,
        action: DueAction,
        now: SessionTime,
        deadlines: &dyn TaskDeadlines,
    ) -> Option<RunWait> {
        match action {
            DueAction::CallModel(AttemptId { call, attempt }) => {
                let model = run.started_of(call)?.model.clone();
                let since = self.call_time(call);
                let until = Some(since.plus_ms(deadlines.model(&model, &run.spec)));
                Some(RunWait { kind: WaitKind::Model { model, attempt }, since, until })
            }
            DueAction::RunTool(AttemptId { call, .. }) if run.subagents.wait_of(call).is_some() => None,
            DueAction::RunTool(id @ AttemptId { call, attempt }) => {
                let (tool, ..) = self.turn.tool_call(call)?;
                let since = self.call_time(call);
                let until = since.max(self.alive_since).plus_ms(deadlines.tool(id));
                let what = WaitKind::Tool { call, tool: tool.to_string(), attempt };
                Some(RunWait { kind: what, since, until: Some(until) })
            }
            DueAction::Acquire(AttemptId { call, attempt }) if call.is_model_call() => {
                let pause = self.awaited_call(run).and_then(ModelCallState::pause);
                let paused = pause.map_or(self.step_since, |pause| pause.until.min(now.at));
                let since = paused.max(self.step_since).max(self.alive_since);
                Some(RunWait { kind: WaitKind::Lease { attempt }, since, until: None })
            }
            DueAction::Acquire(AttemptId { call, .. }) => {
                let (at, active) =
                    run.tool_calls().iter().enumerate().find(|(_, active)| active.id == call)?;
                let before =
                    run.tool_calls()[..at].iter().filter(|earlier| earlier.access.conflicts(&active.access));
                let free = before.map(|earlier| self.call_time(earlier.id)).max().unwrap_or_default();
                let what = WaitKind::Permit { call, tool: active.tool.to_string() };
                let since = self.call_time(call).max(free).max(self.alive_since);
                Some(RunWait { kind: what, since, until: None })
            }
            DueAction::Verify(_) => {
                let since = self.step_since.max(self.alive_since);
                let until = Some(since.plus_ms(deadlines.verify(&run.spec)));
                Some(RunWait { kind: WaitKind::Verify, since, until })
            }
            DueAction::SaveMemory(call) => {
                let since = self.call_time(call).max(self.alive_since);
                let until = Some(since.plus_ms(deadlines.memory()));
                Some(RunWait { kind: WaitKind::Memory, since, until })
            }
            DueAction::WakeAt(_) => self.pause_wait(run, now),
            // Reported elsewhere: a begin by `queue_wait`, limits by `time_limit_waits`, subagents by `subagent_waits`, a stop by `waits_of`.
            DueAction::Begin(_)
            | DueAction::WakeAtActive(_)
            | DueAction::EndTool { .. }
            | DueAction::AwaitSubagent { .. } => None,
        }
    }

    /// The model call or aside that the run cannot continue without.
    fn awaited_call<'a>(&self, run: &'a ActiveRun) -> Option<&'a ModelCallState> {
        match self.turn.waits_for_compaction(run) {
            true if self.turn.waits_for_flush(run) => Some(&run.compaction.flush.call.attempts),
            true => Some(&run.compaction.call.attempts),
            false => run.model_call_state(),
        }
    }

    /// The pause before the next attempt of the awaited call, unless it is over.
    fn pause_wait(&self, run: &ActiveRun, now: SessionTime) -> Option<RunWait> {
        let call = self.awaited_call(run)?;
        let pause = call.pause().filter(|pause| !pause.is_over(now.at))?;
        let (attempt, failure) = (call.attempt, call.last_failure().cloned());
        let kind = match pause.uncounted_since {
            Some(_) => WaitKind::Reset { attempt, failure: self.wait_failure.clone().or(failure) },
            None => WaitKind::Retry { attempt, failure },
        };
        Some(RunWait { kind, since: pause.from, until: Some(pause.until) })
    }

    /// The admitted calls that are not due, because an earlier call conflicts with them.
    fn conflict_waits(&self, run: &ActiveRun, due: &[DueAction]) -> Vec<RunWait> {
        let calls = run.tool_calls();
        let waits = calls.iter().enumerate().filter_map(|(n, active)| {
            let ToolCallState::Admitted(attempt) = active.state else { return None };
            if due.contains(&DueAction::Acquire(AttemptId { call: active.id, attempt })) {
                return None;
            }
            let mut earlier = calls[..n].iter().filter(|call| !call.is_settled());
            let behind = earlier.rfind(|call| call.access.conflicts(&active.access))?.id;
            let what = WaitKind::Conflict { call: active.id, tool: active.tool.to_string(), behind };
            Some(RunWait { kind: what, since: self.call_time(active.id), until: None })
        });
        waits.collect()
    }

    fn track_call(&mut self, call: CallId) {
        self.call_times.insert(call, self.last.at);
    }

    fn call_time(&self, call: CallId) -> Timestamp {
        self.call_times.get(&call).copied().unwrap_or(self.step_since)
    }
}

/// The started calls that wait for subagents.
fn subagent_waits(run: &ActiveRun) -> Vec<RunWait> {
    let is_started = |call: &&ActiveToolCall| call.started().is_some() && run.lets_calls_end();
    let calls = run.tool_calls().iter().filter(is_started);
    calls.filter_map(|call| run.subagents.wait_of(call.id)).collect()
}

/// Waits for persons, one for each call in doubt.
fn approval_waits(run: &ActiveRun) -> Vec<RunWait> {
    let waits = run.parked_tool_calls().into_iter().map(|parked| RunWait {
        kind: WaitKind::Person { call: parked.request.call },
        since: parked.requested_at,
        until: Some(parked.request.expires_at),
    });
    waits.collect()
}

/// Ends of the run's time limits, as if no further pause came.
fn time_limit_waits(run: &ActiveRun, now: SessionTime) -> impl Iterator<Item = RunWait> + use<> {
    let pause = run.pause().filter(|pause| pause.uncounted_since.is_some() && !pause.is_over(now.at));
    let (from, began) = (pause.map_or(now.at, |pause| pause.until), run.clock.started.at);
    let is_counting = run.planned_end.is_none() && !run.is_parked();
    let limits = is_counting.then(|| run.time_limits(now));
    limits.into_iter().flatten().map(move |(end, limit_ms, outcome)| {
        let until = Some(from.plus_ms(end.saturating_sub(now.active_ms)));
        RunWait { kind: WaitKind::Limit { limit_ms, outcome }, since: began, until }
    })
}
