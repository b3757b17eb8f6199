//! Failover: when the next model of the chain is called, and when the first one is called again.

use std::time::Duration;

use hermod_actors::{
    RunRequest,
    model::{Deadline, Failure, FailureClass, Limits},
};
use hermod_testkit::says;
use tokio::time::Instant;

use super::{SLOW_DOWN, Side, limited, run, start, works};

const LATE: FailureClass = FailureClass::Timeout { which: Deadline::FirstEvent };

/// Checks that a model with this failure gets `requests` calls before the second one answers, within `within_ms`
/// milliseconds.
async fn check_fallback(class: FailureClass, requests: usize, within_ms: u64) {
    let (first, second) = (Side::failing(usize::MAX, class.clone()), Side::answering());
    let runtime = start(&[&first, &second]).await;
    let began = Instant::now();
    let result = run(&runtime).await;
    assert_eq!(result.text(), Some("from the second"), "{class:?}: {}", result.ended);
    assert_eq!((first.asked().len(), second.asked().len()), (requests, 1), "{class:?}");
    let took = began.elapsed();
    assert!(took <= Duration::from_millis(within_ms), "{class:?} took {took:?}");
}

#[tokio::test(start_paused = true)]
async fn each_class_falls_back_when_it_should() {
    check_fallback(SLOW_DOWN, 1, 30).await;
    check_fallback(limited(2), 3, 5_000).await;
    check_fallback(limited(6), 1, 30).await;
    check_fallback(FailureClass::QuotaExhausted { reset_at: None }, 1, 30).await;
    check_fallback(FailureClass::Auth, 1, 30).await;
    check_fallback(FailureClass::ModelNotFound, 1, 30).await;
    check_fallback(FailureClass::NotAnApi, 1, 30).await;
    check_fallback(FailureClass::Overloaded, 2, 600).await;
    check_fallback(LATE, 2, 600).await;
    check_fallback(FailureClass::Server, 3, 1_600).await;
    check_fallback(FailureClass::Network, 3, 1_600).await;
    check_fallback(FailureClass::IncompleteStream, 3, 1_600).await;
}

#[tokio::test(start_paused = true)]
async fn the_first_is_asked_again_within_the_run_when_its_cooldown_is_over() {
    let first = Side::new(|view, _, before| match before < 3 {
        true => Err(Failure::new(FailureClass::Server, "500")),
        false => Ok(works(view, 6)),
    });
    let second = Side::new(|view, _, _| Ok(works(view, 6)));
    let runtime = start(&[&first, &second]).await;
    let result = run(&runtime).await;
    assert_eq!(result.text(), Some("6 results"), "{}", result.ended);
    // Three attempts open the breaker for half a minute. The call at 31 s is the trial of the half-open breaker.
    assert_eq!(first.asked(), [0, 0, 1, 31, 41, 51, 61]);
    assert_eq!(second.asked(), [1, 11, 21]);
}

#[tokio::test(start_paused = true)]
async fn when_nobody_answers_the_end_says_what_became_of_each() {
    let first = Side::failing(usize::MAX, FailureClass::Auth);
    let second = Side::failing(usize::MAX, FailureClass::ModelNotFound);
    let runtime = start(&[&first, &second]).await;
    let ended = run(&runtime).await.ended;
    assert_eq!(
        ended.to_string(),
        "failed (provider: model_not_found: no; tried a/m (auth: no); tried b/n (model_not_found: no))"
    );
}

#[tokio::test(start_paused = true)]
async fn a_broken_fallback_makes_a_run_no_weaker_than_none() {
    let first = Side::new(|_, now, _| match now < Duration::from_mins(1) {
        true => Err(Failure::new(limited(60), "no")),
        false => Ok(says("from the first")),
    });
    let second = Side::failing(9, FailureClass::Auth);
    let result = run(&start(&[&first, &second]).await).await;
    assert_eq!(result.text(), Some("from the first"), "{}", result.ended);
    assert_eq!((first.asked(), second.asked().len()), (vec![0, 60], 1));
}

#[tokio::test(start_paused = true)]
async fn two_that_fail_are_not_asked_in_circles() {
    for class in [FailureClass::Overloaded, FailureClass::Server, FailureClass::IncompleteStream, limited(0)]
    {
        let (first, second) = (Side::failing(9_999, class.clone()), Side::failing(9_999, class.clone()));
        let runtime = start(&[&first, &second]).await;
        let request = RunRequest { timeout: Some(Duration::from_mins(10)), ..RunRequest::new("do it") };
        runtime.run(request).await.expect("it ends");
        let asked = first.asked().len() + second.asked().len();
        // Pauses until a reset time that the provider names do not count against the timeout, for six hours at most.
        let most = if class.reset_is_known() { 1_500 } else { 100 };
        assert!((4..=most).contains(&asked), "{class:?}: {asked}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_patience_is_a_setting() {
    let (first, second) = (Side::failing(9, FailureClass::Server), Side::answering());
    let runtime = start(&[&first, &second]).await;
    let mut spec = runtime.defaults().spec.clone();
    spec.limits = Limits { max_tokens: 100, ..Limits::default() };
    spec.limits.retry.fallback_after.server = 1;
    runtime.run(RunRequest { spec: Some(spec), ..RunRequest::new("do it") }).await.expect("it ends");
    assert_eq!(first.asked().len(), 1);
}
