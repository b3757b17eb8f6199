//! Projects records and deltas to events for watchers. Pure: the same records give the same events, now and later.
//! `watch.rs` reads the records and passes the events on.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use crate::{
    hub::{DeltaBody, HubDelta},
    model::{
        Attempt, AttemptId, Body, CallEnded, CallId, CallStarted, CompactionStage, EventBody, Lifecycle,
        ModelAnswered, ModelFailed, ModelStarted, ModelWaiting, Outcome, Record, RunAccepted, RunEnded,
        RunId, RunStatus,
    },
};

/// An event with its run.
pub(super) type RunEvent = (RunId, EventBody);

/// The state of the projection: what it must know of earlier records to project later ones.
#[derive(Debug, Clone, Default)]
pub(super) struct EventProjection {
    /// The current run.
    current: Option<RunId>,
    queue: VecDeque<RunId>,
    /// The queued runs that wait for a record before they may begin.
    held: BTreeSet<RunId>,
    streaming: Option<StreamingAttempt>,
    /// The calls of the current answer that have no result yet.
    open_calls: BTreeMap<CallId, OpenToolCall>,
    /// A summary was begun, and has replaced nothing yet.
    is_compacting: bool,
}

/// The attempt of the current model call, with the bytes of its text and reasoning that were published.
#[derive(Debug, Clone, Copy)]
struct StreamingAttempt {
    call: CallId,
    attempt: Attempt,
    text: u64,
    reasoning: u64,
}

#[derive(Debug, Clone)]
struct OpenToolCall {
    tool: Arc<str>,
    arguments: Arc<str>,
    attempt: Attempt,
}

impl EventProjection {
    /// The events of the next record.
    pub(super) fn project(&mut self, record: &Record) -> Vec<RunEvent> {
        let Some(run) = record.body.run() else { return Vec::new() };
        let before = self.current;
        let bodies = self.bodies(record);
        let is_end = matches!(record.body, Body::RunEnded(_));
        let next = self.current.filter(|next| is_end && before != Some(*next));
        let start = next.map(|next| (next, EventBody::Lifecycle(Lifecycle::Start)));
        bodies.into_iter().map(|body| (run, body)).chain(start).collect()
    }

    /// The events of the record's own run.
    #[expect(clippy::wildcard_enum_match_arm, reason = "other kinds have no event")]
    fn bodies(&mut self, record: &Record) -> Vec<EventBody> {
        match &record.body {
            Body::RunAccepted(accepted) => self.on_run_accepted(accepted),
            Body::RunStopping(_) => vec![EventBody::Lifecycle(Lifecycle::Finishing)],
            Body::RunBegun(begun) => {
                self.held.remove(&begun.run);
                self.begin_next();
                vec![EventBody::Lifecycle(Lifecycle::Start)]
            }
            Body::RunEnded(ended) => self.on_run_ended(ended),
            Body::RunReopened(reopened) => {
                self.current = Some(reopened.run);
                vec![EventBody::Lifecycle(Lifecycle::Start)]
            }
            Body::ModelStarted(started) => self.on_model_started(started),
            Body::ModelAnswered(answered) => self.on_model_answered(answered),
            Body::ModelFailed(failed) => self.on_model_failed(failed),
            Body::ModelWaiting(waiting) => vec![EventBody::Status(waiting_status(waiting))],
            Body::CallAdmitted(admitted) => {
                if let Some(open_call) = self.open_calls.get_mut(&admitted.call) {
                    open_call.tool = Arc::clone(&admitted.tool);
                    let replaced = admitted.hooks.as_ref().and_then(|hooks| hooks.arguments.as_ref());
                    replaced.into_iter().for_each(|arguments| open_call.arguments = Arc::clone(arguments));
                }
                Vec::new()
            }
            Body::CallStarted(started) => self.on_call_started(started),
            Body::CallEnded(ended) => self.on_call_ended(ended),
            Body::ApprovalRequested(request) => {
                let (call, until) = (request.call, request.expires_at);
                vec![EventBody::Status(RunStatus::Parked { call, until })]
            }
            Body::ApprovalAnswered(_) => vec![EventBody::Status(RunStatus::Executing)],
            Body::SummaryStarted(_) => self.on_summary_started(),
            Body::ContextCompacted(_) => {
                self.is_compacting = false;
                vec![EventBody::Compaction(CompactionStage::End)]
            }
            _ => Vec::new(),
        }
    }

    /// The event of a delta; `None` if its attempt is not the current one, if an earlier delta was missed, or if it was
    /// seen already.
    pub(super) fn project_delta(&mut self, delta: &HubDelta) -> Option<RunEvent> {
        let HubDelta { id: AttemptId { call, attempt }, body: piece } = delta;
        let (call, attempt) = (*call, *attempt);
        let is_wanted = self.is_waiting_for(call);
        let streaming = self.streaming.as_mut().filter(|live| (live.call, live.attempt) == (call, attempt));
        let body = match (piece, streaming) {
            (DeltaBody::Text { at, delta }, Some(streaming)) => {
                let delta = unseen(&mut streaming.text, *at, delta)?;
                EventBody::TextDelta { call, attempt, delta }
            }
            (DeltaBody::Reasoning { at, delta }, Some(streaming)) => {
                let delta = unseen(&mut streaming.reasoning, *at, delta)?;
                EventBody::ReasoningDelta { call, attempt, delta }
            }
            (DeltaBody::ToolCall { n, tool, arguments }, Some(_)) => EventBody::ToolCallStreamed {
                call: CallId { n: *n, ..call },
                attempt,
                tool: Arc::clone(tool),
                arguments: Arc::clone(arguments),
            },
            (DeltaBody::Progress(note), _) if self.open_calls.get(&call)?.attempt == attempt => {
                EventBody::ToolProgress { call, attempt, note: Arc::clone(note) }
            }
            (DeltaBody::Waiting { reason, until }, None) if is_wanted => {
                EventBody::Status(RunStatus::Waiting { reason: (*reason).into(), until: *until })
            }
            (
                DeltaBody::Text { .. }
                | DeltaBody::Reasoning { .. }
                | DeltaBody::ToolCall { .. }
                | DeltaBody::Waiting { .. }
                | DeltaBody::Progress(_),
                _,
            ) => return None,
        };
        Some((call.run, body))
    }

    /// Whether the run may wait to start its next model call.
    fn is_waiting_for(&self, call: CallId) -> bool {
        self.current == Some(call.run) && self.streaming.is_none() && self.open_calls.is_empty()
    }

    fn on_run_accepted(&mut self, accepted: &RunAccepted) -> Vec<EventBody> {
        let run = accepted.run;
        let is_behind = !self.queue.is_empty() && !accepted.goes_first();
        let next = if self.current.is_some() || is_behind || accepted.hold.is_some() {
            if accepted.hold.is_some() {
                self.held.insert(run);
            }
            match accepted.goes_first() {
                true => self.queue.push_front(run),
                false => self.queue.push_back(run),
            }
            EventBody::Status(RunStatus::Queued)
        } else {
            self.current = Some(run);
            EventBody::Lifecycle(Lifecycle::Start)
        };
        vec![EventBody::Status(RunStatus::Accepted), next]
    }

    /// The first queued run begins, unless another is under way or it is held.
    fn begin_next(&mut self) {
        if self.current.is_none() && self.queue.front().is_some_and(|next| !self.held.contains(next)) {
            self.current = self.queue.pop_front();
        }
    }

    /// A summary may take several calls, each with several attempts.
    fn on_summary_started(&mut self) -> Vec<EventBody> {
        let is_first = !std::mem::replace(&mut self.is_compacting, true);
        let is_idle = self.streaming.is_none() && self.open_calls.is_empty();
        let stage = is_first.then_some(EventBody::Compaction(CompactionStage::Start));
        stage.into_iter().chain(is_idle.then_some(EventBody::Status(RunStatus::Compacting))).collect()
    }

    fn on_model_started(&mut self, started: &ModelStarted) -> Vec<EventBody> {
        let (call, attempt) = (started.call, started.attempt);
        self.streaming = Some(StreamingAttempt { call, attempt, text: 0, reasoning: 0 });
        let retry = (attempt > 1).then_some(EventBody::Retry { call, attempt });
        let rest = [EventBody::Status(RunStatus::Thinking), EventBody::ThinkingStart { call, attempt }];
        retry.into_iter().chain(rest).collect()
    }

    fn on_model_answered(&mut self, answered: &ModelAnswered) -> Vec<EventBody> {
        let (call, attempt) = (answered.call, answered.attempt);
        self.streaming = None;
        self.open_calls.clear();
        let mut events = vec![EventBody::ThinkingEnd { call, attempt }];
        if answered.is_discarded() {
            events.extend([
                EventBody::Retry { call, attempt: attempt + 1 },
                EventBody::IterationEnd { iteration: call.iteration },
            ]);
            return events;
        }
        for (request, n) in answered.message.calls.iter().zip(1..) {
            let call = CallId { n, ..call };
            let (tool, arguments): (Arc<str>, Arc<str>) =
                (request.name.as_str().into(), request.arguments.as_str().into());
            let open_call =
                OpenToolCall { tool: Arc::clone(&tool), arguments: Arc::clone(&arguments), attempt: 0 };
            self.open_calls.insert(call, open_call);
            events.push(EventBody::ToolCallParsed { call, tool, arguments });
        }
        events.push(match self.open_calls.is_empty() {
            true => EventBody::IterationEnd { iteration: call.iteration },
            false => EventBody::Status(RunStatus::Executing),
        });
        events
    }

    fn on_model_failed(&mut self, failed: &ModelFailed) -> Vec<EventBody> {
        let (call, attempt) = (failed.call, failed.attempt);
        self.streaming = None;
        let waiting = failed.retry_at.map(|at| {
            let (reason, until) = (failed.failure.class.name().into(), Some(at));
            EventBody::Status(RunStatus::Waiting { reason, until })
        });
        std::iter::once(EventBody::ThinkingEnd { call, attempt }).chain(waiting).collect()
    }

    fn on_call_started(&mut self, started: &CallStarted) -> Vec<EventBody> {
        let (call, attempt) = (started.call, started.attempt);
        let Some(open_call) = self.open_calls.get_mut(&call) else { return Vec::new() };
        open_call.attempt = attempt;
        let (tool, arguments) = (Arc::clone(&open_call.tool), Arc::clone(&open_call.arguments));
        let retry = (attempt > 1).then_some(EventBody::Retry { call, attempt });
        retry.into_iter().chain([EventBody::ToolStart { call, attempt, tool, arguments }]).collect()
    }

    fn on_call_ended(&mut self, ended: &CallEnded) -> Vec<EventBody> {
        let (call, attempt, status) = (ended.call, ended.attempt, ended.end.status);
        let Some(OpenToolCall { tool, .. }) = self.open_calls.remove(&call) else { return Vec::new() };
        let iteration =
            self.open_calls.is_empty().then_some(EventBody::IterationEnd { iteration: call.iteration });
        std::iter::once(EventBody::ToolEnd { call, attempt, tool, status }).chain(iteration).collect()
    }

    fn on_run_ended(&mut self, ended: &RunEnded) -> Vec<EventBody> {
        let mut events = Vec::new();
        self.queue.retain(|queued| *queued != ended.run);
        self.held.remove(&ended.run);
        if self.current == Some(ended.run) {
            self.is_compacting = false;
            // A run whose session was force-failed may have an open model call.
            let open = self.streaming.take();
            events.extend(
                open.map(|StreamingAttempt { call, attempt, .. }| EventBody::ThinkingEnd { call, attempt }),
            );
            self.open_calls.clear();
            self.current = None;
        }
        self.begin_next();
        events.push(EventBody::Status(RunStatus::Ended(ended.ended.clone())));
        let is_completed = ended.ended.outcome == Outcome::Completed;
        events.push(EventBody::Lifecycle(if is_completed { Lifecycle::End } else { Lifecycle::Error }));
        events
    }
}

/// The part of a delta behind what was `seen`, which grows by it; `None` if the delta begins later, or adds nothing.
fn unseen(seen: &mut u64, at: u64, delta: &Arc<str>) -> Option<Arc<str>> {
    let known = usize::try_from(seen.checked_sub(at)?).ok()?;
    let rest = delta.get(known..).filter(|rest| !rest.is_empty())?;
    *seen += rest.len() as u64;
    Some(if known == 0 { Arc::clone(delta) } else { rest.into() })
}

fn waiting_status(waiting: &ModelWaiting) -> RunStatus {
    let reason = waiting.failure().map_or("no model can be asked", |failure| failure.class.name());
    RunStatus::Waiting { reason: reason.into(), until: Some(waiting.until) }
}

#[cfg(test)]
#[path = "event_projection_tests.rs"]
mod tests;
