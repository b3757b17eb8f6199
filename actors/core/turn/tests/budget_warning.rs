//! Tests of the warning that little of a budget is left.

use super::{
    grace::{last_started, prompt, step, with, worked},
    limits, *,
};
use crate::model::Amounts;

/// Checks the budget warning before a run's second call. All attempts of the call have the same one.
#[track_caller]
fn check_told(budget: Amounts, expect: Option<&str>) {
    let mut driver = worked(with(budget));
    let told = prompt(&driver);
    match expect {
        Some(expect) => assert!(told.contains(&format!("with this call: {expect}. Wrap up")), "{told}"),
        None => assert_eq!(told, ""),
    }
    driver.crash();
    assert_eq!(prompt(&driver), told);
}

#[test]
fn of_the_last_fifth_the_model_is_told() {
    let none = Amounts::default();
    let iterations = |limit| Amounts { iterations: Some(limit), ..none };
    check_told(none, None);
    check_told(iterations(3), None);
    check_told(iterations(2), Some("2 of 2 iterations"));
    check_told(Amounts { tokens: Some(13), ..none }, None);
    check_told(Amounts { tokens: Some(12), ..none }, Some("10 of 12 tokens"));
    check_told(Amounts { tool_calls: Some(2), ..none }, None);
    check_told(Amounts { tool_calls: Some(1), ..none }, Some("1 of 1 tool call"));
    let both = Amounts { tool_calls: Some(1), ..iterations(2) };
    check_told(both, Some("2 of 2 iterations, 1 of 1 tool call"));

    let mut driver = Driver::new();
    driver.submit(1, with(iterations(10)));
    let told = (1..=10).filter(|iteration| {
        let is_told = prompt(&driver).contains(&format!("{iteration} of 10 iterations"));
        step(&mut driver, *iteration);
        is_told
    });
    assert_eq!(told.collect::<Vec<_>>(), [9, 10]);

    let mut driver = limits::priced(&[limits::DEAR], Some(400), 0);
    step(&mut driver, 1);
    assert!(prompt(&driver).contains("$0.00000037 of $0.0000004"), "{}", prompt(&driver));
}

#[test]
fn a_warning_is_the_same_in_all_attempts_and_leaves_no_trace() {
    let budget = Amounts { iterations: Some(2), tokens: Some(40_000), ..Amounts::default() };
    let mut driver = worked(with(budget));
    let told = prompt(&driver);
    driver.lease(model(1, 2), 1);
    let first = last_started(&driver).unwrap().clone();
    assert!(first.reserved.tokens > Some(8_192));
    // The warning does not change by the cost of the failed attempt.
    driver.fail(FailureClass::Server);
    driver.pass(60_000);
    driver.crash();
    driver.lease(model(1, 2), 2);
    assert_eq!(prompt(&driver), told);
    assert_eq!(last_started(&driver).unwrap().request_hash, first.request_hash);
    assert_eq!(driver.found("little is left"), [], "it stands in no message of the view");

    // The warning follows the nudge in the transient prompt.
    driver.answer_with("", 0, FinishReason::Stop, EffectClass::Pure);
    let told = prompt(&driver);
    let (nudge, warning) = told.split_once("\n\n").unwrap();
    assert!(nudge.contains("your calls have returned") && warning.contains("3 of 2 iterations"), "{told}");
}
