//! Model calls whose attempt was recorded as started and never sent: they cost nothing, and the next attempt is made.
//! On virtual time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::future::BoxFuture;
use hermod_actors::{
    RunRequest, Runtime, RuntimeDependencies,
    model::{
        Body, BudgetAccount, Failure, FailureClass, ModelAnswer, ModelProfile, Outcome, RunId, SessionId,
    },
    port::{DeltaSink, Encoder, Journal, ModelProvider, ModelRequest},
};
use hermod_testkit::{FaultyJournal, JournalFault, MemoryJournal, ScriptedProvider, says, world};

const COMMIT: Duration = Duration::from_millis(50);

fn with(journal: Arc<dyn Journal>, asked: &Arc<AtomicUsize>) -> RuntimeDependencies {
    let asked = Arc::clone(asked);
    let provider = ScriptedProvider::new(Duration::from_secs(1), move |_| {
        asked.fetch_add(1, Ordering::SeqCst);
        Ok(says("done"))
    });
    world(journal, provider, Vec::new())
}

async fn account(journal: &MemoryJournal, run: RunId) -> BudgetAccount {
    journal.rows().account(run.into()).await.unwrap().expect("the run has an account")
}

/// The failure classes of the failed attempts.
async fn failures(runtime: &Runtime, session: SessionId) -> Vec<FailureClass> {
    let records = runtime.journal(session, 1).await.unwrap();
    let failures = records.into_iter().filter_map(|(_, record)| {
        let Body::ModelFailed(failed) = &record.body else { return None };
        Some(failed.failure.class.clone())
    });
    failures.collect()
}

#[tokio::test(start_paused = true)]
async fn what_a_suspension_prevents_costs_nothing() {
    let (memory, asked) = (MemoryJournal::new(), Arc::default());
    let slow = FaultyJournal::new(Arc::new(memory.clone()), JournalFault::Slow(COMMIT), 1);
    let runtime = Runtime::start(with(Arc::new(slow), &asked)).await.unwrap();
    // The first commit opens the session; the second one, with the start of the call, is in progress.
    let submitted = tokio::time::timeout(COMMIT * 3 / 2, runtime.submit(RunRequest::new("do it"))).await;
    assert!(submitted.is_err(), "it is not on disk");
    runtime.suspend().await;
    let memory = memory.reopened();
    let runtime = Runtime::start(with(Arc::new(memory.clone()), &asked)).await.unwrap();
    let row = runtime.list(None, 1).await.unwrap().remove(0);
    assert_eq!(failures(&runtime, row.session).await, [FailureClass::NotSent]);
    let before = account(&memory, row.id).await;
    assert_eq!((before.spent.tokens, before.reserved.tokens.unwrap_or(0)), (None, 0));
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    runtime.revive(row.session).unwrap();
    assert_eq!(runtime.wait(row.id, None).await.unwrap().ended.outcome, Outcome::Completed);
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    assert_eq!(account(&memory, row.id).await.spent.iterations, Some(1));
}

/// A provider whose adapter panics while it encodes a request.
#[derive(Debug)]
pub(crate) struct Poison;

impl ModelProvider for Poison {
    fn encoder(&self, _: &str, _: &ModelProfile) -> Arc<dyn Encoder> {
        panic!("poisoned")
    }

    fn call<'a>(
        &'a self,
        _: ModelRequest,
        _: &'a dyn DeltaSink,
    ) -> BoxFuture<'a, Result<ModelAnswer, Failure>> {
        unreachable!("nothing is encoded")
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_encoded_costs_nothing() {
    let memory = MemoryJournal::new();
    let mut world = with(Arc::new(memory.clone()), &Arc::default());
    world.providers = vec![("test".into(), Arc::new(Poison), 10)];
    let runtime = Runtime::start(world).await.unwrap();
    let run = runtime.submit(RunRequest::new("do it")).await.unwrap();
    assert_eq!(runtime.wait(run.run, None).await.unwrap().ended.outcome, Outcome::Failed);
    assert_eq!(failures(&runtime, run.session).await, vec![FailureClass::NotSent; 3]);
    let account = account(&memory, run.run).await;
    assert_eq!((account.spent.tokens, account.reserved.tokens.unwrap_or(0)), (None, 0));
}
