//! Tests of the observations about models: how reported usage and refusals change estimates, compactions and the rows
//! of models.

use super::*;
use crate::{
    journal::IndexRow,
    model::{
        AttemptId, CallEnd, CompactionPolicy, ListedLimits, ModelLimits, ModelProfile, ModelRow,
        ModelStarted, StopReason, TokenDensity,
    },
};

const TEXT: usize = 40_000;

/// The record of the last started model call.
fn asked(driver: &Driver) -> ModelStarted {
    let started = driver.records.iter().rev().find_map(|record| {
        let Body::ModelStarted(started) = &record.body else { return None };
        Some(ModelStarted::clone(started))
    });
    started.expect("a model was asked")
}

/// The model's answer with this number of calls, or its final answer, with the usage that the provider reports.
fn answer(driver: &Driver, calls: usize, usage: Option<Usage>) -> Input {
    let seq = driver.turn.last_seq();
    let plan = |n: usize| CallAdmission::Admit {
        tool: "tool".into(),
        intent: EffectClass::Idempotent.into(),
        arguments: Hash::of(format!("{seq} {n}").as_bytes()),
        approval: None,
        hooks: None,
    };
    let call = |n| ToolCall { id: format!("v{n}"), name: "tool".into(), arguments: "{}".into() };
    let text = if calls == 0 { "done" } else { "" }.into();
    let message = AssistantMessage { text, calls: (0..calls).map(call).collect(), ..Default::default() };
    let started = Arc::clone(driver.turn.model_started().expect("a model is asked"));
    let answer = Arc::new(ModelAnswer { message, finish: FinishReason::Stop, usage });
    Input::Answered { started, answer, admissions: (0..calls).map(plan).collect() }
}

fn tell(driver: &mut Driver, calls: usize, usage: Option<Usage>) {
    driver.feed(&answer(driver, calls, usage));
}

/// Ends all tool calls under way with this result.
fn return_all(driver: &mut Driver, content: &str) {
    driver.permit_all();
    for effect in driver.turn.due(driver.now) {
        if let DueAction::RunTool(AttemptId { call, attempt }) = effect {
            driver.feed(&Input::ToolEnded { id: AttemptId { call, attempt }, end: CallEnd::ok(content) });
        }
    }
}

/// The tokens that a request reserves, with its output, if its model has this density.
fn reserved(started: &ModelStarted, density: TokenDensity) -> u64 {
    let likely = density.tokens(started.bytes);
    likely + likely / 4 + started.max_tokens
}

const fn used(input_tokens: u64, cached_tokens: u64) -> Usage {
    Usage {
        input_tokens,
        cached_tokens,
        output_tokens: 5,
        unlisted_reasoning_tokens: 0,
        cache_write_tokens: 0,
        is_invalid: false,
    }
}

/// Checks the estimate of later requests after a request with this reported usage: in this run, in the session's next
/// run, and after a crash. `tokens` is the input that counts.
#[track_caller]
fn check(known: Option<u16>, usage: Option<Usage>, tokens: Option<u64>) {
    let mut driver = Driver::new();
    driver.submit_with(1, &"x".repeat(TEXT), |spec| {
        spec.limits.max_tokens = 100;
        let density = known.map(TokenDensity::from);
        spec.profiles = vec![ModelProfile { density, ..ModelProfile::default() }];
    });
    driver.lease(model(1, 1), 1);
    let (first, before) = (asked(&driver), known.map_or(TokenDensity::GUESS, TokenDensity::from));
    assert!(first.bytes >= TEXT as u64 && first.bytes < TEXT as u64 + 100, "{first:?}");
    assert_eq!(first.reserved.tokens, Some(reserved(&first, before)));
    tell(&mut driver, 1, usage);
    return_all(&mut driver, "fine");
    driver.lease(model(1, 2), 1);
    let after = tokens.map_or(before, |tokens| before.corrected(first.bytes, tokens));
    let second = asked(&driver);
    assert_eq!(second.reserved.tokens, Some(reserved(&second, after)), "{usage:?}");
    driver.crash();
    driver.pass(60_000);
    driver.lease(model(1, 2), 2);
    let third = asked(&driver);
    assert_eq!((third.attempt, third.reserved.tokens), (2, second.reserved.tokens));
    tell(&mut driver, 0, None);
    driver.submit_with(2, "go on", |_| {});
    driver.lease(model(2, 1), 1);
    let last = asked(&driver);
    assert_eq!(last.reserved.tokens, Some(reserved(&last, after)));
}

#[test]
fn a_request_is_estimated_by_what_the_one_before_it_has_told() {
    check(None, Some(used(20_000, 0)), Some(20_000));
    check(None, Some(used(20_000, 15_000)), Some(20_000));
    // A vendor caches a prompt of its own and does not count it.
    check(None, Some(used(20_000, 20_200)), Some(20_200));
    // An implausible usage changes nothing.
    check(None, Some(used(7, 20_000)), None);
    check(None, Some(used(1 << 40, 0)), None);
    check(None, Some(used(6_000, 0)), Some(6_000));
    check(None, Some(used(7, 0)), None);
    check(None, None, None);
    check(Some(400), None, None);
    check(Some(400), Some(used(30_000, 0)), Some(30_000));
}

/// A run with a small context window.
fn small() -> Driver {
    let mut driver = Driver::new();
    let known = ModelProfile { window: Some(32_768), ..ModelProfile::default() };
    let (chain, traits) = (Vec::new(), Vec::new());
    let compression =
        CompactionPolicy { chain, profiles: traits, trigger: 50, protect_last: 40, ahead: false };
    driver.submit_with(1, "go", |spec| {
        spec.profiles = vec![known];
        spec.limits.max_tokens = 1_000;
        spec.compaction = Some(Arc::new(compression));
    });
    driver
}

/// Calls the model until the view is compacted for the `nth` time, within these iterations. The provider counts
/// `per_1000` tokens for 1,000 bytes. Returns the bytes of the longest request before, and the iteration after it.
fn compress(
    driver: &mut Driver,
    nth: usize,
    iterations: std::ops::Range<u32>,
    per_1000: Option<u64>,
) -> (u64, u32) {
    let mut longest = 0;
    for iteration in iterations {
        driver.lease(model(1, iteration), 1);
        let compacted =
            driver.records.iter().filter(|record| matches!(record.body, Body::ContextCompacted(_)));
        if compacted.count() >= nth {
            return (longest, iteration);
        }
        let bytes = asked(driver).bytes;
        longest = bytes.max(longest);
        tell(driver, 1, per_1000.map(|per_1000| used(bytes * per_1000 / 1_000, 0)));
        return_all(driver, &"x".repeat(1_000));
    }
    panic!("it is not compressed; the longest request has {longest} bytes");
}

#[test]
fn a_view_is_compressed_by_what_its_model_counts() {
    let longest = |per_1000| compress(&mut small(), 1, 1..200, per_1000).0;
    let check = |per_1000: Option<u64>, trigger: u64| {
        let longest = longest(per_1000);
        assert!(longest <= trigger && longest > trigger - 2_000, "{per_1000:?}: {longest} of {trigger}");
    };
    check(None, 65_536);
    check(Some(250), 65_536);
    check(Some(500), 32_768);
    check(Some(1), 65_536);
    check(Some(5_000), 65_536);
    assert!(longest(Some(150)) > 75_000);
}

#[test]
fn a_view_that_was_found_to_have_more_tokens_is_compressed_again() {
    let mut driver = small();
    let (_, iteration) = compress(&mut driver, 1, 1..200, None);
    let short = asked(&driver).bytes;
    let (longest, _) = compress(&mut driver, 2, iteration..iteration + 3, Some(1_000));
    assert!(longest < short + short / 8, "{short} to {longest}");
}

/// Checks the model row of a run that ends after this report on its request: the tokens that the request has at least,
/// and the window.
#[track_caller]
fn check_listed(said: Result<Option<Usage>, Option<u64>>, expect: Option<(Option<u64>, Option<u64>)>) {
    let mut driver = Driver::new();
    driver.submit_with(1, &"x".repeat(TEXT), |spec| {
        spec.limits.max_tokens = 100;
        let (chain, traits) = (vec!["s/small".parse().unwrap()], Vec::new());
        let compression =
            CompactionPolicy { chain, profiles: traits, trigger: 50, protect_last: 4, ahead: false };
        spec.compaction = Some(Arc::new(compression));
    });
    driver.lease(model(1, 1), 1);
    let first = asked(&driver);
    let mut draft = driver.turn.start_decision(driver.now);
    draft.apply_input(&match said {
        Ok(usage) => answer(&driver, 1, usage),
        Err(limit) => {
            let failure = Failure::new(FailureClass::ContextTooLong { limit }, "x");
            let (call, attempt) = (first.call, first.attempt);
            Input::ModelFailed {
                id: AttemptId { call, attempt },
                failure: Box::new(failure),
                failover: FailoverOptions::default(),
            }
        }
    });
    draft.apply_input(&Input::Stop { run: None, reason: StopReason::Command });
    let index = draft.finish().index;
    assert!(
        index.iter().any(|index| matches!(index, IndexRow::Run(row) if row.ended.is_some())),
        "{index:?}"
    );
    let rows = index.into_iter().filter_map(|index| match index {
        IndexRow::Model(row) => Some(row),
        IndexRow::Run(_)
        | IndexRow::Session(_)
        | IndexRow::Outbox(_)
        | IndexRow::Message(_)
        | IndexRow::Occurrence(_) => None,
    });
    let row = |(tokens, window): (Option<u64>, Option<u64>)| ModelRow {
        model: "p/m".parse().unwrap(),
        density: tokens.map(|tokens| TokenDensity::GUESS.corrected(first.bytes, tokens)),
        window,
        listed: None,
    };
    assert_eq!(rows.collect::<Vec<_>>(), expect.map(row).into_iter().collect::<Vec<_>>());
}

#[test]
fn what_was_found_out_is_listed_when_the_run_ends() {
    check_listed(Ok(None), None);
    check_listed(Ok(Some(used(7, 0))), None);
    check_listed(Ok(Some(used(20_000, 0))), Some((Some(20_000), None)));
    check_listed(Err(Some(9_000)), Some((None, Some(9_000))));
    // The request should have fitted, and did not, so the density rises.
    check_listed(Err(Some(30_000)), Some((Some(29_900), Some(30_000))));
    // The provider did not name the window.
    check_listed(Err(None), None);
}

#[test]
fn what_a_list_of_models_has_told_is_in_the_row_when_the_run_ends() {
    let limits = ModelLimits { window: Some(50_000), max_output: Some(700) };
    let row = |listed, window| ModelRow { model: "p/m".parse().unwrap(), density: None, window, listed };
    let told = Some(ListedLimits { at: Timestamp(5), limits });
    let check = |known: &[ModelRow], fresh: &[ModelRow], window, expect: &[ModelRow]| {
        let mut driver = Driver::new();
        driver.submit_with(1, "go", |spec| {
            spec.apply_listed_limits(fresh);
            spec.apply_model_rows(known);
            assert_eq!(spec.profile_of(&spec.chain[0]).window, window);
        });
        let mut draft = driver.turn.start_decision(driver.now);
        draft.apply_input(&Input::Stop { run: None, reason: StopReason::Command });
        let rows = draft.finish().index.into_iter().filter_map(|index| match index {
            IndexRow::Model(row) => Some(row),
            IndexRow::Run(_)
            | IndexRow::Session(_)
            | IndexRow::Outbox(_)
            | IndexRow::Message(_)
            | IndexRow::Occurrence(_) => None,
        });
        assert_eq!(rows.collect::<Vec<_>>(), expect);
    };
    check(&[], &[row(told, None)], Some(50_000), &[row(told, None)]);
    // Known limits are not written again. A window from a refusal takes precedence over the list.
    check(&[row(told, None)], &[], Some(50_000), &[]);
    check(&[row(told, Some(40_000))], &[], Some(40_000), &[]);
    // A list without limits was requested.
    let nothing = Some(ListedLimits { at: Timestamp(6), limits: ModelLimits::default() });
    check(&[], &[row(nothing, None)], None, &[row(nothing, None)]);
}

/// The densities in the model rows of a run that starts with `density` and whose only request has `tokens` tokens.
fn listed(
    driver: &mut Driver,
    n: u128,
    density: Option<TokenDensity>,
    tokens: u64,
) -> Vec<Option<TokenDensity>> {
    driver.submit_with(n, &"x".repeat(TEXT), |spec| {
        spec.profiles = vec![ModelProfile { density, ..ModelProfile::default() }];
    });
    driver.lease(model(n, 1), 1);
    let mut draft = driver.turn.start_decision(driver.now);
    draft.apply_input(&answer(driver, 0, Some(used(tokens, 0))));
    tell(driver, 0, Some(used(tokens, 0)));
    let rows = draft.finish().index.into_iter().filter_map(|index| match index {
        IndexRow::Model(row) => Some(row.density),
        IndexRow::Run(_)
        | IndexRow::Session(_)
        | IndexRow::Outbox(_)
        | IndexRow::Message(_)
        | IndexRow::Occurrence(_) => None,
    });
    rows.collect()
}

#[test]
fn what_the_store_knows_is_not_listed_again() {
    let mut driver = Driver::new();
    let first = listed(&mut driver, 1, None, 20_000);
    let own = first[0];
    assert_eq!((first.len(), own > Some(TokenDensity::GUESS)), (1, true), "{first:?}");
    assert_eq!(listed(&mut driver, 2, own, 0), []);
    // Another session has observed another density; this session uses its own.
    assert_eq!(listed(&mut driver, 3, Some(TokenDensity::from(300)), 0), [own]);
}
