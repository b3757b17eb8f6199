//! What a run under way waits for, as the runtime reports it.

use std::{
    future::ready,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::future::BoxFuture;
use hermod_actors::{
    RunError, RunRequest, Runtime, RuntimeDependencies, SubmitError, Watch,
    model::{
        DiskFull, EffectClass, EventBody, Failure, FailureClass, LowDiskSpace, Outcome, RunId, RunStatus,
        RunWait, Seq, SessionId, Timestamp, WaitKind,
    },
    port::{
        Clock, DiskSpaceGauge, Journal, JournalError, ReadFuture, RowReader, StoredRecord, Tool, WriteOp,
        WriteOutcome,
    },
};
use hermod_testkit::{
    FaultyJournal, JournalFault, MemoryJournal, ScriptedProvider, ScriptedTool, VirtualClock, calls, says,
    world,
};
use serde_json::json;
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

/// The names of a run's waits.
async fn names(runtime: &Runtime, run: RunId) -> Vec<&'static str> {
    let waits = runtime.waits(run).await.expect("the store is read");
    waits.iter().map(|wait: &RunWait| wait.kind.name()).collect()
}

/// A model and a tool that take 10 s, one call at a time each.
fn slow() -> RuntimeDependencies {
    let provider = ScriptedProvider::new(Duration::from_secs(10), |view| {
        let asks = json!({});
        Ok(match view.last().is_some_and(|message| message["role"] == "tool") {
            true => says("done"),
            false => calls(&[("nap", asks.clone()), ("nap", asks)]),
        })
    });
    let nap = ScriptedTool::new("nap", EffectClass::Pure, |_| async {
        sleep(Duration::from_secs(10)).await;
        hermod_actors::model::CallEnd::ok("slept")
    });
    let tools: Vec<Arc<dyn Tool>> = vec![Arc::new(nap)];
    let mut world = world(Arc::new(MemoryJournal::new()), provider.clone(), tools);
    world.providers = vec![("test".into(), Arc::new(provider) as _, 1)];
    world.tool_calls = 1;
    world
}

/// The waits that a watcher gets until a run has ended.
async fn told(mut watch: Watch) -> Vec<(Arc<str>, Option<Timestamp>)> {
    let mut told = Vec::new();
    loop {
        let body = watch.next().await.expect("the store is read").body;
        if matches!(body, EventBody::Status(RunStatus::Ended(_))) {
            return told;
        }
        if let EventBody::Status(RunStatus::Waiting { reason, until }) = body {
            told.push((reason, until));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_wait_of_two_runs_with_one_of_each_has_its_name() {
    let runtime = Runtime::start(slow()).await.expect("the runtime starts");
    let first = runtime.submit(RunRequest::new("one")).await.expect("it is accepted");
    let second = runtime.submit(RunRequest::new("two")).await.expect("it is accepted");
    let told = tokio::spawn(told(runtime.watch(second.session, 1)));
    sleep(Duration::from_secs(5)).await;
    assert_eq!(names(&runtime, first.run).await, ["model"]);
    assert_eq!(names(&runtime, second.run).await, ["lease"]);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(names(&runtime, first.run).await, ["tool", "permit"]);
    assert_eq!(names(&runtime, second.run).await, ["model"]);
    let waits = runtime.waits(first.run).await.expect("the store is read");
    // The tool has no limit of its own: 10 min, and a minute to store its result.
    assert_eq!(waits[0].until.map(|until| until.ms_since(waits[0].since)), Some(660_000));
    let one = runtime.wait(first.run, None).await.expect("it ends");
    assert_eq!(names(&runtime, first.run).await, Vec::<&str>::new(), "{}", one.ended);
    runtime.wait(second.run, None).await.expect("it ends");
    // The watcher got the wait for a permit.
    let full = (Arc::from("as many calls as may be are under way"), None);
    assert_eq!(told.await.expect("it does not panic"), [full]);
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_does_not_answer_is_seen() {
    let provider = ScriptedProvider::new(Duration::from_secs(1), |_| Ok(says("done")));
    let journal = Arc::new(MemoryJournal::new());
    // The commits: taking the session over, accepting the run, and the answer, which is never acknowledged.
    let faulty = FaultyJournal::new(journal, JournalFault::LostAnswer, 3);
    let runtime = Runtime::start(world(Arc::new(faulty), provider, vec![])).await.expect("it starts");
    let accepted = runtime.submit(RunRequest::new("hi")).await.expect("it is accepted");
    assert_eq!(runtime.health_probe().writing_since(), None);
    assert_eq!(names(&runtime, accepted.run).await, ["model"]);
    sleep(Duration::from_millis(1_500)).await;
    let since = runtime.health_probe().writing_since().expect("the answer is being written");
    assert_eq!(since.ms_since(accepted.at), 1_000);
    sleep(Duration::from_secs(5)).await;
    assert_eq!(runtime.health_probe().writing_since(), Some(since));
}

/// A journal whose commits find the disk full while the watched value is true.
#[derive(Debug, Clone)]
struct Full(MemoryJournal, watch::Receiver<bool>);

impl Journal for Full {
    fn commit(&self, batch: Vec<WriteOp>) -> BoxFuture<'static, Result<Vec<WriteOutcome>, JournalError>> {
        let (inner, mut full) = (self.0.clone(), self.1.clone());
        Box::pin(async move {
            full.wait_for(|full| !full).await.expect("somebody says");
            inner.commit(batch).await
        })
    }

    fn records(&self, session: SessionId, from: Seq, max: usize) -> ReadFuture<Vec<StoredRecord>> {
        self.0.records(session, from, max)
    }

    fn rows(&self) -> &dyn RowReader {
        self.0.rows()
    }

    fn disk_full(&self) -> Option<DiskFull> {
        self.1.borrow().then(|| DiskFull { path: "/s/store".into(), needed_bytes: 4_096 })
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_is_told_at_once_and_waited_for() {
    let provider = ScriptedProvider::new(Duration::from_secs(1), |_| Ok(says("done")));
    let (say, full) = watch::channel(false);
    let journal = Full(MemoryJournal::new(), full);
    let runtime = Runtime::start(world(Arc::new(journal), provider, vec![])).await.expect("it starts");
    let accepted = runtime.submit(RunRequest::new("hi")).await.expect("it is accepted");
    say.send_replace(true);
    sleep(Duration::from_millis(1_001)).await;
    let waits = runtime.waits(accepted.run).await.expect("the store is read");
    let is_full = |wait: &RunWait| matches!(&wait.kind, WaitKind::Disk { full: Some(full) } if full.needed_bytes == 4_096);
    assert!(waits.iter().any(is_full), "{waits:?}");
    sleep(Duration::from_hours(48)).await;
    assert_eq!(runtime.health_probe().disk_full().map(|missing| missing.path), Some("/s/store".to_owned()));
    say.send_replace(false);
    let result = runtime.wait(accepted.run, None).await.expect("it ends");
    assert_eq!(result.ended.outcome, Outcome::Completed);
}

/// A gauge that reports low disk space while the watched value is true.
#[derive(Debug)]
struct Little(watch::Receiver<bool>);

impl DiskSpaceGauge for Little {
    fn low_disk_space(&self) -> BoxFuture<'static, Option<LowDiskSpace>> {
        let shortage = self.0.borrow().then(|| LowDiskSpace { path: "/s".into(), free: 1, reserve: 2 });
        Box::pin(ready(shortage))
    }
}

#[tokio::test(start_paused = true)]
async fn too_little_room_refuses_new_runs_alone() {
    let (say, little) = watch::channel(false);
    let world = RuntimeDependencies { space: Some(Arc::new(Little(little))), ..slow() };
    let runtime = Runtime::start(world).await.expect("it starts");
    let request = || RunRequest { idempotency_key: Some("k".into()), ..RunRequest::new("hi") };
    let first = runtime.submit(request()).await.expect("there is room");
    say.send_replace(true);
    let refused = runtime.submit(RunRequest::new("hi")).await.expect_err("there is too little");
    let RunError::NotAccepted(SubmitError::LowDiskSpace(shortage)) = refused else { panic!("{refused}") };
    assert_eq!((shortage.free, shortage.reserve), (1, 2));
    assert_eq!(runtime.list(None, 10).await.expect("the store is read").len(), 1, "something was begun");
    assert_eq!(runtime.submit(request()).await.expect("it is known").run, first.run);
    let result = runtime.wait(first.run, None).await.expect("it ends");
    assert_eq!(result.ended.outcome, Outcome::Completed);
    say.send_replace(false);
    runtime.submit(RunRequest::new("hi")).await.expect("there is room again");
}

/// A wall clock that is ahead of tokio's time, as after a sleep of the machine.
#[derive(Debug)]
struct Ahead(VirtualClock, AtomicU64);

impl Clock for Ahead {
    fn at(&self) -> Timestamp {
        self.0.at().plus_ms(self.1.load(Ordering::Relaxed))
    }

    fn monotonic_ms(&self) -> u64 {
        self.0.monotonic_ms()
    }

    fn random(&self) -> u128 {
        self.0.random()
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_slept_through_a_reset_does_not_wait_for_it_again() {
    let clock = Arc::new(Ahead(VirtualClock::new(1), AtomicU64::new(0)));
    let reset = clock.at().plus_ms(3_600_000);
    let wall = Arc::clone(&clock);
    let provider = ScriptedProvider::new(Duration::from_secs(1), move |_| match wall.at() < reset {
        true => {
            let class = FailureClass::RateLimited { retry_after_ms: None, reset_at: Some(reset) };
            Err(Failure::new(class, "come back later"))
        }
        false => Ok(says("back")),
    });
    let mut world = world(Arc::new(MemoryJournal::new()), provider, vec![]);
    world.clock = Arc::clone(&clock) as Arc<dyn Clock>;
    let runtime = Runtime::start(world).await.expect("the runtime starts");
    let accepted = runtime.submit(RunRequest::new("hi")).await.expect("it is accepted");
    sleep(Duration::from_secs(30)).await;
    let waits = runtime.waits(accepted.run).await.expect("the store is read");
    assert!(matches!(waits[0].kind, WaitKind::Reset { .. }), "{waits:?}");
    clock.1.store(3_600_000, Ordering::Relaxed);
    let began = Instant::now();
    runtime.wait(accepted.run, None).await.expect("it ends");
    assert!(began.elapsed() <= Duration::from_secs(62), "{:?}", began.elapsed());
}
