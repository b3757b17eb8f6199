//! Tests of the end of a budget: the grace call, and its results.

use super::*;
use crate::model::{
    AccountId, Amounts, AttemptId, Body, BudgetRefusal, CallEnd, CallStatus, Dimension, ModelStarted,
    Outcome, OutcomeCause, OutcomeDetail, PrefixChange, RunEnded, StopReason,
};

pub(super) const TEXT: &str = "half of it is done";

fn refused(account: AccountId, dimension: Dimension) -> BudgetRefusal {
    BudgetRefusal { account, dimension, limit: 1, spent: 1, reserved: 0, needed: None }
}

/// A refusal by the run's own limit.
fn refusal() -> BudgetRefusal {
    refused(run(1).into(), Dimension::Iterations)
}

pub(super) fn with(budget: Amounts) -> Limits {
    Limits { budget, max_tokens: 8_192, ..Limits::default() }
}

/// A run after one step: its tool call has ended, and the next model call is wanted.
pub(super) fn worked(limits: Limits) -> Driver {
    let mut driver = Driver::new();
    driver.submit(1, limits);
    step(&mut driver, 1);
    driver
}

pub(super) fn step(driver: &mut Driver, iteration: u32) {
    driver.lease(model(1, iteration), 1);
    driver.answer(1, EffectClass::Pure);
    driver.permit_all();
    driver.feed(&Input::ToolEnded {
        id: AttemptId { call: tool(1, iteration, 1), attempt: 1 },
        end: CallEnd::ok("r"),
    });
}

/// Like `worked`, but the budget is used up.
fn exhausted() -> Driver {
    let mut driver = worked(with(Amounts::default()));
    assert_eq!(driver.feed(&Input::BudgetRefused(refusal())), ["run.exhausted"]);
    driver
}

pub(super) fn last_started(driver: &Driver) -> Option<&ModelStarted> {
    driver.records.iter().rev().find_map(|record| {
        let Body::ModelStarted(started) = &record.body else { return None };
        Some(&**started)
    })
}

pub(super) fn ended(driver: &Driver) -> Option<&RunEnded> {
    driver.records.iter().find_map(|record| {
        let Body::RunEnded(ended) = &record.body else { return None };
        Some(ended)
    })
}

pub(super) fn prompt(driver: &Driver) -> String {
    driver.turn.transient_prompt().map_or_else(String::new, |postscript| postscript.prompt.to_string())
}

/// Checks that the run has ended because of the first refusal, after one iteration, and that the next run's model reads
/// `expect`.
#[track_caller]
fn check_end(driver: &Driver, expect: &str) {
    let ended = ended(driver).unwrap();
    let cause = OutcomeCause::Limit { refusal: refusal() };
    assert_eq!(ended.ended, OutcomeDetail::with_cause(Outcome::BudgetExhausted, cause));
    assert_eq!(ended.iterations, 1, "the grace call is no iteration");
    assert_eq!(driver.view(), "ucta");
    let how = format!("{}.]", ended.ended);
    assert_eq!(driver.found(&how), [('a', 1)], "the model reads how it ended");
    assert_eq!(driver.found(expect), [('a', 1)]);
    let mut again = driver.clone();
    again.crash();
    assert_eq!(again.view(), "ucta");
}

#[test]
fn the_model_is_asked_once_more_for_what_it_has() {
    let mut driver = exhausted();
    driver.crash();
    check(&driver, "uct", &[DueAction::Acquire(AttemptId { call: model(1, 2), attempt: 1 })]);
    assert_eq!(driver.lease(model(1, 2), 1), ["model.started"]);
    let started = last_started(&driver).unwrap();
    assert_eq!((started.max_tokens, started.reserved.iterations), (4_096, None));
    assert!(started.reserved.tokens > Some(4_096), "{:?}", started.reserved);
    let told = prompt(&driver);
    assert!(told.contains("limit of 1 iteration is reached"), "{told}");
    // The tool calls of its answer are neither run nor shown.
    assert_eq!(
        driver.answer_with(TEXT, 2, FinishReason::ToolCalls, EffectClass::Pure),
        ["model.answered", "run.ended"]
    );
    check_end(&driver, &format!("{TEXT}\n\n[This run ended before its task was done: budget_exhausted"));
    assert_eq!(driver.turn.due(driver.now), []);
}

#[test]
fn what_is_cut_off_or_refused_is_no_reason_to_ask_again() {
    for finish in [FinishReason::Length, FinishReason::Refused, FinishReason::Stop] {
        let mut driver = exhausted();
        driver.lease(model(1, 2), 1);
        assert_eq!(
            driver.answer_with(TEXT, 0, finish, EffectClass::Pure),
            ["model.answered", "run.ended"],
            "{finish:?}"
        );
        check_end(&driver, TEXT);
    }
}

#[test]
fn it_is_a_single_attempt() {
    let check = |ends: &dyn Fn(&mut Driver) -> Vec<&'static str>, kinds: &[&str]| {
        let mut driver = exhausted();
        assert_eq!(ends(&mut driver), kinds);
        check_end(&driver, "[This run ended without an answer: budget_exhausted");
    };
    let (call, attempt) = (model(1, 2), 1);
    let ask = |driver: &mut Driver| driver.lease(call, attempt);
    check(
        &|driver| driver.feed(&Input::NoLease { id: AttemptId { call, attempt }, skipped: [].into() }),
        &["run.ended"],
    );
    check(
        &|driver| driver.feed(&Input::BudgetRefused(refused(run(1).into(), Dimension::Tokens))),
        &["run.ended"],
    );
    for class in [FailureClass::Overloaded, FailureClass::Network, FailureClass::Auth] {
        let fails = |driver: &mut Driver| {
            ask(driver);
            driver.fail(class.clone())
        };
        check(&fails, &["model.failed", "run.ended"]);
    }
    let lost = |driver: &mut Driver| {
        ask(driver);
        driver.feed(&Input::Lost(AttemptId { call, attempt }))
    };
    check(&lost, &["model.failed", "run.ended"]);
    let dies = |driver: &mut Driver| {
        ask(driver);
        driver.crash()
    };
    check(&dies, &["session.revived", "model.failed", "run.ended"]);
    for finish in [FinishReason::Stop, FinishReason::Length] {
        let says_nothing = |driver: &mut Driver| {
            ask(driver);
            driver.answer_with(" ", 0, finish, EffectClass::Pure)
        };
        check(&says_nothing, &["model.answered", "run.ended"]);
    }
}

/// Some servers refuse `tool_choice`, with different failures.
#[test]
fn where_calls_cannot_be_forbidden_no_tools_are_offered() {
    for class in [FailureClass::InvalidRequest, FailureClass::ModelNotFound] {
        let mut driver = exhausted();
        driver.lease(model(1, 2), 1);
        assert!(driver.turn.offers_tools() && driver.turn.is_exhausted());
        assert_eq!(last_started(&driver).unwrap().prefix, None, "the tools stay where they are");
        assert_eq!(driver.fail(class.clone()), ["model.failed"]);
        driver.crash();
        assert!(!driver.turn.offers_tools());
        assert_eq!(driver.lease(model(1, 2), 2), ["model.started"]);
        assert_eq!(last_started(&driver).unwrap().prefix, Some(PrefixChange::Tools));
        // No further attempt follows.
        let mut refused = driver.clone();
        assert_eq!(refused.fail(class), ["model.failed", "run.ended"]);
        driver.answer_with(TEXT, 0, FinishReason::Stop, EffectClass::Pure);
        check_end(&driver, TEXT);
        assert!(driver.turn.offers_tools(), "the next run has its tools");
        driver.submit(2, with(Amounts::default()));
        driver.lease(model(2, 1), 1);
        assert_eq!(last_started(&driver).unwrap().prefix, Some(PrefixChange::Tools));
    }
}

/// The process was suspended between the record of the start and the request, so nothing was sent.
#[test]
fn what_was_never_made_is_made() {
    let mut driver = exhausted();
    driver.lease(model(1, 2), 1);
    assert_eq!(
        driver.feed(&Input::NeverStarted(AttemptId { call: model(1, 2), attempt: 1 })),
        ["model.failed"]
    );
    assert_eq!(driver.lease(model(1, 2), 2), ["model.started"]);
    driver.answer_with(TEXT, 0, FinishReason::Stop, EffectClass::Pure);
    check_end(&driver, TEXT);
}

#[test]
fn an_exhausted_run_can_be_stopped_and_times_out() {
    let stop = Input::Stop { run: None, reason: StopReason::Command };
    let mut driver = exhausted();
    assert_eq!(driver.feed(&stop), ["run.ended"]);
    assert_eq!(
        ended(&driver).map(|ended| (ended.ended.outcome, ended.iterations)),
        Some((Outcome::Stopped, 1))
    );
    let mut driver = exhausted();
    driver.lease(model(1, 2), 1);
    assert_eq!(driver.feed(&stop), ["run.stopping", "model.failed", "run.ended"]);
    assert_eq!(
        ended(&driver).map(|ended| (ended.ended.outcome, ended.iterations)),
        Some((Outcome::Stopped, 1))
    );

    let mut driver = worked(Limits { timeout_ms: Some(10), ..with(Amounts::default()) });
    driver.feed(&Input::BudgetRefused(refusal()));
    driver.pass(10);
    assert_eq!(driver.feed(&Input::TimerFired), ["run.ended"]);
    assert_eq!(ended(&driver).map(|ended| ended.ended.outcome), Some(Outcome::TimedOut));
}

#[test]
fn what_is_said_to_an_exhausted_run_is_for_the_next_one() {
    let mut driver = exhausted();
    assert_eq!(driver.steer(1, 9), ["message.steered"]);
    driver.crash();
    driver.lease(model(1, 2), 1);
    assert_eq!(driver.found(&said(9)), []);
    driver.submit(2, Limits::default());
    driver.answer_with(TEXT, 0, FinishReason::Stop, EffectClass::Pure);
    assert_eq!(driver.view(), "uctau");
    assert_eq!(driver.found(&said(9)), [('u', 1)]);
}

#[test]
fn what_has_started_goes_on_and_what_has_not_never_does() {
    let limit = refused(run(1).into(), Dimension::ToolCalls);
    let begin = || {
        let mut driver = Driver::new();
        driver.submit(1, with(Amounts::default()));
        driver.lease(model(1, 1), 1);
        driver.answer(3, EffectClass::Pure);
        driver.feed(&Input::Permitted(AttemptId { call: tool(1, 1, 2), attempt: 1 }));
        assert_eq!(
            driver.feed(&Input::BudgetRefused(limit.clone())),
            ["run.exhausted", "call.ended", "call.ended"]
        );
        check(&driver, "u", &[DueAction::RunTool(AttemptId { call: tool(1, 1, 2), attempt: 1 })]);
        driver
    };
    let grace = [DueAction::Acquire(AttemptId { call: model(1, 2), attempt: 1 })];
    let mut driver = begin();
    let end = CallEnd::ok("found");
    assert_eq!(
        driver.feed(&Input::ToolEnded { id: AttemptId { call: tool(1, 1, 2), attempt: 1 }, end }),
        ["call.ended"]
    );
    check(&driver, "ucttt", &grace);
    let contents = driver.contents();
    assert!(
        contents[0].contains("not started") && contents[0].contains("tool_calls limit of 1"),
        "{contents:?}"
    );
    assert_eq!(contents[1], "found");

    // A lost call is not repeated.
    let mut driver = begin();
    assert_eq!(driver.feed(&Input::Lost(AttemptId { call: tool(1, 1, 2), attempt: 1 })), ["call.ended"]);
    check(&driver, "ucttt", &grace);
    let mut driver = begin();
    assert_eq!(driver.crash(), ["session.revived", "call.ended"]);
    check(&driver, "ucttt", &grace);
    let status = driver.records.iter().rev().find_map(|record| {
        let Body::CallEnded(ended) = &record.body else { return None };
        Some(ended.end.status)
    });
    assert_eq!(status, Some(CallStatus::Stopped));
    let mut driver = begin();
    let never = Input::NeverStarted(AttemptId { call: tool(1, 1, 2), attempt: 1 });
    assert_eq!(driver.feed(&never), ["call.lost", "call.ended"]);
    check(&driver, "ucttt", &grace);
}

/// The failed attempts belong to an iteration that counts.
#[test]
fn it_is_a_call_of_its_own_behind_attempts_that_failed() {
    let mut driver = worked(with(Amounts::default()));
    driver.lease(model(1, 2), 1);
    driver.fail(FailureClass::Server);
    driver.pass(60_000);
    let limit = refused(run(1).into(), Dimension::Tokens);
    assert_eq!(driver.feed(&Input::BudgetRefused(limit.clone())), ["run.exhausted"]);
    check(&driver, "uct", &[DueAction::Acquire(AttemptId { call: model(1, 3), attempt: 1 })]);
    driver.lease(model(1, 3), 1);
    driver.answer_with(TEXT, 0, FinishReason::Stop, EffectClass::Pure);
    let ended = ended(&driver).unwrap();
    assert_eq!(ended.ended.cause, Some(OutcomeCause::Limit { refusal: limit }));
    assert_eq!(ended.iterations, 2);
    assert_eq!(driver.found(TEXT), [('a', 1)]);
}

#[test]
fn whose_limit_it_is() {
    let mut driver = worked(with(Amounts::default()));
    // A limit of an ancestor's account counts too; a limit of another run of the session does not.
    let above = refused(AccountId::from_bits(99), Dimension::Usd);
    assert_eq!(driver.clone().feed(&Input::BudgetRefused(above.clone())), ["run.exhausted"]);
    driver.submit(2, Limits::default());
    assert_eq!(driver.feed(&Input::BudgetRefused(refused(run(2).into(), Dimension::Usd))), [""; 0]);
    driver.feed(&Input::BudgetRefused(above.clone()));
    let told = prompt(&driver);
    assert!(told.contains("a limit that it shares with others of $0.000000001 is reached"), "{told}");

    // Without an answer there is no result to ask for, so the run ends.
    let mut driver = Driver::new();
    driver.submit(1, Limits::default());
    assert_eq!(driver.feed(&Input::BudgetRefused(above.clone())), ["run.ended"]);
    // A run that starts in this same decision was not refused by an account above. It gets its own refusal.
    let mut driver = worked(with(Amounts::default()));
    driver.submit(2, Limits::default());
    let mut draft = driver.turn.start_decision(driver.now);
    draft.apply_input(&Input::BudgetRefused(above));
    draft.apply_input(&Input::Stop { run: Some(run(1)), reason: StopReason::Command });
    let kinds: Vec<_> = draft.finish().records.iter().map(|record| record.body.kind().name()).collect();
    assert_eq!(kinds, ["run.ended"]);
}

#[test]
fn a_text_that_was_cut_off_is_brought_to_its_end() {
    let mut driver = worked(with(Amounts::default()));
    driver.lease(model(1, 2), 1);
    driver.answer_with("The first ", 0, FinishReason::Length, EffectClass::Pure);
    driver.feed(&Input::BudgetRefused(refusal()));
    driver.crash();
    let postscript = driver.turn.transient_prompt().unwrap();
    assert_eq!(postscript.partial.map(|partial| partial.text.clone()).as_deref(), Some("The first "));
    let (goes_on, farewell) = postscript.prompt.split_once("\n\n").unwrap();
    assert!(
        goes_on.contains("exactly where it stops") && farewell.contains("is used up"),
        "{goes_on}{farewell}"
    );
    driver.lease(model(1, 3), 1);
    driver.answer_with("and the last.", 0, FinishReason::Stop, EffectClass::Pure);
    assert_eq!(driver.found("The first and the last.\n\n[This run ended"), [('a', 1)]);
}
