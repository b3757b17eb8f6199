//! Tests of single cases of the state machine: starts, stops, crashes, refusals, and waits of runs and calls.

use super::{Driver, check, model, run, tool};
use crate::{
    model::{
        AccountId, Amounts, AttemptId, Body, BudgetRefusal, CallEnd, CallStatus, Dimension, EffectClass,
        FailureClass, Limits, Outcome, StopReason,
    },
    turn::{DueAction, Input},
};

/// A driver with one run whose model call is under way.
fn asked() -> Driver {
    let mut driver = Driver::new();
    assert_eq!(driver.submit(1, Limits { max_tokens: 100, ..Limits::default() }), ["run.accepted"]);
    assert_eq!(driver.lease(model(1, 1), 1), ["model.started"]);
    driver
}

/// A driver whose run has one tool call started.
fn acting(effect: EffectClass) -> Driver {
    let mut driver = asked();
    assert_eq!(driver.answer(1, effect), ["model.answered", "call.admitted"]);
    let permitted = Input::Permitted(AttemptId { call: tool(1, 1, 1), attempt: 1 });
    assert_eq!(driver.feed(&permitted), ["call.started"]);
    driver
}

fn outcome(driver: &Driver) -> Option<Outcome> {
    driver.records.iter().rev().find_map(|record| {
        let Body::RunEnded(ended) = &record.body else { return None };
        Some(ended.ended.outcome)
    })
}

#[test]
fn an_accepted_run_wants_a_lease_and_a_started_call_is_asked() {
    let mut driver = Driver::new();
    check(&driver, "", &[]);
    driver.submit(1, Limits::default());
    check(&driver, "u", &[DueAction::Acquire(AttemptId { call: model(1, 1), attempt: 1 })]);
    driver.lease(model(1, 1), 1);
    check(&driver, "u", &[DueAction::CallModel(AttemptId { call: model(1, 1), attempt: 1 })]);
}

#[test]
fn a_text_ends_the_run_in_the_same_append() {
    let mut driver = asked();
    assert_eq!(driver.answer(0, EffectClass::Pure), ["model.answered", "run.ended"]);
    assert_eq!(outcome(&driver), Some(Outcome::Completed));
    check(&driver, "ua", &[]);
}

#[test]
fn calls_enter_the_view_with_all_their_results_only() {
    let mut driver = asked();
    driver.answer(2, EffectClass::Pure);
    check(
        &driver,
        "u",
        &[
            DueAction::Acquire(AttemptId { call: tool(1, 1, 1), attempt: 1 }),
            DueAction::Acquire(AttemptId { call: tool(1, 1, 2), attempt: 1 }),
        ],
    );
    for n in [2, 1] {
        assert_eq!(driver.view(), "u");
        driver.feed(&Input::Permitted(AttemptId { call: tool(1, 1, n), attempt: 1 }));
        driver.feed(&Input::ToolEnded {
            id: AttemptId { call: tool(1, 1, n), attempt: 1 },
            end: CallEnd::ok("r"),
        });
    }
    check(&driver, "uctt", &[DueAction::Acquire(AttemptId { call: model(1, 2), attempt: 1 })]);
}

#[test]
fn a_failed_attempt_waits_and_is_made_again() {
    let mut driver = asked();
    assert_eq!(driver.fail(FailureClass::Overloaded), ["model.failed"]);
    let due = driver.turn.due(driver.now);
    assert!(matches!(due[..], [DueAction::WakeAt(time)] if time > driver.now.at), "{due:?}");
    driver.pass(500);
    check(&driver, "u", &[DueAction::Acquire(AttemptId { call: model(1, 1), attempt: 2 })]);
    assert_eq!(driver.fail(FailureClass::Auth), [""; 0], "an answer of an attempt that is not under way");
    driver.lease(model(1, 1), 2);
    assert_eq!(driver.fail(FailureClass::Auth), ["model.failed", "run.ended"]);
    assert_eq!(outcome(&driver), Some(Outcome::Failed));
}

#[test]
fn a_late_answer_is_dropped_but_not_what_it_cost() {
    let mut driver = asked();
    let started = driver.turn.model_started().cloned().expect("asked");
    driver.feed(&Input::Stop { run: None, reason: StopReason::Command });
    let mut late = asked();
    late.answer(0, EffectClass::Pure);
    let Body::ModelAnswered(answered) = &late.records[late.records.len() - 2].body else {
        panic!("no answer")
    };
    let answer = crate::model::ModelAnswer {
        message: (*answered.message).clone(),
        finish: answered.finish,
        usage: answered.usage,
    };
    let input = Input::Answered { started, answer: answer.into(), admissions: [].into() };
    assert_eq!(driver.feed(&input), ["model.late"]);
    check(&driver, "ua", &[]);
}

#[test]
fn a_stop_waits_for_what_runs_and_for_nothing_else() {
    let stop = Input::Stop { run: Some(run(1)), reason: StopReason::Command };
    let mut driver = asked();
    assert_eq!(driver.feed(&stop), ["run.stopping", "model.failed", "run.ended"]);
    check(&driver, "ua", &[]);

    let mut driver = acting(EffectClass::Once);
    assert_eq!(driver.feed(&stop), ["run.stopping"]);
    check(&driver, "u", &[DueAction::EndTool(AttemptId { call: tool(1, 1, 1), attempt: 1 })]);
    assert_eq!(driver.feed(&stop), [""; 0]);
    let end = CallEnd::new(CallStatus::Stopped, "stopped");
    let ended = Input::ToolEnded { id: AttemptId { call: tool(1, 1, 1), attempt: 1 }, end };
    assert_eq!(driver.feed(&ended), ["call.ended", "run.ended"]);
    assert_eq!(outcome(&driver), Some(Outcome::Stopped));
    check(&driver, "ucta", &[]);
}

#[test]
fn a_stop_together_with_a_start_leaves_nothing_open() {
    let mut driver = asked();
    driver.answer(1, EffectClass::Once);
    let inputs = [
        Input::Permitted(AttemptId { call: tool(1, 1, 1), attempt: 1 }),
        Input::Stop { run: None, reason: StopReason::Command },
    ];
    let mut draft = driver.turn.start_decision(driver.now);
    inputs.iter().for_each(|input| draft.apply_input(input));
    let decision = draft.finish();
    let kinds: Vec<_> = decision.records.iter().map(|record| record.body.kind().name()).collect();
    assert_eq!(kinds, ["call.started", "run.stopping", "call.ended", "run.ended"]);
    let reserved =
        decision.ledger.reservations.iter().filter_map(|reserve| reserve.amounts.tool_calls).sum::<u64>();
    assert_eq!(reserved, 0, "what is never made is not reserved");
}

#[test]
fn a_model_call_that_is_stopped_where_it_starts_is_no_iteration() {
    let ended = |inputs: &[Input]| {
        let mut driver = Driver::new();
        driver.submit(1, Limits::default());
        driver.feed_all(inputs);
        driver.feed(&Input::Stop { run: None, reason: StopReason::Command });
        let Some(Body::RunEnded(ended)) = driver.records.last().map(|record| &record.body) else {
            panic!("it has not ended")
        };
        ended.iterations
    };
    let lease =
        Input::Leased { id: AttemptId { call: model(1, 1), attempt: 1 }, model: "p/m".parse().unwrap() };
    let stop = Input::Stop { run: None, reason: StopReason::Command };
    assert_eq!(ended(std::slice::from_ref(&lease)), 1, "it was made");
    assert_eq!(ended(&[lease, stop]), 0, "it never was");
}

#[test]
fn after_a_crash_each_open_call_goes_on_by_its_effect_class() {
    let mut driver = asked();
    assert_eq!(driver.crash(), ["session.revived", "model.failed"]);
    check(&driver, "u", &[DueAction::Acquire(AttemptId { call: model(1, 1), attempt: 2 })]);

    for effect in [EffectClass::Pure, EffectClass::Idempotent] {
        let mut driver = acting(effect);
        assert_eq!(driver.crash(), ["session.revived", "call.lost"]);
        check(&driver, "u", &[DueAction::Acquire(AttemptId { call: tool(1, 1, 1), attempt: 2 })]);
    }
    let mut driver = acting(EffectClass::Once);
    assert_eq!(driver.crash(), ["session.revived"]);
    check(&driver, "u", &[DueAction::RunTool(AttemptId { call: tool(1, 1, 1), attempt: 1 })]);
}

#[test]
fn a_crash_before_the_start_was_durable_leaves_nothing_in_doubt() {
    let mut driver = asked();
    driver.answer(1, EffectClass::Once);
    assert_eq!(driver.crash(), ["session.revived"]);
    check(&driver, "u", &[DueAction::Acquire(AttemptId { call: tool(1, 1, 1), attempt: 1 })]);
}

#[test]
fn a_crash_while_stopping_still_stops() {
    let mut driver = acting(EffectClass::Once);
    driver.feed(&Input::Stop { run: None, reason: StopReason::Command });
    assert_eq!(driver.crash(), ["session.revived"]);
    check(&driver, "u", &[DueAction::EndTool(AttemptId { call: tool(1, 1, 1), attempt: 1 })]);
    let lost = Input::Lost(AttemptId { call: tool(1, 1, 1), attempt: 1 });
    assert_eq!(driver.feed(&lost), ["call.ended", "run.ended"]);
    assert_eq!(outcome(&driver), Some(Outcome::Stopped));

    let mut driver = acting(EffectClass::Pure);
    driver.feed(&Input::Stop { run: None, reason: StopReason::Command });
    assert_eq!(driver.crash(), ["session.revived", "call.ended", "run.ended"]);
    assert_eq!(outcome(&driver), Some(Outcome::Stopped));
}

#[test]
fn what_does_not_fit_the_budget_exhausts_the_run_with_its_results() {
    let mut driver = acting(EffectClass::Pure);
    let (account, dimension) = (AccountId::from(run(1)), Dimension::Iterations);
    let refusal = BudgetRefusal { account, dimension, limit: 1, spent: 1, reserved: 0, needed: None };
    let mut draft = driver.turn.start_decision(driver.now);
    draft.apply_input(&Input::BudgetRefused(refusal));
    draft.apply_input(&Input::ToolEnded {
        id: AttemptId { call: tool(1, 1, 1), attempt: 1 },
        end: CallEnd::ok("r"),
    });
    assert_eq!(draft.grant_requests(), []);
    let kinds: Vec<_> = draft.finish().records.iter().map(|record| record.body.kind().name()).collect();
    assert_eq!(kinds, ["call.ended", "run.exhausted"]);
    driver.feed(&Input::TimerFired);
    check(&driver, "u", &[DueAction::RunTool(AttemptId { call: tool(1, 1, 1), attempt: 1 })]);
}

#[test]
fn an_attempt_costs_an_iteration_once_and_its_tokens_each_time() {
    let mut driver = asked();
    driver.fail(FailureClass::Overloaded);
    driver.pass(1_000);
    driver.lease(model(1, 1), 2);
    let reserved: Vec<Amounts> = driver
        .records
        .iter()
        .filter_map(|record| {
            let Body::ModelStarted(started) = &record.body else { return None };
            Some(started.reserved)
        })
        .collect();
    assert_eq!(reserved.iter().map(|amounts| amounts.iterations).collect::<Vec<_>>(), [Some(1), None]);
    assert!(reserved.iter().all(|amounts| amounts.tokens.is_some_and(|tokens| tokens >= 100)));
}

#[test]
fn a_queued_run_begins_when_the_one_before_has_ended() {
    let mut driver = asked();
    driver.submit(2, Limits::default());
    check(&driver, "u", &[DueAction::CallModel(AttemptId { call: model(1, 1), attempt: 1 })]);
    driver.answer(0, EffectClass::Pure);
    check(&driver, "uau", &[DueAction::Acquire(AttemptId { call: model(2, 1), attempt: 1 })]);
    driver.submit(3, Limits::default());
    assert_eq!(driver.feed(&Input::Stop { run: Some(run(3)), reason: StopReason::Command }), ["run.ended"]);
    driver.lease(model(2, 1), 1);
    driver.answer(0, EffectClass::Pure);
    check(&driver, "uaua", &[]);
}

#[test]
fn a_call_asks_for_no_more_output_than_the_budget_has_left() {
    let ask = |tokens: Option<u64>| {
        let budget = Amounts { tokens, ..Amounts::default() };
        let mut driver = Driver::new();
        driver.submit(1, Limits { budget, max_tokens: 1_000, ..Limits::default() });
        driver.lease(model(1, 1), 1);
        driver.turn.model_started().map(|started| started.max_tokens)
    };
    assert_eq!(ask(None), Some(1_000));
    assert_eq!(ask(Some(502)), Some(500));
    assert_eq!(ask(Some(100)), Some(256), "too little to be worth a call: the shortest one is refused");
}

#[test]
fn what_is_left_of_tokens_survives_a_crash() {
    let budget = Amounts { tokens: Some(1_000), ..Amounts::default() };
    let mut driver = Driver::new();
    driver.submit(1, Limits { budget, max_tokens: 400, ..Limits::default() });
    driver.lease(model(1, 1), 1);
    driver.crash();
    driver.lease(model(1, 1), 2);
    let asked = driver.turn.model_started().map(|started| started.max_tokens);
    assert_eq!(asked, Some(400), "the interrupted attempt counts as spent, and 400 more fit");
    driver.crash();
    driver.lease(model(1, 1), 3);
    let asked = driver.turn.model_started().map(|started| started.max_tokens);
    assert_eq!(asked, Some(256), "what is left, 194, is too little to be worth a call");
}

#[test]
fn no_number_of_restarts_fails_a_model_call() {
    let mut driver = asked();
    for attempt in 2..20 {
        assert_eq!(driver.crash(), ["session.revived", "model.failed"]);
        assert_eq!(driver.lease(model(1, 1), attempt), ["model.started"]);
    }
    assert_eq!(
        driver.fail(FailureClass::Overloaded),
        ["model.failed"],
        "restarts are not counted as overloads"
    );
}

#[test]
fn a_clock_that_was_set_back_does_not_stretch_a_pause() {
    let mut driver = asked();
    driver.fail(FailureClass::Overloaded);
    driver.now.at = crate::model::Timestamp(driver.now.at.0 - 3_600_000);
    check(&driver, "u", &[DueAction::Acquire(AttemptId { call: model(1, 1), attempt: 2 })]);
}

#[test]
fn a_run_without_allowance_ends_at_once_and_without_a_call() {
    let driver = Driver::new();
    let (account, dimension) = (AccountId::from(run(1)), Dimension::Tokens);
    let refusal = BudgetRefusal { account, dimension, limit: 10, spent: 0, reserved: 0, needed: None };
    let mut submitted = driver.clone();
    submitted.submit(1, Limits::default());
    let Some(Body::RunAccepted(accepted)) = submitted.records.last().map(|record| &record.body) else {
        panic!("not accepted")
    };
    let mut draft = driver.turn.start_decision(driver.now);
    draft.apply_input(&Input::BudgetRefused(refusal));
    draft.apply_input(&Input::Submitted { accepted: accepted.clone(), key: None });
    assert_eq!(draft.grant_requests(), []);
    let kinds: Vec<_> = draft.finish().records.iter().map(|record| record.body.kind().name()).collect();
    assert_eq!(kinds, ["run.accepted", "run.ended"]);
}

#[test]
fn for_want_of_allowance_what_runs_still_ends_by_itself() {
    let mut driver = asked();
    driver.answer(2, EffectClass::Once);
    driver.feed(&Input::Permitted(AttemptId { call: tool(1, 1, 1), attempt: 1 }));
    let (account, dimension) = (AccountId::from(run(1)), Dimension::ToolCalls);
    let refusal = BudgetRefusal { account, dimension, limit: 1, spent: 0, reserved: 1, needed: None };
    assert_eq!(driver.feed(&Input::BudgetRefused(refusal)), ["run.exhausted", "call.ended"]);
    check(&driver, "u", &[DueAction::RunTool(AttemptId { call: tool(1, 1, 1), attempt: 1 })]);
    let ended = Input::ToolEnded { id: AttemptId { call: tool(1, 1, 1), attempt: 1 }, end: CallEnd::ok("r") };
    assert_eq!(driver.feed(&ended), ["call.ended"]);
    check(&driver, "uctt", &[DueAction::Acquire(AttemptId { call: model(1, 2), attempt: 1 })]);
}

#[test]
fn a_wait_for_a_known_reset_does_not_count_for_a_limit_of_time() {
    let limits = Limits { timeout_ms: Some(10_000), max_tokens: 100, ..Limits::default() };
    let limited = |retry_after_ms| FailureClass::RateLimited { retry_after_ms, reset_at: None };
    let ends = |class: FailureClass, pass: u64| {
        let mut driver = Driver::new();
        driver.submit(1, limits);
        driver.lease(model(1, 1), 1);
        driver.pass(4_000);
        driver.fail(class);
        driver.pass(pass);
        driver.feed(&Input::TimerFired);
        if outcome(&driver).is_none() {
            driver.lease(model(1, 1), 2);
            driver.pass(5_999);
            driver.feed(&Input::TimerFired);
            assert_eq!(outcome(&driver), None, "four and not quite six seconds have counted");
            driver.pass(1);
            driver.feed(&Input::TimerFired);
        }
        (outcome(&driver), driver.now.active_ms)
    };
    assert_eq!(ends(limited(Some(60_000)), 60_000), (Some(Outcome::TimedOut), 70_000));
    assert_eq!(ends(limited(None), 6_000), (Some(Outcome::TimedOut), 10_000));
    assert_eq!(ends(FailureClass::Overloaded, 6_000), (Some(Outcome::TimedOut), 10_000));
}
