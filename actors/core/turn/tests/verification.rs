//! Tests of expectations: a run completes only after a check without a miss.

use super::{Driver, check, limits, model, run, said, tool};
use crate::{
    model::{
        AccountId, Amounts, AttemptId, Body, BudgetRefusal, CallEnd, CallId, Dimension, EffectClass,
        Expectation, ExpectationMiss, Limits, Outcome, OutcomeCause, OutcomeDetail, RunAccepted, RunSpec,
        StopReason,
    },
    turn::{DueAction, Input, RenderCursor},
};

fn expectation() -> Expectation {
    Expectation::File { path: "out".into(), not_empty: false, newer: false }
}

fn miss() -> ExpectationMiss {
    ExpectationMiss::new(0, &expectation(), "it does not exist")
}

/// A run with an expectation whose first model call is under way.
fn begun_with(limits: Limits) -> Driver {
    let mut driver = Driver::new();
    let spec = RunSpec { expects: vec![expectation()], limits, ..limits::spec() };
    let accepted = Box::new(RunAccepted::new(run(1), "task 1", spec.into()));
    driver.feed(&Input::Submitted { accepted, key: None });
    driver.lease(model(1, 1), 1);
    driver
}

/// A run that has answered and waits for its check.
fn answered() -> Driver {
    let mut driver = begun_with(Limits { max_tokens: 100, ..Limits::default() });
    assert_eq!(driver.answer(0, EffectClass::Pure), ["model.answered"]);
    driver
}

fn verify(driver: &mut Driver, call: CallId, misses: Vec<ExpectationMiss>) -> Vec<&'static str> {
    driver.feed(&Input::Verified { call, misses })
}

/// How the run has ended.
#[track_caller]
fn end(driver: &Driver) -> OutcomeDetail {
    let ended = driver.records.iter().find_map(|record| {
        let Body::RunEnded(ended) = &record.body else { return None };
        Some(ended.ended.clone())
    });
    ended.expect("the run has ended")
}

#[test]
fn a_run_completes_after_its_check() {
    let mut driver = answered();
    check(&driver, "u", &[DueAction::Verify(model(1, 1))]);
    let to_check = driver.turn.unverified_run(model(1, 1)).expect("it is to be checked");
    assert_eq!((&*to_check.answer, to_check.started_at), ("done", driver.now.at));
    assert!(verify(&mut driver, model(1, 2), Vec::new()).is_empty(), "of another answer");
    assert_eq!(verify(&mut driver, model(1, 1), Vec::new()), ["run.verified", "run.ended"]);
    check(&driver, "ua", &[]);
    assert_eq!(end(&driver).outcome, Outcome::Completed);
    assert!(verify(&mut driver, model(1, 1), vec![miss()]).is_empty(), "once");
}

#[test]
fn what_misses_is_told_once() {
    let mut driver = answered();
    assert_eq!(verify(&mut driver, model(1, 1), vec![miss()]), ["run.verified"]);
    check(&driver, "uau", &[DueAction::Acquire(AttemptId { call: model(1, 2), attempt: 1 })]);
    assert_eq!(driver.found("- file out: it does not exist"), [('u', 1)]);
    driver.lease(model(1, 2), 1);
    driver.answer(1, EffectClass::Pure);
    driver.permit_all();
    let id = AttemptId { call: tool(1, 2, 1), attempt: 1 };
    driver.feed(&Input::ToolEnded { id, end: CallEnd::ok("written") });
    driver.lease(model(1, 3), 1);
    driver.answer(0, EffectClass::Pure);
    let mut mended = driver.clone();
    check(&driver, "uauct", &[DueAction::Verify(model(1, 3))]);
    assert_eq!(verify(&mut mended, model(1, 3), Vec::new()), ["run.verified", "run.ended"]);
    assert_eq!(end(&mended).outcome, Outcome::Completed);
    assert_eq!(verify(&mut driver, model(1, 3), vec![miss()]), ["run.verified", "run.ended"]);
    let failed =
        OutcomeDetail::with_cause(Outcome::Failed, OutcomeCause::Expectation { misses: vec![miss()] });
    assert_eq!(end(&driver), failed);
    // The text that the model took for an answer stays in the conversation.
    assert_eq!(driver.view(), "uaucta");
    let (messages, _) = driver.turn.render(RenderCursor::default());
    let last = super::content(messages.last().unwrap());
    assert!(
        last.starts_with("done\n\n[This run ended before its task was done: failed (expectation: "),
        "{last}"
    );
}

#[test]
fn a_check_is_made_again_after_a_crash() {
    let mut driver = answered();
    driver.crash();
    check(&driver, "u", &[DueAction::Verify(model(1, 1))]);
    verify(&mut driver, model(1, 1), vec![miss()]);
    driver.crash();
    check(&driver, "uau", &[DueAction::Acquire(AttemptId { call: model(1, 2), attempt: 1 })]);
    driver.lease(model(1, 2), 1);
    driver.answer(0, EffectClass::Pure);
    driver.crash();
    verify(&mut driver, model(1, 2), vec![miss()]);
    assert_eq!(end(&driver).outcome, Outcome::Failed, "the first miss is remembered");
}

#[test]
fn a_run_that_is_stopped_is_not_checked() {
    let mut driver = answered();
    assert_eq!(driver.feed(&Input::Stop { run: None, reason: StopReason::Command }), ["run.ended"]);
    check(&driver, "ua", &[]);
    assert_eq!(end(&driver).outcome, Outcome::Stopped);
    assert!(verify(&mut driver, model(1, 1), Vec::new()).is_empty());
}

#[test]
fn the_time_limit_holds_during_a_check() {
    let mut driver = begun_with(Limits { max_tokens: 100, timeout_ms: Some(5_000), ..Limits::default() });
    driver.answer(0, EffectClass::Pure);
    check(&driver, "u", &[DueAction::Verify(model(1, 1)), DueAction::WakeAtActive(5_000)]);
    driver.pass(5_000);
    assert_eq!(driver.feed(&Input::TimerFired), ["run.ended"]);
    assert_eq!(end(&driver).outcome, Outcome::TimedOut);
}

#[test]
fn a_miss_without_budget_for_another_call_leads_to_the_grace_call() {
    let budget = Amounts { iterations: Some(1), ..Amounts::default() };
    let mut driver = begun_with(Limits { max_tokens: 100, budget, ..Limits::default() });
    driver.answer(0, EffectClass::Pure);
    verify(&mut driver, model(1, 1), vec![miss()]);
    let (account, dimension) = (AccountId::from(run(1)), Dimension::Iterations);
    let refusal = BudgetRefusal { account, dimension, limit: 1, spent: 1, reserved: 0, needed: None };
    driver.feed(&Input::BudgetRefused(refusal));
    driver.lease(model(1, 2), 1);
    assert_eq!(driver.answer(0, EffectClass::Pure), ["model.answered", "run.ended"], "it is not checked");
    assert_eq!(end(&driver).outcome, Outcome::BudgetExhausted);
}

#[test]
fn a_message_during_a_check_is_shown_with_what_misses_or_becomes_a_run_without_expectations() {
    let mut driver = answered();
    assert_eq!(driver.steer(1, 2), ["message.steered"]);
    let mut passed = driver.clone();
    verify(&mut driver, model(1, 1), vec![miss()]);
    assert_eq!(driver.found(&said(2)), [('u', 1)]);
    let records = verify(&mut passed, model(1, 1), Vec::new());
    assert_eq!(records, ["run.verified", "run.ended", "run.accepted"]);
    let (next, spec) = passed.turn.current().expect("the message is a run");
    assert_eq!((next, &spec.expects[..]), (run(2), &[][..]));
}
