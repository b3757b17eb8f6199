//! Tests of steering: where a message is shown, which calls it skips, and when it becomes a run of its own.

use super::{Driver, model, run, said, tool};
use crate::{
    model::{AttemptId, Body, CallEnd, CallStatus, EffectClass, FailureClass, Limits, StopReason},
    turn::{DueAction, Input},
};

/// The id of the steering message in these cases.
const M: u128 = 99;

fn asked() -> Driver {
    let mut driver = Driver::new();
    driver.submit(1, Limits { max_tokens: 100, ..Limits::default() });
    driver.lease(model(1, 1), 1);
    driver
}

/// A run with an answer of `calls` tool calls, of which the first is started.
fn acting(calls: usize) -> Driver {
    let mut driver = asked();
    driver.answer(calls, EffectClass::Once);
    driver.feed(&Input::Permitted(AttemptId { call: tool(1, 1, 1), attempt: 1 }));
    driver
}

/// Checks this view, and that the message is in one message of this kind, or in none.
#[track_caller]
fn check(driver: &Driver, view: &str, place: Option<char>) {
    assert_eq!(driver.view(), view);
    assert_eq!(driver.found(&said(M)), place.map(|letter| (letter, 1)).into_iter().collect::<Vec<_>>());
}

#[track_caller]
fn end(driver: &mut Driver, n: u32) -> Vec<&'static str> {
    driver
        .feed(&Input::ToolEnded { id: AttemptId { call: tool(1, 1, n), attempt: 1 }, end: CallEnd::ok("r") })
}

#[test]
fn a_message_while_tools_run_skips_the_others_and_stands_in_the_last_result() {
    let mut driver = acting(3);
    assert_eq!(driver.steer(1, M), ["message.steered", "call.ended", "call.ended"]);
    check(&driver, "u", None);
    let Some(Body::CallEnded(skipped)) = driver.records.last().map(|record| &record.body) else { panic!() };
    assert_eq!((skipped.end.status, skipped.attempt), (CallStatus::NotStarted, 0));
    assert_eq!(*skipped.end.content, *"Skipped to process an incoming message.");
    assert_eq!(
        driver.turn.due(driver.now),
        [DueAction::RunTool(AttemptId { call: tool(1, 1, 1), attempt: 1 })]
    );
    assert_eq!(end(&mut driver, 1), ["call.ended"]);
    check(&driver, "ucttt", Some('t'));
    driver.lease(model(1, 2), 1);
    driver.answer(0, EffectClass::Pure);
    check(&driver, "ucttta", Some('t'));
}

#[test]
fn a_message_while_the_model_is_asked_stops_its_calls() {
    let mut driver = asked();
    assert_eq!(driver.steer(1, M), ["message.steered"]);
    check(&driver, "u", None);
    let records = driver.answer(2, EffectClass::Once);
    let ended = ["model.answered", "call.admitted", "call.admitted", "call.ended", "call.ended"];
    assert_eq!(records, ended);
    check(&driver, "uctt", Some('t'));
    assert_eq!(
        driver.turn.due(driver.now),
        [DueAction::Acquire(AttemptId { call: model(1, 2), attempt: 1 })]
    );
}

#[test]
fn a_message_before_the_first_request_stands_in_the_task() {
    let mut driver = Driver::new();
    driver.submit(1, Limits::default());
    assert_eq!(driver.steer(1, M), ["message.steered"]);
    check(&driver, "u", Some('u'));
}

#[test]
fn a_retry_has_the_view_of_the_first_attempt() {
    let mut driver = asked();
    driver.fail(FailureClass::Overloaded);
    driver.steer(1, M);
    check(&driver, "u", None);
    driver.pass(1_000);
    driver.lease(model(1, 1), 2);
    driver.answer(1, EffectClass::Pure);
    check(&driver, "uct", Some('t'));
}

#[test]
fn a_message_after_the_last_step_is_a_run_of_its_own() {
    let mut driver = asked();
    driver.steer(1, M);
    driver.steer(1, M + 1);
    assert_eq!(driver.answer(0, EffectClass::Pure), ["model.answered", "run.ended", "run.accepted"]);
    check(&driver, "uau", Some('u'));
    assert_eq!(
        driver.turn.due(driver.now),
        [DueAction::Acquire(AttemptId { call: model(M, 1), attempt: 1 })]
    );
    let Some(Body::RunAccepted(accepted)) = driver.records.last().map(|record| &record.body) else {
        panic!()
    };
    assert_eq!(&*accepted.input, format!("{}\n\n{}", said(M), said(M + 1)));
    assert_eq!(accepted.spec.limits.max_tokens, 100, "it has the limits of the run it was for");
    driver.crash();
    check(&driver, "uau", Some('u'));
    assert_eq!(driver.found(&said(M + 1)), [('u', 1)]);
}

#[test]
fn after_another_end_the_next_run_reads_it() {
    let mut driver = asked();
    driver.steer(1, M);
    driver.feed(&Input::Stop { run: None, reason: StopReason::Command });
    check(&driver, "ua", None);
    assert_eq!(driver.turn.due(driver.now), [], "what was stopped does not begin again by itself");
    driver.crash();
    driver.submit(2, Limits::default());
    check(&driver, "uau", Some('u'));
}

#[test]
fn a_run_that_waits_reads_it_instead_of_a_new_one() {
    let mut driver = asked();
    driver.submit(2, Limits::default());
    driver.steer(1, M);
    assert_eq!(driver.answer(0, EffectClass::Pure), ["model.answered", "run.ended"]);
    check(&driver, "uau", Some('u'));
}

#[test]
fn a_queued_run_keeps_its_messages_until_it_begins() {
    let mut driver = acting(2);
    driver.submit(2, Limits::default());
    assert_eq!(driver.steer(2, M), ["message.steered"], "the calls of another run are not skipped");
    driver.feed(&Input::Permitted(AttemptId { call: tool(1, 1, 2), attempt: 1 }));
    end(&mut driver, 1);
    end(&mut driver, 2);
    check(&driver, "uctt", None);
    driver.lease(model(1, 2), 1);
    driver.answer(0, EffectClass::Pure);
    check(&driver, "ucttau", Some('u'));
}

#[test]
fn nobody_hears_what_is_said_to_a_run_that_is_not_there() {
    let mut driver = asked();
    assert_eq!(driver.steer(7, M), [""; 0]);
    let mut stopping = acting(1);
    stopping.feed(&Input::Stop { run: None, reason: StopReason::Command });
    assert_eq!(stopping.steer(1, M), [""; 0]);
    driver.answer(0, EffectClass::Pure);
    assert_eq!(driver.steer(1, M), [""; 0]);
    assert!(!driver.turn.is_message_recorded(run(M)));
}

#[test]
fn what_is_said_again_is_one_message() {
    let mut driver = asked();
    driver.steer(1, M);
    driver.crash();
    assert_eq!(driver.steer(1, M), [""; 0]);
    driver.lease(model(1, 1), 2);
    driver.answer(0, EffectClass::Pure);
    assert_eq!(driver.steer(1, M), [""; 0]);
    assert!(driver.turn.is_message_recorded(run(M)), "also when its run has ended");
}

#[test]
fn messages_to_two_runs_are_both_heard() {
    let mut driver = Driver::new();
    driver.submit(1, Limits::default());
    driver.submit(2, Limits::default());
    assert_eq!(driver.steer(1, 101), ["message.steered"]);
    assert_eq!(driver.steer(2, 102), ["message.steered"]);
    driver.crash();
    for id in [101, 102] {
        assert!(driver.turn.is_message_recorded(super::run(id)), "{id}");
    }
    assert!(driver.steer(1, 101).is_empty(), "said again, it is not recorded again");
}
