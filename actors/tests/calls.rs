//! Calls that are not as they should be, through the whole tree.
#![cfg(feature = "testkit")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use hermod_actors::{
    RunRequest, Runtime, World,
    model::{Body, CallEnd, CallStatus, EffectClass, MAX_OUTPUT},
    testkit::{
        FaultyJournal, JournalFault, MemoryJournal, ScriptedProvider, ScriptedTool, calls, says, world,
    },
};
use serde_json::{Value, json};

/// Asks for these tools once, and then says what it sees: the names of its calls, and the results.
fn asking(names: &'static [&'static str]) -> ScriptedProvider {
    ScriptedProvider::new(Duration::ZERO, move |view| {
        let Some(asked) = view.iter().find(|message| message["calls"].is_array()) else {
            let each: Vec<_> = names.iter().map(|name| (*name, json!({}))).collect();
            return Ok(calls(&each));
        };
        let called: Vec<&Value> =
            asked["calls"].as_array().into_iter().flatten().map(|call| &call["name"]).collect();
        let results = view.iter().filter(|message| message["role"] == "tool");
        let results: Vec<_> = results.map(|result| (&result["name"], &result["content"])).collect();
        Ok(says(&json!({"called": called, "results": results}).to_string()))
    })
}

async fn start(provider: ScriptedProvider) -> Runtime {
    let read = ScriptedTool::saying("read_file", EffectClass::Pure, "content");
    let long = ScriptedTool::saying("long", EffectClass::Pure, &"x".repeat(10_000_000));
    let world = world(Arc::new(MemoryJournal::new()), provider, vec![Arc::new(read), Arc::new(long)]);
    Runtime::start(world).await.expect("the runtime starts")
}

#[tokio::test(start_paused = true)]
async fn a_call_stands_in_the_view_under_the_name_of_its_tool() {
    let runtime = start(asking(&["ReadFileTool", "what is this?", "read_file"])).await;
    let said = runtime.chat("go").await.expect("it completes");
    let said: Value = serde_json::from_str(&said).expect("JSON");
    let names = json!(["read_file", "what_is_this_", "read_file"]);
    assert_eq!(said["called"], names);
    assert_eq!(
        said["results"].as_array().map(|all| all.iter().map(|one| one[0].clone()).collect()),
        Some(names)
    );
    assert_eq!(said["results"][0][1], "content");
    let unknown = said["results"][1][1].as_str().expect("a text");
    assert!(unknown.contains("there is no tool `what is this?`"), "{unknown}");
}

#[tokio::test(start_paused = true)]
async fn a_result_of_any_size_is_recorded_short() {
    let runtime = start(asking(&["long"])).await;
    let result = runtime.run(RunRequest::new("go")).await.expect("it ends");
    let records = runtime.journal(result.session, 1).await.expect("a journal");
    let end = records.iter().find_map(|(_, record)| {
        let Body::CallEnded(ended) = &record.body else { return None };
        Some(&ended.end)
    });
    let Some(CallEnd { status, content, artifact, .. }) = end else { panic!("no end") };
    assert_eq!(*status, CallStatus::Ok);
    assert!(content.len() <= MAX_OUTPUT && content.starts_with("xxx") && content.ends_with("xxx"));
    assert_eq!(artifact.as_ref().map(|artifact| artifact.bytes), Some(10_000_000));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_let_through_twice_is_made_once() {
    let made = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&made);
    let look = |name: &str| {
        ScriptedTool::new(name, EffectClass::Pure, |_| async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            CallEnd::ok("seen")
        })
    };
    let send = ScriptedTool::new("send", EffectClass::Once, move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            CallEnd::ok("sent")
        }
    });
    // While both look, the third waits; when both have ended, one place is given to whoever waits, and the other is free.
    let journal =
        FaultyJournal::new(Arc::new(MemoryJournal::new()), JournalFault::Slow(Duration::from_millis(1)), 1);
    let provider = asking(&["look", "see", "send"]);
    let world = world(
        Arc::new(journal),
        provider,
        vec![Arc::new(look("look")), Arc::new(look("see")), Arc::new(send)],
    );
    let runtime = Runtime::start(World { tool_calls: 2, ..world }).await.expect("the runtime starts");
    let result = runtime.run(RunRequest::new("go")).await.expect("it ends");
    assert_eq!(made.load(Ordering::SeqCst), 1);
    let records = runtime.journal(result.session, 1).await.expect("a journal");
    let lost = records.iter().filter(|(_, record)| matches!(record.body, Body::CallLost(_)));
    assert_eq!(lost.count(), 0);
}
