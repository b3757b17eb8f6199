//! What a call may ask for.

use super::*;
use crate::model::{Amounts, Body, CallEnd, Doubt, ModelTraits, Price};

fn spec() -> RunSpec {
    RunSpec {
        chain: vec!["p/m".parse().unwrap()],
        traits: Vec::new(),
        thinking: None,
        workspace: "/w".into(),
        task: "t".into(),
        tools: Vec::new(),
        limits: Limits::default(),
        system: None,
        in_doubt: Doubt::default(),
        script: None,
    }
}

/// The output that the first call asks for, of a model that can write `max_output` tokens.
#[track_caller]
fn check(max_tokens: u64, max_output: Option<u64>, tokens: Option<u64>, expect: u64) {
    let mut driver = Driver::new();
    let budget = Amounts { tokens, ..Amounts::default() };
    let spec = RunSpec {
        traits: vec![ModelTraits { max_output, ..ModelTraits::default() }],
        limits: Limits { budget, max_tokens, ..Limits::default() },
        ..spec()
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

/// What the first call asks for and reserves of money, of a model at this price, within so much money.
fn paid(price: Price, usd: Option<u64>) -> Option<(u64, Option<u64>)> {
    let mut driver = Driver::new();
    let spec = RunSpec {
        traits: vec![ModelTraits { price: Some(price), ..ModelTraits::default() }],
        limits: Limits {
            budget: Amounts { usd, ..Amounts::default() },
            max_tokens: 1_000,
            ..Limits::default()
        },
        ..spec()
    };
    let (images, history) = (Arc::default(), Arc::new(Past::default()));
    // 4,000 bytes and what the driver's prompt has: 1,000 tokens and a quarter.
    let input = "go, ".repeat(1_000).into();
    driver.feed(&Input::Submitted { run: run(1), input, images, history, spec: Arc::new(spec), key: None });
    driver.lease(model(1, 1), 1);
    driver.records.iter().find_map(|record| {
        let Body::ModelStarted(started) = &record.body else { return None };
        Some((started.max_tokens, started.reserved.usd))
    })
}

#[test]
fn money_is_reserved_at_the_dearest_price_and_lowers_the_output() {
    let price = Price { input: 10, output: 100, cache_read: 1, cache_write: 20, up_to: None };
    let read = paid(price, None).unwrap().1.unwrap() - 100_000;
    assert!((25_000..25_500).contains(&read), "{read}");
    assert_eq!(paid(price, Some(read + 100_000)), Some((1_000, Some(read + 100_000))));
    assert_eq!(paid(price, Some(read + 50_050)), Some((500, Some(read + 50_000))));
    // What is too little for a call is refused by the ledger, not stretched.
    assert_eq!(paid(price, Some(read + 100)), Some((1_000, Some(read + 100_000))));
    // What nobody can price fits no limit; without one it is not booked.
    let short = Price { up_to: Some(100), ..price };
    assert_eq!(paid(short, Some(read + 100_000)), Some((1_000, Some(u64::MAX))));
    assert_eq!(paid(short, None), Some((1_000, None)));
    let free = Price { input: 0, output: 0, cache_read: 0, cache_write: 0, up_to: None };
    assert_eq!(paid(free, Some(1)), Some((1_000, Some(0))));
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
