//! Steering messages, through the whole runtime on virtual time.

use std::{sync::Arc, time::Duration};

use hermod_actors::{
    RunError, RunRequest, Runtime, SessionChoice,
    model::{Body, EffectClass, Outcome, Queueing, RunId, RunState, SessionId, StopReason},
    port::{Journal, Tool},
};
use hermod_testkit::{MemoryJournal, ScriptedProvider, ScriptedTool, calls, says, world};
use serde_json::json;

const STEP: Duration = Duration::from_secs(1);

/// A model that calls `read` once, then answers with its result.
fn provider() -> ScriptedProvider {
    ScriptedProvider::new(STEP, |view| match view.last() {
        Some(last) if last["role"] == "tool" => Ok(says(last["content"].as_str().unwrap_or_default())),
        Some(_) | None => Ok(calls(&[("read", json!({}))])),
    })
}

async fn start(journal: &MemoryJournal, provider: ScriptedProvider, tools: Vec<Arc<dyn Tool>>) -> Runtime {
    let journal: Arc<dyn Journal> = Arc::new(journal.clone());
    Runtime::start(world(journal, provider, tools)).await.expect("the runtime starts")
}

fn reader() -> Arc<dyn Tool> {
    Arc::new(ScriptedTool::fixed("read", EffectClass::Pure, "content"))
}

#[tokio::test(start_paused = true)]
async fn a_model_reads_what_is_said_while_it_is_asked() {
    let runtime = start(&MemoryJournal::new(), provider(), vec![reader()]).await;
    let accepted = runtime.submit(RunRequest::new("a")).await.unwrap();
    tokio::time::sleep(STEP / 2).await;
    let steered = runtime.steer(accepted.run, "look elsewhere").await.unwrap();
    assert_eq!((steered.run, steered.session), (accepted.run, accepted.session));
    let result = runtime.wait(accepted.run, None).await.unwrap();
    let text = result.text().unwrap();
    assert!(text.starts_with("Skipped to process an incoming message."), "{text}");
    assert!(text.contains("look elsewhere"), "{text}");
    assert!(matches!(runtime.row(steered.next).await, Err(RunError::NoRun(_))), "it was read in time");
}

#[tokio::test(start_paused = true)]
async fn what_comes_too_late_is_the_next_run() {
    let provider = ScriptedProvider::new(STEP, |view| {
        let last = view.last().map_or_else(String::new, |last| last["text"].to_string());
        Ok(says(&format!("heard {last}")))
    });
    let journal = MemoryJournal::new();
    let runtime = start(&journal, provider.clone(), vec![]).await;
    let accepted = runtime.submit(RunRequest::new("a")).await.unwrap();
    let steered = runtime.steer(accepted.run, "and b").await.unwrap();
    assert_eq!(runtime.wait(accepted.run, None).await.unwrap().ended.outcome, Outcome::Completed);
    runtime.suspend().await;
    let runtime = start(&journal.reopened(), provider, vec![]).await;
    assert_eq!(runtime.revive_all().await.unwrap(), 1);
    let next = runtime.wait(steered.next, None).await.unwrap();
    assert_eq!(next.text(), Some(r#"heard "and b""#));
    assert_eq!(next.session, accepted.session);
}

#[tokio::test(start_paused = true)]
async fn a_repeated_message_of_a_library_is_the_first_one() {
    let runtime = start(&MemoryJournal::new(), provider(), vec![reader()]).await;
    let session = SessionChoice::Key("k".into());
    let task = RunRequest { session: session.clone(), ..RunRequest::new("a") };
    let run = runtime.submit(task).await.unwrap();
    tokio::time::sleep(STEP / 2).await;
    let message = |text: &str| RunRequest {
        session: session.clone(),
        queueing: Some(Queueing::default()),
        idempotency_key: Some("once".into()),
        ..RunRequest::new(text)
    };
    let first = runtime.submit(message("look elsewhere")).await.unwrap();
    assert_eq!(runtime.submit(message("look elsewhere")).await, Ok(first));
    let other = runtime.submit(message("look here")).await;
    assert!(matches!(other, Err(RunError::MessageKeyConflict { message, .. }) if message == first.run));
    runtime.wait(run.run, None).await.unwrap();
    assert_eq!(runtime.submit(message("look elsewhere")).await, Ok(first), "it has been read since");
}

#[tokio::test(start_paused = true)]
async fn who_cannot_hear_says_so() {
    let runtime = start(&MemoryJournal::new(), provider(), vec![reader()]).await;
    let unknown = RunId::from_bits(7);
    assert_eq!(runtime.steer(unknown, "x").await, Err(RunError::NoRun(unknown)));
    let ended = runtime.run(RunRequest::new("a")).await.unwrap().run;
    assert_eq!(runtime.steer(ended, "x").await, Err(RunError::Ended(ended)));
    assert!(matches!(runtime.steer(ended, " ").await, Err(RunError::Invalid { field: "text", .. })));
}

/// The kinds of a session's records.
async fn kinds(runtime: &Runtime, session: SessionId) -> Vec<&'static str> {
    let records = runtime.journal(session, 1).await.expect("a journal");
    records.iter().map(|(_, record)| record.body.kind().name()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_run_that_nobody_runs_is_stopped_and_what_waits_behind_it_is_not_begun() {
    let endless: Arc<dyn Tool> = Arc::new(ScriptedTool::endless("read", EffectClass::Once));
    let journal = MemoryJournal::new();
    let runtime = start(&journal, provider(), vec![endless]).await;
    let request =
        |text: &str| RunRequest { session: SessionChoice::Key("k".into()), ..RunRequest::new(text) };
    let first = runtime.submit(request("a")).await.unwrap();
    let second = runtime.submit(request("b")).await.unwrap();
    tokio::time::sleep(STEP * 2).await;
    runtime.suspend().await;

    // Without provider and tool.
    let shared: Arc<dyn Journal> = Arc::new(journal.reopened());
    let mut bare = world(shared, provider(), vec![]);
    bare.providers.clear();
    let runtime = Runtime::start(bare).await.unwrap();
    runtime.stop_without_resume(first.run, StopReason::Command).await.unwrap();
    let row = runtime.row(first.run).await.unwrap();
    assert_eq!(row.ended.unwrap().outcome, Outcome::Stopped);
    assert_eq!(runtime.row(second.run).await.unwrap().state, RunState::Running, "it has begun and waits");
    let records = kinds(&runtime, first.session).await;
    assert_eq!(records[records.len() - 3..], ["run.stopping", "call.ended", "run.ended"]);
    runtime.stop_without_resume(first.run, StopReason::Command).await.unwrap();
    assert_eq!(kinds(&runtime, first.session).await, records, "to stop it again does nothing");
    runtime.stop_without_resume(second.run, StopReason::Command).await.unwrap();
    assert_eq!(runtime.open_runs().await.unwrap(), []);
    let asked = runtime.journal(first.session, 1).await.unwrap();
    let of_second = |body: &Body| matches!(body, Body::ModelStarted(s) if s.call.run == second.run);
    assert!(!asked.iter().any(|(_, record)| of_second(&record.body)));
}
