//! What many watchers cost: an event is encoded once for all of them. On virtual time.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::future::join_all;
use hermod_actors::{
    RunRequest, Runtime,
    model::{Body, CallEnd, EffectClass, EventBody, SessionEvent},
    port::{FeedCursor, Journal, Tool},
};
use hermod_testkit::{MemoryJournal, ScriptedProvider, ScriptedTool, calls, says, world};
use serde_json::json;
use tokio::sync::oneshot;

const WATCHERS: usize = 100;

/// A runtime whose model calls a tool that reports progress, then answers.
async fn start() -> Runtime {
    let provider = ScriptedProvider::new(Duration::from_millis(10), |view| {
        match view.iter().any(|message| message["role"] == "tool") {
            true => Ok(says("done")),
            false => Ok(calls(&[("note", json!({})), ("note", json!({ "n": 2 }))])),
        }
    });
    let tool = ScriptedTool::new("note", EffectClass::Pure, |invocation| async move {
        invocation.progress.report("half");
        tokio::time::sleep(Duration::from_millis(5)).await;
        CallEnd::ok("noted")
    });
    let (journal, tool): (Arc<dyn Journal>, Arc<dyn Tool>) = (Arc::new(MemoryJournal::new()), Arc::new(tool));
    Runtime::start(world(journal, provider, vec![tool])).await.expect("the runtime starts")
}

/// The names of events, each with the number of its encodings.
type Encoded = Arc<Mutex<BTreeMap<String, usize>>>;

fn count(encoded: &Encoded, event: String) -> bytes::Bytes {
    *encoded.lock().unwrap().entry(event.clone()).or_default() += 1;
    event.into()
}

#[tokio::test(start_paused = true)]
async fn an_entry_of_the_feed_is_encoded_once_for_all_watchers() {
    let runtime = Arc::new(start().await);
    let encoded = Encoded::default();
    let (mut watching, mut readers) = (Vec::new(), Vec::new());
    for _ in 0..WATCHERS {
        let (mut feed, encoded) = (runtime.feed(FeedCursor::default()), Arc::clone(&encoded));
        let (ready, is_ready) = oneshot::channel();
        readers.push(is_ready);
        watching.push(tokio::spawn(async move {
            ready.send(()).unwrap();
            let mut seen = Vec::new();
            loop {
                let entry = feed.next().await.unwrap();
                let bytes =
                    entry.encoded(|entry| Ok::<_, ()>(count(&encoded, entry.cursor.to_string()))).unwrap();
                assert_eq!(bytes, entry.entry().cursor.to_string());
                seen.push(bytes.as_ptr() as usize);
                if matches!(&entry.entry().record, Ok(record) if matches!(record.body, Body::RunEnded(_))) {
                    return seen;
                }
            }
        }));
    }
    join_all(readers).await;
    runtime.submit(RunRequest::new("a")).await.unwrap();
    let seen: BTreeSet<_> = join_all(watching).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(seen.len(), 1, "all send the same bytes");
    let encoded = encoded.lock().unwrap();
    assert!(encoded.len() > 10 && encoded.values().all(|count| *count == 1), "{encoded:?}");
}

#[tokio::test(start_paused = true)]
async fn a_live_event_of_a_session_is_encoded_once_for_all_watchers() {
    let runtime = Arc::new(start().await);
    let encoded = Encoded::default();
    let accepted = runtime.submit(RunRequest::new("a")).await.unwrap();
    // The session is watched before its first model call is answered; what was durable by then is read by each watcher.
    let (mut watching, mut readers) = (Vec::new(), Vec::new());
    for _ in 0..WATCHERS {
        let (mut watch, encoded) = (runtime.watch(accepted.session, 1), Arc::clone(&encoded));
        let (ready, is_ready) = oneshot::channel();
        readers.push(is_ready);
        watching.push(tokio::spawn(async move {
            let mut ready = Some(ready);
            loop {
                let shared = watch.next_shared().await.unwrap();
                let event = shared.event();
                let name = |event: &SessionEvent| format!("{} {:?}", event.seq, event.body);
                let bytes = shared.encoded(|event| Ok::<_, ()>(count(&encoded, name(event)))).unwrap();
                assert_eq!(bytes, name(event));
                if let EventBody::ThinkingStart { .. } = event.body {
                    ready.take().map_or(Ok(()), |ready| ready.send(())).unwrap();
                }
                if matches!(&event.body, EventBody::Recorded { record } if matches!(record.body, Body::RunEnded(_)))
                {
                    return;
                }
            }
        }));
    }
    join_all(readers).await;
    encoded.lock().unwrap().clear();
    join_all(watching).await.into_iter().for_each(Result::unwrap);
    let encoded = encoded.lock().unwrap();
    assert!(encoded.keys().any(|event| event.contains("ToolProgress")), "{encoded:?}");
    let live = encoded.iter().filter(|(event, _)| !event.contains("ModelStarted"));
    assert!(live.clone().count() > 10 && live.into_iter().all(|(_, count)| *count == 1), "{encoded:?}");
}
