//! Calls that are not as they should be, through the whole tree.
#![cfg(feature = "testkit")]

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use hermod_actors::{
    RunRequest, Runtime, World,
    model::{Access, Body, CallEnd, CallId, CallStatus, EffectClass, MAX_OUTPUT},
    testkit::{MemoryJournal, ScriptedProvider, ScriptedTool, calls, says, world},
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

/// Two permits come free at once for the last of three calls: the one that it waits for, and another one.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_given_two_permits_is_begun_once() {
    let begun: Arc<Mutex<BTreeMap<CallId, u32>>> = Arc::default();
    let count = Arc::clone(&begun);
    let tool = ScriptedTool::new("post", EffectClass::Once, move |invocation| {
        *count.lock().unwrap().entry(invocation.call).or_default() += 1;
        async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            CallEnd::ok("posted")
        }
    });
    let provider = ScriptedProvider::new(Duration::ZERO, |view| {
        let each: Vec<_> = (0..3).map(|n| ("post", json!({"n": n}))).collect();
        Ok(if view.len() > 2 { says("done") } else { calls(&each) })
    });
    let tool = tool.touching(Access::default());
    let world =
        World { tool_calls: 2, ..world(Arc::new(MemoryJournal::new()), provider, vec![Arc::new(tool)]) };
    let runtime = Runtime::start(world).await.expect("the runtime starts");
    let result = runtime.run(RunRequest::new("go")).await.expect("it ends");
    let records = runtime.journal(result.session, 1).await.expect("a journal");
    let kinds: Vec<_> = records.iter().map(|(_, record)| record.body.kind().name()).collect();
    assert_eq!(begun.lock().unwrap().values().copied().collect::<Vec<_>>(), [1; 3], "{kinds:?}");
    assert!(!kinds.contains(&"call.lost"), "{kinds:?}");
}
