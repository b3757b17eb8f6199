//! Tests of approvals before a start: the request, the answers and their scopes, expiry, crashes and stops.

use std::sync::Arc;

use super::{Driver, model, run, tool};
use crate::{
    model::{
        Access, ApprovalDecision, ApprovalNeed, ApprovalScope, AttemptId, Body, CallEnd, CallId, CallStatus,
        EffectClass, FinishReason, Hash, Intent, Limits, StopReason,
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
    }
}

/// A run whose answer has these calls.
fn asked(admissions: Vec<CallAdmission>) -> Driver {
    let mut driver = Driver::new();
    driver.submit(1, Limits { max_tokens: 100, timeout_ms: Some(60_000), ..Limits::default() });
    driver.lease(model(1, 1), 1);
    driver.answer_planned("", FinishReason::ToolCalls, admissions);
    driver
}

fn answer(call: CallId, decision: ApprovalDecision, scope: ApprovalScope) -> Input {
    Input::Approval { call, decision, scope }
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
    assert_eq!(driver.turn.due(driver.now), [DueAction::WakeAt(driver.now.at.plus_ms(DAY))]);
    // A permit that was granted too early starts nothing.
    assert_eq!(driver.feed(&Input::Permitted(AttemptId { call: FIRST, attempt: 1 })), [""; 0]);
    driver.pass(3_600_000);
    assert_eq!(driver.crash(), ["session.revived"]);
    assert_eq!(driver.feed(&Input::TimerFired), [""; 0], "the clocks stand still");
    let open = driver.turn.open_approvals();
    assert_eq!((open.len(), open[0].request.attempt, open[0].request.call), (1, 0, FIRST));

    let allow = answer(FIRST, ApprovalDecision::Allow, ApprovalScope::Once);
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
    let deny = answer(FIRST, ApprovalDecision::Deny, ApprovalScope::Once);
    assert_eq!(driver.feed(&deny), ["approval.answered", "call.ended"]);
    check_result(&driver, CallStatus::NotStarted, "has denied this call");

    let mut driver = asked(vec![asking(1, "tool")]);
    driver.pass(DAY);
    assert!(!driver.turn.start_decision(driver.now).needs_approval(FIRST), "too late");
    assert_eq!(driver.feed(&Input::TimerFired), ["approval.answered", "call.ended"]);
    check_result(&driver, CallStatus::NotStarted, "has not answered in time");
}

#[test]
fn an_approval_for_the_run_covers_its_rules_and_no_others() {
    let mut driver = asked(vec![asking(1, "a"), asking(2, "a"), asking(3, "b"), asking(4, "")]);
    let allow = answer(FIRST, ApprovalDecision::Allow, ApprovalScope::Run);
    assert_eq!(driver.feed(&allow), ["approval.answered", "approval.answered"]);
    let due = driver.turn.due(driver.now);
    assert_eq!(due[..2], [acquire(FIRST), acquire(SECOND)]);
    assert_eq!(driver.turn.open_approvals().len(), 2);
    for n in 3..=4 {
        driver.feed(&answer(tool(1, 1, n), ApprovalDecision::Deny, ApprovalScope::Once));
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
fn equal_calls_are_one_question() {
    let mut driver = asked(vec![asking(1, "a"), asking(1, "a")]);
    assert_eq!(driver.turn.open_approvals().len(), 1);
    let deny = answer(FIRST, ApprovalDecision::Deny, ApprovalScope::Once);
    assert_eq!(driver.feed(&deny), ["approval.answered", "call.ended", "call.ended"]);
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
