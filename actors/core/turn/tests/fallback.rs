//! Tests of failover: which model of a chain is called, and when.

use super::{Driver, check, model, tool};
use crate::{
    model::{
        AttemptId, Body, CallEnd, EffectClass, Failure, FailureClass, ImportedHistory, Limits, SessionTime,
        Timestamp, UnansweredModel, UnansweredReason,
    },
    policy::LinkAvailability,
    turn::{DueAction, FailoverOptions, Input},
};

#[test]
fn when_a_model_cannot_answer_the_one_behind_it_is_asked() {
    let chain = |driver: &Driver| {
        let links = driver.turn.candidates().unwrap_or_default().into_iter();
        links.map(|link| link.model.to_string()).collect::<Vec<_>>()
    };
    let mut driver = Driver::new();
    driver.submit_to(
        &["p/m", "q/n"],
        1,
        (Limits { max_tokens: 100, ..Limits::default() }, ImportedHistory::default()),
    );
    driver.lease(model(1, 1), 1);
    assert_eq!(driver.fail(FailureClass::Server), ["model.failed"]);
    assert_eq!(chain(&driver), ["p/m", "q/n"], "it is tried again first");
    driver.pass(60_000);
    driver.lease(model(1, 1), 2);
    assert_eq!(driver.fail(FailureClass::Auth), ["model.failed"]);
    check(&driver, "u", &[DueAction::Acquire(AttemptId { call: model(1, 1), attempt: 3 })]);
    driver.lease(model(1, 1), 3);
    driver.crash();
    assert_eq!(chain(&driver), ["q/n"], "also after a crash");
    driver.lease(model(1, 1), 4);
    driver.answer(1, EffectClass::Pure);
    driver.feed(&Input::Permitted(AttemptId { call: tool(1, 1, 1), attempt: 1 }));
    driver
        .feed(&Input::ToolEnded { id: AttemptId { call: tool(1, 1, 1), attempt: 1 }, end: CallEnd::ok("r") });
    assert_eq!(chain(&driver), ["p/m", "q/n"], "the next call begins with the first again");
    driver.lease(model(1, 2), 1);
    driver.fail(FailureClass::Auth);
    driver.lease(model(1, 2), 2);
    assert_eq!(driver.fail(FailureClass::Auth), ["model.failed", "run.ended"], "there is no third");
}

#[test]
fn what_is_wrong_with_the_request_asks_nobody_else() {
    for class in [FailureClass::InvalidRequest, FailureClass::ContentRefused] {
        let mut driver = Driver::new();
        driver.submit_to(
            &["p/m", "q/n"],
            1,
            (Limits { max_tokens: 100, ..Limits::default() }, ImportedHistory::default()),
        );
        driver.lease(model(1, 1), 1);
        assert_eq!(driver.fail(class), ["model.failed", "run.ended"]);
    }
}

/// Checks the record of a failure, with this availability of a chain of three: the milliseconds until the next attempt,
/// and the next link if the failed one is left. `None` if the run ends.
fn check_outlook(class: FailureClass, links: &[LinkAvailability], expect: Option<(u64, Option<usize>)>) {
    let mut driver = Driver::new();
    let limits = Limits { max_tokens: 100, ..Limits::default() };
    driver.submit_to(&["p/m", "q/n", "r/o"], 1, (limits, ImportedHistory::default()));
    driver.lease(model(1, 1), 1);
    let outlook = FailoverOptions { links: links.to_vec(), ..FailoverOptions::default() };
    driver.fail_with(class.clone(), outlook);
    let failed = driver.records.iter().find_map(|record| {
        let Body::ModelFailed(failed) = &record.body else { return None };
        Some(failed.clone())
    });
    let failed = failed.expect("it is recorded");
    let found = failed.retry_at.map(|at| (at.ms_since(driver.now.at), failed.fallback));
    assert_eq!(found, expect, "{class:?}, {links:?}");
}

#[test]
fn what_follows_a_failure_depends_on_who_else_can_be_asked() {
    use LinkAvailability::{AtCapacity, Available, NotConfigured, Probing, WarmingUp};
    let at = |ms| Timestamp(1_000_000).plus_ms(ms);
    let (held, shut) =
        (LinkAvailability::BreakerOpen(at(7_000)), LinkAvailability::ClosedByProvider(at(60_000)));
    let limited = |ms| FailureClass::RateLimited { retry_after_ms: Some(ms), reset_at: None };
    check_outlook(limited(90_000), &[], Some((0, Some(1))));
    check_outlook(limited(90_000), &[shut, Available, Available], Some((0, Some(1))));
    check_outlook(limited(90_000), &[shut, shut, AtCapacity], Some((0, Some(2))));
    check_outlook(limited(90_000), &[shut, held, Probing], Some((0, Some(2))));
    check_outlook(limited(90_000), &[shut, held, WarmingUp], Some((0, Some(2))));
    check_outlook(limited(3_000), &[shut, Available, Available], Some((3_000, None)));
    // No link is up: the call waits for the first one that may be called.
    check_outlook(limited(90_000), &[shut, held, shut], Some((7_000, None)));
    check_outlook(limited(90_000), &[shut, shut, shut], Some((60_000, None)));
    check_outlook(
        limited(90_000),
        &[LinkAvailability::ClosedByProvider(at(90_000)), NotConfigured, NotConfigured],
        Some((90_000, None)),
    );
    // With another credential the link may be called sooner.
    check_outlook(
        limited(90_000),
        &[LinkAvailability::ClosedByProvider(at(20_000)), shut, NotConfigured],
        Some((20_000, None)),
    );
    // Another attempt at this model is useless, and the others may answer later.
    check_outlook(FailureClass::Auth, &[held, held, shut], Some((0, Some(1))));
    check_outlook(FailureClass::Auth, &[held, NotConfigured, shut], Some((0, Some(1))));
    check_outlook(FailureClass::InvalidRequest, &[Available, Available, Available], None);
}

/// No link may be called before `until`, in milliseconds from now, or ever. `expect` is the end of the run, if it ends.
fn check_no_lease(until: Option<u64>, expect: Option<&str>) {
    let mut driver = Driver::new();
    let limits = Limits { max_tokens: 100, timeout_ms: Some(10_000), ..Limits::default() };
    driver.submit_to(&["p/m", "q/n"], 1, (limits, ImportedHistory::default()));
    let until = until.map(|ms| driver.now.at.plus_ms(ms));
    let failure = Failure::new(FailureClass::ModelNotFound, "none");
    let skipped = ["p/m", "q/n"].map(|link| UnansweredModel {
        model: link.parse().unwrap(),
        reason: UnansweredReason::Skipped { until, failure: failure.clone() },
    });
    let no_lease =
        Input::NoLease { id: AttemptId { call: model(1, 1), attempt: 1 }, skipped: skipped.into() };
    let records = driver.feed(&no_lease);
    if let Some(expect) = expect {
        assert_eq!(records, ["run.ended"]);
        let Some(Body::RunEnded(ended)) = driver.records.last().map(|record| &record.body) else { panic!() };
        return assert_eq!(ended.ended.to_string(), expect);
    }
    assert_eq!(records, ["model.waiting"]);
    let until = until.unwrap();
    check(&driver, "u", &[DueAction::WakeAt(until)]);
    // The process crashes after a minute; the next one waits for the rest.
    driver.pass(60_000);
    driver.crash();
    check(&driver, "u", &[DueAction::WakeAt(until)]);
    driver.now = SessionTime { at: until, active_ms: driver.now.active_ms + 60_000 };
    assert_eq!(driver.feed(&Input::TimerFired), [""; 0], "waiting does not count for the timeout");
    let due = driver.turn.due(driver.now);
    assert_eq!(due[0], DueAction::Acquire(AttemptId { call: model(1, 1), attempt: 1 }));
    driver.lease(model(1, 1), 1);
    driver.pass(9_999);
    assert_eq!(driver.feed(&Input::TimerFired), [""; 0]);
    driver.pass(1);
    assert_eq!(driver.feed(&Input::TimerFired), ["run.stopping", "model.failed", "run.ended"]);
}

#[test]
fn a_named_time_is_waited_for_unless_it_is_too_late() {
    check_no_lease(
        Some(90_000_000),
        Some(
            "failed (provider: model_not_found: none; \
         skipped p/m (not asked until 1970-01-02T01:16:40Z: model_not_found: none); \
         skipped q/n (not asked until 1970-01-02T01:16:40Z: model_not_found: none))",
        ),
    );
    check_no_lease(
        None,
        Some(
            "failed (provider: model_not_found: none; skipped p/m (model_not_found: none); \
         skipped q/n (model_not_found: none))",
        ),
    );
    check_no_lease(Some(21_600_000), None);
}
