//! Supervision: a crashed actor is restarted, a frozen call is dropped, and other sessions continue.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use hermod_actors::{
    AcceptedRun, RunError, RunRequest, Runtime, RuntimeDependencies, RuntimeEnd, SessionChoice, SubmitError,
    model::{Body, EffectClass, EventBody, Kind, Outcome, StopReason},
    port::{Journal, Tool},
};
use hermod_testkit::{
    ActorFault, ActorKind, FAULT_SCENARIOS, FaultScenario, FaultyJournal, JournalFault, MemoryJournal,
    NO_FREEZE, ScriptedProvider, ScriptedTool, calls, inject, inject_if_alive, says, world,
};
use serde_json::json;

async fn check(drill: &FaultScenario) {
    let FaultScenario { kind, fault, how, expect, .. } = drill;
    let name = format!("{kind}, {fault}: {how}");
    let seen = drill.run().await;
    assert_eq!(seen.outcome, expect.outcome, "{name}");
    assert_eq!(seen.siblings, ["completed", "completed"], "{name}: the siblings go on");
    assert_eq!(seen.ends, [1, 1, 1], "{name}: every run has one outcome");
    let restarted: Vec<_> = seen.restarted.iter().map(|(part, times)| (part.as_str(), *times)).collect();
    assert_eq!(restarted, expect.restarted, "{name}");
    assert_eq!(seen.terminated.map(|reason| reason.to_string()).as_deref(), expect.terminated, "{name}");
    assert!(seen.records.starts_with(expect.records), "{name}: {:?}", seen.records);
}

#[tokio::test(start_paused = true)]
async fn every_drill_comes_to_what_it_must() {
    for drill in FAULT_SCENARIOS {
        check(drill).await;
    }
}

#[test]
fn every_kind_is_drilled_in_every_way() {
    let drilled: BTreeSet<_> = FAULT_SCENARIOS.iter().map(|drill| (drill.kind, drill.fault)).collect();
    let excused: BTreeSet<_> = NO_FREEZE.iter().map(|(kind, _)| (*kind, "freeze")).collect();
    let kinds: BTreeSet<_> = FAULT_SCENARIOS.iter().map(|drill| drill.kind).collect();
    assert_eq!(kinds.len(), 10, "{kinds:?}");
    for kind in kinds {
        for fault in ["panic", "error", "freeze"] {
            let both = (kind, fault);
            assert!(drilled.contains(&both) != excused.contains(&both), "{both:?}");
        }
    }
}

/// Dependencies whose model calls `read` so often, with a pause of 100 ms before each answer.
fn reading(journal: &MemoryJournal, times: usize) -> RuntimeDependencies {
    let provider = ScriptedProvider::new(Duration::from_millis(100), move |view| {
        match view.iter().rev().take_while(|message| message["role"] != "user").count() / 2 {
            seen if seen < times => Ok(calls(&[("read", json!({"n": seen}))])),
            _ => Ok(says("done")),
        }
    });
    let read: Arc<dyn Tool> = Arc::new(ScriptedTool::fixed("read", EffectClass::Pure, "content"));
    world(Arc::new(journal.clone()), provider, vec![read])
}

async fn start(world: RuntimeDependencies) -> Runtime {
    Runtime::start(world).await.expect("the runtime starts")
}

async fn submit(runtime: &Runtime, key: &str) -> AcceptedRun {
    let request = RunRequest { session: SessionChoice::Key(key.into()), ..RunRequest::new("do it") };
    runtime.submit(request).await.expect("it is accepted")
}

/// Waits until a session has `count` records of this kind.
async fn until(runtime: &Runtime, accepted: AcceptedRun, count: usize, kind: Kind) {
    let mut watch = runtime.watch(accepted.session, 1);
    let mut seen = 0;
    while seen < count {
        if let EventBody::Recorded { record, .. } = watch.next().await.expect("the store is read").body {
            seen += usize::from(record.body.kind() == kind);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_keeps_killing_its_session_takes_no_other_run_with_it() {
    let runtime = start(reading(&MemoryJournal::new(), 1)).await;
    let bad = submit(&runtime, "k").await;
    let queued = submit(&runtime, "k").await;
    for asked in 1..=3 {
        until(&runtime, bad, asked, Kind::ModelStarted).await;
        inject(&runtime, ActorKind::Session(bad.session), ActorFault::Panic).await;
    }
    let bad = runtime.wait(bad.run, None).await.unwrap();
    assert_eq!(bad.ended.to_string(), "failed (crash_loop: struck)");
    assert_eq!(runtime.wait(queued.run, None).await.unwrap().ended.outcome, Outcome::Completed);
    let next = submit(&runtime, "k").await;
    assert_eq!(runtime.wait(next.run, None).await.unwrap().ended.outcome, Outcome::Completed);
}

#[tokio::test(start_paused = true)]
async fn deaths_at_different_steps_are_forgiven_up_to_a_number() {
    for (deaths, outcome) in [(11, Outcome::Completed), (12, Outcome::Failed)] {
        let runtime = start(reading(&MemoryJournal::new(), 20)).await;
        let accepted = submit(&runtime, "k").await;
        for death in 1..=deaths {
            until(&runtime, accepted, death, Kind::CallEnded).await;
            inject(&runtime, ActorKind::Session(accepted.session), ActorFault::Error).await;
        }
        let result = runtime.wait(accepted.run, None).await.unwrap();
        assert_eq!(result.ended.outcome, outcome, "{deaths} deaths: {}", result.ended);
        let iterations = if outcome == Outcome::Completed { 21 } else { deaths };
        assert_eq!(result.iterations as usize, iterations, "{deaths} deaths");
        assert!(result.usage.input_tokens > 0, "{deaths} deaths: {:?}", result.usage);
        runtime.suspend().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_to_be_revived_is_not_forgotten_with_the_supervisor() {
    let journal = MemoryJournal::new();
    let runtime = start(reading(&journal, 3)).await;
    let accepted = submit(&runtime, "k").await;
    runtime.suspend().await;
    let runtime = start(reading(&journal.reopened(), 3)).await;
    assert_eq!(runtime.revive_all().await.unwrap(), 1);
    // The supervisor crashes before it handles the message.
    inject(&runtime, ActorKind::SessionSupervisor, ActorFault::Kill).await;
    let result = runtime.wait(accepted.run, Some(Duration::from_hours(1))).await.expect("it goes on");
    assert_eq!(result.ended.outcome, Outcome::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_part_that_keeps_dying_ends_the_runtime() {
    for (part, name) in [
        (ActorKind::ProviderSupervisor, "ProviderSupervisor"),
        (ActorKind::ToolExecutor, "ToolExecutor"),
        (ActorKind::Compressor, "Compressor"),
        (ActorKind::Scheduler, "Scheduler"),
        (ActorKind::SessionSupervisor, "SessionSupervisor"),
    ] {
        let journal = MemoryJournal::new();
        let runtime = start(reading(&journal, 3)).await;
        let accepted = submit(&runtime, "k").await;
        for death in 1..=5 {
            inject(&runtime, part, ActorFault::Panic).await;
            if death < 5 {
                while runtime
                    .supervision_tree()
                    .await
                    .unwrap()
                    .children
                    .iter()
                    .all(|part| part.restarts < death)
                {}
            }
        }
        let reason = RuntimeEnd::Actor { name, error: "struck".into() };
        assert_eq!(runtime.wait_for_end().await, reason);
        assert_eq!(runtime.wait(accepted.run, None).await, Err(RunError::Terminated(reason)));
        let runtime = start(reading(&journal.reopened(), 3)).await;
        runtime.revive_all().await.unwrap();
        assert_eq!(runtime.wait(accepted.run, None).await.unwrap().ended.outcome, Outcome::Completed);
    }
}

/// Dependencies with a disk that takes 150 ms for a commit, and a model that answers after 100 ms.
fn on_slow_disk(inner: &MemoryJournal) -> RuntimeDependencies {
    let slow = JournalFault::Slow(Duration::from_millis(150));
    let journal = Arc::new(FaultyJournal::new(Arc::new(inner.clone()), slow, 1));
    RuntimeDependencies { journal, ..reading(inner, 1) }
}

#[tokio::test(start_paused = true)]
async fn whenever_a_session_dies_all_who_wait_hear_of_the_end() {
    const LONG: Duration = Duration::from_hours(1);
    for ms in (10..1_500).step_by(50) {
        let runtime = start(on_slow_disk(&MemoryJournal::new())).await;
        let accepted = submit(&runtime, "k").await;
        let die = async {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            inject_if_alive(&runtime, ActorKind::Session(accepted.session), ActorFault::Kill).await;
        };
        let wait = runtime.wait(accepted.run, Some(LONG));
        let watch = tokio::time::timeout(LONG, until(&runtime, accepted, 1, Kind::RunEnded));
        let ((), ended, watched) = tokio::join!(die, wait, watch);
        assert_eq!(ended.expect("whoever waits hears of it").ended.outcome, Outcome::Completed, "{ms} ms");
        assert!(watched.is_ok(), "who watches hears of it: killed after {ms} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn whenever_a_session_that_rests_dies_all_who_wait_hear_of_the_end() {
    const LONG: Duration = Duration::from_hours(1);
    for ms in (10..1_500).step_by(50) {
        let journal = MemoryJournal::new();
        let runtime = start(reading(&journal, 1)).await;
        let accepted = submit(&runtime, "k").await;
        runtime.suspend().await;
        let runtime = start(on_slow_disk(&journal.reopened())).await;
        let die = async {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            inject_if_alive(&runtime, ActorKind::Session(accepted.session), ActorFault::Kill).await;
        };
        let stop = runtime.stop_without_resume(accepted.run, StopReason::Command);
        let wait = runtime.wait(accepted.run, Some(LONG));
        let watch = tokio::time::timeout(LONG, until(&runtime, accepted, 1, Kind::RunEnded));
        let (stopped, (), ended, watched) = tokio::join!(stop, die, wait, watch);
        assert_eq!(stopped, Ok(()), "{ms} ms");
        assert_eq!(ended.expect("whoever waits hears of it").ended.outcome, Outcome::Stopped, "{ms} ms");
        assert!(watched.is_ok(), "who watches hears of it: killed after {ms} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn without_its_providers_actor_a_runtime_goes_on() {
    let runtime = start(reading(&MemoryJournal::new(), 3)).await;
    for death in 1..=5 {
        inject(&runtime, ActorKind::Provider, ActorFault::Panic).await;
        let restarts = |tree: hermod_actors::SupervisionTree| tree.children.last().map(|part| part.restarts);
        while restarts(runtime.supervision_tree().await.unwrap()) < Some(death.min(4)) {}
    }
    assert_eq!(runtime.chat("do it").await.as_deref(), Ok("done"));
    assert_eq!(runtime.providers().await, []);
}

#[tokio::test(start_paused = true)]
async fn too_many_submissions_are_refused_and_a_stop_never_is() {
    let slow = JournalFault::Slow(Duration::from_secs(1));
    let inner: Arc<dyn Journal> = Arc::new(MemoryJournal::new());
    let journal = Arc::new(FaultyJournal::new(inner, slow, 1));
    let mut world = RuntimeDependencies { journal, ..reading(&MemoryJournal::new(), 1_000) };
    world.submissions = 2;
    let runtime = Arc::new(start(world).await);
    let working = submit(&runtime, "working").await;
    let submits = ["a", "b", "c", "d"].map(|key| {
        let runtime = Arc::clone(&runtime);
        let request = RunRequest { session: SessionChoice::Key(key.into()), ..RunRequest::new("do it") };
        tokio::spawn(async move { runtime.submit(request).await })
    });
    tokio::time::sleep(Duration::from_millis(10)).await;
    runtime.stop(working.run, StopReason::Command).await.unwrap();
    let mut accepted = 0;
    for submit in submits {
        match submit.await.unwrap() {
            Ok(_) => accepted += 1,
            Err(error) => {
                assert_eq!(error, RunError::NotAccepted(SubmitError::Overloaded { waiting: 2 }));
                assert_eq!(error.to_string(), "2 submissions wait to be written already; try again later");
            }
        }
    }
    assert_eq!(accepted, 2);
    submit(&runtime, "later").await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_cannot_be_read_is_tried_again_and_never_counts_against_a_session() {
    for (failures, goes_on) in [(2, true), (3, false)] {
        let inner = MemoryJournal::new();
        let runtime = start(reading(&inner, 3)).await;
        let accepted = submit(&runtime, "k").await;
        runtime.suspend().await;
        let next = inner.reopened();
        let journal = FaultyJournal::sound(Arc::new(next.clone()));
        journal.fail_reads(failures);
        let world = RuntimeDependencies { journal: Arc::new(journal), ..reading(&next, 3) };
        let runtime = start(world).await;
        runtime.revive_all().await.unwrap();
        if goes_on {
            let ended = runtime.wait(accepted.run, None).await.unwrap().ended;
            assert_eq!(ended.outcome, Outcome::Completed);
        } else {
            let reason = RuntimeEnd::Store("the store cannot be read: input/output error".into());
            assert_eq!(runtime.wait_for_end().await, reason);
            assert_eq!(next.rows().open_runs().await.unwrap().len(), 1, "it waits");
        }
    }
}

/// Runs a task on a journal whose commit number `at` meets the fault, then again after the next start. Returns whether
/// the fault was met.
async fn check_fault(fault: JournalFault, at: usize) -> bool {
    const LONG: Duration = Duration::from_hours(1);
    let name = format!("{fault:?} at commit {at}");
    let inner = MemoryJournal::new();
    let faulty = FaultyJournal::new(Arc::new(inner.clone()), fault, at);
    let world = RuntimeDependencies { journal: Arc::new(faulty.clone()), ..reading(&inner, 3) };
    let runtime = start(world).await;
    let request = RunRequest { idempotency_key: Some("once".into()), ..RunRequest::new("do it") };
    let accepted = tokio::time::timeout(LONG, runtime.submit(request.clone())).await;
    let ended = match &accepted {
        Ok(Ok(accepted)) => tokio::time::timeout(LONG, runtime.wait(accepted.run, None)).await.ok(),
        Ok(Err(error)) => Some(Err(error.clone())),
        Err(_) => None,
    };
    let expect = match (fault.error(), fault) {
        (Some(error), _) => Some(RuntimeEnd::Store(error.to_string())),
        (None, JournalFault::Panic) => {
            Some(RuntimeEnd::Store("the store takes no writes: the adapter panicked".into()))
        }
        (None, _) => None,
    };
    let met = faulty.met_at().is_some();
    match (ended, expect) {
        (Some(Ok(result)), _) => {
            assert_eq!(result.ended.outcome, Outcome::Completed, "{name}");
            // The end was written: the waiting caller reads it, however the runtime ended.
            assert!(!met || fault.is_written(), "{name}: nothing was wrong");
        }
        (Some(Err(RunError::Terminated(reason))), Some(expect)) => {
            assert_eq!(reason, expect, "{name}");
            assert_eq!(runtime.wait_for_end().await, expect, "{name}");
        }
        (None, None) => assert_eq!(fault, JournalFault::LostAnswer, "{name}: it waits"),
        other => panic!("{name}: {other:?}"),
    }
    runtime.suspend().await;

    let runtime = start(reading(&inner.reopened(), 3)).await;
    runtime.revive_all().await.expect("the next start works");
    let again = runtime.submit(request).await.expect("the next start works");
    if let Ok(Ok(accepted)) = accepted {
        assert_eq!(again.run, accepted.run, "{name}: what was accepted is there");
    }
    let result = runtime.wait(again.run, None).await.expect("the next start works");
    assert_eq!(result.ended.outcome, Outcome::Completed, "{name}");
    assert_eq!(runtime.list(None, 9).await.expect("the next start works").len(), 1, "{name}: one run");
    let records = runtime.journal(result.session, 1).await.expect("the next start works");
    let ends = records.iter().filter(|(_, record)| matches!(record.body, Body::RunEnded(_)));
    assert_eq!(ends.count(), 1, "{name}");
    met
}

#[tokio::test(start_paused = true)]
async fn whatever_the_store_does_the_next_start_goes_on_with_what_was_accepted() {
    for fault in hermod_testkit::FAULTS {
        let mut at = 1;
        while check_fault(*fault, at).await {
            at += 1;
        }
        assert!(at > 9, "{fault:?}: there were {at} commits");
    }
    assert!(!check_fault(JournalFault::Slow(Duration::from_secs(5)), 1).await);
}
