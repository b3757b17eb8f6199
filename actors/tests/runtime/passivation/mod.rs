//! Passivation: actors of idle sessions end, nothing of these sessions stays in memory, and a message at any moment
//! opens them again. On virtual time.

mod edge;
mod storm;

use std::{
    future::{pending, ready},
    sync::Arc,
    time::Duration,
};

use hermod_actors::{
    AcceptedRun, RunError, RunRequest, Runtime, RuntimeDependencies, SessionChoice, SessionPhase, TaskPart,
    model::{
        Body, EffectClass, EventBody, InDoubtAction, InDoubtPolicy, Kind, Outcome, RunState, SessionId,
        StopReason,
    },
    port::{AttachOutcome, Journal},
};
use hermod_testkit::{MemoryJournal, ScriptedProvider, ScriptedTool, calls, says, world};
use serde_json::json;
use tokio::time::sleep;

const STEP: Duration = Duration::from_secs(1);
const IDLE: Duration = Duration::from_mins(1);
/// Time after which everything has ended, or hangs.
const LONG: Duration = Duration::from_mins(10);

fn with(journal: &MemoryJournal) -> RuntimeDependencies {
    let shared: Arc<dyn Journal> = Arc::new(journal.clone());
    world(shared, ScriptedProvider::new(STEP, |_| Ok(says("done"))), Vec::new())
}

async fn start(journal: &MemoryJournal) -> Runtime {
    Runtime::start(with(journal)).await.expect("the runtime starts")
}

fn request(session: &str, text: &str) -> RunRequest {
    RunRequest { session: SessionChoice::Key(session.into()), ..RunRequest::new(text) }
}

/// A run in the session `k` that comes to its end.
async fn one_run(runtime: &Runtime) -> AcceptedRun {
    let accepted = runtime.submit(request("k", "do it")).await.expect("it is accepted");
    check_completes(runtime, accepted).await;
    accepted
}

async fn check_completes(runtime: &Runtime, accepted: AcceptedRun) {
    let result = runtime.wait(accepted.run, Some(LONG)).await.expect("it ends");
    assert_eq!(result.ended.outcome, Outcome::Completed);
}

async fn places(runtime: &Runtime) -> Vec<SessionPhase> {
    let sessions = runtime.supervision_tree().await.expect("the runtime is alive").sessions;
    sessions.into_iter().map(|status| status.phase).collect()
}

/// Checks that no session stays in memory when all work has ended.
async fn check_forgotten(runtime: &Runtime, journal: &MemoryJournal, what: &str) {
    sleep(LONG).await;
    assert_eq!(places(runtime).await, [], "{what}");
    assert_eq!(journal.open_sessions(), 0, "{what}: in the store");
}

async fn count(runtime: &Runtime, session: SessionId, kind: Kind) -> usize {
    let records = runtime.journal(session, 1).await.expect("the journal is read");
    records.iter().filter(|(_, record)| record.body.kind() == kind).count()
}

#[tokio::test(start_paused = true)]
async fn a_session_rests_when_it_has_been_idle() {
    let journal = MemoryJournal::new();
    let runtime = start(&journal).await;
    let first = one_run(&runtime).await;
    sleep(IDLE.saturating_sub(STEP)).await;
    assert_eq!(places(&runtime).await, [SessionPhase::Live], "it is still young");
    assert_eq!(journal.open_sessions(), 1);
    sleep(IDLE / 4).await;
    assert_eq!(places(&runtime).await, []);
    assert_eq!(journal.open_sessions(), 0);
    let records = runtime.journal(first.session, 1).await.unwrap().len();
    assert_eq!(count(&runtime, first.session, Kind::SessionRevived).await, 0);
    sleep(LONG).await;
    assert_eq!(runtime.journal(first.session, 1).await.unwrap().len(), records, "it leaves no trace");
}

#[tokio::test(start_paused = true)]
async fn its_first_task_finds_it_again() {
    let journal = MemoryJournal::new();
    let runtime = start(&journal).await;
    let first = one_run(&runtime).await;
    for again in 1..=3 {
        check_forgotten(&runtime, &journal, "between").await;
        let next = one_run(&runtime).await;
        assert_eq!(next.session, first.session);
        assert_eq!(count(&runtime, first.session, Kind::SessionRevived).await, again);
        assert_eq!(places(&runtime).await, [SessionPhase::Live]);
    }
    check_forgotten(&runtime, &journal, "at the end").await;
}

#[tokio::test(start_paused = true)]
async fn what_is_said_of_ended_runs_wakes_nobody() {
    let journal = MemoryJournal::new();
    let runtime = start(&journal).await;
    let keyed = RunRequest { idempotency_key: Some("once".into()), ..request("k", "do it") };
    let first = runtime.submit(keyed.clone()).await.unwrap();
    check_completes(&runtime, first).await;
    check_forgotten(&runtime, &journal, "the run").await;
    assert_eq!(runtime.submit(keyed).await.unwrap(), first, "the first run's");
    runtime.stop(first.run, StopReason::Command).await.unwrap();
    runtime.stop_without_resume(first.run, StopReason::Command).await.unwrap();
    assert_eq!(runtime.steer(first.run, "more").await, Err(RunError::Ended(first.run)));
    assert_eq!(places(&runtime).await, []);
    runtime.revive(first.session).unwrap();
    check_forgotten(&runtime, &journal, "a revival without work").await;
}

#[tokio::test(start_paused = true)]
async fn who_watches_goes_on() {
    let journal = MemoryJournal::new();
    let runtime = start(&journal).await;
    let first = one_run(&runtime).await;
    let mut watch = runtime.watch(first.session, 1);
    check_forgotten(&runtime, &journal, "the first run").await;
    let next = one_run(&runtime).await;
    let (mut seen, mut last) = (0, None);
    while last != Some(next.run) {
        let event = tokio::time::timeout(LONG, watch.next()).await.expect("it goes on").unwrap();
        if let EventBody::Recorded { record } = event.body {
            seen += 1;
            assert_eq!(event.seq, seen, "no record is missed");
            last = if let Body::RunEnded(ended) = &record.body { Some(ended.run) } else { None };
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_keeps_what_was_refused() {
    let journal = MemoryJournal::new();
    let runtime = start(&journal).await;
    runtime.revive(SessionId::from_bits(17)).unwrap();
    let keyed = |key: &str| RunRequest { idempotency_key: Some("once".into()), ..request(key, "do it") };
    let (one, other) = tokio::join!(runtime.submit(keyed("a")), runtime.submit(keyed("b")));
    let (accepted, refused) = if one.is_ok() { (one, other) } else { (other, one) };
    let Err(RunError::KeyConflict(conflict)) = refused else { panic!("{refused:?}") };
    assert_eq!((conflict.run, conflict.part), (accepted.unwrap().run, TaskPart::Session));
    let (one, other) = tokio::join!(runtime.submit(request("c", "1")), runtime.submit(request("c", "2")));
    assert_eq!(one.unwrap().session, other.unwrap().session, "one session got the key first");
    check_forgotten(&runtime, &journal, "what was refused").await;
}

#[tokio::test(start_paused = true)]
async fn a_session_that_waits_for_a_person_stays() {
    let mut journal = MemoryJournal::new();
    let with = |journal: &MemoryJournal| {
        let tool = ScriptedTool::new("build", EffectClass::Once, |_| pending());
        let tool = tool.with_attach(|_, _| ready(AttachOutcome::Unknown));
        let asks = ScriptedProvider::new(STEP, |_| Ok(calls(&[("build", json!({}))])));
        let mut world = world(Arc::new(journal.clone()), asks, vec![Arc::new(tool)]);
        world.defaults.spec.in_doubt =
            InDoubtPolicy { action: InDoubtAction::Ask, ..InDoubtPolicy::default() };
        world
    };
    let runtime = Runtime::start(with(&journal)).await.unwrap();
    let run = runtime.submit(request("k", "do it")).await.unwrap();
    sleep(STEP * 2).await;
    runtime.suspend().await;
    journal = journal.reopened();
    let runtime = Runtime::start(with(&journal)).await.unwrap();
    runtime.revive(run.session).unwrap();
    assert_eq!(runtime.wait_until_ended_or_parked(run.run).await.unwrap().state, RunState::Parked);
    sleep(LONG).await;
    assert!(runtime.health_probe().runs(run.session).await, "the question's time goes on");
    runtime.stop(run.run, StopReason::Command).await.unwrap();
    check_forgotten(&runtime, &journal, "its end").await;
}

#[tokio::test(start_paused = true)]
async fn runs_are_given_up_one_after_the_other() {
    let journal = MemoryJournal::new();
    let runtime = start(&journal).await;
    let mut runs = Vec::new();
    for text in ["1", "2", "3"] {
        runs.push(runtime.submit(request("k", text)).await.unwrap());
    }
    runtime.suspend().await;
    let journal = journal.reopened();
    let runtime = start(&journal).await;
    for run in &runs {
        runtime.force_fail(run.run, "it dies").await.unwrap();
        assert_eq!(runtime.row(run.run).await.unwrap().state, RunState::Ended);
    }
    check_forgotten(&runtime, &journal, "those given up").await;
}

#[tokio::test(start_paused = true)]
async fn any_time_to_be_idle_will_do() {
    let check = async |idle: Duration, early: Vec<SessionPhase>, late: Vec<SessionPhase>| {
        let journal: Arc<dyn Journal> = Arc::new(MemoryJournal::new());
        let quick = ScriptedProvider::new(Duration::from_millis(20), |_| Ok(says("done")));
        let runtime =
            Runtime::start(RuntimeDependencies { idle, ..world(journal, quick, Vec::new()) }).await.unwrap();
        one_run(&runtime).await;
        sleep(Duration::from_millis(40)).await;
        assert_eq!(places(&runtime).await, early, "{idle:?}");
        sleep(LONG).await;
        assert_eq!(places(&runtime).await, late, "{idle:?}");
    };
    // A tiny idle time does not scan at each turn of the scheduler.
    check(Duration::from_micros(1), vec![SessionPhase::Live], vec![]).await;
    check(Duration::MAX, vec![SessionPhase::Live], vec![SessionPhase::Live]).await;
}
