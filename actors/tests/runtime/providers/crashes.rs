//! Waits and pauses that go on after a crash.

use std::{sync::Arc, time::Duration};

use hermod_actors::{
    AcceptedRun, RunRequest, Runtime,
    model::{FailureClass, Outcome},
};
use hermod_testkit::{MemoryJournal, VirtualClock};

use super::{Side, limited, of, run, start};

/// The process ends `dies` seconds after the run began, and the next one revives the run `back` seconds later. `asked`
/// has the seconds of the model calls.
async fn check_crash(class: FailureClass, (dies, back): (u64, u64), asked: &[u64]) {
    let (journal, clock) = (MemoryJournal::new(), Arc::new(VirtualClock::new(1)));
    let only = Side::failing(asked.len() - 1, class.clone());
    let runtime = Runtime::start(of(&[&only], (&journal, &clock))).await.expect("the runtime starts");
    let AcceptedRun { run, .. } = runtime.submit(RunRequest::new("do it")).await.expect("it is accepted");
    tokio::time::sleep(Duration::from_secs(dies)).await;
    runtime.suspend().await;
    tokio::time::sleep(Duration::from_secs(back)).await;
    let journal = journal.reopened();
    let runtime = Runtime::start(of(&[&only], (&journal, &clock))).await.expect("the runtime starts");
    runtime.revive_all().await.expect("it is read");
    let result = runtime.wait(run, None).await.expect("it ends");
    assert_eq!(result.text(), Some("from the first"), "{}", result.ended);
    assert_eq!(only.asked(), asked, "{class:?}, dead from {dies} s for {back} s");
}

#[tokio::test(start_paused = true)]
async fn a_crash_does_not_begin_a_wait_anew() {
    check_crash(limited(90), (30, 10), &[0, 90]).await;
    check_crash(limited(90), (30, 100), &[0, 130]).await;
    // The crash is in the middle of the fifth pause, which takes 8 to 16 s. The pause is the same as without a crash.
    let only = Side::failing(6, FailureClass::Overloaded);
    run(&start(&[&only]).await).await;
    let asked = only.asked();
    check_crash(FailureClass::Overloaded, (asked[5] + 2, 1), &asked).await;
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_what_another_run_has_met_goes_on_after_a_crash() {
    let (journal, clock) = (MemoryJournal::new(), Arc::new(VirtualClock::new(1)));
    let only = Side::failing(1, limited(90));
    let runtime = Runtime::start(of(&[&only], (&journal, &clock))).await.expect("the runtime starts");
    let first = runtime.submit(RunRequest::new("first")).await.expect("it is accepted");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let second = runtime.submit(RunRequest::new("second")).await.expect("it is accepted");
    tokio::time::sleep(Duration::from_secs(1)).await;
    runtime.suspend().await;
    let journal = journal.reopened();
    let runtime = Runtime::start(of(&[&only], (&journal, &clock))).await.expect("the runtime starts");
    runtime.revive_all().await.expect("it is read");
    for run in [first.run, second.run] {
        let result = runtime.wait(run, None).await.expect("it ends");
        assert_eq!(result.ended.outcome, Outcome::Completed, "{}", result.ended);
    }
    assert_eq!(only.asked(), [0, 90, 90]);
}
