//! Tests of the tool calls of an answer: their order, and invalid, truncated and duplicate calls.

use super::{Driver, model, tool};
use crate::{
    model::Intent,
    model::{
        Access, AttemptId, Body, CallEnd, CallStatus, EffectClass, FinishReason, Hash, Limits, Outcome,
        OutcomeCause, OutcomeDetail, StopReason,
    },
    turn::{CallAdmission, CallRejection, DueAction, Input},
};

/// A driver whose model call is under way.
fn asked() -> Driver {
    let mut driver = Driver::new();
    driver.submit(1, Limits { max_tokens: 100, ..Limits::default() });
    driver.lease(model(1, 1), 1);
    driver
}

fn touching(access: &Access) -> CallAdmission {
    let intent =
        Intent { effect: EffectClass::Idempotent, access: access.clone(), detached: false, polls: false };
    CallAdmission::Admit {
        tool: "tool".into(),
        intent,
        arguments: Hash::of(b"{}"),
        approval: None,
        hooks: None,
    }
}

/// Checks that the calls of one answer run in these waves. The calls of a wave run together and end before the next
/// wave.
#[track_caller]
fn check_waves(calls: &[Access], waves: &[&[u32]]) {
    let mut driver = asked();
    driver.answer_planned("", FinishReason::ToolCalls, calls.iter().map(touching).collect());
    for wave in waves {
        let running = driver.permit_all();
        assert_eq!(running, *wave, "{calls:?}");
        // The order is the same after a crash.
        driver.crash();
        assert_eq!(driver.permit_all(), *wave, "{calls:?} after a crash");
        for n in running {
            driver.feed(&Input::ToolEnded {
                id: AttemptId { call: tool(1, 1, n), attempt: 2 },
                end: CallEnd::ok("r"),
            });
        }
    }
    assert_eq!(driver.view(), format!("uc{}", "t".repeat(calls.len())), "{calls:?}");
}

#[test]
fn calls_that_conflict_keep_their_order() {
    let (read, write) = (Access::reads("/w/a"), Access::writes("/w/a"));
    let (other, shell) = (Access::writes("/w/b"), Access::Anything);
    check_waves(&[read.clone(), read.clone()], &[&[1, 2]]);
    check_waves(&[shell.clone(), shell.clone(), shell.clone()], &[&[1, 2, 3]]);
    check_waves(&[write.clone(), read.clone()], &[&[1], &[2]]);
    check_waves(&[read.clone(), write.clone(), read.clone()], &[&[1], &[2], &[3]]);
    check_waves(&[write.clone(), other.clone(), read.clone()], &[&[1, 2], &[3]]);
    check_waves(&[shell.clone(), read.clone(), write.clone(), other], &[&[1, 2], &[3, 4]]);
    check_waves(&[read.clone(), Access::Exclusive, read, shell, write], &[&[1], &[2], &[3, 4], &[5]]);
}

#[test]
fn what_waits_starts_in_the_append_of_the_result_it_waited_for() {
    let mut driver = asked();
    let (write, read) = (Access::writes("/w/a"), Access::reads("/w/a"));
    driver.answer_planned("", FinishReason::ToolCalls, vec![touching(&write), touching(&read)]);
    assert_eq!(driver.permit_all(), [1]);
    let mut draft = driver.turn.start_decision(driver.now);
    draft.apply_input(&Input::ToolEnded {
        id: AttemptId { call: tool(1, 1, 1), attempt: 1 },
        end: CallEnd::ok("r"),
    });
    assert_eq!(draft.grant_requests().len(), 1);
    draft.apply_input(&Input::Permitted(AttemptId { call: tool(1, 1, 2), attempt: 1 }));
    let kinds: Vec<_> = draft.finish().records.iter().map(|record| record.body.kind().name()).collect();
    assert_eq!(kinds, ["call.ended", "call.started"]);
}

fn refused(fault: CallRejection) -> CallAdmission {
    CallAdmission::Reject { rejection: fault, end: CallEnd::error(CallStatus::Error, "no", None, "other") }
}

fn admitted() -> CallAdmission {
    touching(&Access::default())
}

/// An answer: the plans of its calls, its finish reason, and the records that must follow.
type Case<'a> = (Vec<CallAdmission>, FinishReason, &'a [&'a str]);

const ERROR: &[&str] = &["model.answered", "call.ended"];
const AGAIN: &[&str] = &["model.answered"];
const END: &[&str] = &["model.answered", "run.ended"];
const MIXED: &[&str] = &["model.answered", "call.ended", "call.admitted"];

/// Checks answers in a row. Each costs an iteration; admitted calls succeed.
#[track_caller]
fn check_answers(cases: Vec<Case<'_>>, view: &str, ended: Option<OutcomeDetail>) {
    let mut driver = asked();
    for ((plans, finish, expected), iteration) in cases.into_iter().zip(1..) {
        driver.lease(model(1, iteration), 1);
        assert_eq!(driver.answer_planned("", finish, plans), expected, "answer {iteration}");
        // A crash does not reset the counts.
        driver.crash();
        for n in driver.permit_all() {
            driver.feed(&Input::ToolEnded {
                id: AttemptId { call: tool(1, iteration, n), attempt: 1 },
                end: CallEnd::ok("r"),
            });
        }
    }
    assert_eq!(driver.view(), view);
    let last = driver.records.iter().find_map(|record| {
        let Body::RunEnded(ended) = &record.body else { return None };
        Some(ended.ended.clone())
    });
    assert_eq!(last, ended);
}

fn failed(cause: OutcomeCause) -> OutcomeDetail {
    OutcomeDetail::with_cause(Outcome::Failed, cause)
}

#[test]
fn the_third_answer_in_a_row_that_knows_no_tool_ends_the_run() {
    let unknown = || refused(CallRejection::UnknownTool);
    let all = |expected| (vec![unknown()], FinishReason::ToolCalls, expected);
    check_answers(vec![all(ERROR), all(ERROR), all(END)], "uctcta", Some(failed(OutcomeCause::UnknownTool)));
    // In a mixed answer the other calls run, and the count starts again.
    let mixed = (vec![unknown(), admitted()], FinishReason::ToolCalls, MIXED);
    check_answers(vec![all(ERROR), all(ERROR), mixed, all(ERROR), all(ERROR)], "uctctcttctct", None);
    // Other rejections are not counted.
    let other = || (vec![refused(CallRejection::Unacceptable)], FinishReason::ToolCalls, ERROR);
    check_answers(vec![other(), other(), other(), other()], "uctctctct", None);
}

#[test]
fn arguments_that_are_not_json_are_asked_for_again_twice() {
    let malformed = |expected| (vec![refused(CallRejection::Malformed)], FinishReason::ToolCalls, expected);
    check_answers(vec![malformed(AGAIN), malformed(AGAIN), malformed(ERROR)], "uct", None);
    // The error resets the count, and so does an answer without a flaw.
    let cases =
        vec![malformed(AGAIN), malformed(AGAIN), malformed(ERROR), malformed(AGAIN), malformed(AGAIN)];
    check_answers(cases, "uct", None);
    let good = (vec![admitted()], FinishReason::ToolCalls, &["model.answered", "call.admitted"][..]);
    check_answers(
        vec![malformed(AGAIN), good, malformed(AGAIN), malformed(AGAIN), malformed(ERROR)],
        "uctct",
        None,
    );
    // No call of the answer runs until the repeats are used up; then the valid calls run.
    let beside =
        |expected| (vec![refused(CallRejection::Malformed), admitted()], FinishReason::ToolCalls, expected);
    check_answers(vec![beside(AGAIN), beside(AGAIN), beside(MIXED)], "uctt", None);
}

#[test]
fn calls_that_were_cut_off_are_asked_for_again_four_times() {
    let cut = |expected| (vec![admitted()], FinishReason::Length, expected);
    let cases = vec![cut(AGAIN), cut(AGAIN), cut(AGAIN), cut(AGAIN), cut(END)];
    check_answers(cases, "ua", Some(failed(OutcomeCause::Truncated)));
    let good = (vec![admitted()], FinishReason::ToolCalls, &["model.answered", "call.admitted"][..]);
    check_answers(vec![cut(AGAIN), cut(AGAIN), good, cut(AGAIN)], "uct", None);
}

#[test]
fn each_answer_that_is_asked_for_again_costs_an_iteration() {
    let mut driver = asked();
    for iteration in 1..3 {
        driver.lease(model(1, iteration), 1);
        driver.answer_planned("", FinishReason::ToolCalls, vec![refused(CallRejection::Malformed)]);
    }
    driver.lease(model(1, 3), 1);
    driver.answer(0, EffectClass::Pure);
    let Some(Body::RunEnded(ended)) = driver.records.last().map(|record| &record.body) else {
        panic!("no end")
    };
    assert_eq!((ended.iterations, ended.usage.output_tokens), (3, 9));
    assert_eq!(ended.ended.outcome, Outcome::Completed);
}

fn once(arguments: &str) -> CallAdmission {
    let (intent, arguments) = (EffectClass::Once.into(), Hash::of(arguments.as_bytes()));
    CallAdmission::Admit { tool: "tool".into(), intent, arguments, approval: None, hooks: None }
}

#[test]
fn a_call_that_must_not_be_repeated_is_made_once_in_an_answer() {
    let mut driver = asked();
    driver.answer_planned("", FinishReason::ToolCalls, vec![once("a"), once("a"), once("b"), once("a")]);
    assert_eq!(driver.permit_all(), [1, 3]);
    let end = Input::ToolEnded { id: AttemptId { call: tool(1, 1, 1), attempt: 1 }, end: CallEnd::ok("one") };
    assert_eq!(driver.feed(&end), ["call.ended", "call.ended", "call.ended"]);
    driver.feed(&Input::ToolEnded {
        id: AttemptId { call: tool(1, 1, 3), attempt: 1 },
        end: CallEnd::ok("three"),
    });
    assert_eq!(driver.view(), "uctttt");
    let contents: Vec<_> = driver.contents();
    assert_eq!(contents, ["one", "one", "three", "one"]);
    // Equal calls that may be repeated all run.
    let mut driver = asked();
    driver.answer_planned("", FinishReason::ToolCalls, vec![admitted(), admitted()]);
    assert_eq!(driver.permit_all(), [1, 2]);
}

#[test]
fn the_same_call_shares_every_end() {
    let begun = || {
        let mut driver = asked();
        driver.answer_planned("", FinishReason::ToolCalls, vec![once("a"), once("a")]);
        driver
    };
    let mut driver = begun();
    driver.feed(&Input::Stop { run: None, reason: StopReason::Command });
    assert_eq!(driver.view(), "uctta", "stopped before it started");
    let mut driver = begun();
    assert_eq!(driver.permit_all(), [1]);
    assert_eq!(driver.crash(), ["session.revived"]);
    let lost = Input::Lost(AttemptId { call: tool(1, 1, 1), attempt: 1 });
    assert_eq!(driver.feed(&lost), ["call.ended", "call.ended"]);
    assert!(driver.contents().iter().all(|content| content.contains("its effect is unknown")));
    let due = driver.turn.due(driver.now);
    assert_eq!(due, [DueAction::Acquire(AttemptId { call: model(1, 2), attempt: 1 })]);
}
