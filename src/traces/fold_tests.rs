//! Tests of the fold of records into spans.

use hermod_actors::model::{
    Access, Amounts, ApprovalAnswered, ApprovalDecision, ApprovalRequested, ApprovalScope, AsideAnswered,
    AsideJob, CallAdmitted, CallEnd, CallLost, CallStarted, CallStatus, ChildEnded, CompactionMethod,
    ContextCompacted, DecisionSource, EffectClass, Failure, FailureClass, FinishReason, Hash,
    HistoryPosition, Incarnation, LimitIncrease, MessageSteered, ModelAnswered, ModelFailed, OutcomeDetail,
    ParentRef, RetryReason, RunReopened, SessionRevived, SubagentRef, SummaryStarted, ToolCall,
};

use super::*;

const RUN: RunId = RunId::from_bits(7);
const OTHER: RunId = RunId::from_bits(8);
const SESSION: SessionId = SessionId::from_bits(9);
/// A text of users, models or tools.
const SECRET: &str = "hunter2";
const PRICE: Price = Price { input: 1_000, output: 2_000, cache_read: 100, cache_write: 1_250, up_to: None };

const fn call(iteration: u32, n: u32) -> CallId {
    CallId { run: RUN, iteration, n }
}

fn accepted(run: RunId, parent: Option<ParentRef>) -> Body {
    let mut spec = RunSpec::new(vec!["mistral/large".parse().unwrap()], SECRET);
    spec.agent = "builder".parse().unwrap();
    spec.tools = vec!["shell".into(), "todo".into()];
    spec.profiles = vec![hermod_actors::model::ModelProfile { price: Some(PRICE), ..Default::default() }];
    let accepted = RunAccepted::new(run, SECRET, Arc::new(spec));
    Body::RunAccepted(Box::new(RunAccepted { parent, ..accepted }))
}

fn model_started(call: CallId, attempt: u32, model: &str) -> Arc<ModelStarted> {
    Arc::new(ModelStarted {
        call,
        attempt,
        model: model.parse().unwrap(),
        view_seq: 1,
        request_hash: Hash::of(b""),
        bytes: 0,
        images: 0,
        max_tokens: 100,
        prefix: None,
        reserved: Amounts::default(),
        period: None,
        price: Some(PRICE),
        incarnation: Incarnation::default(),
    })
}

fn started(iteration: u32, attempt: u32) -> Body {
    Body::ModelStarted(model_started(call(iteration, 0), attempt, "mistral/large"))
}

fn answered(iteration: u32, attempt: u32, tools: &[&str]) -> Body {
    let tool = |(at, name): (usize, &&str)| ToolCall {
        id: format!("vendor-{at}"),
        name: (*name).to_owned(),
        arguments: SECRET.into(),
    };
    let message = AssistantMessage {
        text: SECRET.into(),
        reasoning: SECRET.into(),
        calls: tools.iter().enumerate().map(tool).collect(),
        opaque: None,
    };
    Body::ModelAnswered(Box::new(ModelAnswered {
        call: call(iteration, 0),
        attempt,
        message: Arc::new(message),
        finish: if tools.is_empty() { FinishReason::Stop } else { FinishReason::ToolCalls },
        flaw: None,
        fallback: None,
        usage: Some(Usage { input_tokens: 100, output_tokens: 10, cached_tokens: 40, ..Usage::default() }),
        anomaly: None,
    }))
}

fn failed(call: CallId, attempt: u32, class: FailureClass, retry_at: Option<Timestamp>) -> Body {
    Body::ModelFailed(ModelFailed::new(call.attempt(attempt), Failure::new(class, SECRET), retry_at))
}

fn admitted(n: u32, tool: &str) -> Body {
    Body::CallAdmitted(CallAdmitted {
        call: call(1, n),
        tool: tool.into(),
        effect: EffectClass::Once,
        access: Access::default(),
        detached: false,
        polls: false,
        arguments: Hash::of(b""),
        same_as: None,
        hooks: None,
    })
}

fn tool_started(n: u32, attempt: u32) -> Body {
    Body::CallStarted(CallStarted {
        call: call(1, n),
        attempt,
        incarnation: Incarnation::default(),
        boot: "b".into(),
        children: Arc::default(),
    })
}

fn tool_ended(n: u32, attempt: u32, status: CallStatus) -> Body {
    Body::CallEnded(CallEnded::new(call(1, n), attempt, CallEnd::new(status, SECRET)))
}

fn revived() -> Body {
    Body::SessionRevived(SessionRevived { incarnation: Incarnation::default(), boot: "b".into() })
}

fn ended(outcome: Outcome) -> Body {
    let ended = OutcomeDetail { outcome, cause: None };
    Body::RunEnded(RunEnded { run: RUN, ended, iterations: 2, usage: Usage::default() })
}

/// The spans of these records at their times in milliseconds; the first one accepts the run. No span has a text of
/// users, models or tools.
fn spans(leg: u32, records: Vec<(i64, Body)>) -> Vec<Span> {
    let mut records = records.into_iter().map(|(at, body)| Record { at: Timestamp(at), active_ms: 0, body });
    let leg = TracedLeg { trace: TraceId::of_root(RUN), session: SESSION, leg };
    let mut spans = LegSpans::new(leg, &records.next().unwrap()).unwrap();
    records.for_each(|record| spans.take(&record));
    let spans = spans.drain();
    let shown = format!("{spans:?}");
    assert!(!shown.contains(SECRET), "{shown}");
    for span in &spans {
        assert_eq!(span.trace, leg.trace);
        assert!(span.end >= span.start, "{span:?}");
        let keys: Vec<&str> = span.attributes.iter().map(|(key, _)| *key).collect();
        assert!((1..keys.len()).all(|at| !keys[..at].contains(&keys[at])), "{keys:?}");
    }
    spans
}

#[track_caller]
fn check_text(span: &Span, key: &str, expect: &str) {
    assert_eq!(span.attribute(key), Some(&AttributeValue::from(expect)), "{key}: {span:?}");
}

#[track_caller]
fn check_number(span: &Span, key: &str, expect: u32) {
    assert_eq!(span.attribute(key), Some(&AttributeValue::from(expect)), "{key}: {span:?}");
}

/// Names of spans with their times.
fn names_and_times(spans: &[Span]) -> Vec<(&str, i64, i64)> {
    spans.iter().map(|span| (span.name.as_str(), span.start.0, span.end.0)).collect()
}

fn events(span: &Span) -> Vec<(&str, i64)> {
    span.events.iter().map(|event| (event.name, event.at.0)).collect()
}

/// A run with two tool calls. Its process was killed in the first one and in the second model call.
fn killed_run() -> Vec<Span> {
    spans(
        1,
        vec![
            (10, accepted(RUN, None)),
            (11, revived()),
            (20, started(1, 1)),
            (30, answered(1, 1, &["shell", "todo"])),
            (30, admitted(1, "shell")),
            (30, admitted(2, "todo")),
            (30, tool_ended(2, 0, CallStatus::Ok)),
            (40, tool_started(1, 1)),
            (500, revived()),
            (
                500,
                Body::CallLost(CallLost { call: call(1, 1), attempt: 1, reason: RetryReason::NeverStarted }),
            ),
            (510, tool_started(1, 2)),
            (560, tool_ended(1, 2, CallStatus::Error)),
            (570, started(2, 1)),
            (900, revived()),
            (900, failed(call(2, 0), 1, FailureClass::Interrupted, Some(Timestamp(900)))),
            (910, started(2, 2)),
            (990, answered(2, 2, &[])),
            (990, ended(Outcome::Completed)),
        ],
    )
}

#[test]
fn a_killed_run_is_one_trace_with_the_times_of_its_records() {
    let spans = killed_run();
    assert_eq!(
        names_and_times(&spans),
        [
            ("chat large", 20, 30),
            ("execute_tool todo", 30, 30),
            ("execute_tool shell", 40, 560),
            ("chat large", 570, 990),
            ("invoke_agent builder", 10, 990),
        ]
    );
    let root = spans.last().unwrap();
    assert_eq!((root.id, root.parent, root.kind), (SpanId::of_leg(RUN, 1), None, SpanKind::Internal));
    for span in &spans[..4] {
        assert_eq!(span.parent, Some(root.id), "{span:?}");
    }
    assert_eq!(events(root), [("hermod.session.revived", 500), ("hermod.session.revived", 900)]);
    assert_eq!(events(&spans[2]), [("hermod.attempt.lost", 500), ("hermod.attempt.started", 510)]);
    assert_eq!(events(&spans[3]), [("hermod.attempt.failed", 900), ("hermod.attempt.started", 910)]);
    assert_eq!(spans, killed_run(), "the same records give the same spans");
}

#[test]
fn attributes_have_the_names_of_the_conventions() {
    let spans = killed_run();
    let (chat, tool, root) = (&spans[0], &spans[2], &spans[4]);
    assert_eq!((chat.kind, tool.kind), (SpanKind::Client, SpanKind::Internal));
    for span in [chat, tool, root] {
        check_text(span, "gen_ai.conversation.id", &SESSION.to_string());
        check_text(span, "gen_ai.agent.name", "builder");
    }
    for span in [chat, root] {
        check_text(span, "gen_ai.provider.name", "mistral_ai");
        check_text(span, "gen_ai.request.model", "large");
    }
    check_text(chat, "gen_ai.operation.name", "chat");
    check_text(chat, "hermod.call.id", &call(1, 0).to_string());
    check_number(chat, "gen_ai.request.max_tokens", 100);
    check_number(chat, "gen_ai.usage.input_tokens", 100);
    check_number(chat, "gen_ai.usage.output_tokens", 10);
    check_number(chat, "gen_ai.usage.cache_read.input_tokens", 40);
    let reasons = AttributeValue::Texts(vec!["tool_calls".into()]);
    assert_eq!(chat.attribute("gen_ai.response.finish_reasons"), Some(&reasons));
    let cost = AttributeValue::Real(0.000_084);
    assert_eq!(chat.attribute("hermod.cost.usd"), Some(&cost));
    check_text(tool, "gen_ai.operation.name", "execute_tool");
    check_text(tool, "gen_ai.tool.name", "shell");
    check_text(tool, "gen_ai.tool.type", "function");
    check_text(tool, "gen_ai.tool.call.id", "vendor-0");
    check_text(tool, "error.type", "error");
    check_number(tool, "hermod.attempts", 2);
    assert!(tool.is_error && !chat.is_error && !root.is_error);
    check_text(root, "gen_ai.operation.name", "invoke_agent");
    check_text(root, "hermod.run.id", &RUN.to_string());
    check_text(root, "hermod.run.outcome", "completed");
    check_number(root, "hermod.run.iterations", 2);
    check_number(root, "gen_ai.usage.input_tokens", 200);
    assert_eq!(root.attribute("hermod.cost.usd"), Some(&AttributeValue::Real(0.000_168)));
    assert_eq!(root.attribute("error.type"), None);
}

#[test]
fn a_subagent_is_a_part_of_the_call_that_delegated_it() {
    let delegating = CallId { run: OTHER, iteration: 3, n: 1 };
    let parent = ParentRef { session: SessionId::from_bits(1), call: delegating, n: 0 };
    let spans = spans(1, vec![(1, accepted(RUN, Some(parent))), (2, ended(Outcome::Completed))]);
    assert_eq!(spans[0].parent, Some(SpanId::of_call(delegating)));
}

#[test]
fn a_further_leg_is_a_part_of_the_first() {
    let reopened = RunReopened { run: RUN, leg: 2, increase: LimitIncrease::default() };
    let spans = spans(
        2,
        vec![
            (1, accepted(RUN, None)),
            (50, Body::RunReopened(reopened)),
            (60, started(4, 1)),
            (70, answered(4, 1, &[])),
            (80, ended(Outcome::BudgetExhausted)),
        ],
    );
    assert_eq!(names_and_times(&spans), [("chat large", 60, 70), ("invoke_agent builder", 50, 80)]);
    let (first, second) = (SpanId::of_leg(RUN, 1), SpanId::of_leg(RUN, 2));
    assert_eq!((spans[1].id, spans[1].parent), (second, Some(first)));
    assert_eq!(spans[0].parent, Some(second));
    check_number(&spans[1], "hermod.run.leg", 2);
    check_text(&spans[1], "error.type", "budget_exhausted");
    assert!(spans[1].is_error);
}

#[test]
fn a_call_that_another_model_answers_has_its_name() {
    let started_by = |attempt, model| Body::ModelStarted(model_started(call(1, 0), attempt, model));
    let spans = spans(
        1,
        vec![
            (1, accepted(RUN, None)),
            (2, started_by(1, "mistral/large")),
            (3, failed(call(1, 0), 1, FailureClass::Overloaded, Some(Timestamp(4)))),
            (4, started_by(2, "openai/gpt")),
            (5, answered(1, 2, &[])),
            (5, ended(Outcome::Completed)),
        ],
    );
    assert_eq!(spans[0].name, "chat gpt");
    check_text(&spans[0], "gen_ai.provider.name", "openai");
    check_number(&spans[0], "hermod.attempts", 2);
    assert!(!spans[0].is_error, "it was answered");
    let failure = ("error.type", AttributeValue::from("overloaded"));
    assert!(spans[0].events[0].attributes.contains(&failure), "{:?}", spans[0].events);
}

#[test]
fn a_call_without_an_answer_ends_with_its_last_failure() {
    let spans = spans(
        1,
        vec![
            (1, accepted(RUN, None)),
            (2, started(1, 1)),
            (5, failed(call(1, 0), 1, FailureClass::Auth, None)),
            (6, ended(Outcome::Failed)),
        ],
    );
    assert_eq!(names_and_times(&spans), [("chat large", 2, 5), ("invoke_agent builder", 1, 6)]);
    check_text(&spans[0], "error.type", "auth");
    check_text(&spans[1], "error.type", "failed");
}

#[test]
fn a_call_that_its_run_leaves_open_ends_with_it() {
    let spans = spans(
        1,
        vec![
            (1, accepted(RUN, None)),
            (2, started(1, 1)),
            (3, answered(1, 1, &["shell"])),
            (3, admitted(1, "shell")),
            (4, tool_started(1, 1)),
            (9, ended(Outcome::Failed)),
            (10, started(2, 1)),
        ],
    );
    assert_eq!(names_and_times(&spans)[1..], [("execute_tool shell", 4, 9), ("invoke_agent builder", 1, 9)]);
    check_text(&spans[1], "error.type", "unfinished");
}

#[test]
fn tools_that_a_model_makes_up_have_no_name_of_their_own() {
    let spans = spans(
        1,
        vec![
            (1, accepted(RUN, None)),
            (2, started(1, 1)),
            (3, answered(1, 1, &[SECRET, "shell"])),
            (4, tool_ended(1, 0, CallStatus::Error)),
            (4, tool_ended(2, 0, CallStatus::NotStarted)),
            (5, ended(Outcome::Stopped)),
        ],
    );
    let expect = [("execute_tool _unknown", 3, 4), ("execute_tool shell", 3, 4)];
    assert_eq!(names_and_times(&spans)[1..3], expect);
    check_text(&spans[2], "error.type", "not_started");
    assert!(!spans[3].is_error, "a person stopped it");
}

#[test]
fn what_happens_to_a_call_is_an_event() {
    let child = SubagentRef { session: SESSION, run: OTHER };
    let child_ended = ChildEnded {
        call: call(1, 1),
        child,
        ended: OutcomeDetail { outcome: Outcome::Completed, cause: None },
        result: SECRET.into(),
        iterations: 1,
        usage: Usage::default(),
    };
    let requested = ApprovalRequested {
        call: call(1, 1),
        attempt: 0,
        question: SECRET.into(),
        rules: Vec::new(),
        allow_rules: Vec::new(),
        wants_text: false,
        expires_at: Timestamp(99),
    };
    let decided = ApprovalAnswered {
        call: call(1, 1),
        decision: ApprovalDecision::Allow,
        by: DecisionSource::Person,
        scope: ApprovalScope::Once,
    };
    let spans = spans(
        1,
        vec![
            (1, accepted(RUN, None)),
            (2, started(1, 1)),
            (3, answered(1, 1, &["shell"])),
            (3, admitted(1, "shell")),
            (4, Body::ApprovalRequested(requested)),
            (6, Body::ApprovalAnswered(decided)),
            (7, tool_started(1, 1)),
            (8, Body::ChildEnded(Box::new(child_ended))),
            (10, tool_ended(1, 1, CallStatus::Ok)),
            (12, ended(Outcome::Completed)),
        ],
    );
    assert_eq!(events(&spans[1]), [("hermod.subagent.ended", 8)]);
    let of_run = [("hermod.approval.requested", 4), ("hermod.approval.answered", 6)];
    assert_eq!(events(&spans[2]), of_run);
    assert_eq!((spans[1].start, spans[1].end), (Timestamp(7), Timestamp(10)), "a person is no tool");
}

#[test]
fn what_happens_to_a_run_is_an_event() {
    let compacted = ContextCompacted {
        run: RUN,
        lineage: SESSION,
        method: CompactionMethod::Summarised,
        end: HistoryPosition::default(),
        summary: Some(SECRET.into()),
        tokens_before: 100,
        tokens_after: 10,
        waited_ms: 3,
    };
    let steered = |run| {
        Body::MessageSteered(MessageSteered {
            run,
            text: SECRET.into(),
            followup_run: OTHER,
            request_hash: None,
        })
    };
    let spans = spans(
        1,
        vec![
            (1, accepted(RUN, None)),
            (2, accepted(OTHER, None)),
            (3, steered(OTHER)),
            (4, steered(RUN)),
            (5, Body::ContextCompacted(Box::new(compacted))),
            (6, ended(Outcome::Completed)),
        ],
    );
    assert_eq!(events(&spans[0]), [("hermod.message.steered", 4), ("hermod.context.compacted", 5)]);
}

#[test]
fn a_call_for_a_summary_is_a_call_of_its_model() {
    let id = CallId::aside(RUN, 1, AsideJob::Summary);
    let summary_started = SummaryStarted {
        started: model_started(id, 1, "openai/mini"),
        call_end: HistoryPosition::default(),
        summary_end: HistoryPosition::default(),
        hooks: None,
    };
    let summary = AsideAnswered {
        call: id,
        attempt: 1,
        text: SECRET.into(),
        unusable: None,
        fallback: None,
        usage: Some(Usage { input_tokens: 7, ..Usage::default() }),
        anomaly: None,
    };
    let spans = spans(
        1,
        vec![
            (1, accepted(RUN, None)),
            (2, Body::SummaryStarted(Box::new(summary_started))),
            (5, Body::SummaryAnswered(summary)),
            (6, ended(Outcome::Completed)),
        ],
    );
    assert_eq!(names_and_times(&spans)[0], ("chat mini", 2, 5));
    check_text(&spans[0], "hermod.model.purpose", "summary");
    check_number(&spans[0], "gen_ai.usage.input_tokens", 7);
}

#[test]
fn another_record_begins_no_trace() {
    let leg = TracedLeg { trace: TraceId::of_root(RUN), session: SESSION, leg: 1 };
    let record = Record { at: Timestamp(1), active_ms: 0, body: revived() };
    assert!(LegSpans::new(leg, &record).is_none());
}
