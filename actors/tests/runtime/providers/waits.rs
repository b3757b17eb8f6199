//! Waits for providers, and how long they take.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use hermod_actors::{
    RunRequest, RunResult, Runtime,
    model::{
        Body, CompactionMethod, CompactionPolicy, EffectClass, EventBody, Failure, FailureClass, Kind,
        ModelProfile, Outcome, RunStatus, Seq, SessionEvent, SessionId, StopReason,
    },
    port::{Clock, Journal, JournalError, ReadFuture, RowReader, StoredRecord, WriteOp, WriteOutcome},
};
use hermod_testkit::{MemoryJournal, ScriptedTool, VirtualClock, calls, says};
use serde_json::json;
use tokio::time::Instant;

use super::{SLOW_DOWN, Side, limited, of, run, start, works};

/// Without another model: checks that `times` failures of this class lead to an answer after so many seconds.
async fn check_alone(class: FailureClass, times: usize, seconds: std::ops::RangeInclusive<u64>) {
    let only = Side::failing(times, class.clone());
    let runtime = start(&[&only]).await;
    let began = Instant::now();
    let result = run(&runtime).await;
    assert_eq!(result.text(), Some("from the first"), "{class:?}: {}", result.ended);
    let took = began.elapsed().as_secs();
    assert!(seconds.contains(&took), "{class:?} {times} times took {took} s");
}

#[tokio::test(start_paused = true)]
async fn without_a_fallback_what_may_pass_is_waited_for() {
    check_alone(FailureClass::Server, 6, 15..=32).await;
    check_alone(FailureClass::Overloaded, 20, 200..=600).await;
    check_alone(SLOW_DOWN, 4, 3..=8).await;
    check_alone(limited(20), 3, 60..=61).await;
    check_alone(limited(5_400), 3, 16_200..=16_201).await;
}

/// No provider can be reached for two minutes, from a second after the run began.
#[tokio::test(start_paused = true)]
async fn an_outage_is_ridden_out_by_a_run_that_was_answered_and_ends_one_that_never_was() {
    let out = |now: Duration| (1..120).contains(&now.as_secs());
    let only = Side::new(move |view, now, _| match out(now) {
        true => Err(Failure::new(FailureClass::Network, "connection refused")),
        false => Ok(works(view, 1)),
    });
    let runtime = start(&[&only]).await;
    let (one, two) = tokio::join!(run(&runtime), async {
        tokio::time::sleep(Duration::from_mins(1)).await;
        run(&runtime).await
    });
    assert_eq!(one.text(), Some("1 results"), "{}", one.ended);
    assert_eq!(two.ended.to_string(), "failed (provider: network: connection refused)");
}

#[tokio::test(start_paused = true)]
async fn a_known_reset_is_waited_for_visibly_and_does_not_count() {
    let reset = Duration::from_secs(90);
    let clock = Arc::new(VirtualClock::new(1));
    let until = clock.at().plus_ms(90_000);
    let only = Side::new(move |_, now, _| match now < reset {
        true => {
            let class = FailureClass::RateLimited { retry_after_ms: None, reset_at: Some(until) };
            Err(Failure::new(class, "come back later"))
        }
        false => Ok(says("here I am")),
    });
    let mut world = of(&[&only], (&MemoryJournal::new(), &clock));
    world.defaults.spec.limits.timeout_ms = Some(20_000);
    let runtime = Runtime::start(world).await.expect("the runtime starts");
    let result = run(&runtime).await;
    assert_eq!((result.text(), only.asked()), (Some("here I am"), vec![0, 90]), "{}", result.ended);
    let waiting = EventBody::Status(RunStatus::Waiting { reason: "rate_limited".into(), until: Some(until) });
    assert!(events(&runtime, &result).await.iter().any(|event| event.body == waiting));
}

/// All events of a run's session.
async fn events(runtime: &Runtime, result: &RunResult) -> Vec<SessionEvent> {
    let mut watch = runtime.watch(result.session, 1);
    let mut events = Vec::new();
    loop {
        let event = watch.next().await.expect("the store is read");
        let is_last =
            matches!(&event.body, EventBody::Recorded { record } if record.body.kind() == Kind::RunEnded);
        events.push(event);
        if is_last {
            return events;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_reset_that_is_too_far_away_ends_the_run_and_says_until_when() {
    let hours = |hours: u64| limited(hours * 3_600);
    let (first, second) = (Side::failing(9, hours(7)), Side::failing(9, hours(8)));
    let runtime = start(&[&first, &second]).await;
    let text = run(&runtime).await.ended.to_string();
    assert!(text.contains("tried b/n (rate_limited: no)"), "{text}");
    assert!(text.contains("tried a/m (rate_limited: no)"), "{text}");
    let text = run(&runtime).await.ended.to_string();
    assert!(text.contains("skipped a/m (not asked until 2026-01-01T07:00:00Z: rate_limited: no)"), "{text}");
    assert!(text.contains("skipped b/n (not asked until 2026-01-01T08:00:00Z: rate_limited: no)"), "{text}");
    assert_eq!((first.asked().len(), second.asked().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_new_run_waits_for_the_reset_that_another_has_met() {
    let (first, second) = (Side::failing(1, limited(100)), Side::failing(1, limited(60)));
    let runtime = start(&[&first, &second]).await;
    let (one, two) = tokio::join!(run(&runtime), async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        run(&runtime).await
    });
    for result in [&one, &two] {
        assert_eq!(result.ended.outcome, Outcome::Completed, "{}", result.ended);
    }
    // The model that opens first answers both runs. The other one is called when it is open and a run needs it.
    assert_eq!((first.asked(), second.asked().len()), (vec![0], 3));
    let records = runtime.journal(two.session, 1).await.expect("it is read");
    let kinds: Vec<_> = records.iter().map(|(_, record)| record.body.kind().name()).collect();
    assert_eq!(kinds[2..4], ["model.waiting", "model.started"]);
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_a_wait_at_once() {
    let only = Side::failing(1, limited(3_600));
    let runtime = start(&[&only]).await;
    let accepted = runtime.submit(RunRequest::new("do it")).await.expect("it is accepted");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let began = Instant::now();
    runtime.stop(accepted.run, StopReason::Command).await.expect("it is there");
    let result = runtime.wait(accepted.run, None).await.expect("it ends");
    assert_eq!((result.ended.outcome, began.elapsed()), (Outcome::Stopped, Duration::ZERO));
}

/// A journal that commits nothing while the lock is held.
#[derive(Debug)]
struct Held(MemoryJournal, Arc<tokio::sync::Mutex<()>>);

impl Journal for Held {
    fn commit(&self, batch: Vec<WriteOp>) -> BoxFuture<'static, Result<Vec<WriteOutcome>, JournalError>> {
        let (journal, hold) = (self.0.clone(), Arc::clone(&self.1));
        Box::pin(async move {
            drop(hold.lock().await);
            journal.commit(batch).await
        })
    }

    fn records(&self, session: SessionId, from: Seq, max: usize) -> ReadFuture<Vec<StoredRecord>> {
        self.0.records(session, from, max)
    }

    fn rows(&self) -> &dyn RowReader {
        self.0.rows()
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_over_when_it_can_be_recorded_is_followed_by_another_one() {
    let only = Side::failing(1, limited(1));
    let (journal, hold) = (MemoryJournal::new(), Arc::default());
    let mut world = of(&[&only], (&journal, &Arc::new(VirtualClock::new(1))));
    world.journal = Arc::new(Held(journal, Arc::clone(&hold)));
    world.providers[0].2 = 1;
    let mut other = world.defaults.spec.clone();
    other.chain = vec!["a/other".parse().expect("it is well formed")];
    let runtime = Runtime::start(world).await.expect("the runtime starts");
    let mut runs = Vec::new();
    for spec in [None, None, Some(other)] {
        let request = RunRequest { spec, ..RunRequest::new("do it") };
        runs.push(runtime.submit(request).await.expect("it is accepted").run);
    }
    // The second run has an append in flight when it learns of a wait of a second; the third run takes the permit.
    let held = hold.lock().await;
    let steered = runtime.steer(runs[1], "and that");
    let later = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        drop(held);
    };
    tokio::join!(steered, later).0.expect("it is there");
    for run in runs {
        let ended = tokio::time::timeout(Duration::from_mins(1), runtime.wait(run, None)).await;
        assert_eq!(ended.expect("it goes on").expect("it ends").text(), Some("from the first"));
    }
}

/// The summariser cannot be reached; the run's own model answers.
#[tokio::test(start_paused = true)]
async fn a_summary_is_not_waited_for() {
    let main = Side::new(|_, _, before| match before < 400 {
        true => Ok(calls(&[("tell", json!({"n": before}))])),
        false => Ok(says("done")),
    });
    let nobody = Side::failing(usize::MAX, FailureClass::Network);
    let (journal, clock) = (MemoryJournal::new(), Arc::new(VirtualClock::new(1)));
    let mut world = of(&[&main, &nobody], (&journal, &clock));
    let tell = ScriptedTool::fixed("tell", EffectClass::Pure, &"x".repeat(500));
    world.tools = vec![Arc::new(tell)];
    let spec = &mut world.defaults.spec;
    let known = ModelProfile { window: Some(32_768), ..ModelProfile::default() };
    (spec.profiles, spec.tools, spec.limits.max_tokens) = (vec![known], vec!["tell".into()], 1_000);
    let chain = vec![spec.chain.remove(1)];
    let traits = vec![known];
    let compression =
        CompactionPolicy { chain, profiles: traits, trigger: 50, protect_last: 20, ahead: true };
    spec.compaction = Some(Arc::new(compression));
    let runtime = Runtime::start(world).await.expect("the runtime starts");
    let began = Instant::now();
    let result = run(&runtime).await;
    assert_eq!(result.text(), Some("done"), "{}", result.ended);
    let records = runtime.journal(result.session, 1).await.expect("its journal");
    let waited = records.iter().filter_map(|(_, record)| {
        let Body::ContextCompacted(compacted) = &record.body else { return None };
        (compacted.method == CompactionMethod::Dropped).then_some(compacted.waited_ms)
    });
    let waited: Vec<u64> = waited.collect();
    assert!(waited.len() > 2 && waited.iter().all(|ms| *ms <= 2_100), "{waited:?} ms");
    // After its first failures the summariser is not called for a while.
    assert!(nobody.asked().len() <= 6, "{:?}", nobody.asked());
    assert!(began.elapsed() < Duration::from_mins(1), "{:?}", began.elapsed());
}
