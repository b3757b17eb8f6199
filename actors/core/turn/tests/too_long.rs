//! Tests of requests that a provider refuses as too long, and of views that are nearly full.

use super::{
    compaction::{GOAL, Summariser, Task, WINDOW},
    *,
};
use crate::{
    model::estimate_tokens,
    model::{AttemptId, Body, CallEnd, CompactionPolicy, ModelProfile, Outcome, OutcomeCause},
    turn::estimates,
};

#[test]
fn all_attempts_of_a_call_say_the_same_of_a_view_that_is_nearly_full() {
    let mut task = Task::new(Summariser::Good, 0, false);
    let Some(run) = &mut task.driver.turn.current else { panic!("nothing runs") };
    let compression = Arc::make_mut(&mut run.spec).compaction.as_mut().unwrap();
    // With a high trigger, the space for the answer is the limit.
    Arc::make_mut(compression).trigger = 100;
    for iteration in 1.. {
        task.ask();
        let told = task.driver.turn.transient_prompt();
        if told.is_some_and(|told| told.prompt.contains("fills")) {
            break;
        }
        task.answer(iteration, 1);
    }
    let first = task.driver.turn.model_started().unwrap().clone();
    task.driver.fail(FailureClass::OutputCap { limit: Some(300) });
    task.ask();
    let second = task.driver.turn.model_started().unwrap();
    assert_eq!((second.attempt, second.max_tokens, second.request_hash), (2, 300, first.request_hash));
}

#[test]
fn what_cannot_be_made_shorter_ends_the_run_before_it_is_asked() {
    let mut task = Task::new(Summariser::Good, 0, false);
    task.driver.submit_with(2, &"long ".repeat(40_000), |_| {});
    task.work(1);
    let driver = task.driver;
    let ended = driver.records.iter().rev().find_map(|record| {
        let Body::RunEnded(ended) = &record.body else { return None };
        Some(ended.clone())
    });
    let ended = ended.unwrap();
    assert_eq!((ended.run, ended.ended.outcome), (run(2), Outcome::Failed));
    let Some(OutcomeCause::ContextOverflow { parts }) = ended.ended.cause else {
        panic!("{:?}", ended.ended)
    };
    assert!(parts.request >= 50_000 && parts.limit < WINDOW && parts.tools == 1_000, "{parts:?}");
    let asked = driver
        .records
        .iter()
        .filter(|record| matches!(&record.body, Body::ModelStarted(started) if started.call.run == run(2)));
    assert_eq!(asked.count(), 0);
}

/// A model with an unknown window refuses the request as too long; `limit` is the window that it names.
#[track_caller]
fn check_refused(limit: Option<u64>) {
    let mut task = Task::new(Summariser::Good, 0, false);
    task.driver.feed(&Input::Stop { run: None, reason: crate::model::StopReason::Command });
    task.driver.submit_with(2, GOAL, |spec| {
        spec.profiles = Vec::new();
        let mut compression = CompactionPolicy::clone(spec.compaction.as_deref().unwrap());
        compression.profiles = Vec::new();
        spec.compaction = Some(Arc::new(compression));
    });
    let driver = &mut task.driver;
    for iteration in 1..=30 {
        driver.lease(model(2, iteration), 1);
        driver.answer(1, EffectClass::Idempotent);
        driver.permit_all();
        let end = CallEnd::ok("x".repeat(1_800));
        driver.feed(&Input::ToolEnded { id: AttemptId { call: tool(2, iteration, 1), attempt: 1 }, end });
    }
    driver.lease(model(2, 31), 1);
    let size = |task: &Task| {
        let Some(run) = &task.driver.turn.current else { panic!("it ended: {:?}", task.ended()) };
        estimate_tokens(estimates::request_bytes(run, &task.driver.turn) as u64)
    };
    driver.fail(FailureClass::ContextTooLong { limit });
    let before = 30 * 1_800 / 4;
    task.ask();
    assert!(size(&task) < limit.unwrap_or(before) / 2, "{} tokens", size(&task));
    task.driver.answer(0, EffectClass::Once);
    assert_eq!(task.ended().map(|ended| ended.outcome), Some(Outcome::Completed));
}

#[test]
fn a_request_that_is_refused_for_its_length_is_made_shorter() {
    check_refused(Some(12_000));
    check_refused(None);
}

#[test]
fn between_runs_a_view_that_is_nearly_full_is_compressed_wherever_the_trigger_is() {
    const WIDE: u64 = 1_000_000;
    let mut task = Task::new(Summariser::Good, 0, false);
    task.driver.feed(&Input::Stop { run: None, reason: crate::model::StopReason::Command });
    let known = ModelProfile { window: Some(WIDE), ..ModelProfile::default() };
    task.driver.submit_with(2, GOAL, |spec| {
        spec.profiles = vec![known];
        let mut compression = CompactionPolicy::clone(spec.compaction.as_deref().unwrap());
        (compression.profiles, compression.trigger) = (vec![known; 2], 90);
        spec.compaction = Some(Arc::new(compression));
    });
    let size = |task: &Task| {
        let Some(run) = &task.driver.turn.current else { panic!("nothing runs") };
        estimate_tokens(estimates::request_bytes(run, &task.driver.turn) as u64)
    };
    let mut iteration = 1;
    while size(&task) < WIDE / 100 * 86 {
        task.driver.lease(model(2, iteration), 1);
        task.driver.answer(1, EffectClass::Idempotent);
        task.driver.permit_all();
        let end = CallEnd::ok("x".repeat(40_000));
        task.driver
            .feed(&Input::ToolEnded { id: AttemptId { call: tool(2, iteration, 1), attempt: 1 }, end });
        iteration += 1;
    }
    task.driver.lease(model(2, iteration), 1);
    task.driver.answer(0, EffectClass::Once);
    assert_eq!(task.compactions(), [], "within the run it is under the trigger");
    task.driver.submit_with(3, "and now the mast", |_| {});
    let compactions = task.compactions();
    assert_eq!(compactions.len(), 1, "{compactions:?}");
    assert!(size(&task) < WIDE / 2, "{compactions:?}");
}

/// Window of a model with a strict provider: a request and its requested output must fit together.
const STRICT: u64 = 16_000;
/// Minimum tokens that a request leaves for its answer.
const ANSWER: u64 = 1_024;

/// Calls the model until the run ends; the provider refuses requests that do not fit. Returns the number of refusals.
fn ask_strictly(driver: &mut Driver) -> usize {
    let mut refused = 0;
    while let Some((run, _)) = driver.turn.current() {
        assert!(refused <= 3, "it is refused again and again");
        let due = driver.turn.due(driver.now);
        let Some(crate::turn::DueAction::Acquire(AttemptId { call, attempt })) =
            due.iter().find(|due| due.acquired_attempt().is_some())
        else {
            panic!("{run} waits for {due:?}")
        };
        driver.lease(*call, *attempt);
        let Some(started) = driver.turn.model_started().cloned() else { continue };
        if estimate_tokens(started.bytes) + started.max_tokens > STRICT {
            refused += 1;
            driver.fail(FailureClass::ContextTooLong { limit: Some(STRICT) });
        } else {
            driver.answer(0, EffectClass::Once);
        }
    }
    refused
}

/// Checks that a request of `request` bytes is answered if it fits without the `before` bytes ahead of it, which may be
/// removed. The window is configured, or named by the provider.
#[track_caller]
fn check_fits(request: usize, before: usize) {
    for window in [Some(STRICT), None] {
        let mut driver = Driver::new();
        let known = ModelProfile { window, ..ModelProfile::default() };
        let (chain, traits) = (Vec::new(), Vec::new());
        let compression =
            CompactionPolicy { chain, profiles: traits, trigger: 50, protect_last: 20, ahead: true };
        let change = |spec: &mut crate::model::RunSpec| {
            spec.profiles = vec![known];
            spec.schema_bytes = 4_000;
            spec.limits.max_tokens = 8_192;
            spec.compaction = Some(Arc::new(compression.clone()));
        };
        driver.submit_with(1, &"b".repeat(before.max(1)), change);
        ask_strictly(&mut driver);
        driver.submit_with(2, &"x".repeat(request), change);
        let refused = ask_strictly(&mut driver);
        let ended = driver.records.iter().rev().find_map(|record| {
            let Body::RunEnded(ended) = &record.body else { return None };
            Some(ended.ended.clone())
        });
        let ended = ended.unwrap();
        let told = ended.to_string();
        assert!(window.is_none() || refused == 0, "{request} {before}: refused {refused} times: {told}");
        // Tokens of the text that replaces the removed first request.
        let stand_in = if before > 0 { 1_200 } else { 0 };
        let least = estimate_tokens(request as u64) + 1_000;
        if least + stand_in + ANSWER <= STRICT {
            assert_eq!(ended.outcome, Outcome::Completed, "{request} {before} {window:?}: {told}");
        } else if least + ANSWER > STRICT {
            assert_eq!(ended.outcome, Outcome::Failed, "{request} {before} {window:?}: {told}");
            let follows = "14976 fit (a window of 16000 less 1024 for the answer, and nothing kept back for a compression)";
            assert!(told.contains(follows), "{told}");
        }
    }
}

#[test]
fn what_fits_without_a_reserve_is_asked_for() {
    for tokens in (500..=16_500).step_by(500) {
        for before in [0, 400, 4_000, 16_000, 40_000] {
            check_fits(tokens * 4, before);
        }
    }
    // A request that once failed.
    check_fits(9_873 * 4 - 4_000, 0);
}

#[test]
fn a_request_that_is_refused_though_it_should_fit_says_so() {
    let mut driver = Driver::new();
    let (chain, traits) = (Vec::new(), Vec::new());
    let compression =
        CompactionPolicy { chain, profiles: traits, trigger: 50, protect_last: 20, ahead: true };
    driver.submit_with(1, &"x".repeat(20_000), |spec| spec.compaction = Some(Arc::new(compression)));
    for attempt in 1..=4 {
        driver.lease(model(1, 1), attempt);
        driver.fail(FailureClass::ContextTooLong { limit: Some(STRICT) });
    }
    let ended = driver.records.iter().rev().find_map(|record| {
        let Body::RunEnded(ended) = &record.body else { return None };
        Some(ended.ended.to_string())
    });
    let told = ended.unwrap();
    assert!(told.contains("irreducible: the provider refuses the request as too long"), "{told}");
}
