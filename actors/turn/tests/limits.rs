//! What a call may ask for.

use super::*;
use crate::model::{Amounts, Body, ModelTraits};

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
