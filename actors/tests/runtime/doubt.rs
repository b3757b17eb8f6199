//! Calls in doubt, over crashes of the process, on virtual time.

use std::{
    future::{pending, ready},
    sync::{Arc, Mutex},
    time::Duration,
};

use hermod_actors::{
    RunError, RunRequest, Runtime, RuntimeDependencies,
    model::{
        ApprovalDecision, AttemptId, CallEnd, CallStatus, EffectClass, InDoubtAction, InDoubtPolicy, Outcome,
        RunState, StopReason,
    },
    port::{AttachOutcome, Boot, Journal},
};
use hermod_testkit::{MemoryJournal, ScriptedProvider, ScriptedTool, calls, says, world};
use serde_json::json;

const STEP: Duration = Duration::from_secs(1);

/// A model that calls `build` once, then answers with its result.
fn provider() -> ScriptedProvider {
    ScriptedProvider::new(STEP, |view| match view.last() {
        Some(last) if last["role"] == "tool" => Ok(says(last["content"].as_str().unwrap_or_default())),
        Some(_) | None => Ok(calls(&[("build", json!({}))])),
    })
}

/// A tool of effect class `Once` that never ends by itself.
fn build() -> ScriptedTool {
    ScriptedTool::new("build", EffectClass::Once, |_| pending())
        .with_attach(|_, _| ready(AttachOutcome::Unknown))
}

fn with(journal: &MemoryJournal, tool: &ScriptedTool, then: InDoubtAction) -> RuntimeDependencies {
    let shared: Arc<dyn Journal> = Arc::new(journal.clone());
    let mut world = world(shared, provider(), vec![Arc::new(tool.clone())]);
    world.defaults.spec.in_doubt = InDoubtPolicy { action: then, ..InDoubtPolicy::default() };
    world
}

async fn start(world: RuntimeDependencies) -> Runtime {
    Runtime::start(world).await.expect("the runtime starts")
}

/// A run whose `build` was under way when the process ended.
async fn interrupted(then: InDoubtAction) -> (MemoryJournal, hermod_actors::AcceptedRun) {
    let journal = MemoryJournal::new();
    let runtime = start(with(&journal, &build(), then)).await;
    let accepted = runtime.submit(RunRequest::new("a")).await.expect("it is accepted");
    tokio::time::sleep(STEP * 2).await;
    runtime.suspend().await;
    (journal.reopened(), accepted)
}

/// The next process, on the given boot, with this tool.
async fn next(journal: &MemoryJournal, then: InDoubtAction, (boot, tool): (&str, &ScriptedTool)) -> Runtime {
    let world = RuntimeDependencies { boot: boot.into(), ..with(journal, tool, then) };
    let runtime = start(world).await;
    assert_eq!(runtime.revive_all().await.expect("the store is read"), 1);
    runtime
}

async fn kinds(runtime: &Runtime, accepted: hermod_actors::AcceptedRun) -> Vec<&'static str> {
    let records = runtime.journal(accepted.session, 1).await.expect("the journal is read");
    records.iter().map(|(_, record)| record.body.kind().name()).collect()
}

#[tokio::test(start_paused = true)]
async fn what_went_on_without_the_process_is_awaited_and_was_done_once() {
    for (boot, expect) in [("boot-1", Boot::Same), ("boot-2", Boot::Other)] {
        let (journal, accepted) = interrupted(InDoubtAction::Tell).await;
        let tool = build().with_attach(move |_, boot| async move {
            assert_eq!(boot, expect);
            tokio::time::sleep(STEP * 30).await;
            AttachOutcome::Ended(CallEnd::ok("built"))
        });
        let runtime = next(&journal, InDoubtAction::Tell, (boot, &tool)).await;
        let result = runtime.wait(accepted.run, None).await.unwrap();
        assert_eq!((result.ended.outcome, result.text()), (Outcome::Completed, Some("built")));
        let kinds = kinds(&runtime, accepted).await;
        assert_eq!(kinds.iter().filter(|kind| **kind == "call.started").count(), 1);
        let forgotten: Vec<_> =
            tool.forgotten_attempts().iter().map(|AttemptId { call, attempt }| (call.n, *attempt)).collect();
        assert_eq!(forgotten, [(1, 1)]);
    }
}

#[tokio::test(start_paused = true)]
async fn what_never_began_is_started() {
    let (journal, accepted) = interrupted(InDoubtAction::Tell).await;
    let tool = ScriptedTool::fixed("build", EffectClass::Once, "built")
        .with_attach(|_, _| ready(AttachOutcome::NeverStarted));
    let runtime = next(&journal, InDoubtAction::Tell, ("boot-1", &tool)).await;
    assert_eq!(runtime.wait(accepted.run, None).await.unwrap().text(), Some("built"));
    let kinds = kinds(&runtime, accepted).await;
    assert_eq!(
        kinds.iter().filter(|kind| kind.starts_with("call.")).collect::<Vec<_>>(),
        [&"call.admitted", &"call.started", &"call.lost", &"call.started", &"call.ended"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_what_an_earlier_process_has_started() {
    for at_rest in [false, true] {
        let (journal, accepted) = interrupted(InDoubtAction::Tell).await;
        let tool = build().with_attach(|invocation, _| async move {
            invocation.cancel.cancelled().await;
            AttachOutcome::Ended(CallEnd::new(CallStatus::Stopped, "ended from here"))
        });
        let world = with(&journal, &tool, InDoubtAction::Tell);
        let runtime = start(world).await;
        if at_rest {
            runtime.stop_without_resume(accepted.run, StopReason::Command).await.unwrap();
        } else {
            runtime.revive_all().await.unwrap();
            tokio::time::sleep(STEP).await;
            runtime.stop(accepted.run, StopReason::Command).await.unwrap();
        }
        let result = runtime.wait(accepted.run, Some(STEP)).await.unwrap();
        assert_eq!(result.ended.outcome, Outcome::Stopped);
        let records = runtime.journal(accepted.session, 1).await.unwrap();
        let said = |text: &str| records.iter().any(|(_, record)| format!("{record:?}").contains(text));
        assert!(said("ended from here"), "at rest: {at_rest}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_panics_is_asked_what_became_of_its_call() {
    let tool = ScriptedTool::new("build", EffectClass::Once, |_| async { panic!("a bug") })
        .with_attach(|_, boot| ready(AttachOutcome::Ended(CallEnd::ok(format!("{boot:?}")))));
    let runtime = start(with(&MemoryJournal::new(), &tool, InDoubtAction::Tell)).await;
    assert_eq!(runtime.run(RunRequest::new("a")).await.unwrap().text(), Some("Same"));
}

#[tokio::test(start_paused = true)]
async fn a_parked_run_goes_on_when_a_person_has_decided() {
    for (verdict, at_rest) in
        [(ApprovalDecision::Allow, false), (ApprovalDecision::Allow, true), (ApprovalDecision::Deny, false)]
    {
        let (journal, accepted) = interrupted(InDoubtAction::Ask).await;
        let runtime = next(&journal, InDoubtAction::Ask, ("boot-1", &build())).await;
        assert_eq!(runtime.wait_until_ended_or_parked(accepted.run).await.unwrap().state, RunState::Parked);
        // The approval waits over hours and processes.
        tokio::time::sleep(Duration::from_hours(5)).await;
        runtime.suspend().await;
        let journal = journal.reopened();
        let ran = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&ran);
        let tool = ScriptedTool::new("build", EffectClass::Once, move |_| {
            *counted.lock().unwrap() += 1;
            ready(CallEnd::ok("built again"))
        });
        let mut runtime = start(with(&journal, &tool, InDoubtAction::Ask)).await;
        let questions = runtime.pending_approvals().await.unwrap();
        assert_eq!(questions.len(), 1, "{questions:?}");
        let call = questions[0].request.call;
        if at_rest {
            assert_eq!(runtime.decide_without_resume(call, verdict).await.unwrap().state, RunState::Running);
            assert_eq!(*ran.lock().unwrap(), 0, "nothing is started");
            assert!(matches!(
                runtime.decide_without_resume(call, verdict).await,
                Err(RunError::NoPendingApproval(_))
            ));
            runtime.suspend().await;
            runtime = start(with(&journal.reopened(), &tool, InDoubtAction::Ask)).await;
            runtime.revive_all().await.unwrap();
        } else {
            runtime.decide(call, verdict).await.unwrap();
            assert!(matches!(runtime.decide(call, verdict).await, Err(RunError::NoPendingApproval(_))));
        }
        let result = runtime.wait(accepted.run, None).await.unwrap();
        assert_eq!(result.ended.outcome, Outcome::Completed);
        let (text, times) = (result.text().unwrap_or_default(), *ran.lock().unwrap());
        match verdict {
            ApprovalDecision::Allow => assert_eq!((text, times), ("built again", 1)),
            ApprovalDecision::Deny => {
                assert!(text.contains("has decided that it is not made again"), "{text}");
                assert_eq!(times, 0);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_who_answers_is_a_no() {
    let (journal, accepted) = interrupted(InDoubtAction::Ask).await;
    let runtime = next(&journal, InDoubtAction::Ask, ("boot-1", &build())).await;
    let result = runtime.wait(accepted.run, Some(Duration::from_hours(25))).await.unwrap();
    assert!(result.text().unwrap().contains("has not answered"), "{:?}", result.text());
}

#[tokio::test(start_paused = true)]
async fn what_is_under_way_already_counts_for_how_many_may_be() {
    let (journal, accepted) = interrupted(InDoubtAction::Tell).await;
    let tool = ScriptedTool::fixed("build", EffectClass::Once, "built").with_attach(|_, _| async {
        tokio::time::sleep(STEP * 30).await;
        AttachOutcome::Ended(CallEnd::ok("built before"))
    });
    let world = RuntimeDependencies { tool_calls: 1, ..with(&journal, &tool, InDoubtAction::Tell) };
    let runtime = start(world).await;
    runtime.revive_all().await.unwrap();
    tokio::time::sleep(STEP).await;
    let next = runtime.submit(RunRequest::new("b")).await.unwrap();
    tokio::time::sleep(STEP * 20).await;
    let started = |kinds: Vec<&str>| kinds.contains(&"call.started");
    assert!(!started(kinds(&runtime, next).await), "one is under way, and one may be");
    assert_eq!(runtime.wait(next.run, Some(STEP * 30)).await.unwrap().text(), Some("built"));
    assert_eq!(runtime.wait(accepted.run, None).await.unwrap().text(), Some("built before"));
}
