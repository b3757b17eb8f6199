//! What watchers get, live and from the journal. On virtual time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use hermod_actors::{
    RunRequest, Runtime, Watch,
    model::{
        Body, CallEnd, EffectClass, EventBody, Failure, FailureClass, Lifecycle, ModelAnswer, ModelProfile,
        SessionEvent,
    },
    port::{DeltaSink, Encoder, Journal, ModelProvider, ModelRequest, Tool},
};
use hermod_testkit::{MemoryJournal, PlainEncoder, ScriptedProvider, ScriptedTool, calls, says, world};
use serde_json::json;

use crate::not_made::Poison;

const WORDS: [&str; 3] = ["one ", "two ", "three"];

/// A model that streams reasoning and text word by word, and whose first attempt breaks off after two words.
#[derive(Debug)]
struct Breaking {
    attempts: AtomicUsize,
    encoder: Arc<PlainEncoder>,
}

impl ModelProvider for Breaking {
    fn encoder(&self, _: &str, _: &ModelProfile) -> Arc<dyn Encoder> {
        Arc::<PlainEncoder>::clone(&self.encoder)
    }

    fn call<'a>(
        &'a self,
        _: ModelRequest,
        deltas: &'a dyn DeltaSink,
    ) -> BoxFuture<'a, Result<ModelAnswer, Failure>> {
        async move {
            let breaks = self.attempts.fetch_add(1, Ordering::SeqCst) == 0;
            tokio::time::sleep(Duration::from_millis(10)).await;
            deltas.reasoning("hm");
            for word in &WORDS[..if breaks { 2 } else { 3 }] {
                tokio::time::sleep(Duration::from_millis(10)).await;
                deltas.text(word);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
            match breaks {
                true => Err(Failure::new(FailureClass::IncompleteStream, "broke off")),
                false => Ok(says(&WORDS.concat())),
            }
        }
        .boxed()
    }
}

async fn breaking() -> Runtime {
    let journal: Arc<dyn Journal> = Arc::new(MemoryJournal::new());
    let mut world = world(journal, ScriptedProvider::new(Duration::ZERO, |_| Ok(says("x"))), vec![]);
    let provider = Breaking { attempts: AtomicUsize::new(0), encoder: Arc::default() };
    world.providers = vec![("test".into(), Arc::new(provider), 10)];
    Runtime::start(world).await.expect("the runtime starts")
}

/// A runtime whose model calls a tool that reports progress, `times` times, then answers.
async fn noting(journal: &MemoryJournal, times: usize) -> Runtime {
    let provider = ScriptedProvider::new(Duration::from_millis(10), move |view| {
        match view.iter().filter(|message| message["role"] == "tool").count() {
            seen if seen < times => Ok(calls(&[("note", json!({"n": seen}))])),
            _ => Ok(says("done")),
        }
    });
    let tool = ScriptedTool::new("note", EffectClass::Pure, |invocation| async move {
        invocation.progress.report("half");
        tokio::time::sleep(Duration::from_millis(5)).await;
        CallEnd::ok("noted")
    });
    let (journal, tool): (Arc<dyn Journal>, Arc<dyn Tool>) = (Arc::new(journal.clone()), Arc::new(tool));
    Runtime::start(world(journal, provider, vec![tool])).await.expect("the runtime starts")
}

fn is_last(event: &SessionEvent) -> bool {
    matches!(&event.body, EventBody::Recorded { record } if matches!(record.body, Body::RunEnded(_)))
}

/// All events up to the end of the first run.
async fn until_the_end(watch: &mut Watch) -> Vec<SessionEvent> {
    let mut events = Vec::new();
    loop {
        let event = watch.next().await.expect("an event");
        let last = is_last(&event);
        events.push(event);
        if last {
            return events;
        }
    }
}

/// The events that later watchers get too.
fn lasting(events: &[SessionEvent]) -> Vec<(u64, EventBody)> {
    let lasts = |event: &&SessionEvent| {
        !matches!(
            event.body,
            EventBody::TextDelta { .. } | EventBody::ReasoningDelta { .. } | EventBody::ToolProgress { .. }
        )
    };
    events.iter().filter(lasts).map(|event| (event.seq, event.body.clone())).collect()
}

fn names(events: &[SessionEvent]) -> Vec<&'static str> {
    let told = events.iter().filter(|event| !matches!(event.body, EventBody::Recorded { .. }));
    told.map(|event| event.body.name()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_retry_voids_what_was_shown_and_the_text_is_whole() {
    let runtime = breaking().await;
    let accepted = runtime.submit(RunRequest::new("a")).await.unwrap();
    let events = until_the_end(&mut runtime.watch(accepted.session, 1)).await;
    let (mut text, mut voided) = (String::new(), Vec::new());
    for event in &events {
        if let EventBody::TextDelta { delta, .. } = &event.body {
            text.push_str(delta);
        }
        if let EventBody::Retry { .. } = &event.body {
            voided.push(std::mem::take(&mut text));
        }
    }
    assert_eq!((voided, text), (vec!["one two ".to_owned()], WORDS.concat()));
    let attempt = ["status", "thinking.start", "reasoning.delta", "text.delta", "text.delta"];
    assert_eq!(names(&events)[..2], ["status", "lifecycle"]);
    assert_eq!(names(&events)[2..7], attempt);
    assert_eq!(names(&events)[7..10], ["thinking.end", "status", "retry"]);
    assert_eq!(names(&events)[10..15], attempt);
    assert_eq!(names(&events)[15..], ["text.delta", "thinking.end", "iteration.end", "status", "lifecycle"]);
    assert!(events.iter().all(|event| event.body.name() == "record" || event.run == Some(accepted.run)));
}

#[tokio::test(start_paused = true)]
async fn a_late_watcher_gets_the_text_of_the_attempt_under_way_once() {
    for delay in [5, 15, 25, 35, 45] {
        let runtime = breaking().await;
        let accepted = runtime.submit(RunRequest::new("a")).await.unwrap();
        tokio::time::sleep(Duration::from_millis(delay)).await;
        let events = until_the_end(&mut runtime.watch(accepted.session, 1)).await;
        let mut shown = String::new();
        for event in events.iter().take_while(|event| !matches!(event.body, EventBody::Retry { .. })) {
            if let EventBody::TextDelta { delta, .. } | EventBody::ReasoningDelta { delta, .. } = &event.body
            {
                shown.push_str(delta);
            }
        }
        // The first attempt breaks off at 40 ms.
        assert_eq!(shown, if delay < 40 { "hmone two " } else { "" }, "after {delay} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn tools_are_told_with_their_progress() {
    let runtime = noting(&MemoryJournal::new(), 1).await;
    let accepted = runtime.submit(RunRequest::new("a")).await.unwrap();
    let events = until_the_end(&mut runtime.watch(accepted.session, 1)).await;
    let tools: Vec<_> = names(&events).into_iter().filter(|name| name.starts_with("tool")).collect();
    assert_eq!(tools, ["tool_call.parsed", "tool.start", "tool.progress", "tool.end"]);
    let ends = names(&events).iter().filter(|name| **name == "iteration.end").count();
    assert_eq!(ends, 2);
}

#[tokio::test(start_paused = true)]
async fn a_replayed_watcher_sees_what_a_live_one_saw_from_wherever_it_goes_on() {
    let journal = MemoryJournal::new();
    let runtime = noting(&journal, 3).await;
    let accepted = runtime.submit(RunRequest::new("a")).await.unwrap();
    let live = lasting(&until_the_end(&mut runtime.watch(accepted.session, 1)).await);
    runtime.suspend().await;
    let runtime = noting(&journal.reopened(), 3).await;
    for seen in 0..live.last().unwrap().0 {
        let later = until_the_end(&mut runtime.watch(accepted.session, seen + 1)).await;
        // An event is sent again only if the record that it follows from was not received whole.
        let rest = live.iter().skip_while(|(seq, body)| {
            let own = u64::from(!matches!(body, EventBody::Recorded { .. }));
            seq + own <= seen
        });
        assert_eq!(lasting(&later), rest.cloned().collect::<Vec<_>>(), "after {seen}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_watcher_is_dropped_and_goes_on_without_a_gap_or_a_repeat() {
    let runtime = noting(&MemoryJournal::new(), 100).await;
    let accepted = runtime.submit(RunRequest::new("a")).await.unwrap();
    let mut slow = runtime.watch(accepted.session, 1);
    let mut seen = vec![slow.next().await.unwrap()];
    while !is_last(&seen[seen.len() - 1]) {
        // The watcher takes ten events, then reads nothing while hundreds arrive.
        for _ in 0..10 {
            seen.push(slow.next().await.unwrap());
            if is_last(&seen[seen.len() - 1]) {
                break;
            }
        }
        tokio::time::sleep(Duration::from_millis(900)).await;
    }
    let replayed = until_the_end(&mut runtime.watch(accepted.session, 1)).await;
    assert_eq!(lasting(&seen), lasting(&replayed));
    let records: Vec<u64> =
        seen.iter().filter(|event| event.body.name() == "record").map(|event| event.seq).collect();
    assert_eq!(records, (1..=records.len() as u64).collect::<Vec<_>>());
    assert!(records.len() > 400, "far more than a buffer holds: {}", records.len());
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_session_is_given_up_is_told_to_its_watchers() {
    let journal: Arc<dyn Journal> = Arc::new(MemoryJournal::new());
    let mut world = world(journal, ScriptedProvider::new(Duration::ZERO, |_| Ok(says("x"))), vec![]);
    world.providers = vec![("test".into(), Arc::new(Poison), 10)];
    let runtime = Runtime::start(world).await.unwrap();
    let accepted = runtime.submit(RunRequest::new("a")).await.unwrap();
    let events = until_the_end(&mut runtime.watch(accepted.session, 1)).await;
    let error = EventBody::Lifecycle(Lifecycle::Error);
    assert!(events.iter().any(|event| event.body == error), "{:?}", names(&events));
}
