//! Tool calls in special cases, through the whole runtime: a misspelled tool name, a huge result, two permits.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use hermod_actors::{
    RunRequest, Runtime, RuntimeDependencies,
    model::{Body, CallEnd, CallStatus, EffectClass, MAX_RESULT_BYTES},
};
use hermod_testkit::{MemoryJournal, ScriptedProvider, ScriptedTool, calls, says, world};
use serde_json::{Value, json};

/// A model that calls these tools once, then answers with the names of its calls and their results.
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
    let read = ScriptedTool::fixed("read_file", EffectClass::Pure, "content");
    let long = ScriptedTool::fixed("long", EffectClass::Pure, &"x".repeat(10_000_000));
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
    assert!(content.len() <= MAX_RESULT_BYTES && content.starts_with("xxx") && content.ends_with("xxx"));
    assert_eq!(artifact.as_ref().map(|artifact| artifact.bytes), Some(10_000_000));
}

/// The waiting task gets a permit at the same moment in which the deciding session finds another one free.
#[tokio::test(start_paused = true)]
async fn a_call_that_gets_two_permits_is_made_once() {
    let made = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&made);
    let tool = ScriptedTool::new("write", EffectClass::Once, move |invocation| {
        noted.lock().expect("a list").push((invocation.call.n, invocation.attempt));
        let n = u64::from(invocation.call.n);
        async move {
            tokio::time::sleep(Duration::from_secs(if n > 2 { 10 * n } else { 1 })).await;
            CallEnd::ok("done")
        }
    });
    let provider = ScriptedProvider::new(Duration::ZERO, |view| match view.len() {
        1 | 2 => Ok(calls(&[1, 2, 3].map(|n| ("write", json!({"n": n}))))),
        _ => Ok(says("done")),
    });
    let world = world(Arc::new(MemoryJournal::new()), provider, vec![Arc::new(tool)]);
    let runtime =
        Runtime::start(RuntimeDependencies { tool_calls: 2, ..world }).await.expect("the runtime starts");
    assert_eq!(runtime.chat("go").await, Ok("done".to_owned()));
    assert_eq!(*made.lock().expect("a list"), [(1, 1), (2, 1), (3, 1)]);
}
