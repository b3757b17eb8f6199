//! Tests of approvals before a start: the request, the answers and their scopes, expiry, crashes and stops.

use std::sync::Arc;

use super::{Driver, model, run, tool};
use crate::{
    model::{
        Access, ApprovalNeed, ApprovalScope, AssistantMessage, AttemptId, Body, CallEnd, CallId, CallStatus,
        EffectClass, FinishReason, Hash, Intent, Limits, PersonAnswer, StopReason, ToolCall,
    },
    turn::{CallAdmission, DueAction, Input},
};

const FIRST: CallId = tool(1, 1, 1);
const SECOND: CallId = tool(1, 1, 2);
const DAY: u64 = 86_400_000;

fn asking(number: u8, allow_rule: &str) -> CallAdmission {
    let intent = Intent { access: Access::Anything, ..EffectClass::Once.into() };
    let allow_rules = Some(allow_rule).filter(|rule| !rule.is_empty()).map(Arc::from).into_iter().collect();
    let need = ApprovalNeed { rules: vec!["danger".into()], allow_rules, question: "May it start?".into() };
    CallAdmission::Admit {
        tool: "tool".into(),
        intent,
        arguments: Hash::of(&[number]),
        approval: Some(Arc::new(need)),
        hooks: None,
    }
}

/// A run whose answer has these calls.
fn asked(admissions: Vec<CallAdmission>) -> Driver {
    asked_with(admissions, r#"{"a":1}"#)
}

/// A run whose answer has these calls with these arguments.
fn asked_with(admissions: Vec<CallAdmission>, arguments: &str) -> Driver {
    let mut driver = Driver::new();
    driver.submit(1, Limits { max_tokens: 100, timeout_ms: Some(60_000), ..Limits::default() });
    driver.lease(model(1, 1), 1);
    let call = |n| ToolCall { id: format!("v{n}"), name: "tool".into(), arguments: arguments.into() };
    let calls = (0..admissions.len()).map(call).collect();
    let message = AssistantMessage { calls, ..AssistantMessage::default() };
    driver.answer_message(message, FinishReason::ToolCalls, admissions);
    driver
}

fn allow(call: CallId, scope: ApprovalScope) -> Input {
    Input::Approval { call, answer: PersonAnswer::Allow(scope) }
}

fn deny(call: CallId) -> Input {
    Input::Approval { call, answer: PersonAnswer::Deny }
}

fn acquire(call: CallId) -> DueAction {
    DueAction::Acquire(AttemptId { call, attempt: 1 })
}

/// Checks the status and a part of the last result that the model reads.
#[track_caller]
fn check_result(driver: &Driver, status: CallStatus, part: &str) {
    let end = driver.records.iter().rev().find_map(|record| {
        let Body::CallEnded(ended) = &record.body else { return None };
        Some(ended.end.clone())
    });
    let end: CallEnd = end.expect("the call has an end");
    assert_eq!(end.status, status);
    assert!(end.content.contains(part), "`{part}` is missing: {}", end.content);
}

#[test]
fn a_call_parks_its_run_until_it_is_allowed_and_then_starts_once() {
    let mut driver = asked(vec![asking(1, "tool")]);
    assert_eq!(driver.turn.parked_run(), Some(run(1)));
    assert_eq!(driver.turn.occupied_lane(driver.now), None);
    assert_eq!(driver.turn.due(driver.now), [DueAction::WakeAt(driver.now.at.plus_ms(DAY))]);
    // A permit that was granted too early starts nothing.
    assert_eq!(driver.feed(&Input::Permitted(AttemptId { call: FIRST, attempt: 1 })), [""; 0]);
    driver.pass(3_600_000);
    assert_eq!(driver.crash(), ["session.revived"]);
    assert_eq!(driver.feed(&Input::TimerFired), [""; 0], "the clocks stand still");
    let open = driver.turn.open_approvals();
    assert_eq!((open.len(), open[0].request.attempt, open[0].request.call), (1, 0, FIRST));

    let allow = allow(FIRST, ApprovalScope::Once);
    assert_eq!(driver.feed(&allow), ["approval.answered"]);
    assert_eq!(driver.feed(&allow), [""; 0], "it is answered");
    assert_eq!(driver.turn.due(driver.now)[0], acquire(FIRST));
    assert_eq!(driver.crash(), ["session.revived"]);
    assert_eq!(driver.turn.due(driver.now)[0], acquire(FIRST), "the approval survives a crash");
    assert_eq!(driver.feed(&Input::Permitted(AttemptId { call: FIRST, attempt: 1 })), ["call.started"]);
}

#[test]
fn a_denial_and_an_expiry_are_results_that_the_model_reads() {
    let mut driver = asked(vec![asking(1, "tool")]);
    assert_eq!(driver.feed(&deny(FIRST)), ["approval.answered", "call.ended"]);
    check_result(&driver, CallStatus::NotStarted, "has denied this call");

    let mut driver = asked(vec![asking(1, "tool")]);
    driver.pass(DAY);
    assert!(!driver.turn.start_decision(driver.now).may_answer(FIRST, &PersonAnswer::Deny), "too late");
    assert_eq!(driver.feed(&Input::TimerFired), ["approval.answered", "call.ended"]);
    check_result(&driver, CallStatus::NotStarted, "has not answered in time");
}

#[test]
fn an_approval_for_the_run_covers_its_rules_and_no_others() {
    let mut driver = asked(vec![asking(1, "a"), asking(2, "a"), asking(3, "b"), asking(4, "")]);
    let allow = allow(FIRST, ApprovalScope::Run);
    assert_eq!(driver.feed(&allow), ["approval.answered", "approval.answered"]);
    let due = driver.turn.due(driver.now);
    assert_eq!(due[..2], [acquire(FIRST), acquire(SECOND)]);
    assert_eq!(driver.turn.open_approvals().len(), 2);
    for n in 3..=4 {
        driver.feed(&deny(tool(1, 1, n)));
    }
    for call in [FIRST, SECOND] {
        driver.feed(&Input::Permitted(AttemptId { call, attempt: 1 }));
        driver.feed(&Input::ToolEnded { id: AttemptId { call, attempt: 1 }, end: CallEnd::ok("done") });
    }
    // The next answer of the same run: the rule still holds, also after a crash.
    assert_eq!(driver.crash(), ["session.revived"]);
    driver.lease(model(1, 2), 1);
    let records = driver.answer_planned("", FinishReason::ToolCalls, vec![asking(5, "a"), asking(6, "b")]);
    assert_eq!(records.iter().filter(|kind| **kind == "approval.requested").count(), 1, "{records:?}");
}

#[test]
fn a_denied_call_is_not_asked_about_again_in_its_run() {
    let mut driver = asked(vec![asking(1, "a")]);
    driver.feed(&deny(FIRST));
    assert_eq!(driver.crash(), ["session.revived"]);
    driver.lease(model(1, 2), 1);
    let records = driver.answer_planned("", FinishReason::ToolCalls, vec![asking(1, "a"), asking(2, "a")]);
    assert_eq!(records.iter().filter(|kind| **kind == "approval.requested").count(), 1, "{records:?}");
    let [open] = &driver.turn.open_approvals()[..] else { panic!("one question") };
    assert_eq!(open.request.call, tool(1, 2, 2), "the equal call has ended");
}

#[test]
fn equal_calls_that_were_denied_before_all_end() {
    let mut driver = asked(vec![asking(1, "a")]);
    driver.feed(&deny(FIRST));
    driver.lease(model(1, 2), 1);
    let records = driver.answer_planned("", FinishReason::ToolCalls, vec![asking(1, "a"), asking(1, "a")]);
    assert_eq!(records.iter().filter(|kind| **kind == "call.ended").count(), 2, "{records:?}");
    assert!(driver.turn.due(driver.now).contains(&acquire(model(1, 3))), "the run goes on");
}

#[test]
fn equal_calls_are_one_question() {
    let mut driver = asked(vec![asking(1, "a"), asking(1, "a")]);
    assert_eq!(driver.turn.open_approvals().len(), 1);
    assert_eq!(driver.feed(&deny(FIRST)), ["approval.answered", "call.ended", "call.ended"]);
}

#[test]
fn a_stop_and_a_message_end_the_wait() {
    let mut driver = asked(vec![asking(1, "a")]);
    let records = driver.feed(&Input::Stop { run: None, reason: StopReason::Command });
    assert_eq!(records, ["run.stopping", "call.ended", "run.ended"]);
    check_result(&driver, CallStatus::NotStarted, "the run ends");

    let mut driver = asked(vec![asking(1, "a")]);
    assert_eq!(driver.steer(1, 2), ["message.steered", "call.ended"]);
    check_result(&driver, CallStatus::NotStarted, "Skipped to process an incoming message");
    assert_eq!(driver.turn.parked_run(), None);
}

#[test]
fn a_question_of_the_model_is_answered_with_text() {
    let clarify = |arguments: u8| CallAdmission::Admit {
        tool: "clarify".into(),
        intent: Intent { access: Access::Exclusive, ..EffectClass::Pure.into() },
        arguments: Hash::of(&[arguments]),
        approval: None,
        hooks: None,
    };
    let mut driver = asked_with(vec![clarify(1)], r#"{"question":"Which branch?","choices":["main"]}"#);
    let open = driver.turn.open_approvals();
    assert_eq!((open.len(), open[0].request.wants_text), (1, true));
    assert_eq!(open[0].request.question, "Which branch?\n1. main");
    assert_eq!(driver.feed(&allow(FIRST, ApprovalScope::Once)), [""; 0], "it wants a text");
    assert_eq!(driver.crash(), ["session.revived"]);
    let text = Input::Approval { call: FIRST, answer: PersonAnswer::Text("main".into()) };
    assert_eq!(driver.feed(&text), ["approval.answered", "call.ended"]);
    check_result(&driver, CallStatus::Ok, "main");
    assert_eq!(driver.feed(&text), [""; 0], "it is answered");

    let mut driver = asked_with(vec![clarify(1)], r#"{"question":"Which branch?"}"#);
    driver.pass(DAY);
    assert_eq!(driver.feed(&Input::TimerFired), ["approval.answered", "call.ended"]);
    check_result(&driver, CallStatus::NotStarted, "no answer");

    let mut driver = asked(vec![asking(1, "a")]);
    let text = Input::Approval { call: FIRST, answer: PersonAnswer::Text("main".into()) };
    assert_eq!(driver.feed(&text), [""; 0], "it wants a decision");
}
