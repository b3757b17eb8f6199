//! Providers that fail: who is asked instead, when the first one is asked again, and what is waited for.
#![cfg(feature = "testkit")]

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::future::BoxFuture;
use hermod_actors::{
    Accepted, RunRequest, RunResult, Runtime, World,
    model::{
        Answer, BreakerState, Deadline, EffectClass, Event, EventBody, Failure, FailureClass, Kind, Limits,
        ModelRef, Outcome, RunSpec, RunStatus, StopReason, Timestamp,
    },
    port::{Clock, Journal, JournalError, Read, ReadError, Rows, Tool, Write, Written},
    testkit::{MemoryJournal, ScriptedProvider, ScriptedTool, VirtualClock, calls, says, world},
};
use serde_json::{Value, json};
use tokio::time::Instant;

type Said = Result<Answer, Failure>;

/// A provider, and when it was asked.
struct Side {
    provider: ScriptedProvider,
    asked: Arc<Mutex<Vec<Duration>>>,
}

impl Side {
    /// It says what `script` makes of the view, the time since now and how often it was asked before.
    fn new(script: impl Fn(&[Value], Duration, usize) -> Said + Send + Sync + 'static) -> Self {
        let (since, asked) = (Instant::now(), Arc::new(Mutex::new(Vec::new())));
        let seen = Arc::clone(&asked);
        let provider = ScriptedProvider::new(Duration::from_millis(10), move |view| {
            let (now, mut seen) = (since.elapsed(), seen.lock().expect("no panic holds it"));
            seen.push(now);
            script(view, now, seen.len() - 1)
        });
        Self { provider, asked }
    }

    /// It fails in this way the first times, then answers.
    fn failing(times: usize, class: FailureClass) -> Self {
        Self::new(move |_, _, before| match before < times {
            true => Err(Failure::new(class.clone(), "no")),
            false => Ok(says("from the first")),
        })
    }

    fn answering() -> Self {
        Self::new(|_, _, _| Ok(says("from the second")))
    }

    /// Seconds at which it was asked.
    fn asked(&self) -> Vec<u64> {
        self.asked.lock().expect("no panic holds it").iter().map(Duration::as_secs).collect()
    }
}

const CHAIN: [&str; 2] = ["a/m", "b/n"];

/// A world of these providers, named a, b, c; a run asks for them in this order.
fn of(sides: &[&Side], (journal, clock): (&MemoryJournal, &Arc<VirtualClock>)) -> World {
    let wait = ScriptedTool::new("wait", EffectClass::Pure, |_| async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        hermod_actors::model::CallEnd::ok("waited")
    });
    let tools: Vec<Arc<dyn Tool>> = vec![Arc::new(wait)];
    let nobody = ScriptedProvider::new(Duration::ZERO, |_| Ok(says("nobody")));
    let mut world = world(Arc::new(journal.clone()), nobody, tools);
    let named = sides.iter().zip(["a", "b", "c"]);
    world.providers =
        named.map(|(side, name)| (name.into(), Arc::new(side.provider.clone()) as _, 1_000)).collect();
    world.clock = Arc::clone(clock) as Arc<dyn Clock>;
    let chain = |link: &&str| link.parse::<ModelRef>().expect("it is well formed");
    world.defaults.spec.chain = CHAIN.iter().take(sides.len()).map(chain).collect();
    world
}

async fn start(sides: &[&Side]) -> Runtime {
    let (journal, clock) = (MemoryJournal::new(), Arc::new(VirtualClock::new(1)));
    Runtime::start(of(sides, (&journal, &clock))).await.expect("the runtime starts")
}

async fn run(runtime: &Runtime) -> RunResult {
    runtime.run(RunRequest::new("do it")).await.expect("it has an outcome")
}

fn limited(seconds: u64) -> FailureClass {
    FailureClass::RateLimited { retry_after_ms: Some(seconds * 1_000), reset_at: None }
}

const SLOW_DOWN: FailureClass = FailureClass::RateLimited { retry_after_ms: None, reset_at: None };
const LATE: FailureClass = FailureClass::Timeout { which: Deadline::FirstEvent };

/// Whoever fails so is asked so often before the second answers, within so many milliseconds.
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
    check_fallback(FailureClass::Cut, 3, 1_600).await;
}

/// Without a fallback: what fails so often in this way is answered after so many seconds.
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

/// Nobody can be reached for two minutes, from a second after the run began.
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

/// All that was told of a run's session.
async fn events(runtime: &Runtime, result: &RunResult) -> Vec<Event> {
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

/// Asks for the tool so often, with 10 s each, then answers.
fn works(view: &[Value], times: usize) -> Answer {
    match view.iter().filter(|message| message["role"] == "tool").count() {
        seen if seen < times => calls(&[("wait", json!({"n": seen}))]),
        seen => says(&format!("{seen} results")),
    }
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
    // Three attempts, then half a minute without it; the call at 31 s finds it half-open.
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
    for class in [FailureClass::Overloaded, FailureClass::Server, FailureClass::Cut, limited(0)] {
        let (first, second) = (Side::failing(9_999, class.clone()), Side::failing(9_999, class.clone()));
        let runtime = start(&[&first, &second]).await;
        let request = RunRequest { timeout: Some(Duration::from_mins(10)), ..RunRequest::new("do it") };
        runtime.run(request).await.expect("it ends");
        let asked = first.asked().len() + second.asked().len();
        // What the provider itself asks to wait for counts for no timeout, but for six hours at most.
        let most = if class.reset_is_known() { 1_500 } else { 100 };
        assert!((4..=most).contains(&asked), "{class:?}: {asked}");
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
    // The one that is open first answers both; the other is asked when it is open and somebody comes.
    assert_eq!((first.asked(), second.asked().len()), (vec![0], 3));
    let records = runtime.journal(two.session, 1).await.expect("it is read");
    let kinds: Vec<_> = records.iter().map(|(_, record)| record.body.kind().name()).collect();
    assert_eq!(kinds[2..4], ["model.waiting", "model.started"]);
}

/// The process dies `dies` seconds after the run began, and the next one takes it up `back` seconds later.
async fn check_crash(class: FailureClass, (dies, back): (u64, u64), asked: &[u64]) {
    let (journal, clock) = (MemoryJournal::new(), Arc::new(VirtualClock::new(1)));
    let only = Side::failing(asked.len() - 1, class.clone());
    let runtime = Runtime::start(of(&[&only], (&journal, &clock))).await.expect("the runtime starts");
    let Accepted { run, .. } = runtime.submit(RunRequest::new("do it")).await.expect("it is accepted");
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
    // In the middle of the fifth pause, which is 8 to 16 s long: the same pause as without a crash.
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

#[tokio::test(start_paused = true)]
async fn one_finds_out_whether_it_answers_again_and_then_all_are_let_in() {
    // A provider that has said nothing yet is asked by eight; they are refused, and then all wait for the one that finds out.
    let only = Side::new(|_, now, _| match now < Duration::from_secs(30) {
        true => Err(Failure::new(limited(30), "no")),
        false => Ok(says("again")),
    });
    let runtime = start(&[&only]).await;
    let runs = futures::future::join_all((0..20).map(|_| run(&runtime))).await;
    assert!(runs.iter().all(|result| result.text() == Some("again")));
    let asked = only.asked.lock().expect("no panic holds it").clone();
    assert_eq!(asked.len(), 28);
    // After 10 ms the probe begins to be answered, and the others are asked.
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

/// A journal that commits nothing while somebody holds it.
#[derive(Debug)]
struct Held(MemoryJournal, Arc<tokio::sync::Mutex<()>>);

impl Journal for Held {
    fn commit(&self, batch: Vec<Write>) -> BoxFuture<'static, Result<Vec<Written>, JournalError>> {
        let (journal, hold) = (self.0.clone(), Arc::clone(&self.1));
        Box::pin(async move {
            drop(hold.lock().await);
            journal.commit(batch).await
        })
    }

    fn read(&self, what: Read) -> BoxFuture<'static, Result<Rows, ReadError>> {
        self.0.read(what)
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
    // The second one has an append on its way while it hears that it is to wait for a second; the third one takes the room.
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
async fn the_patience_is_a_setting() {
    let (first, second) = (Side::failing(9, FailureClass::Server), Side::answering());
    let runtime = start(&[&first, &second]).await;
    let mut spec = runtime.defaults().spec.clone();
    spec.limits = Limits { max_tokens: 100, ..Limits::default() };
    spec.limits.retry.fallback_after.server = 1;
    runtime.run(RunRequest { spec: Some(spec), ..RunRequest::new("do it") }).await.expect("it ends");
    assert_eq!(first.asked().len(), 1);
}
