//! What a run waits for, since when, and until when: for telling, never for doing. What is under way follows from `due`,
//! so that nothing is in flight without a name here; when it began is taken from the times of the records.

use std::collections::BTreeMap;

use crate::{
    model::{
        Attempt, Awaited, Body, CallId, Failure, ModelRef, ModelWaiting, Now, Record, RunId, RunSpec,
        SessionId, Timestamp, Wait, WhyNot,
    },
    turn::{
        Effect, Turn,
        run::{Call, CallState, Phase, Run, Step},
        subagents::Subagents,
    },
};

/// The limits that tasks have outside of the core, in milliseconds.
pub(crate) trait Bounds {
    /// Of one attempt at this model by a run of this spec, with all that belongs to it.
    fn model(&self, model: &ModelRef, spec: &RunSpec) -> u64;
    /// Of one attempt of a call of this tool with these arguments, until its result is kept.
    fn tool(&self, tool: &str, arguments: &str) -> u64;
    /// Of a call that is to be stopped.
    fn stop(&self) -> u64;
}

/// What the runs of a session wait for, by its records. Take all of them, from the first on.
#[derive(Debug)]
pub struct Waits {
    turn: Turn,
    /// The last record's times.
    last: Now,
    /// Since when this incarnation lives: what an earlier one had under way had other deadlines.
    alive: Timestamp,
    /// The step at which the run under way stands, and since when.
    step: Option<(RunId, u32, bool)>,
    stood: Timestamp,
    stopping: Timestamp,
    /// Why nobody may be asked before a named time.
    held: Option<Failure>,
    /// The last record of each call of the step.
    calls: BTreeMap<CallId, Timestamp>,
    subagents: Subagents,
}

impl Waits {
    /// Those of a session of which no record was taken yet.
    pub fn new(session: SessionId) -> Self {
        Self {
            turn: Turn::empty(session),
            last: Now::default(),
            alive: Timestamp::default(),
            step: None,
            stood: Timestamp::default(),
            stopping: Timestamp::default(),
            held: None,
            calls: BTreeMap::new(),
            subagents: Subagents::default(),
        }
    }

    /// Takes the next record.
    pub fn take(&mut self, record: &Record) {
        self.turn.fold(record);
        self.last = Now { at: record.at, active_ms: record.active_ms };
        let step = self.turn.step();
        if step != self.step {
            (self.step, self.stood) = (step, record.at);
            self.calls.clear();
        }
        match &record.body {
            Body::SessionOpened(_) | Body::SessionRevived(_) => self.alive = record.at,
            Body::RunStopping(_) => self.stopping = record.at,
            Body::ModelStarted(started) => self.note(started.call),
            Body::SummaryStarted(started) => self.note(started.asked.call),
            Body::ModelFailed(_) => self.held = None,
            Body::ModelWaiting(waiting) => self.held = why(waiting),
            Body::CallAdmitted(admitted) => self.note(admitted.call),
            Body::CallStarted(started) => {
                self.note(started.call);
                self.subagents.begun(started, record.at);
            }
            Body::ChildEnded(ended) => self.subagents.ended(ended),
            Body::RunEnded(ended) => self.subagents.forget(ended.run),
            Body::CallEnded(ended) => self.note(ended.call),
            Body::CallLost(lost) => self.note(lost.call),
            Body::RunAccepted(_)
            | Body::ModelAnswered(_)
            | Body::LateSettled(_)
            | Body::MessageSteered(_)
            | Body::ApprovalRequested(_)
            | Body::RunExhausted(_)
            | Body::RunReopened(_)
            | Body::BudgetRaised(_)
            | Body::ContextCompacted(_)
            | Body::SummaryAnswered(_)
            | Body::SummaryFailed(_)
            | Body::TodoChanged(_)
            | Body::ApprovalAnswered(_) => {}
        }
    }

    /// What a run waits for at this time if nobody runs it: somebody who does. Only the times that stand in its records
    /// hold on: no limit runs out, and what was under way is no more.
    pub fn at_rest(&self, run: RunId, at: Timestamp) -> Vec<Wait> {
        let now = Now { at, ..self.last };
        let (behind, mut waits) = match &self.turn.phase {
            Phase::Running(current) if current.id == run => (None, pause(current, now, self.held.as_ref())),
            Phase::Running(_) => (self.behind(run), None),
            Phase::Idle => (None, None),
        };
        let children = self.subagents.of_run(run);
        let is_open = self.step.is_some_and(|(current, ..)| current == run) || behind.is_some();
        let process = Wait { what: Awaited::Process, since: self.last.at, until: None };
        let persons = match &self.turn.phase {
            Phase::Running(current) if current.id == run => persons(current),
            Phase::Running(_) | Phase::Idle => Vec::new(),
        };
        is_open
            .then_some(process)
            .into_iter()
            .chain(behind)
            .chain(waits.take())
            .chain(persons)
            .chain(children)
            .collect()
    }

    /// What the model of the session means to do, an item a line; `None` if that is nothing.
    pub fn todo(&self) -> Option<String> {
        self.turn.todo()
    }

    /// The active time, in milliseconds, that a run has used by its last record; `None` if it has not begun, or has ended and
    /// will not go on.
    pub fn active_ms(&self, run: RunId) -> Option<u64> {
        let last = match &self.turn.phase {
            Phase::Running(run) => Some(run),
            Phase::Idle => self.turn.reopenable.as_ref(),
        };
        let last = last.filter(|last| last.id == run)?;
        Some(self.last.active_ms.saturating_sub(last.counted_from(self.last)))
    }

    /// What a run of a live session waits for at this time.
    pub(crate) fn under_way(&self, run: RunId, at: Timestamp, bounds: &dyn Bounds) -> Vec<Wait> {
        let now = Now { at, active_ms: self.last.active_ms.saturating_add(at.ms_since(self.last.at)) };
        match &self.turn.phase {
            Phase::Running(current) if current.id == run => self.of(current, now, bounds),
            Phase::Running(_) => self.behind(run).into_iter().collect(),
            Phase::Idle => Vec::new(),
        }
    }

    fn behind(&self, run: RunId) -> Option<Wait> {
        let Phase::Running(current) = &self.turn.phase else { return None };
        let queued = self.turn.queue.iter().find(|queued| queued.accepted.run == run)?;
        Some(Wait { what: Awaited::Queue { behind: current.id }, since: queued.at, until: None })
    }

    fn of(&self, run: &Run, now: Now, bounds: &dyn Bounds) -> Vec<Wait> {
        let due = run.due(now);
        let mut waits: Vec<Wait> =
            due.iter().filter_map(|effect| self.due(run, *effect, (now, bounds))).collect();
        waits.extend(self.kept_in_order(run, &due));
        waits.extend(persons(run));
        waits.extend(self.delegated(run));
        let ends_calls = waits.is_empty() && run.open_calls() > 0;
        if run.stopping.is_some() && ends_calls {
            let until = self.stopping.max(self.alive).plus_ms(bounds.stop());
            waits.push(Wait { what: Awaited::Stop, since: self.stopping, until: Some(until) });
        } else if waits.is_empty() {
            // With nothing of its own to do it ends when its last subagent has.
            waits.extend(self.subagents.of_run(run.id));
        }
        waits.extend(limits(run, now));
        waits
    }

    /// What an effect that is due waits for.
    fn due(&self, run: &Run, effect: Effect, (now, bounds): (Now, &dyn Bounds)) -> Option<Wait> {
        match effect {
            Effect::Ask { call, attempt } => {
                let model = run.started_of(call)?.model.clone();
                let since = self.noted(call);
                let until = Some(since.plus_ms(bounds.model(&model, &run.spec)));
                Some(Wait { what: Awaited::Model { model, attempt }, since, until })
            }
            Effect::Run { call, .. } if self.subagents.of_call(call).is_some() => None,
            Effect::Run { call, attempt } => {
                let (tool, arguments, _) = self.turn.tool_call(call)?;
                let since = self.noted(call);
                let until = since.max(self.alive).plus_ms(bounds.tool(&tool, arguments));
                let what = Awaited::Tool { call, tool: tool.to_string(), attempt };
                Some(Wait { what, since, until: Some(until) })
            }
            Effect::Seek { call, attempt } if call.asks_model() => {
                let paused = pause_of(run).map_or(self.stood, |pause| pause.until.min(now.at));
                let since = paused.max(self.stood).max(self.alive);
                Some(Wait { what: Awaited::Lease { attempt }, since, until: None })
            }
            Effect::Seek { call, .. } => {
                let (at, own) = run.calls().iter().enumerate().find(|(_, own)| own.id == call)?;
                let before = run.calls()[..at].iter().filter(|earlier| earlier.access.conflicts(&own.access));
                let free = before.map(|earlier| self.noted(earlier.id)).max().unwrap_or_default();
                let what = Awaited::Permit { call, tool: own.tool.to_string() };
                let since = self.noted(call).max(free).max(self.alive);
                Some(Wait { what, since, until: None })
            }
            Effect::WakeAt(_) => pause(run, now, self.held.as_ref()),
            // The limits are told whether they are near or not; of what is to end it is told when it must.
            Effect::WakeAtActive(_) | Effect::End { .. } | Effect::Await { .. } => None,
        }
    }

    /// The calls under way that wait for subagents.
    fn delegated(&self, run: &Run) -> Vec<Wait> {
        let is_started = |call: &&Call| matches!(call.state, CallState::Started(..)) && run.lets_calls_end();
        let calls = run.calls().iter().filter(is_started);
        calls.filter_map(|call| self.subagents.of_call(call.id)).collect()
    }

    /// The calls that are admitted and not due: an earlier one goes first.
    fn kept_in_order(&self, run: &Run, due: &[Effect]) -> Vec<Wait> {
        let calls = run.calls();
        let waits = calls.iter().enumerate().filter_map(|(n, own)| {
            let CallState::Admitted(attempt) = own.state else { return None };
            if due.contains(&Effect::Seek { call: own.id, attempt }) {
                return None;
            }
            let is_open = |call: &&Call| !matches!(call.state, CallState::Ended(_) | CallState::Same(_));
            let mut earlier = calls[..n].iter().filter(is_open);
            let behind = earlier.rfind(|call| call.access.conflicts(&own.access))?.id;
            let what = Awaited::Order { call: own.id, tool: own.tool.to_string(), behind };
            Some(Wait { what, since: self.noted(own.id), until: None })
        });
        waits.collect()
    }

    fn note(&mut self, call: CallId) {
        self.calls.insert(call, self.last.at);
    }

    fn noted(&self, call: CallId) -> Timestamp {
        self.calls.get(&call).copied().unwrap_or(self.stood)
    }
}

impl Turn {
    fn step(&self) -> Option<(RunId, u32, bool)> {
        let Phase::Running(run) = &self.phase else { return None };
        Some((run.id, run.iteration, matches!(run.step, Step::Asking(_))))
    }
}

fn pause_of(run: &Run) -> Option<super::asking::Pause> {
    match &run.step {
        Step::Asking(asking) => asking.pause(),
        Step::Acting(_) | Step::Said(_) => None,
    }
}

/// The pause before the next attempt of the model call, unless it is over.
fn pause(run: &Run, now: Now, held: Option<&Failure>) -> Option<Wait> {
    let Step::Asking(asking) = &run.step else { return None };
    let pause = asking.pause().filter(|pause| !pause.is_over(now.at))?;
    let attempt: Attempt = asking.attempt;
    let failure = asking.last_failure().cloned();
    let what = match pause.uncounted {
        Some(_) => Awaited::Reset { attempt, failure: held.cloned().or(failure) },
        None => Awaited::Retry { attempt, failure },
    };
    Some(Wait { what, since: pause.from, until: Some(pause.until) })
}

/// The persons who are asked.
fn persons(run: &Run) -> Vec<Wait> {
    let asked = run.doubtful().into_iter().map(|doubtful| Wait {
        what: Awaited::Person { call: doubtful.request.call },
        since: doubtful.asked_at,
        until: Some(doubtful.request.expires_at),
    });
    asked.collect()
}

/// When the run's own time is over, if nothing holds it up.
fn limits(run: &Run, now: Now) -> impl Iterator<Item = Wait> + use<> {
    let still = pause_of(run).filter(|pause| pause.uncounted.is_some() && !pause.is_over(now.at));
    let (from, began) = (still.map_or(now.at, |pause| pause.until), run.began.at);
    let goes_on = run.stopping.is_none() && !run.is_parked();
    let limits = goes_on.then(|| run.time_limits(now));
    limits.into_iter().flatten().map(move |(end, limit_ms, outcome)| {
        let until = Some(from.plus_ms(end.saturating_sub(now.active_ms)));
        Wait { what: Awaited::Limit { limit_ms, outcome }, since: began, until }
    })
}

/// Why nobody is asked before the time that is waited for.
fn why(waiting: &ModelWaiting) -> Option<Failure> {
    waiting.skipped.iter().find_map(|link| match &link.why {
        WhyNot::Skipped { until, failure } if *until == Some(waiting.until) => Some(failure.clone()),
        WhyNot::Skipped { .. } | WhyNot::Tried { .. } => None,
    })
}
