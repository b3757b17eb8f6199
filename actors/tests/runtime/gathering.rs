//! The number of appends of an iteration: results that arrive together are written together.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::future::BoxFuture;
use hermod_actors::{
    RunRequest, Runtime,
    model::{CallEnd, EffectClass, Outcome, RunState, Seq, SessionId, StopReason},
    port::{Journal, JournalError, ReadFuture, RowReader, StoredRecord, Tool, WriteOp, WriteOutcome},
};
use hermod_testkit::{MemoryJournal, ScriptedProvider, ScriptedTool, calls, says, world};
use serde_json::json;

/// Counts appends.
#[derive(Debug, Default)]
struct Counting {
    journal: MemoryJournal,
    appends: AtomicUsize,
}

impl Journal for Counting {
    fn commit(&self, batch: Vec<WriteOp>) -> BoxFuture<'static, Result<Vec<WriteOutcome>, JournalError>> {
        let appends = batch.iter().filter(|write| matches!(write, WriteOp::Append(_))).count();
        self.appends.fetch_add(appends, Ordering::SeqCst);
        self.journal.commit(batch)
    }

    fn records(&self, session: SessionId, from: Seq, max: usize) -> ReadFuture<Vec<StoredRecord>> {
        self.journal.records(session, from, max)
    }

    fn rows(&self) -> &dyn RowReader {
        self.journal.rows()
    }
}

/// A tool whose calls take `ms` milliseconds.
fn taking(name: &str, ms: u64) -> Arc<dyn Tool> {
    Arc::new(ScriptedTool::new(name, EffectClass::Pure, move |_| async move {
        if ms > 0 {
            tokio::time::sleep(Duration::from_millis(ms)).await;
        }
        CallEnd::ok("done")
    }))
}

async fn start(asked: &'static [&'static str]) -> (Arc<Counting>, Runtime) {
    let provider = ScriptedProvider::new(Duration::from_millis(100), move |view| {
        let called = view.iter().any(|message| message["role"] == "tool");
        let each: Vec<_> = asked.iter().map(|tool| (*tool, json!({}))).collect();
        Ok(if called { says("done") } else { calls(&each) })
    });
    let journal = Arc::new(Counting::default());
    let tools = vec![taking("quick", 0), taking("slow", 1_000), taking("slower", 60_000)];
    let world = world(Arc::<Counting>::clone(&journal), provider, tools);
    (journal, Runtime::start(world).await.expect("the runtime starts"))
}

/// Checks the number of appends of a run with one answer that makes these calls.
async fn check(asked: &'static [&'static str], appends: usize) {
    let (journal, runtime) = start(asked).await;
    let result = runtime.run(RunRequest::new("do it")).await.expect("it ends");
    assert_eq!(result.ended.outcome, Outcome::Completed, "{asked:?}");
    assert_eq!(journal.appends.load(Ordering::SeqCst), appends, "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn results_that_come_together_are_one_append() {
    // The appends: accepted, answered, results, answered.
    check(&["quick"], 4).await;
    check(&["quick", "quick", "quick", "quick"], 4).await;
    check(&["slow", "slow", "slow"], 4).await;
    // A result does not wait for a call that takes longer.
    check(&["quick", "slow", "quick"], 5).await;
    check(&["quick", "slow", "slower"], 6).await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_no_result() {
    let (_, runtime) = start(&["quick", "slower"]).await;
    let run = runtime.submit(RunRequest::new("do it")).await.unwrap().run;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let began = tokio::time::Instant::now();
    runtime.stop(run, StopReason::Command).await.unwrap();
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_eq!(runtime.row(run).await.unwrap().state, RunState::Running);
}
