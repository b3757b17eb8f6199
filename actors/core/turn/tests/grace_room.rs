//! Tests of what a working call leaves of the budget for the grace call.

use super::{
    grace::{TEXT, ended, last_started, step, with, worked},
    limits, *,
};
use crate::model::{Amounts, BudgetRefusal, Dimension, OutcomeCause};

/// The output that the second call of a run requests with this limit of tokens; `None` if it is the grace call.
fn second_asks(tokens: u64, max_tokens: u64) -> (Option<u64>, Vec<&'static str>) {
    let budget = Amounts { tokens: Some(tokens), ..Amounts::default() };
    let mut driver = worked(Limits { max_tokens, ..with(budget) });
    let kinds = driver.lease(model(1, 2), 1);
    let started = last_started(&driver).unwrap();
    let used = driver.turn.model_started().is_some().then_some(started.max_tokens);
    assert_eq!(started.reserved.iterations.is_none(), kinds.len() == 2);
    // The reservation is within the limit.
    assert!(started.reserved.tokens.unwrap() + 10 <= tokens, "{started:?}");
    (used, kinds)
}

#[test]
fn a_working_call_leaves_room_for_the_grace_call() {
    let works = ["model.started"];
    let check = |tokens, max_tokens, asks: std::ops::Range<u64>, kinds: &[&str]| {
        let (asked, came) = second_asks(tokens, max_tokens);
        assert_eq!(came, kinds, "{tokens} tokens");
        assert!(asked.is_some_and(|asked| asks.contains(&asked)), "{asked:?} of {tokens} tokens");
    };
    check(100_000, 8_192, 8_192..8_193, &works);
    // Of 3,000 tokens, 1,024 are kept for the output of the grace call, which also reads the call's output.
    check(3_000, 8_192, 950..983, &works);
    check(1_600, 8_192, 256..284, &works);
    check(1_500, 8_192, 1_400..1_500, &["run.exhausted", "model.started"]);
    // A call that requests less output needs less.
    check(1_500, 100, 100..101, &works);
}

#[test]
fn money_is_left_for_the_grace_call() {
    let check = |more: u64, asks: std::ops::Range<u64>, kinds: &[&str]| {
        // Both inputs at 20 a token, and 1,024 output tokens at 100. Each further token costs 100 to write and 20 to
        // read again.
        let usd = 2 * 25_200 + 102_400 + more * 120;
        let mut driver = limits::priced(&[limits::DEAR], Some(usd), 0);
        step(&mut driver, 1);
        assert_eq!(driver.lease(model(1, 2), 1), kinds);
        let asked = last_started(&driver).unwrap();
        assert!(asks.contains(&asked.max_tokens), "{}", asked.max_tokens);
        assert!(asked.reserved.usd.unwrap() + 370 <= usd);
        usd
    };
    check(2_000, 1_000..1_001, &["model.started"]);
    check(600, 550..610, &["model.started"]);
    let usd = check(200, 1_000..1_001, &["run.exhausted", "model.started"]);

    let mut driver = limits::priced(&[limits::DEAR], Some(usd), 0);
    step(&mut driver, 1);
    driver.lease(model(1, 2), 1);
    driver.answer_with(TEXT, 0, FinishReason::Stop, EffectClass::Pure);
    let refusal = BudgetRefusal {
        account: run(1).into(),
        dimension: Dimension::Usd,
        limit: usd,
        spent: 370,
        reserved: 0,
        // Both calls read the view, the grace call writes 1,024 tokens, and the shortest output is written and read
        // again.
        needed: Some(2 * 25_200 + 102_400 + 256 * 120),
    };
    assert_eq!(ended(&driver).unwrap().ended.cause, Some(OutcomeCause::Limit { refusal }));
}

/// The output of a first call is not lowered either.
#[test]
fn a_first_call_needs_no_room_behind_it() {
    for tokens in [502, 1_500, 3_000] {
        let budget = Amounts { tokens: Some(tokens), ..Amounts::default() };
        let mut driver = Driver::new();
        driver.submit(1, with(budget));
        assert_eq!(driver.lease(model(1, 1), 1), ["model.started"]);
        assert_eq!(driver.turn.model_started().unwrap().max_tokens, tokens - 2);
        assert_eq!(driver.fail(FailureClass::Overloaded), ["model.failed"]);
        driver.pass(60_000);
        assert_eq!(driver.lease(model(1, 1), 2), ["model.started"]);
        assert_eq!(driver.turn.model_started().unwrap().max_tokens, tokens - 2);
    }
}
