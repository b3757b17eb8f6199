//! The Compressor in a whole runtime: runs get their summaries, also when it crashes in the middle of one.

use std::{sync::Arc, time::Duration};

use hermod_actors::{
    AcceptedRun, CompressorStatus, RunRequest, Runtime, RuntimeDependencies,
    model::{
        AssistantMessage, Body, CompactionMethod, CompactionPolicy, EffectClass, EventBody, Kind,
        ModelAnswer, ModelProfile, Outcome,
    },
    port::{ModelProvider, Tool},
};
use hermod_testkit::{
    ActorFault, ActorKind, MemoryJournal, ScriptedProvider, ScriptedTool, calls, inject, says, world,
};
use serde_json::{Value, json};

/// Tokens of the model's window; half of them are the trigger.
const WINDOW: u64 = 8_000;
/// Bytes of text in each answer.
const STEP_BYTES: usize = 2_000;
/// Answers of a run before its last one.
const STEPS: usize = 20;
const SUMMARY_DELAY: Duration = Duration::from_secs(10);
const LONG: Duration = Duration::from_hours(1);

/// Makes a call with a long text in each step, then ends. The text begins with the number of the step.
fn script(view: &[Value]) -> ModelAnswer {
    let last = view.iter().rev().find_map(|message| message["text"].as_str()?.strip_prefix("step "));
    let n = last.and_then(|text| text.split(' ').next()?.parse().ok()).map_or(0, |n: usize| n + 1);
    if n == STEPS {
        return says("done");
    }
    let call = calls(&[("read", json!({"n": n}))]);
    let text = format!("step {n} {}", "x".repeat(STEP_BYTES));
    let message = AssistantMessage { text, ..call.message.clone() };
    ModelAnswer { message, usage: None, ..call }
}

/// Dependencies whose runs need summaries, which take `SUMMARY_DELAY`; at most `summaries` at a time.
fn long_runs(journal: &MemoryJournal, ahead: bool, summaries: usize) -> RuntimeDependencies {
    let model = ScriptedProvider::new(Duration::from_secs(1), |view| Ok(script(view)));
    let summarizer = ScriptedProvider::new(SUMMARY_DELAY, |_| Ok(says("Notes.")));
    let read: Arc<dyn Tool> = Arc::new(ScriptedTool::fixed("read", EffectClass::Pure, "content"));
    let mut world = world(Arc::new(journal.clone()), model, vec![read]);
    world.providers.push(("s".into(), Arc::new(summarizer) as Arc<dyn ModelProvider>, 1_000));
    let spec = &mut world.defaults.spec;
    spec.profiles = vec![ModelProfile { window: Some(WINDOW), ..ModelProfile::default() }];
    spec.compaction = Some(Arc::new(CompactionPolicy {
        chain: vec!["s/notes".parse().expect("a model")],
        profiles: spec.profiles.clone(),
        trigger: 50,
        protect_last: 4,
        ahead,
    }));
    RuntimeDependencies { summaries, ..world }
}

async fn submit(runtime: &Runtime) -> AcceptedRun {
    runtime.submit(RunRequest::new("do it")).await.expect("it is accepted")
}

/// Waits until the session has a record of this kind.
async fn until(runtime: &Runtime, accepted: AcceptedRun, kind: Kind) {
    let mut watch = runtime.watch(accepted.session, 1);
    loop {
        if let EventBody::Recorded { record, .. } = watch.next().await.expect("the store is read").body
            && record.body.kind() == kind
        {
            return;
        }
    }
}

/// Waits until the Compressor's status meets the condition.
async fn until_status(runtime: &Runtime, is_so: impl Fn(&CompressorStatus) -> bool) {
    let wait = async {
        while !runtime.compressor_status().await.as_ref().is_some_and(&is_so) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONG, wait).await.expect("the status becomes so");
}

/// Checks that a run has completed, that each compaction of its view has a summary, and that each summary call has one
/// start and one end. Returns the number of summary calls.
async fn check_summarised(runtime: &Runtime, accepted: AcceptedRun) -> usize {
    let result = runtime.wait(accepted.run, Some(LONG)).await.expect("it ends");
    assert_eq!(result.ended.outcome, Outcome::Completed, "{}", result.ended);
    let (mut started, mut answered, mut compacted) = (Vec::new(), Vec::new(), 0);
    for (_, record) in runtime.journal(accepted.session, 1).await.expect("the store is read") {
        if let Body::SummaryStarted(start) = &record.body {
            started.push((start.started.call, start.started.attempt));
        } else if let Body::SummaryAnswered(answer) = &record.body {
            answered.push((answer.call, answer.attempt));
        } else if let Body::SummaryFailed(failed) = &record.body {
            panic!("{failed:?}");
        } else if let Body::ContextCompacted(by) = &record.body {
            assert_eq!(by.method, CompactionMethod::Summarised);
            compacted += 1;
        }
    }
    assert!(compacted > 0, "the view was long enough");
    assert!(answered.len() >= compacted);
    // The run may end while a summary is made ahead.
    assert!(started.starts_with(&answered), "{started:?}, {answered:?}");
    started.len()
}

#[tokio::test(start_paused = true)]
async fn a_crash_in_the_middle_of_a_summary_repeats_no_paid_call() {
    for fault in [ActorFault::Panic, ActorFault::Error, ActorFault::Kill] {
        let mut counts = Vec::new();
        for crashes in [false, true] {
            let runtime =
                Runtime::start(long_runs(&MemoryJournal::new(), false, 1)).await.expect("it starts");
            let accepted = submit(&runtime).await;
            until(&runtime, accepted, Kind::SummaryStarted).await;
            tokio::time::sleep(SUMMARY_DELAY / 2).await;
            if crashes {
                inject(&runtime, ActorKind::Compressor, fault).await;
            }
            counts.push(check_summarised(&runtime, accepted).await);
            runtime.suspend().await;
        }
        assert_eq!(counts[0], counts[1], "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_its_admission_outlives_the_actor() {
    for fault in [ActorFault::Panic, ActorFault::Error, ActorFault::Kill] {
        let runtime = Runtime::start(long_runs(&MemoryJournal::new(), false, 1)).await.expect("it starts");
        let (first, second) = (submit(&runtime).await, submit(&runtime).await);
        until_status(&runtime, |status| (status.running, status.foreground) == (1, 1)).await;
        inject(&runtime, ActorKind::Compressor, fault).await;
        until_status(&runtime, |status| (status.running, status.foreground) == (1, 1)).await;
        check_summarised(&runtime, first).await;
        check_summarised(&runtime, second).await;
        let status = runtime.compressor_status().await.expect("it runs");
        assert_eq!((status.running, status.foreground, status.background), (0, 0, 0), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_summary_made_ahead_becomes_urgent_when_its_run_waits() {
    let runtime = Runtime::start(long_runs(&MemoryJournal::new(), true, 1)).await.expect("it starts");
    let first = submit(&runtime).await;
    until(&runtime, first, Kind::SummaryStarted).await;
    let second = submit(&runtime).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    check_summarised(&runtime, first).await;
    check_summarised(&runtime, second).await;
    // Two views grow at the same rate, so the second one waits for the only permit and reaches its trigger there.
    let (third, fourth) = (submit(&runtime).await, submit(&runtime).await);
    until_status(&runtime, |status| (status.running, status.background) == (1, 1)).await;
    until_status(&runtime, |status| (status.running, status.foreground) == (1, 1)).await;
    check_summarised(&runtime, third).await;
    check_summarised(&runtime, fourth).await;
}

#[tokio::test(start_paused = true)]
async fn the_compressor_learns_from_summaries() {
    let runtime = Runtime::start(long_runs(&MemoryJournal::new(), false, 4)).await.expect("it starts");
    let accepted = submit(&runtime).await;
    let calls = check_summarised(&runtime, accepted).await as u64;
    let status = runtime.compressor_status().await.expect("it runs");
    let [summarizer] = &status.summarizers[..] else { panic!("one summariser: {status:?}") };
    assert_eq!(summarizer.model.to_string(), "s/notes");
    assert_eq!((summarizer.attempts, summarizer.failed), (calls, 0));
    assert_eq!(summarizer.usual_ms, Some(10_000));
    assert!(summarizer.kept_percent.is_some_and(|kept| kept < 5), "{summarizer:?}");
}
