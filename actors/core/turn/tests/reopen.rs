//! Tests of raised limits and reopened runs.

use std::sync::Arc;

use super::{Driver, content, model, run, tool};
use crate::{
    journal::IndexRow,
    model::{
        Amounts, AttemptId, Body, BudgetRefusal, CallEnd, Dimension, EffectClass, LedgerChange,
        LimitIncrease, LimitRaise, Limits, Outcome, OutcomeDetail, ParentRef, RunState, SessionId,
        StopReason,
    },
    turn::{DueAction, Input, RaiseError, RenderCursor},
};

const WALL: u64 = 1_000;

fn limits() -> Limits {
    let budget = Amounts { iterations: Some(5), tokens: Some(100_000), ..Amounts::default() };
    Limits { budget, max_tokens: 100, wall_ms: Some(WALL), ..Limits::default() }
}

fn iterations(iterations: u64) -> LimitIncrease {
    LimitIncrease { budget: Amounts { iterations: Some(iterations), ..Amounts::default() }, wall_ms: None }
}

fn wall(ms: u64) -> LimitIncrease {
    LimitIncrease { wall_ms: Some(ms), ..LimitIncrease::default() }
}

fn raise(n: u128, by: LimitIncrease) -> Input {
    Input::Raise { run: run(n), by }
}

fn stop(n: u128) -> Input {
    Input::Stop { run: Some(run(n)), reason: StopReason::Command }
}

fn refusal() -> Input {
    let (account, dimension) = (run(1).into(), Dimension::Tokens);
    Input::BudgetRefused(BudgetRefusal { account, dimension, limit: 5, spent: 5, reserved: 0, needed: None })
}

/// A run that has made one iteration with a tool call, and then reached its limit of active time.
fn out_of_time() -> Driver {
    let mut driver = Driver::new();
    driver.submit(1, limits());
    acts(&mut driver);
    driver.pass(WALL);
    assert_eq!(driver.feed(&Input::TimerFired), ["run.ended"]);
    driver
}

fn acts(driver: &mut Driver) {
    driver.lease(model(1, 1), 1);
    driver.answer(1, EffectClass::Pure);
    driver.permit_all();
    driver
        .feed(&Input::ToolEnded { id: AttemptId { call: tool(1, 1, 1), attempt: 1 }, end: CallEnd::ok("r") });
}

#[test]
fn a_run_that_nobody_was_asked_for_has_no_last_word() {
    let mut driver = Driver::new();
    driver.submit(1, limits());
    driver.pass(WALL);
    let lease =
        Input::Leased { id: AttemptId { call: model(1, 1), attempt: 1 }, model: "p/m".parse().unwrap() };
    let given_up = ["model.started", "run.stopping", "model.failed", "run.ended"];
    assert_eq!(driver.feed_all(&[lease, Input::TimerFired]), given_up);
    assert_eq!(driver.feed(&raise(1, wall(WALL))), ["run.reopened"]);
    assert_eq!(driver.feed(&refusal()), ["run.ended"]);
}

fn last(driver: &Driver) -> String {
    content(driver.turn.render(RenderCursor::default()).0.last().unwrap())
}

/// Checks a raise of run `n`: the records, or the error.
#[track_caller]
fn check(driver: &Driver, n: u128, by: LimitIncrease, expect: Result<&[&str], &RaiseError>) {
    let mut driver = driver.clone();
    let can = driver.turn.start_decision(driver.now).can_raise(run(n), &by);
    let made = driver.feed(&raise(n, by));
    match expect {
        Ok(expect) => assert_eq!((can, made), (Ok(()), expect.to_vec())),
        Err(expect) => assert_eq!((can.as_ref(), made), (Err(expect), Vec::new())),
    }
}

#[test]
fn a_run_that_has_used_up_its_budget_goes_on_where_it_was() {
    let mut driver = out_of_time();
    super::check(&driver, "ucta", &[]);
    driver.pass(7 * WALL);
    assert_eq!(driver.feed(&raise(1, wall(300))), ["run.reopened"]);
    assert_eq!(driver.view(), "uctau");
    assert!(last(&driver).contains("raised by 300ms of active time"), "{}", last(&driver));
    // All that the run has used still counts; the time between its legs does not.
    let end = driver.now.active_ms + 300;
    let due = [DueAction::Acquire(AttemptId { call: model(1, 2), attempt: 1 }), DueAction::WakeAtActive(end)];
    super::check(&driver, "uctau", &due);
    assert_eq!(driver.lease(model(1, 2), 1), ["model.started"]);
    assert_eq!(driver.answer(0, EffectClass::Pure), ["model.answered", "run.ended"]);
    let Some(Body::RunEnded(ended)) = driver.records.last().map(|record| &record.body) else { panic!() };
    assert_eq!(ended.ended, OutcomeDetail { outcome: Outcome::Completed, cause: None });
    assert_eq!((ended.iterations, ended.usage.total()), (2, 20), "of both legs");
    assert_eq!(driver.view(), "uctaua");
}

#[test]
fn it_may_use_up_its_budget_again_and_again() {
    let mut driver = out_of_time();
    for leg in 2..5 {
        driver.pass(10_000);
        assert_eq!(driver.feed(&raise(1, wall(300))), ["run.reopened"]);
        let Some(Body::RunReopened(reopened)) = driver.records.last().map(|record| &record.body) else {
            panic!()
        };
        assert_eq!(reopened.leg, leg);
        driver.pass(299);
        assert_eq!(driver.feed(&Input::TimerFired), [""; 0]);
        driver.pass(1);
        assert_eq!(driver.feed(&Input::TimerFired), ["run.ended"]);
    }
    assert_eq!(driver.view(), "uctauauaua");
}

#[test]
fn a_crash_takes_nothing_away() {
    let mut driver = out_of_time();
    driver.crash();
    driver.pass(50);
    assert_eq!(driver.feed(&raise(1, wall(300))), ["run.reopened"]);
    assert_eq!(driver.crash(), ["session.revived"]);
    let end = driver.now.active_ms + 300;
    assert!(driver.turn.due(driver.now).contains(&DueAction::WakeAtActive(end)));
    assert_eq!(driver.lease(model(1, 2), 1), ["model.started"]);
}

#[test]
fn limits_of_a_run_that_has_not_ended_are_raised_at_once() {
    let mut driver = Driver::new();
    driver.submit(1, limits());
    driver.submit(2, limits());
    driver.pass(WALL - 1);
    for n in [1, 2] {
        assert_eq!(driver.feed(&raise(n, iterations(10))), ["budget.raised"]);
        assert_eq!(driver.feed(&raise(n, wall(500))), ["budget.raised"]);
    }
    let now = |driver: &Driver| {
        let (_, spec) = driver.turn.current().unwrap();
        let Limits { budget, wall_ms, .. } = spec.limits;
        (budget.iterations, budget.tokens, budget.tool_calls, wall_ms)
    };
    let expect = (Some(15), Some(100_000), None, Some(WALL + 500));
    assert_eq!(now(&driver), expect);
    driver.pass(1);
    assert_eq!(driver.feed(&Input::TimerFired), [""; 0], "there is more time now");
    driver.feed(&stop(1));
    assert_eq!(driver.turn.current().map(|(id, _)| id), Some(run(2)));
    assert_eq!(now(&driver), expect);
}

#[test]
fn what_cannot_be_raised_is_told_with_the_reason() {
    let driver = out_of_time();
    check(&driver, 1, wall(1), Ok(&["run.reopened"]));
    check(&driver, 9, wall(1), Err(&RaiseError::Superseded));
    let limits = RaiseError::NoLimit("iterations, tokens, wall".into());
    let tool_calls = LimitIncrease {
        budget: Amounts { tool_calls: Some(3), ..Amounts::default() },
        ..LimitIncrease::default()
    };
    check(&driver, 1, tool_calls, Err(&limits));
    check(&driver, 1, iterations(0), Err(&limits));
    // Another run was accepted, whether or not it has started.
    let mut gone_on = driver.clone();
    gone_on.submit(2, self::limits());
    check(&gone_on, 1, wall(1), Err(&RaiseError::Superseded));
    gone_on.feed(&stop(2));
    check(&gone_on, 1, wall(1), Err(&RaiseError::Superseded));
    // The run is reopened already: the raise applies to that leg.
    let mut again = driver.clone();
    again.feed(&raise(1, wall(1)));
    check(&again, 1, wall(1), Ok(&["budget.raised"]));
    again.feed(&stop(1));
    check(&again, 1, wall(1), Err(&RaiseError::Superseded));
}

#[test]
fn a_run_that_waits_for_its_calls_to_end_is_not_raised() {
    let mut driver = Driver::new();
    driver.submit(1, limits());
    driver.lease(model(1, 1), 1);
    driver.answer(1, EffectClass::Pure);
    driver.permit_all();
    driver.pass(WALL);
    assert_eq!(driver.feed(&Input::TimerFired), ["run.stopping"]);
    check(&driver, 1, wall(1), Err(&RaiseError::Ending));
}

#[test]
fn what_a_parent_has_heard_of_is_over() {
    let mut driver = out_of_time();
    let parent = ParentRef { session: SessionId::from_bits(7), call: tool(5, 1, 1), n: 0 };
    let mut records = std::mem::take(&mut driver.records);
    for record in &mut records {
        let mut taken = crate::model::Record::clone(record);
        if let Body::RunAccepted(accepted) = &mut taken.body {
            accepted.parent = Some(parent);
        }
        *record = crate::model::Durable::mark_durable(Arc::new(taken));
    }
    driver.records = records;
    driver.crash();
    check(&driver, 1, wall(1), Err(&RaiseError::ResultDelivered));
}

#[test]
fn the_account_and_the_row_say_so_too() {
    let driver = out_of_time();
    let mut draft = driver.turn.start_decision(driver.now);
    let more = Amounts { iterations: Some(2), usd: Some(9), ..Amounts::default() };
    draft.apply_input(&raise(1, LimitIncrease { budget: more, wall_ms: Some(5) }));
    let decision = draft.finish();
    let by = Amounts { iterations: Some(2), ..Amounts::default() };
    let ledger = LedgerChange {
        raises: vec![LimitRaise { account: run(1).into(), amounts: by }],
        ..LedgerChange::default()
    };
    assert_eq!(decision.ledger, ledger, "there was no limit of money");
    let [IndexRow::Run(row)] = decision.index.as_slice() else { panic!("{:?}", decision.index) };
    assert_eq!((row.state, row.leg, row.ended.clone()), (RunState::Running, 2, None));
}

/// A raise that is decided together with a refusal is recorded alone. The refused reservation is requested again when
/// the raise is durable.
#[test]
fn what_was_refused_is_tried_again_with_more() {
    for raise_first in [false, true] {
        let mut driver = Driver::new();
        driver.submit(1, limits());
        let mut draft = driver.turn.start_decision(driver.now);
        let mut inputs = [refusal(), raise(1, iterations(1))];
        if raise_first {
            inputs.reverse();
        }
        inputs.iter().for_each(|input| draft.apply_input(input));
        assert!(draft.grant_requests().is_empty());
        let kinds: Vec<_> = draft.finish().records.iter().map(|record| record.body.kind().name()).collect();
        assert_eq!(kinds, ["budget.raised"]);
    }
}

#[test]
fn a_message_that_nobody_has_read_is_read_then() {
    let mut driver = Driver::new();
    driver.submit(1, limits());
    driver.lease(model(1, 1), 1);
    driver.steer(1, 8);
    driver.pass(WALL);
    assert_eq!(driver.feed(&Input::TimerFired), ["run.stopping", "model.failed", "run.ended"]);
    assert_eq!(driver.found("[message 8]"), []);
    driver.feed(&raise(1, wall(300)));
    assert_eq!(driver.view(), "uau");
    assert_eq!(driver.found("[message 8]"), [('u', 1)]);
    // The interrupted attempt counts as an iteration.
    assert_eq!(driver.lease(model(1, 2), 1), ["model.started"]);
}

#[test]
fn what_a_late_answer_has_cost_counts_in_the_next_leg() {
    let mut driver = Driver::new();
    driver.submit(1, limits());
    driver.lease(model(1, 1), 1);
    let started = Arc::clone(driver.turn.model_started().unwrap());
    driver.pass(WALL);
    driver.feed(&Input::TimerFired);
    let usage = Some(crate::model::Usage { input_tokens: 30, ..Default::default() });
    let answer = crate::model::ModelAnswer {
        message: crate::model::AssistantMessage::default(),
        finish: crate::model::FinishReason::Stop,
        usage,
    };
    let late = Input::Answered { started, answer: Arc::new(answer), admissions: [].into() };
    assert_eq!(driver.feed(&late), ["model.late"]);
    driver.feed(&raise(1, wall(300)));
    driver.lease(model(1, 2), 1);
    driver.answer(0, EffectClass::Pure);
    let Some(Body::RunEnded(ended)) = driver.records.last().map(|record| &record.body) else { panic!() };
    assert_eq!((ended.iterations, ended.usage.total()), (2, 40));
}
