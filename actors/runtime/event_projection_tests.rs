//! Tests of the projection of records to events.

use super::*;
use crate::model::{
    Access, Amounts, AsideJob, AssistantMessage, CallAdmitted, CallEnd, CallStatus, CompactionMethod,
    ContextCompacted, EffectClass, Failure, FailureClass, FinishReason, Flaw, Hash, HistoryPosition,
    Incarnation, OutcomeCause, OutcomeDetail, RunSpec, RunStopping, SessionId, StopReason, SummaryStarted,
    Timestamp, ToolCall, Usage,
};

const RUN: RunId = RunId::from_bits(1);
const MODEL: CallId = CallId { run: RUN, iteration: 1, n: 0 };

fn tool(n: u32) -> CallId {
    CallId { n, ..MODEL }
}

/// The event as text: its name, its subject, and the number of its run if that is not the first one.
fn line((run, body): &RunEvent) -> String {
    let what = match body {
        EventBody::Recorded { .. } => String::new(),
        EventBody::Status(RunStatus::Waiting { reason, until }) => {
            format!(" waiting {reason} {}", until.map_or(0, |until| until.0))
        }
        EventBody::Status(status) => format!(" {}", status.name()),
        EventBody::Lifecycle(stage) => format!(" {}", stage.name()),
        EventBody::Compaction(stage) => format!(" {}", stage.name()),
        EventBody::ThinkingStart { attempt, .. }
        | EventBody::ThinkingEnd { attempt, .. }
        | EventBody::Retry { attempt, .. } => format!(" {attempt}"),
        EventBody::TextDelta { delta, .. } | EventBody::ReasoningDelta { delta, .. } => {
            format!(" {delta}")
        }
        EventBody::ToolCallStreamed { call, tool, arguments, .. }
        | EventBody::ToolCallParsed { call, tool, arguments } => {
            format!(" {} {tool} {arguments}", call.n)
        }
        EventBody::ToolStart { call, attempt, tool, .. } => format!(" {} {tool} {attempt}", call.n),
        EventBody::ToolProgress { call, note, .. } => format!(" {} {note}", call.n),
        EventBody::ToolEnd { call, tool, status, .. } => format!(" {} {tool} {status:?}", call.n),
        EventBody::IterationEnd { iteration } => format!(" {iteration}"),
    };
    let other = if *run == RUN { String::new() } else { format!(" of {}", run.bits()) };
    format!("{}{what}{other}", body.name())
}

fn projected(projection: &mut EventProjection, body: Body) -> String {
    let projected = projection.project(&Record { at: Timestamp(0), active_ms: 0, body });
    projected.iter().map(line).collect::<Vec<_>>().join(", ")
}

#[track_caller]
fn check(steps: Vec<(Body, &str)>) {
    let mut projection = EventProjection::default();
    for (body, expect) in steps {
        let kind = body.kind().name();
        assert_eq!(projected(&mut projection, body), expect, "{kind}");
    }
}

fn accepted(run: u128) -> Body {
    let spec = RunSpec::new(Vec::new(), String::new());
    Body::RunAccepted(Box::new(RunAccepted {
        run: RunId::from_bits(run),
        input: "x".into(),
        images: Arc::default(),
        history: Arc::default(),
        spec: Arc::new(spec),
        parent: None,
        request_hash: None,
        queueing: None,
        hold: None,
        occurrence: None,
    }))
}

fn asked(attempt: Attempt) -> Body {
    Body::ModelStarted(Arc::new(ModelStarted {
        call: MODEL,
        attempt,
        model: "p/m".parse().unwrap(),
        view_seq: 1,
        request_hash: Hash::of(b""),
        images: 0,
        bytes: 0,
        max_tokens: 1,
        prefix: None,
        reserved: Amounts::default(),
        period: None,
        price: None,
        incarnation: Incarnation::default(),
    }))
}

fn summary_asked(attempt: Attempt) -> Body {
    let Body::ModelStarted(started) = asked(attempt) else { unreachable!("it is a start") };
    let started =
        Arc::new(ModelStarted { call: CallId::aside(RUN, 1, AsideJob::Summary), ..(*started).clone() });
    let end = HistoryPosition::default();
    Body::SummaryStarted(Box::new(SummaryStarted { started, call_end: end, summary_end: end, hooks: None }))
}

fn compacted(method: CompactionMethod) -> Body {
    Body::ContextCompacted(Box::new(ContextCompacted {
        run: RUN,
        lineage: SessionId::from_bits(1),
        method,
        end: HistoryPosition::default(),
        summary: None,
        tokens_before: 9,
        tokens_after: 5,
        waited_ms: 0,
    }))
}

#[test]
fn a_compaction_starts_once_and_ends() {
    check(vec![
        (accepted(1), "status accepted, lifecycle start"),
        (summary_asked(1), "compaction start, status compressing"),
        (summary_asked(2), "status compressing"),
        (compacted(CompactionMethod::Summarised), "compaction end"),
        (compacted(CompactionMethod::Elided), "compaction end"),
        (summary_asked(1), "compaction start, status compressing"),
    ]);
}

fn answered(calls: usize) -> Body {
    let call = |n| ToolCall { id: format!("v{n}"), name: "Look".into(), arguments: "{}".into() };
    let message = AssistantMessage { calls: (0..calls).map(call).collect(), ..AssistantMessage::default() };
    let (message, finish) = (Arc::new(message), FinishReason::Stop);
    Body::ModelAnswered(Box::new(ModelAnswered {
        call: MODEL,
        attempt: 1,
        message,
        finish,
        flaw: None,
        fallback: None,
        usage: None,
        anomaly: None,
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
        detached: false,
        polls: false,
        arguments,
        same_as: None,
        hooks: None,
    })
}

fn started(n: u32, attempt: Attempt) -> Body {
    let (incarnation, boot) = (Incarnation::default(), "b".into());
    Body::CallStarted(CallStarted { call: tool(n), attempt, incarnation, boot, children: Arc::default() })
}

fn ended(n: u32, status: CallStatus) -> Body {
    let end = CallEnd::new(status, "c");
    Body::CallEnded(CallEnded::new(tool(n), 1, end))
}

fn run_ended(run: u128, outcome: Outcome) -> Body {
    let (run, ended) = (RunId::from_bits(run), OutcomeDetail { outcome, cause: None });
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
    let ended =
        OutcomeDetail::with_cause(Outcome::Stopped, OutcomeCause::Stop { reason: StopReason::Command });
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
    let mut projection = EventProjection::default();
    for body in [accepted(1), asked(1), failed(Some(9)), asked(2)] {
        projected(&mut projection, body);
    }
    let mut check = |attempt, piece, expect: Option<&str>| {
        let projected = projection.project_delta(&HubDelta { id: MODEL.attempt(attempt), body: piece });
        assert_eq!(projected.as_ref().map(line).as_deref(), expect);
    };
    let text = |at, delta: &str| DeltaBody::Text { at, delta: delta.into() };
    check(1, text(0, "old"), None);
    check(2, DeltaBody::Waiting { reason: "limits", until: Some(Timestamp(7)) }, None);
    check(2, text(0, "one"), Some("text.delta one"));
    check(2, DeltaBody::Reasoning { at: 0, delta: "hm".into() }, Some("reasoning.delta hm"));
    check(2, text(3, "two"), Some("text.delta two"));
    let streamed = || DeltaBody::ToolCall { n: 2, tool: "Look".into(), arguments: "{}".into() };
    check(1, streamed(), None);
    check(2, streamed(), Some("tool_call.streamed 2 Look {}"));
    check(2, text(0, "onetwo"), None);
    check(2, text(0, "onetwothree"), Some("text.delta three"));
    check(2, text(3, "twothreefour"), Some("text.delta four"));
    check(2, text(16, "gap"), None);
    check(2, text(19, "on"), None);
    projected(&mut projection, failed(Some(9)));
    let waits = HubDelta {
        id: MODEL.attempt(3),
        body: DeltaBody::Waiting { reason: "limits", until: Some(Timestamp(7)) },
    };
    let told_of_it = projection.project_delta(&waits).as_ref().map(line);
    assert_eq!(told_of_it.as_deref(), Some("status waiting limits 7"));
    projected(&mut projection, asked(3));
    projected(&mut projection, answered(1));
    projected(&mut projection, started(1, 1));
    let mut check = |call: CallId, attempt, expect: Option<&str>| {
        let piece = DeltaBody::Progress("half".into());
        let projected = projection.project_delta(&HubDelta { id: call.attempt(attempt), body: piece });
        assert_eq!(projected.as_ref().map(line).as_deref(), expect);
    };
    check(tool(1), 1, Some("tool.progress 1 half"));
    check(tool(1), 2, None);
    check(tool(2), 1, None);
}
