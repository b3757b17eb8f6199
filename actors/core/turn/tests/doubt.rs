//! Tests of lost calls and calls in doubt, and of the note about unsynced writes.

use super::{Driver, model, run, tool};
use crate::{
    journal::IndexRow,
    model::{
        Access, ApprovalDecision, AttemptId, Body, CallEnd, CallStatus, EffectClass, FinishReason, Hash,
        InDoubtAction, InDoubtPolicy, Limits, PersonAnswer, RunState, StopReason,
    },
    model::{Boot, Intent},
    turn::{CallAdmission, DueAction, Input},
};

const CALL: crate::model::CallId = tool(1, 1, 1);
const LOST: Input = Input::Lost(AttemptId { call: CALL, attempt: 1 });
const DAY: u64 = 86_400_000;

/// A run whose only call is `once`, was started, and was interrupted by a crash.
fn interrupted(then: InDoubtAction) -> Driver {
    let mut driver = Driver::new();
    driver.in_doubt = InDoubtPolicy { action: then, ..InDoubtPolicy::default() };
    driver.submit(1, Limits { max_tokens: 100, timeout_ms: Some(60_000), ..Limits::default() });
    driver.lease(model(1, 1), 1);
    driver.answer(1, EffectClass::Once);
    driver.feed(&Input::Permitted(AttemptId { call: CALL, attempt: 1 }));
    driver.pass(1_000);
    assert_eq!(driver.crash(), ["session.revived"]);
    driver
}

/// Checks the result that the model reads for the call.
#[track_caller]
fn check_told(driver: &Driver, status: CallStatus, parts: &[&str]) {
    let end = driver.records.iter().rev().find_map(|record| {
        let Body::CallEnded(ended) = &record.body else { return None };
        Some(ended.end.clone())
    });
    let end = end.expect("the call has an end");
    assert_eq!(end.status, status);
    parts.iter().for_each(|part| assert!(end.content.contains(part), "`{part}` is missing: {}", end.content));
}

const KNOWN: &str = r#"tool {\"a\":1} was started at 1970-01-01T00:16:40Z"#;

#[test]
fn the_model_is_told_what_is_known() {
    let mut driver = interrupted(InDoubtAction::Tell);
    assert_eq!(driver.turn.due(driver.now)[0], DueAction::RunTool(AttemptId { call: CALL, attempt: 1 }));
    assert!(driver.turn.is_of_earlier_incarnation(CALL));
    assert_eq!(driver.turn.boot_of(CALL), Boot::Same);
    assert_eq!(driver.feed(&LOST), ["call.ended"]);
    check_told(
        &driver,
        CallStatus::InDoubt,
        &[KNOWN, "its effect is unknown", "look at what is there before you repeat"],
    );
}

#[test]
fn what_is_found_counts_as_if_nothing_had_happened() {
    let mut driver = interrupted(InDoubtAction::Tell);
    driver.crash_into("another boot");
    assert_eq!(driver.turn.boot_of(CALL), Boot::Other);
    let ended = Input::ToolEnded { id: AttemptId { call: CALL, attempt: 1 }, end: CallEnd::ok("42") };
    assert_eq!(driver.feed(&ended), ["call.ended"]);
    check_told(&driver, CallStatus::Ok, &["42"]);

    let mut driver = interrupted(InDoubtAction::Tell);
    assert_eq!(driver.feed(&Input::NeverStarted(AttemptId { call: CALL, attempt: 1 })), ["call.lost"]);
    assert_eq!(driver.turn.due(driver.now)[0], DueAction::Acquire(AttemptId { call: CALL, attempt: 2 }));
    assert_eq!(
        driver.feed(&Input::NeverStarted(AttemptId { call: CALL, attempt: 1 })),
        [""; 0],
        "said twice"
    );
}

#[test]
fn it_is_made_again_if_the_operator_wants_that_but_not_for_ever() {
    let mut driver = interrupted(InDoubtAction::Retry);
    for attempt in 1..3 {
        assert_eq!(driver.feed(&Input::Lost(AttemptId { call: CALL, attempt })), ["call.lost"]);
        assert_eq!(
            driver.feed(&Input::Permitted(AttemptId { call: CALL, attempt: attempt + 1 })),
            ["call.started"]
        );
        assert_eq!(driver.crash(), ["session.revived"]);
    }
    assert_eq!(driver.feed(&Input::Lost(AttemptId { call: CALL, attempt: 3 })), ["call.ended"]);
    check_told(&driver, CallStatus::InDoubt, &["was started at 1970-01-01T00:16:41Z"]);
}

/// The state in the run's row that this decision writes.
fn state_after(driver: &Driver, input: &Input) -> Option<RunState> {
    let mut draft = driver.turn.start_decision(driver.now);
    draft.apply_input(input);
    let state = |index: &IndexRow| if let IndexRow::Run(row) = index { Some(row.state) } else { None };
    draft.finish().index.iter().rev().find_map(state)
}

#[test]
fn a_parked_run_waits_for_a_person_and_its_clocks_stop() {
    let mut driver = interrupted(InDoubtAction::Ask);
    assert_eq!(state_after(&driver, &LOST), Some(RunState::Parked));
    assert_eq!(driver.feed(&LOST), ["approval.requested"]);
    let expires = driver.now.at.plus_ms(DAY);
    assert_eq!(driver.turn.due(driver.now), [DueAction::WakeAt(expires)]);
    assert_eq!(driver.turn.parked_run(), Some(run(1)));
    // The wait survives a crash and outlasts the run's time limit of a minute.
    driver.pass(3_600_000);
    assert_eq!(driver.crash(), ["session.revived"]);
    assert_eq!(driver.feed(&Input::TimerFired), [""; 0]);
    let questions = driver.turn.open_approvals();
    assert_eq!(questions.len(), 1);
    assert!(questions[0].request.question.contains("Is it to be made again?"), "{questions:?}");

    let allow = Input::Approval { call: CALL, answer: ApprovalDecision::Allow.into() };
    assert_eq!(state_after(&driver, &allow), Some(RunState::Running));
    assert_eq!(driver.feed(&allow), ["approval.answered", "call.lost"]);
    assert_eq!(driver.feed(&allow), [""; 0], "answered twice");
    let due = driver.turn.due(driver.now);
    assert_eq!(
        due,
        [
            DueAction::Acquire(AttemptId { call: CALL, attempt: 2 }),
            DueAction::WakeAtActive(60_000 + 3_600_000)
        ]
    );
}

#[test]
fn a_no_is_told_to_the_model_and_so_is_silence() {
    let mut driver = interrupted(InDoubtAction::Ask);
    driver.feed(&LOST);
    assert_eq!(
        driver.feed(&Input::Approval { call: CALL, answer: PersonAnswer::Deny }),
        ["approval.answered", "call.ended"]
    );
    check_told(&driver, CallStatus::InDoubt, &[KNOWN, "has decided that it is not made again"]);

    let mut driver = interrupted(InDoubtAction::Ask);
    driver.feed(&LOST);
    driver.pass(DAY);
    assert_eq!(driver.feed(&Input::TimerFired), ["approval.answered", "call.ended"]);
    check_told(&driver, CallStatus::InDoubt, &[KNOWN, "has not answered"]);
}

#[test]
fn what_has_expired_can_not_be_answered_and_is_found_answered_by_the_next_process() {
    let mut driver = interrupted(InDoubtAction::Ask);
    driver.feed(&LOST);
    driver.pass(DAY);
    let allow = Input::Approval { call: CALL, answer: ApprovalDecision::Allow.into() };
    assert!(!driver.turn.start_decision(driver.now).may_answer(CALL, &PersonAnswer::Deny));
    assert_eq!(driver.feed(&allow), [""; 0]);
    assert_eq!(driver.crash(), ["session.revived", "approval.answered", "call.ended"]);
    check_told(&driver, CallStatus::InDoubt, &[KNOWN, "has not answered"]);
    assert_eq!(driver.turn.parked_run(), None);
}

#[test]
fn a_stop_needs_no_person() {
    let mut driver = interrupted(InDoubtAction::Ask);
    driver.feed(&LOST);
    let stop = Input::Stop { run: None, reason: StopReason::Command };
    assert_eq!(driver.feed(&stop), ["run.stopping", "call.ended", "run.ended"]);
    check_told(&driver, CallStatus::InDoubt, &[KNOWN]);
}

#[test]
fn a_run_is_parked_when_nothing_else_of_it_is_under_way() {
    let mut driver = Driver::new();
    driver.in_doubt = InDoubtPolicy { action: InDoubtAction::Ask, ..InDoubtPolicy::default() };
    driver.submit(1, Limits { max_tokens: 100, ..Limits::default() });
    driver.lease(model(1, 1), 1);
    driver.answer(2, EffectClass::Once);
    assert_eq!(driver.permit_all(), [1, 2]);
    driver.crash();
    driver.feed(&LOST);
    assert_eq!(driver.turn.parked_run(), None, "the other one goes on");
    let other = Input::ToolEnded { id: AttemptId { call: tool(1, 1, 2), attempt: 1 }, end: CallEnd::ok("x") };
    assert_eq!(state_after(&driver, &other), Some(RunState::Parked));
    driver.feed(&other);
    assert_eq!(driver.turn.parked_run(), Some(run(1)));
}

/// Checks whether the model reads the note about unsynced writes: after a shell command, and a crash `since`
/// milliseconds later, with a start on this boot.
#[track_caller]
fn check_noted(boot: &str, since: u64, noted: bool) {
    let mut driver = Driver::new();
    driver.submit(1, Limits { max_tokens: 100, ..Limits::default() });
    driver.lease(model(1, 1), 1);
    let intent =
        Intent { effect: EffectClass::Once, access: Access::Anything, detached: false, polls: false };
    let plan = CallAdmission::Admit {
        tool: "tool".into(),
        intent,
        arguments: Hash::of(b"{}"),
        approval: None,
        hooks: None,
    };
    driver.answer_planned("", FinishReason::ToolCalls, vec![plan]);
    driver.feed(&Input::Permitted(AttemptId { call: CALL, attempt: 1 }));
    driver.feed(&Input::ToolEnded { id: AttemptId { call: CALL, attempt: 1 }, end: CallEnd::ok("done") });
    driver.pass(since);
    // The last record before the crash.
    driver.lease(model(1, 2), 1);
    driver.crash_into(boot);
    driver.pass(2_000);
    driver.lease(model(1, 2), 2);
    assert!(driver.found("may be missing").is_empty(), "a retry shows what the first attempt has shown");
    driver.answer(1, EffectClass::Pure);
    driver.feed(&Input::Permitted(AttemptId { call: tool(1, 2, 1), attempt: 1 }));
    driver
        .feed(&Input::ToolEnded { id: AttemptId { call: tool(1, 2, 1), attempt: 1 }, end: CallEnd::ok("r") });
    let expect = if noted { vec![('t', 1)] } else { Vec::new() };
    assert_eq!(driver.found("may be missing"), expect, "{boot}, {since} ms");
}

#[test]
fn after_another_boot_the_model_is_told_what_may_be_missing() {
    check_noted("b", 1_000, false);
    check_noted("another", 1_000, true);
    check_noted("another", 31_000, false);
}

#[test]
fn deaths_of_the_process_are_not_the_tools() {
    let mut driver = Driver::new();
    driver.submit(1, Limits { max_tokens: 100, ..Limits::default() });
    driver.lease(model(1, 1), 1);
    driver.answer(1, EffectClass::Idempotent);
    for attempt in 1..9 {
        driver.feed(&Input::Permitted(AttemptId { call: CALL, attempt }));
        assert_eq!(driver.crash(), ["session.revived", "call.lost"]);
    }
    // Crashes of its task count: the third one ends the call.
    for attempt in 9..12 {
        driver.feed(&Input::Permitted(AttemptId { call: CALL, attempt }));
        let expect = if attempt < 11 { "call.lost" } else { "call.ended" };
        assert_eq!(driver.feed(&Input::Lost(AttemptId { call: CALL, attempt })), [expect]);
    }
    check_told(&driver, CallStatus::Error, &["died each time"]);
}

#[test]
fn what_never_began_gives_way_to_a_message() {
    let mut driver = interrupted(InDoubtAction::Tell);
    driver.steer(1, 7);
    let never = Input::NeverStarted(AttemptId { call: CALL, attempt: 1 });
    assert_eq!(driver.feed(&never), ["call.lost", "call.ended"]);
    check_told(&driver, CallStatus::NotStarted, &["Skipped to process an incoming message."]);

    let mut driver = interrupted(InDoubtAction::Tell);
    driver.feed(&never);
    assert_eq!(driver.steer(1, 7), ["message.steered", "call.ended"]);
    // A call that may have been executed is not skipped.
    let mut driver = interrupted(InDoubtAction::Retry);
    driver.feed(&LOST);
    assert_eq!(driver.steer(1, 7), ["message.steered"]);
}

#[test]
fn what_never_began_is_not_booked() {
    let mut driver = interrupted(InDoubtAction::Tell);
    driver.feed(&Input::Stop { run: None, reason: StopReason::Command });
    let mut draft = driver.turn.start_decision(driver.now);
    draft.apply_input(&Input::NeverStarted(AttemptId { call: CALL, attempt: 1 }));
    let decision = draft.finish();
    let kinds: Vec<_> = decision.records.iter().map(|record| record.body.kind().name()).collect();
    assert_eq!(kinds, ["call.lost", "call.ended", "run.ended"]);
    let settled = &decision.ledger.settlements;
    let calls: Vec<_> = settled.iter().map(|s| (s.reserved.tool_calls, s.spent.tool_calls)).collect();
    assert_eq!(calls, [(Some(1), None)]);
}

#[test]
fn a_command_whose_end_nobody_recorded_may_have_written_too() {
    let mut driver = Driver::new();
    driver.submit(1, Limits { max_tokens: 100, ..Limits::default() });
    driver.lease(model(1, 1), 1);
    let intent = Intent { effect: EffectClass::Once, access: Access::Anything, detached: true, polls: false };
    let plan = CallAdmission::Admit {
        tool: "tool".into(),
        intent,
        arguments: Hash::of(b"{}"),
        approval: None,
        hooks: None,
    };
    driver.answer_planned("", FinishReason::ToolCalls, vec![plan]);
    driver.feed(&Input::Permitted(AttemptId { call: CALL, attempt: 1 }));
    driver.crash_into("another");
    driver.feed(&Input::ToolEnded { id: AttemptId { call: CALL, attempt: 1 }, end: CallEnd::ok("done") });
    assert_eq!(driver.found("may be missing"), [('t', 1)]);
}
