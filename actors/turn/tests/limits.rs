//! What a call may ask for.

use super::*;
use crate::model::{Amounts, Body, CallEnd, Doubt, ModelTraits};

/// The output that the first call asks for, of a model that can write `max_output` tokens.
#[track_caller]
fn check(max_tokens: u64, max_output: Option<u64>, tokens: Option<u64>, expect: u64) {
    let mut driver = Driver::new();
    let budget = Amounts { tokens, ..Amounts::default() };
    let spec = RunSpec {
        chain: vec!["p/m".parse().unwrap()],
        traits: vec![ModelTraits { max_output, ..ModelTraits::default() }],
        thinking: None,
        workspace: "/w".into(),
        task: "t".into(),
        tools: Vec::new(),
        limits: Limits { budget, max_tokens, ..Limits::default() },
        system: None,
        in_doubt: Doubt::default(),
        script: None,
    };
    let (images, history) = (Arc::default(), Arc::new(Past::default()));
    let input = "go".into();
    driver.feed(&Input::Submitted { run: run(1), input, images, history, spec: Arc::new(spec), key: None });
    driver.lease(model(1, 1), 1);
    let started = driver.records.iter().find_map(|record| {
        let Body::ModelStarted(started) = &record.body else { return None };
        Some((started.max_tokens, started.reserved.tokens))
    });
    let (asked, reserved) = started.expect("the call starts");
    assert_eq!(asked, expect);
    assert!(reserved.is_some_and(|reserved| reserved >= expect && reserved < expect + 10), "{reserved:?}");
}

#[test]
fn no_more_output_is_asked_for_than_the_model_can_write() {
    check(8_192, None, None, 8_192);
    check(8_192, Some(64_000), None, 8_192);
    check(8_192, Some(4_096), None, 4_096);
    check(8_192, Some(4_096), Some(1_000), 999);
    check(100, Some(64_000), None, 100);
}

/// A call that is refused for asking for too much output is made again with less, and so are those behind it.
#[test]
fn a_limit_that_the_provider_tells_is_kept_from_then_on() {
    let cap = |limit| FailureClass::OutputCap { limit };
    let check = |fails: &[FailureClass], asked: &[u64]| {
        let mut driver = Driver::new();
        driver.submit(1, Limits { max_tokens: 8_192, ..Limits::default() });
        for (attempt, class) in (1..).zip(fails) {
            driver.lease(model(1, 1), attempt);
            driver.fail(class.clone());
            driver.crash();
        }
        driver.lease(model(1, 1), u32::try_from(fails.len()).unwrap() + 1);
        driver.answer(1, EffectClass::Pure);
        driver.permit_all();
        driver.feed(&Input::ToolEnded { call: tool(1, 1, 1), attempt: 1, end: CallEnd::ok("r") });
        driver.lease(model(1, 2), 1);
        let started = driver.records.iter().filter_map(|record| {
            let Body::ModelStarted(started) = &record.body else { return None };
            Some(started.max_tokens)
        });
        assert_eq!(started.collect::<Vec<_>>(), asked, "{fails:?}");
    };
    check(&[cap(Some(4_096))], &[8_192, 4_096, 4_096]);
    check(&[cap(None), cap(None)], &[8_192, 4_096, 2_048, 2_048]);
    // It was asked for less than that.
    check(&[cap(Some(16_384))], &[8_192, 4_096, 4_096]);
    check(&[FailureClass::Server], &[8_192, 8_192, 8_192]);
}
