//! Tests of the wait report: every wait with its name, start and deadline, also after a crash.

use super::*;
use crate::{
    model::Intent,
    model::{
        Access, AttemptId, Body, CallEnd, ChildEnded, ModelRef, StopReason, SubagentRef, UnansweredModel,
        UnansweredReason, Usage, WaitKind,
    },
    turn::{TaskDeadlines, WaitTracker},
};

/// Limits that are easy to tell apart.
pub(super) struct Fixed;

impl TaskDeadlines for Fixed {
    fn model(&self, model: &ModelRef, _: &RunSpec) -> u64 {
        if &**model.model() == "m" { 100_000 } else { 0 }
    }

    fn tool(&self, attempt: AttemptId) -> u64 {
        if attempt.call.is_model_call() { 0 } else { 50_000 }
    }

    fn verify(&self, spec: &RunSpec) -> u64 {
        spec.expects.len() as u64 * 7_000
    }

    fn memory(&self) -> u64 {
        3_000
    }

    fn stop(&self) -> u64 {
        3_000
    }
}

fn folded(driver: &Driver) -> WaitTracker {
    let mut waits = WaitTracker::new(SessionId::from_bits(1));
    driver.records.iter().for_each(|record| waits.take(record));
    waits
}

/// `NAME DETAIL SINCE UNTIL`, in seconds since the session was opened.
fn lines(waits: &[crate::model::RunWait]) -> Vec<String> {
    let seconds = |at: Timestamp| (at.0 - 1_000_000) / 1_000;
    let line = |wait: &crate::model::RunWait| {
        let detail = match &wait.kind {
            WaitKind::NoProcess
            | WaitKind::Collect
            | WaitKind::Hooks
            | WaitKind::Verify
            | WaitKind::Memory
            | WaitKind::Stop
            | WaitKind::Disk { .. } => String::new(),
            WaitKind::Lane { lane } => format!(" {}", lane.name()),
            WaitKind::Queue { behind } => format!(" {}", behind.bits()),
            WaitKind::Model { model, attempt } => format!(" {model} {attempt}"),
            WaitKind::Retry { attempt, failure } | WaitKind::Reset { attempt, failure } => {
                format!(" {attempt} {}", failure.as_ref().map_or("-", |failure| failure.class.name()))
            }
            WaitKind::Lease { attempt } => format!(" {attempt}"),
            WaitKind::Permit { call, tool } => format!(" {tool} {}", call.n),
            WaitKind::Conflict { call, tool, behind } => format!(" {tool} {} behind {}", call.n, behind.n),
            WaitKind::Tool { call, tool, attempt } => format!(" {tool} {} {attempt}", call.n),
            WaitKind::Children { call, left } => format!(" {left} {}", call.n),
            WaitKind::Person { call } => format!(" {}", call.n),
            WaitKind::Limit { limit_ms, outcome } => format!(" {outcome} {}", limit_ms / 1_000),
        };
        let until = wait.until.map_or_else(|| "-".to_owned(), |until| seconds(until).to_string());
        format!("{}{detail} {} {until}", wait.kind.name(), seconds(wait.since))
    };
    waits.iter().map(line).collect()
}

/// Checks the waits of run `n` while a process runs it, and while none does.
#[track_caller]
fn check(driver: &Driver, n: u128, under_way: &[&str], at_rest: &[&str]) {
    let waits = folded(driver);
    assert_eq!(lines(&waits.waits_running(run(n), driver.now.at, &Fixed)), under_way);
    assert_eq!(lines(&waits.waits_unowned(run(n), driver.now.at)), at_rest);
}

/// A driver with a run that was accepted one second after the session was opened.
fn accepted(limits: Limits) -> Driver {
    let mut driver = Driver::new();
    driver.pass(1_000);
    driver.submit(1, Limits { max_tokens: 100, ..limits });
    driver.pass(1_000);
    driver
}

/// Like `accepted`, with a model call that starts after another second.
fn asked(limits: Limits) -> Driver {
    let mut driver = accepted(limits);
    driver.lease(model(1, 1), 1);
    driver.pass(1_000);
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

#[test]
fn a_model_call_waits_for_a_lease_then_for_its_answer() {
    let mut driver = accepted(Limits::default());
    check(&driver, 1, &["lease 1 1 -"], &["process 1 -"]);
    driver.lease(model(1, 1), 1);
    driver.pass(5_000);
    check(&driver, 1, &["model p/m 1 2 102"], &["process 2 -"]);
    check(&driver, 2, &[], &[]);
}

#[test]
fn a_failed_call_waits_for_its_next_attempt() {
    let mut driver = asked(Limits::default());
    driver.fail(FailureClass::Overloaded);
    let Some(Body::ModelFailed(failed)) = driver.records.last().map(|record| &record.body) else {
        panic!("it is tried again")
    };
    let until = failed.retry_at.expect("a time");
    let pause = format!("retry 2 overloaded 3 {}", (until.0 - 1_000_000) / 1_000);
    check(&driver, 1, &[&pause], &["process 3 -", &pause]);
    driver.pass(until.ms_since(driver.now.at) + 2_000);
    let since = (until.0 - 1_000_000) / 1_000;
    check(&driver, 1, &[&format!("lease 2 {since} -")], &["process 3 -"]);
}

#[test]
fn a_named_reset_is_kept_by_whoever_runs_it_and_is_outside_of_its_time() {
    let mut driver = asked(Limits { timeout_ms: Some(60_000), ..Limits::default() });
    let limit = "limit timed_out 60 1";
    check(&driver, 1, &["model p/m 1 2 102", &format!("{limit} 61")], &["process 2 -"]);
    driver.fail(FailureClass::RateLimited { retry_after_ms: Some(30_000), reset_at: None });
    let reset = "reset 2 rate_limited 3 33";
    driver.pass(10_000);
    check(&driver, 1, &[reset, &format!("{limit} 91")], &["process 3 -", reset]);
    // The wait does not count, and the next process continues the count.
    driver.pass(30_000);
    driver.crash();
    driver.lease(model(1, 1), 2);
    check(&driver, 1, &["model p/m 2 43 143", &format!("{limit} 91")], &["process 43 -"]);
}

#[test]
fn a_time_that_nobody_may_be_asked_before_says_why() {
    let mut driver = accepted(Limits::default());
    let until = Some(driver.now.at.plus_ms(20_000));
    let failure = Failure::new(FailureClass::QuotaExhausted { reset_at: until }, "used up");
    let skipped = UnansweredModel {
        model: "p/m".parse().unwrap(),
        reason: UnansweredReason::Skipped { until, failure },
    };
    driver
        .feed(&Input::NoLease { id: AttemptId { call: model(1, 1), attempt: 1 }, skipped: [skipped].into() });
    let reset = "reset 1 quota_exhausted 2 22";
    check(&driver, 1, &[reset], &["process 2 -", reset]);
}

#[test]
fn tool_calls_wait_for_leave_for_each_other_and_for_their_ends() {
    let mut driver = asked(Limits::default());
    let (write, read) = (touching(&Access::writes("/w/a")), touching(&Access::reads("/w/a")));
    driver.answer_planned("", FinishReason::ToolCalls, vec![write, read]);
    driver.pass(1_000);
    check(&driver, 1, &["permit tool 1 3 -", "order tool 2 behind 1 3 -"], &["process 3 -"]);
    driver.permit_all();
    driver.pass(4_000);
    check(&driver, 1, &["tool tool 1 1 4 54", "order tool 2 behind 1 3 -"], &["process 4 -"]);
    driver
        .feed(&Input::ToolEnded { id: AttemptId { call: tool(1, 1, 1), attempt: 1 }, end: CallEnd::ok("r") });
    driver.pass(1_000);
    check(&driver, 1, &["permit tool 2 8 -"], &["process 8 -"]);
    driver.permit_all();
    driver
        .feed(&Input::ToolEnded { id: AttemptId { call: tool(1, 1, 2), attempt: 1 }, end: CallEnd::ok("r") });
    check(&driver, 1, &["lease 1 9 -"], &["process 9 -"]);
}

#[test]
fn after_a_downtime_no_old_deadline_holds() {
    let limits = Limits { timeout_ms: Some(60_000), ..Limits::default() };
    let mut driver = asked(limits);
    driver.answer_planned("", FinishReason::ToolCalls, vec![touching(&Access::default())]);
    driver.permit_all();
    check(&driver, 1, &["tool tool 1 1 3 53", "limit timed_out 60 1 61"], &["process 3 -"]);
    // No process runs it for 1,000 s: active time stands still, the wall clock does not.
    driver.now.at = driver.now.at.plus_ms(1_000_000);
    assert_eq!(lines(&folded(&driver).waits_unowned(run(1), driver.now.at)), ["process 3 -"]);
    driver.crash();
    driver.pass(1_000);
    check(&driver, 1, &["permit tool 1 1003 -", "limit timed_out 60 1 1061"], &["process 1003 -"]);
    driver.permit_all();
    check(&driver, 1, &["tool tool 1 2 1004 1054", "limit timed_out 60 1 1061"], &["process 1004 -"]);
}

#[test]
fn a_run_that_is_stopped_waits_for_its_calls() {
    let mut driver = asked(Limits { timeout_ms: Some(60_000), ..Limits::default() });
    driver.answer_planned("", FinishReason::ToolCalls, vec![touching(&Access::default())]);
    driver.permit_all();
    driver.pass(1_000);
    driver.feed(&Input::Stop { run: None, reason: StopReason::Command });
    driver.pass(1_000);
    check(&driver, 1, &["stop 4 7"], &["process 4 -"]);
    let end = CallEnd::error(crate::model::CallStatus::Stopped, "stopped", None, "-");
    driver.feed(&Input::ToolEnded { id: AttemptId { call: tool(1, 1, 1), attempt: 1 }, end });
    check(&driver, 1, &[], &[]);
}

/// Adds these subagents to the last `call.started`.
fn delegates(driver: &mut Driver, runs: &[u128]) {
    let child = |n: &u128| SubagentRef { session: SessionId::from_bits(*n), run: run(*n) };
    let is_start = |record: &&mut Durable<Arc<Record>>| matches!(record.body, Body::CallStarted(_));
    let record = driver.records.iter_mut().rfind(is_start).expect("a call was started");
    let mut begun = Record::clone(&***record);
    if let Body::CallStarted(started) = &mut begun.body {
        started.children = runs.iter().map(child).collect();
    }
    *record = Durable::mark_durable(Arc::new(begun));
}

/// Adds the record of a subagent's end.
fn heard(driver: &mut Driver, call: CallId, n: u128) {
    let ended = ChildEnded {
        call,
        child: SubagentRef { session: SessionId::from_bits(n), run: run(n) },
        ended: crate::model::OutcomeDetail { outcome: crate::model::Outcome::Completed, cause: None },
        result: "{}".into(),
        iterations: 1,
        usage: Usage::default(),
    };
    let (at, active_ms) = (driver.now.at, driver.now.active_ms);
    let record = Record { at, active_ms, body: Body::ChildEnded(Box::new(ended)) };
    driver.records.push(Durable::mark_durable(Arc::new(record)));
}

#[test]
fn a_call_that_delegates_waits_for_its_subagents() {
    let mut driver = asked(Limits::default());
    driver.answer_planned("", FinishReason::ToolCalls, vec![touching(&Access::default())]);
    driver.pass(1_000);
    driver.permit_all();
    delegates(&mut driver, &[7, 8]);
    driver.pass(1_000);
    check(&driver, 1, &["children 2 1 4 -"], &["process 4 -", "children 2 1 4 -"]);
    heard(&mut driver, tool(1, 1, 1), 8);
    heard(&mut driver, tool(1, 1, 1), 8);
    check(&driver, 1, &["children 1 1 4 -"], &["process 5 -", "children 1 1 4 -"]);
    heard(&mut driver, tool(1, 1, 2), 7);
    check(&driver, 1, &["children 1 1 4 -"], &["process 5 -", "children 1 1 4 -"]);
    heard(&mut driver, tool(1, 1, 1), 7);
    check(&driver, 1, &["tool tool 1 1 4 54"], &["process 5 -"]);
}

#[test]
fn subagents_in_the_background_are_waited_for_when_nothing_else_is() {
    let mut driver = asked(Limits::default());
    driver.answer_planned("", FinishReason::ToolCalls, vec![touching(&Access::default())]);
    driver.permit_all();
    delegates(&mut driver, &[7]);
    driver.feed(&Input::ToolEnded {
        id: AttemptId { call: tool(1, 1, 1), attempt: 1 },
        end: CallEnd::ok("begun"),
    });
    check(&driver, 1, &["lease 1 3 -"], &["process 3 -", "children 1 1 3 -"]);
}

#[test]
fn a_run_that_is_stopped_waits_for_its_calls_first() {
    let mut driver = asked(Limits::default());
    driver.answer_planned("", FinishReason::ToolCalls, vec![touching(&Access::default())]);
    driver.permit_all();
    delegates(&mut driver, &[7]);
    driver.feed(&Input::Stop { run: None, reason: StopReason::Command });
    check(&driver, 1, &["stop 3 6"], &["process 3 -", "children 1 1 3 -"]);
}

#[test]
fn a_run_waits_for_those_before_it() {
    let mut driver = asked(Limits::default());
    driver.submit(2, Limits { max_tokens: 100, ..Limits::default() });
    driver.pass(1_000);
    check(&driver, 2, &["queue 1 3 -"], &["process 3 -", "queue 1 3 -"]);
    driver.answer(0, EffectClass::Pure);
    check(&driver, 2, &["lease 1 4 -"], &["process 4 -"]);
    check(&driver, 1, &[], &[]);
}

#[test]
fn a_parked_run_waits_for_a_person_and_for_no_limit() {
    let mut driver = Driver::new();
    driver.in_doubt = InDoubtPolicy { action: crate::model::InDoubtAction::Ask, approval_timeout_ms: 60_000 };
    driver.pass(1_000);
    driver.submit(1, Limits { max_tokens: 100, timeout_ms: Some(600_000), ..Limits::default() });
    driver.lease(model(1, 1), 1);
    driver.answer(1, EffectClass::Once);
    driver.feed(&Input::Permitted(AttemptId { call: tool(1, 1, 1), attempt: 1 }));
    driver.pass(1_000);
    driver.crash();
    driver.feed(&Input::Lost(AttemptId { call: tool(1, 1, 1), attempt: 1 }));
    driver.pass(1_000);
    check(&driver, 1, &["person 1 2 62"], &["process 2 -", "person 1 2 62"]);
}

#[test]
fn a_run_that_is_checked_says_so() {
    let mut driver = Driver::new();
    driver.submit_with(1, "task", |spec| {
        spec.expects = vec![crate::model::Expectation::Text { contains: "x".into() }];
    });
    driver.lease(model(1, 1), 1);
    driver.pass(2_000);
    driver.answer(0, EffectClass::Pure);
    driver.pass(1_000);
    let waits = |driver: &Driver| lines(&folded(driver).waits_running(run(1), driver.now.at, &Fixed));
    assert_eq!(waits(&driver), ["verify 2 9"]);
    driver.crash();
    assert_eq!(waits(&driver), ["verify 3 10"], "it began again");
}
