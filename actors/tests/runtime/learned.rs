//! Observations of models (density, window) serve later runs in other sessions and processes.

use std::{sync::Arc, time::Duration};

use hermod_actors::{
    RunRequest, Runtime, RuntimeDependencies, SessionChoice,
    model::{Body, Failure, FailureClass, ModelProfile, ModelStarted, Record, TokenDensity, Usage},
};
use hermod_testkit::{MemoryJournal, ScriptedProvider, VirtualClock, says, world};

const TEXT: usize = 40_000;

/// A provider that counts a token for every two bytes of `TEXT`, and refuses requests that contain `long`.
fn provider() -> ScriptedProvider {
    ScriptedProvider::new(Duration::ZERO, |view| {
        if view.iter().any(|message| message["text"].as_str().is_some_and(|text| text.contains("long"))) {
            return Err(Failure::new(FailureClass::ContextTooLong { limit: Some(30_000) }, "too long"));
        }
        let mut answer = says("fine");
        answer.usage = Some(Usage { input_tokens: TEXT as u64 / 2, output_tokens: 1, ..Usage::default() });
        Ok(answer)
    })
}

/// A process whose ids differ from those of other processes by `chance`.
async fn start(journal: &MemoryJournal, chance: u64) -> Runtime {
    let world = world(Arc::new(journal.clone()), provider(), vec![]);
    Runtime::start(RuntimeDependencies { clock: Arc::new(VirtualClock::new(chance)), ..world }).await.unwrap()
}

/// Runs the input in a session of its own. Returns the model profile of the run and its first request.
async fn run(runtime: &Runtime, input: &str) -> (ModelProfile, ModelStarted) {
    let request = RunRequest { session: SessionChoice::New, ..RunRequest::new(input) };
    let result = runtime.run(request).await.unwrap();
    let records = runtime.journal(result.session, 1).await.unwrap();
    let spec = find(&records, |body| {
        let Body::RunAccepted(accepted) = body else { return None };
        Some(Arc::clone(&accepted.spec))
    });
    let started = find(&records, |body| {
        let Body::ModelStarted(started) = body else { return None };
        Some(ModelStarted::clone(started))
    });
    (spec.profile_of(&spec.chain[0]), started)
}

fn find<T>(records: &[(u64, Arc<Record>)], of: impl Fn(&Body) -> Option<T>) -> T {
    records.iter().find_map(|(_, record)| of(&record.body)).expect("a record")
}

/// Tokens that are reserved for the input of a request.
fn input(started: &ModelStarted) -> u64 {
    started.reserved.tokens.unwrap() - started.max_tokens
}

#[tokio::test(start_paused = true)]
async fn the_next_session_begins_with_what_the_last_one_has_found_out() {
    let journal = MemoryJournal::new();
    let runtime = start(&journal, 1).await;
    let text = "x".repeat(TEXT);
    let (traits, first) = run(&runtime, &text).await;
    assert_eq!((traits, input(&first)), (ModelProfile::default(), first.bytes / 4 + first.bytes / 16));
    let known = TokenDensity::GUESS.corrected(first.bytes, TEXT as u64 / 2);
    assert!(known > TokenDensity::GUESS);
    let (traits, second) = run(&runtime, &text).await;
    assert_eq!((traits.density, traits.window), (Some(known), None));
    let likely = known.tokens(second.bytes);
    assert_eq!(input(&second), likely + likely / 4);
    runtime.suspend().await;
    // The window that a provider names in a refusal is known after that run.
    let runtime = start(&journal.reopened(), 2).await;
    let (traits, _) = run(&runtime, "long").await;
    assert!(traits.density > Some(known), "{traits:?}, and before {known:?}");
    let (traits, _) = run(&runtime, &text).await;
    assert_eq!(traits.window, Some(30_000));
    runtime.suspend().await;
}
