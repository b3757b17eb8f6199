//! Tests of submissions: idempotency keys, imported histories, and repeats.

use super::{Driver, check, model, run};
use crate::{
    model::{AttemptId, Body, ImportedHistory, Limits, Message, RunAccepted},
    turn::{DueAction, Input, RenderCursor},
};

#[test]
fn a_key_is_kept_beside_submissions_without_one() {
    let driver = Driver::new();
    let mut other = Driver::new();
    other.submit(1, Limits::default());
    let Some(Body::RunAccepted(accepted)) = other.records.last().map(|record| &record.body) else { panic!() };
    let submitted = |n, key: Option<&str>| Input::Submitted {
        accepted: Box::new(RunAccepted { run: run(n), ..RunAccepted::clone(accepted) }),
        key: key.map(Into::into),
    };
    let mut draft = driver.turn.start_decision(driver.now);
    [submitted(1, Some("k")), submitted(2, None), submitted(2, None)]
        .iter()
        .for_each(|input| draft.apply_input(input));
    let decision = draft.finish();
    assert_eq!(decision.key, Some(("k".into(), run(1))));
    assert_eq!(decision.records.len(), 2, "what is said again is one run");
}

#[test]
fn a_history_is_for_a_session_that_has_none() {
    let past = || ImportedHistory { unanswered: Some("before".into()), ..ImportedHistory::default() };
    let mut driver = Driver::new();
    assert_eq!(driver.submit_to(&["p/m"], 1, (Limits::default(), past())), ["run.accepted"]);
    check(&driver, "u", &[DueAction::Acquire(AttemptId { call: model(1, 1), attempt: 1 })]);
    let (messages, _) = driver.turn.render(RenderCursor::default());
    assert_eq!(messages, [Message::User("before\n\ntask 1".into())]);
    driver.crash();
    assert_eq!(driver.turn.render(RenderCursor::default()).0, messages, "a revived run has it too");
    assert!(driver.submit_to(&["p/m"], 2, (Limits::default(), past())).is_empty());
    assert_eq!(
        driver.submit_to(&["p/m"], 2, (Limits::default(), ImportedHistory::default())),
        ["run.accepted"]
    );
}

#[test]
fn a_submission_that_is_said_again_is_known_whatever_came_after_it() {
    let mut driver = Driver::new();
    assert_eq!(driver.submit(1, Limits::default()), ["run.accepted"]);
    assert_eq!(driver.submit(2, Limits::default()), ["run.accepted"]);
    driver.crash();
    assert!(driver.submit(1, Limits::default()).is_empty());
    assert!(driver.submit(2, Limits::default()).is_empty());
}
