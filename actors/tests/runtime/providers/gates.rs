//! The gate of a provider: which calls it admits, and what its status shows.

use std::{sync::Arc, time::Duration};

use hermod_actors::{
    RunRequest, Runtime,
    model::{BreakerState, Failure, FailureClass, RunSpec, StopReason, Timestamp},
};
use hermod_testkit::{MemoryJournal, ScriptedProvider, VirtualClock, says};

use super::{SLOW_DOWN, Side, limited, of, run, start};

#[tokio::test(start_paused = true)]
async fn one_finds_out_whether_it_answers_again_and_then_all_are_let_in() {
    // A provider that has not responded yet gets eight calls. They are refused, and all others wait for one probe.
    let only = Side::new(|_, now, _| match now < Duration::from_secs(30) {
        true => Err(Failure::new(limited(30), "no")),
        false => Ok(says("again")),
    });
    let runtime = start(&[&only]).await;
    let runs = futures::future::join_all((0..20).map(|_| run(&runtime))).await;
    assert!(runs.iter().all(|result| result.text() == Some("again")));
    let asked = only.asked.lock().expect("no panic holds it").clone();
    assert_eq!(asked.len(), 28);
    // The answer of the probe begins after 10 ms, and the others are admitted.
    let at_30 = asked.iter().filter(|at| at.as_millis() < 30_030).count() - 8;
    assert_eq!(at_30, 1, "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn when_the_one_that_finds_out_fails_the_others_do_not_wait_for_it() {
    let only = Side::failing(2, limited(30));
    let runtime = start(&[&only]).await;
    let first = runtime.submit(RunRequest::new("first")).await.expect("it is accepted");
    // The probe is under way from 30.010 s to 30.020 s.
    tokio::time::sleep(Duration::from_millis(30_015)).await;
    assert_eq!(only.asked().len(), 1);
    let second = runtime.submit(RunRequest::new("second")).await.expect("it is accepted");
    tokio::time::sleep(Duration::from_secs(1)).await;
    runtime.stop(first.run, StopReason::Command).await.expect("it is there");
    let ended = tokio::time::timeout(Duration::from_mins(1), runtime.wait(second.run, None)).await;
    assert_eq!(ended.expect("it is let in").expect("it ends").text(), Some("from the first"));
    assert_eq!(only.asked().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn those_that_wait_for_the_first_few_do_not_ask_the_second() {
    let (first, second) = (Side::failing(0, SLOW_DOWN), Side::answering());
    let runtime = start(&[&first, &second]).await;
    let runs = futures::future::join_all((0..20).map(|_| run(&runtime))).await;
    assert!(runs.iter().all(|result| result.text() == Some("from the first")));
    assert_eq!((first.asked().len(), second.asked().len()), (20, 0));
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_room_at_the_second_asks_the_first_when_that_is_open_again() {
    let first = Side::failing(1, FailureClass::Auth);
    let slow = ScriptedProvider::new(Duration::from_mins(10), |_| Ok(says("from the second")));
    let second = Side { provider: slow, ..Side::answering() };
    let mut world = of(&[&first, &second], (&MemoryJournal::new(), &Arc::new(VirtualClock::new(1))));
    world.providers[1].2 = 1;
    let runtime = Runtime::start(world).await.expect("the runtime starts");
    let (one, two) = tokio::join!(run(&runtime), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        run(&runtime).await
    });
    assert_eq!((one.text(), two.text()), (Some("from the second"), Some("from the first")));
    assert_eq!(first.asked(), [0, 30]);
}

#[tokio::test(start_paused = true)]
async fn the_status_shows_which_models_are_asked_and_a_reset_closes_their_breakers() {
    let first = Side::failing(1, limited(3_600));
    let second = Side::answering();
    let runtime = start(&[&first, &second]).await;
    run(&runtime).await;
    let status = runtime.providers().await.remove(0);
    let [model] = &status.models[..] else { panic!("{status:?}") };
    let until = Timestamp(1_767_225_600_000 + 3_600_010);
    assert_eq!((status.name.as_str(), status.answered, status.failed), ("a", 0, 1));
    assert_eq!((status.endpoint, model.breaker), (BreakerState::Closed, BreakerState::Open { until }));
    assert_eq!((model.model.as_str(), model.answered, model.failed), ("m", 0, 1));
    assert_eq!(model.last_failure, Some(Failure::new(limited(3_600), "no")));

    let other = RunSpec {
        chain: vec!["a/other".parse().expect("it is well formed")],
        ..runtime.defaults().spec.clone()
    };
    let request = RunRequest { spec: Some(other), ..RunRequest::new("do it") };
    let result = runtime.run(request).await.expect("it ends");
    assert_eq!(result.text(), Some("from the first"), "another model of the same provider is asked");

    assert!(runtime.reset_provider("a") && !runtime.reset_provider("nobody"));
    assert_eq!(runtime.providers().await[0].models[0].breaker, BreakerState::Closed);
    assert_eq!(run(&runtime).await.text(), Some("from the first"));
}

#[tokio::test(start_paused = true)]
async fn the_status_counts_attempts_by_model() {
    let first = Side::new(|_, _, before| match before {
        0 => Err(Failure::new(FailureClass::Overloaded, "no")),
        1 => Err(Failure::new(FailureClass::Server, "no")),
        _ => Ok(says("again")),
    });
    let runtime = start(&[&first]).await;
    run(&runtime).await;
    run(&runtime).await;
    let status = runtime.providers().await.remove(0);
    let [model] = &status.models[..] else { panic!("{status:?}") };
    let failures: Vec<_> = model.failures.iter().map(|(class, count)| (class.as_str(), *count)).collect();
    assert_eq!((model.failed, failures), (2, vec![("overloaded", 1), ("server", 1)]));
    // Each answer arrives whole after 10 ms, with 5 tokens. The times of failures do not count.
    assert_eq!((model.answered, model.first_delta_ms, model.answer_ms), (2, Some(10), Some(10)));
    assert_eq!(model.output_tokens_per_second, Some(500));
}
