//! What records mean to a watcher. Pure: the same records give the same events, now and later.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use crate::{
    hub::{Delta, Piece, length},
    model::{
        Attempt, Body, CallEnded, CallId, CallStarted, Ended, EventBody, Lifecycle, ModelAnswered,
        ModelFailed, ModelStarted, ModelWaiting, Outcome, Record, RunAccepted, RunEnded, RunId, RunStatus,
        WhyNot,
    },
};

/// An event's run, and what happened.
pub(super) type Told = (RunId, EventBody);

/// What must be known of earlier records to tell the next one.
#[derive(Debug, Clone, Default)]
pub(super) struct Narration {
    /// The run under way.
    current: Option<RunId>,
    queue: VecDeque<RunId>,
    asking: Option<Asking>,
    /// The calls of the answer under way that have no result yet.
    open: BTreeMap<CallId, Called>,
}

/// The attempt of the model call under way, and how much of what it says was told.
#[derive(Debug, Clone, Copy)]
struct Asking {
    call: CallId,
    attempt: Attempt,
    text: u64,
    reasoning: u64,
}

#[derive(Debug, Clone)]
struct Called {
    tool: Arc<str>,
    arguments: Arc<str>,
    attempt: Attempt,
}

impl Narration {
    /// What follows from the next record.
    pub(super) fn tell(&mut self, record: &Record) -> Vec<Told> {
        match &record.body {
            Body::RunAccepted(accepted) => self.accepted(accepted),
            Body::RunStopping(stopping) => vec![(stopping.run, EventBody::Lifecycle(Lifecycle::Finishing))],
            Body::RunEnded(ended) => self.ended(ended),
            Body::ModelStarted(started) => self.asked(started),
            Body::ModelAnswered(answered) => self.answered(answered),
            Body::ModelFailed(failed) => self.failed(failed),
            Body::ModelWaiting(waiting) => vec![(waiting.call.run, EventBody::Status(waits(waiting)))],
            Body::CallAdmitted(admitted) => {
                if let Some(called) = self.open.get_mut(&admitted.call) {
                    called.tool = Arc::clone(&admitted.tool);
                }
                Vec::new()
            }
            Body::CallStarted(started) => self.started(started),
            Body::CallEnded(ended) => self.call_ended(ended),
            Body::ApprovalRequested(request) => {
                let (call, until) = (request.call, request.expires_at);
                vec![(call.run, EventBody::Status(RunStatus::Parked { call, until }))]
            }
            Body::ApprovalAnswered(answered) => {
                vec![(answered.call.run, EventBody::Status(RunStatus::Executing))]
            }
            Body::SessionOpened(_)
            | Body::SessionRevived(_)
            | Body::LateSettled(_)
            | Body::CallLost(_)
            | Body::MessageSteered(_) => Vec::new(),
        }
    }

    /// What a piece that is not durable means here; `None` if it is of an attempt that is not under way, or if what
    /// lies before it was missed.
    pub(super) fn delta(&mut self, delta: &Delta) -> Option<Told> {
        let Delta { call, attempt, piece } = delta;
        let (call, attempt) = (*call, *attempt);
        let is_wanted = self.waits_for(call);
        let asking = self.asking.as_mut().filter(|asking| (asking.call, asking.attempt) == (call, attempt));
        let body = match (piece, asking) {
            (Piece::Text { at, delta }, Some(asking)) if *at == asking.text => {
                asking.text += length(delta);
                EventBody::TextDelta { call, attempt, delta: Arc::clone(delta) }
            }
            (Piece::Reasoning { at, delta }, Some(asking)) if *at == asking.reasoning => {
                asking.reasoning += length(delta);
                EventBody::ReasoningDelta { call, attempt, delta: Arc::clone(delta) }
            }
            (Piece::Progress(note), _) if self.open.get(&call)?.attempt == attempt => {
                EventBody::ToolProgress { call, attempt, note: Arc::clone(note) }
            }
            (Piece::Waits { reason, until }, None) if is_wanted => {
                EventBody::Status(RunStatus::Waiting { reason: (*reason).into(), until: *until })
            }
            (Piece::Text { .. } | Piece::Reasoning { .. } | Piece::Waits { .. } | Piece::Progress(_), _) => {
                return None;
            }
        };
        Some((call.run, body))
    }

    /// Whether the run's model call may have been wanted and not begun.
    fn waits_for(&self, call: CallId) -> bool {
        self.current == Some(call.run) && self.asking.is_none() && self.open.is_empty()
    }

    fn accepted(&mut self, accepted: &RunAccepted) -> Vec<Told> {
        let run = accepted.run;
        let next = if self.current.is_some() {
            self.queue.push_back(run);
            EventBody::Status(RunStatus::Queued)
        } else {
            self.current = Some(run);
            EventBody::Lifecycle(Lifecycle::Start)
        };
        vec![(run, EventBody::Status(RunStatus::Accepted)), (run, next)]
    }

    fn asked(&mut self, started: &ModelStarted) -> Vec<Told> {
        let (call, attempt) = (started.call, started.attempt);
        self.asking = Some(Asking { call, attempt, text: 0, reasoning: 0 });
        let retry = (attempt > 1).then_some(EventBody::Retry { call, attempt });
        let rest = [EventBody::Status(RunStatus::Thinking), EventBody::ThinkingStart { call, attempt }];
        retry.into_iter().chain(rest).map(|body| (call.run, body)).collect()
    }

    fn answered(&mut self, answered: &ModelAnswered) -> Vec<Told> {
        let (call, attempt) = (answered.call, answered.attempt);
        self.asking = None;
        self.open.clear();
        let mut told = vec![EventBody::ThinkingEnd { call, attempt }];
        if answered.is_discarded() {
            told.extend([
                EventBody::Retry { call, attempt: attempt + 1 },
                EventBody::IterationEnd { iteration: call.iteration },
            ]);
            return told.into_iter().map(|body| (call.run, body)).collect();
        }
        for (asked, n) in answered.message.calls.iter().zip(1..) {
            let call = CallId { n, ..call };
            let (tool, arguments): (Arc<str>, Arc<str>) =
                (asked.name.as_str().into(), asked.arguments.as_str().into());
            let called = Called { tool: Arc::clone(&tool), arguments: Arc::clone(&arguments), attempt: 0 };
            self.open.insert(call, called);
            told.push(EventBody::ToolCallParsed { call, tool, arguments });
        }
        told.push(match self.open.is_empty() {
            true => EventBody::IterationEnd { iteration: call.iteration },
            false => EventBody::Status(RunStatus::Executing),
        });
        told.into_iter().map(|body| (call.run, body)).collect()
    }

    fn failed(&mut self, failed: &ModelFailed) -> Vec<Told> {
        let (call, attempt) = (failed.call, failed.attempt);
        self.asking = None;
        let waiting = failed.retry_at.map(|at| {
            let (reason, until) = (failed.failure.class.name().into(), Some(at));
            EventBody::Status(RunStatus::Waiting { reason, until })
        });
        let told = std::iter::once(EventBody::ThinkingEnd { call, attempt }).chain(waiting);
        told.map(|body| (call.run, body)).collect()
    }

    fn started(&mut self, started: &CallStarted) -> Vec<Told> {
        let (call, attempt) = (started.call, started.attempt);
        let Some(called) = self.open.get_mut(&call) else { return Vec::new() };
        called.attempt = attempt;
        let (tool, arguments) = (Arc::clone(&called.tool), Arc::clone(&called.arguments));
        let retry = (attempt > 1).then_some(EventBody::Retry { call, attempt });
        let told = retry.into_iter().chain([EventBody::ToolStart { call, attempt, tool, arguments }]);
        told.map(|body| (call.run, body)).collect()
    }

    fn call_ended(&mut self, ended: &CallEnded) -> Vec<Told> {
        let (call, attempt, status) = (ended.call, ended.attempt, ended.end.status);
        let Some(Called { tool, .. }) = self.open.remove(&call) else { return Vec::new() };
        let iteration = self.open.is_empty().then_some(EventBody::IterationEnd { iteration: call.iteration });
        let told = std::iter::once(EventBody::ToolEnd { call, attempt, tool, status }).chain(iteration);
        told.map(|body| (call.run, body)).collect()
    }

    fn ended(&mut self, ended: &RunEnded) -> Vec<Told> {
        let run = ended.run;
        let mut told = Vec::new();
        let is_current = self.current == Some(run);
        if is_current {
            // A run whose session was given up has a call under way.
            let open = self
                .asking
                .take()
                .map(|Asking { call, attempt, .. }| EventBody::ThinkingEnd { call, attempt });
            told.extend(open.map(|body| (run, body)));
            self.open.clear();
        }
        told.push((run, EventBody::Status(RunStatus::Ended(ended.ended.clone()))));
        told.push((run, EventBody::Lifecycle(stage(&ended.ended))));
        self.queue.retain(|queued| *queued != run);
        if is_current {
            self.current = self.queue.pop_front();
            told.extend(self.current.map(|next| (next, EventBody::Lifecycle(Lifecycle::Start))));
        }
        told
    }
}

fn waits(waiting: &ModelWaiting) -> RunStatus {
    let named = waiting.skipped.iter().find_map(|link| match &link.why {
        WhyNot::Skipped { until, failure } if *until == Some(waiting.until) => Some(failure.class.name()),
        WhyNot::Skipped { .. } | WhyNot::Tried { .. } => None,
    });
    let until = Some(waiting.until);
    RunStatus::Waiting { reason: named.unwrap_or("no model can be asked").into(), until }
}

const fn stage(ended: &Ended) -> Lifecycle {
    match ended.outcome {
        Outcome::Completed => Lifecycle::End,
        Outcome::Failed
        | Outcome::Stopped
        | Outcome::TimedOut
        | Outcome::BudgetExhausted
        | Outcome::LoopDetected
        | Outcome::Refused => Lifecycle::Error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        Access, Amounts, AssistantMessage, CallAdmitted, CallEnd, CallStatus, Cause, Doubt, EffectClass,
        Failure, FailureClass, Finish, Flaw, Hash, Incarnation, Limits, ModelRef, RunSpec, RunStopping,
        StopReason, Timestamp, ToolCall, Usage,
    };

    const RUN: RunId = RunId::from_bits(1);
    const MODEL: CallId = CallId { run: RUN, iteration: 1, n: 0 };

    fn tool(n: u32) -> CallId {
        CallId { n, ..MODEL }
    }

    /// The event as text: its name, what it is about, and of another run than the first its number.
    fn line((run, body): &Told) -> String {
        let what = match body {
            EventBody::Recorded { .. } => String::new(),
            EventBody::Status(RunStatus::Waiting { reason, until }) => {
                format!(" waiting {reason} {}", until.map_or(0, |until| until.0))
            }
            EventBody::Status(status) => format!(" {}", status.name()),
            EventBody::Lifecycle(stage) => format!(" {}", stage.name()),
            EventBody::ThinkingStart { attempt, .. }
            | EventBody::ThinkingEnd { attempt, .. }
            | EventBody::Retry { attempt, .. } => format!(" {attempt}"),
            EventBody::TextDelta { delta, .. } | EventBody::ReasoningDelta { delta, .. } => {
                format!(" {delta}")
            }
            EventBody::ToolCallParsed { call, tool, arguments } => format!(" {} {tool} {arguments}", call.n),
            EventBody::ToolStart { call, attempt, tool, .. } => format!(" {} {tool} {attempt}", call.n),
            EventBody::ToolProgress { call, note, .. } => format!(" {} {note}", call.n),
            EventBody::ToolEnd { call, tool, status, .. } => format!(" {} {tool} {status:?}", call.n),
            EventBody::IterationEnd { iteration } => format!(" {iteration}"),
        };
        let other = if *run == RUN { String::new() } else { format!(" of {}", run.bits()) };
        format!("{}{what}{other}", body.name())
    }

    fn told(narration: &mut Narration, body: Body) -> String {
        let told = narration.tell(&Record { at: Timestamp(0), active_ms: 0, body });
        told.iter().map(line).collect::<Vec<_>>().join(", ")
    }

    #[track_caller]
    fn check(steps: Vec<(Body, &str)>) {
        let mut narration = Narration::default();
        for (body, expect) in steps {
            let kind = body.kind().name();
            assert_eq!(told(&mut narration, body), expect, "{kind}");
        }
    }

    fn accepted(run: u128) -> Body {
        let spec = RunSpec {
            chain: Vec::new(),
            workspace: String::new(),
            task: String::new(),
            tools: Vec::new(),
            limits: Limits::default(),
            system: None,
            traits: Vec::new(),
            thinking: None,
            in_doubt: Doubt::default(),
            script: None,
        };
        Body::RunAccepted(Box::new(RunAccepted {
            run: RunId::from_bits(run),
            input: "x".into(),
            images: Arc::default(),
            history: Arc::default(),
            spec: Arc::new(spec),
        }))
    }

    fn asked(attempt: Attempt) -> Body {
        Body::ModelStarted(Box::new(ModelStarted {
            call: MODEL,
            attempt,
            model: ModelRef { provider: "p".into(), model: "m".into() },
            view: 1,
            request: Hash::of(b""),
            max_tokens: 1,
            prefix: None,
            reserved: Amounts::default(),
            incarnation: Incarnation::default(),
        }))
    }

    fn answered(calls: usize) -> Body {
        let call = |n| ToolCall { id: format!("v{n}"), name: "Look".into(), arguments: "{}".into() };
        let message =
            AssistantMessage { calls: (0..calls).map(call).collect(), ..AssistantMessage::default() };
        let (message, finish) = (Arc::new(message), Finish::Stop);
        Body::ModelAnswered(Box::new(ModelAnswered {
            call: MODEL,
            attempt: 1,
            message,
            finish,
            flaw: None,
            fallback: None,
            usage: None,
        }))
    }

    fn flawed(flaw: Flaw) -> Body {
        let Body::ModelAnswered(answered) = answered(0) else { unreachable!("it is an answer") };
        Body::ModelAnswered(Box::new(ModelAnswered { flaw: Some(flaw), ..*answered }))
    }

    fn failed(retry_at: Option<i64>) -> Body {
        let failure = Failure::new(FailureClass::Overloaded, "busy");
        let retry_at = retry_at.map(Timestamp);
        Body::ModelFailed(ModelFailed { call: MODEL, attempt: 1, failure, retry_at, fallback: None })
    }

    fn admitted(n: u32) -> Body {
        let (tool_name, arguments) = ("look".into(), Hash::of(b"{}"));
        Body::CallAdmitted(CallAdmitted {
            call: tool(n),
            tool: tool_name,
            effect: EffectClass::Pure,
            access: Access::default(),
            arguments,
            same_as: None,
        })
    }

    fn started(n: u32, attempt: Attempt) -> Body {
        let (incarnation, boot) = (Incarnation::default(), "b".into());
        Body::CallStarted(CallStarted { call: tool(n), attempt, incarnation, boot })
    }

    fn ended(n: u32, status: CallStatus) -> Body {
        let end = CallEnd::new(status, "c");
        Body::CallEnded(CallEnded { call: tool(n), attempt: 1, end })
    }

    fn run_ended(run: u128, outcome: Outcome) -> Body {
        let (run, ended) = (RunId::from_bits(run), Ended { outcome, cause: None });
        Body::RunEnded(RunEnded { run, ended, iterations: 1, usage: Usage::default() })
    }

    #[test]
    fn a_run_is_told_from_its_acceptance_to_its_end() {
        check(vec![
            (accepted(1), "status accepted, lifecycle start"),
            (asked(1), "status thinking, thinking.start 1"),
            (
                answered(2),
                "thinking.end 1, tool_call.parsed 1 Look {}, tool_call.parsed 2 Look {}, status executing",
            ),
            (admitted(1), ""),
            (started(1, 1), "tool.start 1 look 1"),
            (ended(1, CallStatus::Ok), "tool.end 1 look Ok"),
            (ended(2, CallStatus::Error), "tool.end 2 Look Error, iteration.end 1"),
            (asked(1), "status thinking, thinking.start 1"),
            (answered(0), "thinking.end 1, iteration.end 1"),
            (run_ended(1, Outcome::Completed), "status ended, lifecycle end"),
        ]);
    }

    #[test]
    fn a_new_attempt_voids_the_earlier_one() {
        check(vec![
            (accepted(1), "status accepted, lifecycle start"),
            (asked(1), "status thinking, thinking.start 1"),
            (failed(Some(9)), "thinking.end 1, status waiting overloaded 9"),
            (asked(2), "retry 2, status thinking, thinking.start 2"),
            (answered(1), "thinking.end 1, tool_call.parsed 1 Look {}, status executing"),
            (started(1, 1), "tool.start 1 Look 1"),
            (started(1, 2), "retry 2, tool.start 1 Look 2"),
        ]);
    }

    #[test]
    fn a_part_goes_on_and_what_is_discarded_is_void() {
        check(vec![
            (accepted(1), "status accepted, lifecycle start"),
            (asked(1), "status thinking, thinking.start 1"),
            (flawed(Flaw::Partial), "thinking.end 1, iteration.end 1"),
            (asked(1), "status thinking, thinking.start 1"),
            (flawed(Flaw::Empty), "thinking.end 1, retry 2, iteration.end 1"),
        ]);
    }

    #[test]
    fn an_end_that_is_no_completion_is_an_error() {
        let ended = Ended::because(Outcome::Stopped, Cause::Stop { reason: StopReason::Command });
        check(vec![
            (accepted(1), "status accepted, lifecycle start"),
            (asked(1), "status thinking, thinking.start 1"),
            (Body::RunStopping(RunStopping { run: RUN, ended }), "lifecycle finishing"),
            (failed(None), "thinking.end 1"),
            (run_ended(1, Outcome::Stopped), "status ended, lifecycle error"),
        ]);
    }

    #[test]
    fn a_queued_run_starts_when_the_one_before_has_ended() {
        check(vec![
            (accepted(1), "status accepted, lifecycle start"),
            (accepted(2), "status accepted of 2, status queued of 2"),
            (accepted(3), "status accepted of 3, status queued of 3"),
            (run_ended(2, Outcome::Stopped), "status ended of 2, lifecycle error of 2"),
            (run_ended(1, Outcome::Completed), "status ended, lifecycle end, lifecycle start of 3"),
        ]);
    }

    #[test]
    fn what_is_not_durable_is_told_from_the_beginning_of_the_attempt_under_way() {
        let mut narration = Narration::default();
        for body in [accepted(1), asked(1), failed(Some(9)), asked(2)] {
            told(&mut narration, body);
        }
        let mut check = |attempt, piece, expect: Option<&str>| {
            let told = narration.delta(&Delta { call: MODEL, attempt, piece });
            assert_eq!(told.as_ref().map(line).as_deref(), expect);
        };
        let text = |at, delta: &str| Piece::Text { at, delta: delta.into() };
        check(1, text(0, "old"), None);
        check(2, Piece::Waits { reason: "limits", until: Some(Timestamp(7)) }, None);
        check(2, text(0, "one"), Some("text.delta one"));
        check(2, Piece::Reasoning { at: 0, delta: "hm".into() }, Some("reasoning.delta hm"));
        check(2, text(3, "two"), Some("text.delta two"));
        check(2, text(9, "gap"), None);
        check(2, text(12, "on"), None);
        told(&mut narration, failed(Some(9)));
        let waits = Delta {
            call: MODEL,
            attempt: 3,
            piece: Piece::Waits { reason: "limits", until: Some(Timestamp(7)) },
        };
        let told_of_it = narration.delta(&waits).as_ref().map(line);
        assert_eq!(told_of_it.as_deref(), Some("status waiting limits 7"));
        told(&mut narration, asked(3));
        told(&mut narration, answered(1));
        told(&mut narration, started(1, 1));
        let mut check = |call, attempt, expect: Option<&str>| {
            let piece = Piece::Progress("half".into());
            let told = narration.delta(&Delta { call, attempt, piece });
            assert_eq!(told.as_ref().map(line).as_deref(), expect);
        };
        check(tool(1), 1, Some("tool.progress 1 half"));
        check(tool(1), 2, None);
        check(tool(2), 1, None);
    }
}
