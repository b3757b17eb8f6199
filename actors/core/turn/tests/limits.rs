//! Tests of what a model call requests and reserves: output tokens, money, and models without a known price. Also a
//! reservation that is refused to a queued run.

use super::*;
use crate::model::{
    Amounts, AttemptId, Body, BudgetRefusal, CallEnd, Dimension, ModelProfile, Outcome, OutcomeCause,
    OutcomeDetail, Price, StopReason, UnansweredModel, UnansweredReason,
};

pub(super) fn spec() -> RunSpec {
    RunSpec::new(vec!["p/m".parse().unwrap()], "/w")
}

/// Checks the output that the first call requests from a model that can write `max_output` tokens.
#[track_caller]
fn check(max_tokens: u64, max_output: Option<u64>, tokens: Option<u64>, expect: u64) {
    let mut driver = Driver::new();
    let budget = Amounts { tokens, ..Amounts::default() };
    let spec = RunSpec {
        profiles: vec![ModelProfile { max_output, ..ModelProfile::default() }],
        limits: Limits { budget, max_tokens, ..Limits::default() },
        ..spec()
    };
    let accepted = RunAccepted::new(run(1), "go", Arc::new(spec));
    driver.feed(&Input::Submitted { accepted: Box::new(accepted), key: None });
    driver.lease(model(1, 1), 1);
    let started = driver.records.iter().find_map(|record| {
        let Body::ModelStarted(started) = &record.body else { return None };
        Some((started.max_tokens, started.reserved.tokens))
    });
    let (asked, reserved) = started.expect("the call starts");
    assert_eq!(asked, expect);
    assert!(reserved.is_some_and(|reserved| reserved >= expect && reserved < expect + 10), "{reserved:?}");
}

/// A run with a chain of models at these prices, and a limit of `usd` nano-dollars.
pub(super) fn priced(prices: &[Price], usd: Option<u64>, schema_bytes: u64) -> Driver {
    let mut driver = Driver::new();
    let spec = RunSpec {
        chain: (0..prices.len()).map(|n| format!("p/m{n}").parse().unwrap()).collect(),
        profiles: prices
            .iter()
            .map(|price| ModelProfile { price: Some(*price), ..ModelProfile::default() })
            .collect(),
        schema_bytes,
        limits: Limits {
            budget: Amounts { usd, ..Amounts::default() },
            max_tokens: 1_000,
            ..Limits::default()
        },
        ..spec()
    };
    // 4,000 bytes, besides the driver's prompt: 1,000 tokens and a quarter.
    let accepted = RunAccepted::new(run(1), "go, ".repeat(1_000), Arc::new(spec));
    driver.feed(&Input::Submitted { accepted: Box::new(accepted), key: None });
    driver
}

/// The output that the first call requests and the money that it reserves, at this price and with this limit.
fn paid(price: Price, usd: Option<u64>) -> Option<(u64, Option<u64>)> {
    let mut driver = priced(&[price], usd, 0);
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
    // If too little is left, the call requests the shortest answer, and the ledger refuses its reservation.
    assert_eq!(paid(price, Some(read + 100)), Some((256, Some(read + 25_600))));
    // With a limit on money, a model without a known price is not called. Without a limit, no money is reserved.
    let short = Price { up_to: Some(100), ..price };
    assert_eq!(paid(short, Some(read + 100_000)), None);
    assert_eq!(paid(short, None), Some((1_000, None)));
    // Only the quarter added for safety exceeds the priced range, so the model is called.
    let tight = Price { up_to: Some(1_100), ..price };
    assert_eq!(paid(tight, Some(read + 100_000)), Some((1_000, Some(read + 100_000))));
    let free = Price { input: 0, output: 0, cache_read: 0, cache_write: 0, up_to: None };
    assert_eq!(paid(free, Some(1)), Some((1_000, Some(0))));
}

pub(super) const DEAR: Price = Price { input: 10, output: 100, cache_read: 1, cache_write: 20, up_to: None };
const SHORT: Price = Price { up_to: Some(999), ..DEAR };

fn candidates(driver: &Driver) -> Vec<String> {
    driver.turn.candidates().unwrap_or_default().iter().map(|link| link.model.to_string()).collect()
}

fn end(driver: &Driver) -> Option<OutcomeDetail> {
    driver.records.iter().find_map(|record| {
        let Body::RunEnded(ended) = &record.body else { return None };
        Some(ended.ended.clone())
    })
}

#[test]
fn who_cannot_be_priced_is_left_out_where_money_is_limited() {
    assert_eq!(candidates(&priced(&[SHORT, DEAR], None, 0)), ["p/m0", "p/m1"]);
    assert_eq!(candidates(&priced(&[SHORT, DEAR], Some(1 << 40), 0)), ["p/m1"]);
    // The tool specifications count as input too.
    let long = Price { up_to: Some(1_999), ..DEAR };
    assert_eq!(candidates(&priced(&[long], Some(1 << 40), 0)), ["p/m0"]);
    let mut driver = priced(&[long], Some(1 << 40), 4_000);
    assert_eq!(candidates(&driver), [""; 0]);
    driver.feed(&Input::NoLease { id: AttemptId { call: model(1, 1), attempt: 1 }, skipped: [].into() });
    let cause = OutcomeCause::Unpriced { model: "p/m0".parse().unwrap(), above: 1_999 };
    assert_eq!(end(&driver), Some(OutcomeDetail::with_cause(Outcome::BudgetExhausted, cause)));
}

/// A model without a known price is no fallback either, and the outcome says why.
#[test]
fn who_cannot_be_priced_is_no_fallback() {
    let mut driver = priced(&[DEAR, SHORT], Some(1 << 40), 0);
    driver.lease(model(1, 1), 1);
    assert_eq!(driver.fail(FailureClass::Auth), ["model.failed", "run.ended"]);
    let told = end(&driver).unwrap().to_string();
    assert!(told.contains("p/m1") && told.contains("above 999 tokens"), "{told}");
}

#[test]
fn what_tools_say_is_reserved() {
    let reserved = |schema_bytes| {
        let mut driver = priced(&[DEAR], None, schema_bytes);
        driver.lease(model(1, 1), 1);
        driver.turn.model_started().unwrap().reserved.tokens.unwrap()
    };
    assert_eq!(reserved(4_000), reserved(0) + 1_250);
}

#[test]
fn an_answer_costs_the_same_in_time_and_late() {
    // The price is unknown for the estimated input, and known for the reported one.
    let check = |price: Price, usd: Option<u64>| {
        let mut driver = priced(&[price], usd, 0);
        driver.lease(model(1, 1), 1);
        let started = Arc::clone(driver.turn.model_started().unwrap());
        let usage = Usage { input_tokens: 7, output_tokens: 3, ..Usage::default() };
        let in_time = started.spent(Some(&usage)).usd;
        driver.feed(&Input::Stop { run: None, reason: StopReason::Command });
        let answer = Arc::new(ModelAnswer {
            message: AssistantMessage::default(),
            finish: FinishReason::Stop,
            usage: Some(usage),
        });
        driver.feed(&Input::Answered { started, answer, admissions: [].into() });
        let late = driver.records.iter().find_map(|record| {
            let Body::ModelLate(late) = &record.body else { return None };
            late.spent().usd
        });
        assert_eq!((in_time, late), (Some(370), Some(370)));
    };
    check(DEAR, Some(1 << 40));
    check(SHORT, None);
}

/// The process was suspended between the record of the start and the request, so nothing was sent.
#[test]
fn a_call_that_was_never_made_costs_nothing_and_is_made() {
    let mut driver = priced(&[DEAR], Some(1 << 40), 0);
    driver.lease(model(1, 1), 1);
    let mut draft = driver.turn.start_decision(driver.now);
    draft.apply_input(&Input::NeverStarted(AttemptId { call: model(1, 1), attempt: 1 }));
    let settled = draft.finish().ledger.settlements;
    let spent = Amounts { iterations: Some(1), ..Amounts::default() };
    assert_eq!(settled.iter().map(|settle| settle.spent).collect::<Vec<_>>(), [spent]);
    // The number of such attempts is not limited.
    for attempt in 1..10 {
        let never = Input::NeverStarted(AttemptId { call: model(1, 1), attempt });
        assert_eq!(driver.feed(&never), ["model.failed"]);
        assert_eq!(driver.feed(&never), [""; 0], "said twice");
        driver.crash();
        assert_eq!(driver.lease(model(1, 1), attempt + 1), ["model.started"]);
    }
}

#[test]
fn no_more_output_is_asked_for_than_the_model_can_write() {
    check(8_192, None, None, 8_192);
    check(8_192, Some(64_000), None, 8_192);
    check(8_192, Some(4_096), None, 4_096);
    check(8_192, Some(4_096), Some(1_000), 999);
    check(100, Some(64_000), None, 100);
}

/// A call that is refused because it requests too much output is repeated with less, and so are later calls.
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
        driver.feed(&Input::ToolEnded {
            id: AttemptId { call: tool(1, 1, 1), attempt: 1 },
            end: CallEnd::ok("r"),
        });
        driver.lease(model(1, 2), 1);
        let started = driver.records.iter().filter_map(|record| {
            let Body::ModelStarted(started) = &record.body else { return None };
            Some(started.max_tokens)
        });
        assert_eq!(started.collect::<Vec<_>>(), asked, "{fails:?}");
    };
    check(&[cap(Some(4_096))], &[8_192, 4_096, 4_096]);
    check(&[cap(None), cap(None)], &[8_192, 4_096, 2_048, 2_048]);
    // The request was already below the reported limit.
    check(&[cap(Some(16_384))], &[8_192, 4_096, 4_096]);
    check(&[FailureClass::Server], &[8_192, 8_192, 8_192]);
}

/// The run under way ends in the same append in which the next run requests its reservation. If that is refused, the run
/// still ends, and the refusal ends the next one. Otherwise both are decided for ever.
#[test]
fn a_run_ends_although_the_reservation_of_the_next_run_is_refused() {
    let mut driver = Driver::new();
    driver.submit(1, Limits::default());
    driver.submit(2, Limits::default());
    let failure = Failure::new(FailureClass::Overloaded, "closed");
    let reason = UnansweredReason::Skipped { until: None, failure };
    let skipped = vec![UnansweredModel { model: "p/m".parse().unwrap(), reason }].into();
    let refusal = BudgetRefusal {
        account: run(2).into(),
        dimension: Dimension::Tokens,
        limit: 1,
        spent: 1,
        reserved: 0,
        needed: None,
    };
    let records = driver.feed_all(&[
        Input::BudgetRefused(refusal.clone()),
        Input::NoLease { id: model(1, 1).attempt(1), skipped },
        Input::Leased { id: model(2, 1).attempt(1), model: "p/m".parse().unwrap() },
    ]);
    assert_eq!(records, ["run.ended", "run.ended"]);
    let ends: Vec<_> = driver
        .records
        .iter()
        .filter_map(|record| {
            let Body::RunEnded(ended) = &record.body else { return None };
            Some((ended.run, ended.ended.outcome, ended.ended.cause.clone()))
        })
        .collect();
    assert_eq!(ends[0].1, Outcome::Failed);
    assert_eq!(ends[1], (run(2), Outcome::BudgetExhausted, Some(OutcomeCause::Limit { refusal })));
}
