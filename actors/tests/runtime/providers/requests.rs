//! What a Provider actor requests by itself: limits from the list of models, and free probes of open breakers.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use hermod_actors::{
    RunRequest, RunResult, Runtime, SessionChoice,
    model::{Body, BreakerState, Failure, FailureClass, ModelAnswer, ModelLimits, ModelProfile},
    port::{DeltaSink, Encoder, ModelProvider, ModelRequest},
};
use hermod_testkit::{ActorFault, ActorKind, MemoryJournal, ScriptedProvider, VirtualClock, inject, says};
use tokio::time::{Instant, sleep};

use super::{Side, of, run};

type Hook<T> = Arc<dyn Fn(usize) -> BoxFuture<'static, T> + Send + Sync>;

/// A provider with a list of models and a free probe. The hooks get the number of the request, from 0.
#[derive(Clone)]
struct Listing {
    provider: ScriptedProvider,
    since: Instant,
    limits: Hook<Option<ModelLimits>>,
    probe: Hook<Result<(), Failure>>,
    /// Seconds at which the list was requested.
    listed: Arc<Mutex<Vec<u64>>>,
    /// Seconds at which a free probe was requested.
    probed: Arc<Mutex<Vec<u64>>>,
}

impl std::fmt::Debug for Listing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listing").finish_non_exhaustive()
    }
}

impl Listing {
    fn new(side: &Side) -> Self {
        Self {
            provider: side.provider.clone(),
            since: Instant::now(),
            limits: Arc::new(|_| async { None }.boxed()),
            probe: Arc::new(|_| async { Ok(()) }.boxed()),
            listed: Arc::default(),
            probed: Arc::default(),
        }
    }

    /// Its list answers from the request `from` on with this window, after a second.
    fn with_window(self, from: usize, window: u64) -> Self {
        let limits = move |n: usize| async move {
            sleep(Duration::from_secs(1)).await;
            (n >= from).then_some(ModelLimits { window: Some(window), max_output: None })
        };
        Self { limits: Arc::new(move |n| limits(n).boxed()), ..self }
    }

    fn with_probe(
        self,
        probe: impl Fn(usize) -> BoxFuture<'static, Result<(), Failure>> + Send + Sync + 'static,
    ) -> Self {
        Self { probe: Arc::new(probe), ..self }
    }

    fn note(&self, times: &Mutex<Vec<u64>>) -> usize {
        let mut times = times.lock().expect("no panic holds it");
        times.push(self.since.elapsed().as_secs());
        times.len() - 1
    }

    fn listed(&self) -> Vec<u64> {
        self.listed.lock().expect("no panic holds it").clone()
    }

    fn probed(&self) -> Vec<u64> {
        self.probed.lock().expect("no panic holds it").clone()
    }
}

impl ModelProvider for Listing {
    fn encoder(&self, model: &str, traits: &ModelProfile) -> Arc<dyn Encoder> {
        self.provider.encoder(model, traits)
    }

    fn call<'a>(
        &'a self,
        request: ModelRequest,
        deltas: &'a dyn DeltaSink,
    ) -> BoxFuture<'a, Result<ModelAnswer, Failure>> {
        self.provider.call(request, deltas)
    }

    fn model_limits<'a>(&'a self, _: &'a str) -> Option<BoxFuture<'a, Option<ModelLimits>>> {
        Some(async { (self.limits)(self.note(&self.listed)).await }.boxed())
    }

    fn probe(&self) -> Option<BoxFuture<'_, Result<(), Failure>>> {
        Some(async { (self.probe)(self.note(&self.probed)).await }.boxed())
    }
}

/// A runtime whose providers are these, named a and b; the first has the list and the probe.
async fn start(first: &Listing, second: &[&Side], journal: &MemoryJournal) -> Runtime {
    let side = Side { provider: first.provider.clone(), ..Side::answering() };
    let sides: Vec<&Side> = std::iter::once(&side).chain(second.iter().copied()).collect();
    let mut world = of(&sides, (journal, &Arc::new(VirtualClock::new(1))));
    world.providers[0].1 = Arc::new(first.clone());
    Runtime::start(world).await.expect("the runtime starts")
}

/// The context window with which a run was accepted.
async fn window(runtime: &Runtime, result: &RunResult) -> Option<u64> {
    let records = runtime.journal(result.session, 1).await.expect("it is read");
    let accepted = records.iter().find_map(|(_, record)| {
        let Body::RunAccepted(accepted) = &record.body else { return None };
        Some(Arc::clone(&accepted.spec))
    });
    let spec = accepted.expect("it was accepted");
    spec.profile_of(&spec.chain[0]).window
}

async fn run_new(runtime: &Runtime) -> RunResult {
    let request = RunRequest { session: SessionChoice::New, ..RunRequest::new("do it") };
    runtime.run(request).await.expect("it has an outcome")
}

fn unreached() -> Result<(), Failure> {
    Err(Failure::new(FailureClass::Network, "connection refused"))
}

#[tokio::test(start_paused = true)]
async fn the_list_is_requested_at_the_start_and_daily_and_runs_share_the_request() {
    let first = Listing::new(&Side::failing(0, FailureClass::Server)).with_window(0, 40_000);
    let runtime = start(&first, &[], &MemoryJournal::new()).await;
    sleep(Duration::from_millis(1)).await;
    assert_eq!(first.listed(), [0], "before the first run");
    let results = futures::future::join_all((0..5).map(|_| run_new(&runtime))).await;
    for result in &results {
        assert_eq!(window(&runtime, result).await, Some(40_000));
    }
    assert_eq!(first.listed(), [0], "five runs and the start share one request");
    sleep(Duration::from_hours(25)).await;
    assert_eq!(first.listed(), [0, 86_401]);
    let begun = Instant::now();
    assert_eq!(window(&runtime, &run_new(&runtime).await).await, Some(40_000));
    assert!(begun.elapsed() < Duration::from_secs(1), "the limits are known before the run");
    assert_eq!(first.listed().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_does_not_answer_holds_only_the_first_run() {
    let never = Listing::new(&Side::failing(0, FailureClass::Server));
    let never = Listing { limits: Arc::new(|_| std::future::pending().boxed()), ..never };
    let runtime = start(&never, &[], &MemoryJournal::new()).await;
    let begun = Instant::now();
    assert_eq!(window(&runtime, &run_new(&runtime).await).await, None);
    assert!(begun.elapsed() < Duration::from_millis(2_100), "{:?}", begun.elapsed());
    for _ in 0..3 {
        sleep(Duration::from_mins(11)).await;
        let begun = Instant::now();
        assert_eq!(window(&runtime, &run_new(&runtime).await).await, None);
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    }
    assert_eq!(never.listed()[..2], [0, 602]);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_panics_is_a_list_that_does_not_answer() {
    let panics = Listing::new(&Side::failing(0, FailureClass::Server));
    let panics = Listing { limits: Arc::new(|_| async { panic!("a bad list") }.boxed()), ..panics };
    let runtime = start(&panics, &[], &MemoryJournal::new()).await;
    assert_eq!(window(&runtime, &run_new(&runtime).await).await, None);
    assert_eq!(panics.listed(), [0]);
    let tree = runtime.supervision_tree().await.expect("it runs");
    assert!(tree.children.iter().all(|child| child.restarts == 0), "{tree:?}");
    sleep(Duration::from_mins(11)).await;
    assert_eq!(panics.listed(), [0, 600], "it is requested again");
}

/// A provider that cannot be reached before this second, and the number of calls that have failed for it.
fn down(until: u64) -> (Listing, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let side = Side::new(move |_, now, _| match now < Duration::from_secs(until) {
        true => {
            count.fetch_add(1, Ordering::Relaxed);
            Err(Failure::new(FailureClass::Network, "connection refused"))
        }
        false => Ok(says("from the first")),
    });
    let listing = Listing::new(&side);
    let since = listing.since;
    let probe = move |_| {
        let is_up = since.elapsed() >= Duration::from_secs(until);
        async move { if is_up { Ok(()) } else { unreached() } }.boxed()
    };
    (listing.with_probe(probe), calls)
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_is_down_is_probed_without_a_call() {
    let (first, calls) = down(200);
    let second = Side::answering();
    let runtime = start(&first, &[&second], &MemoryJournal::new()).await;
    // The third failure opens the breaker.
    assert_eq!(run(&runtime).await.text(), Some("from the second"));
    let opened = calls.load(Ordering::Relaxed);
    assert_eq!((opened, runtime.providers().await[0].endpoint == BreakerState::Closed), (3, false));
    // Runs continue with the second provider, and none of them calls the first, which is still unreachable.
    for _ in 0..20 {
        sleep(Duration::from_secs(10)).await;
        run(&runtime).await;
    }
    assert_eq!(calls.load(Ordering::Relaxed), opened);
    // Cooldowns of 30, 60 and 300 s, each with a free probe a second before its end.
    sleep(Duration::from_mins(5)).await;
    let probed = first.probed();
    assert_eq!(probed.len(), 3, "{probed:?}");
    assert!(probed.windows(2).zip([59, 299]).all(|(pair, gap)| pair[1] - pair[0] == gap), "{probed:?}");
    assert_eq!(runtime.providers().await[0].endpoint, BreakerState::Closed, "the third probe closed it");
    assert_eq!(run(&runtime).await.text(), Some("from the first"));
    sleep(Duration::from_hours(1)).await;
    assert_eq!(first.probed().len(), 3, "a closed breaker is not probed");
}

#[tokio::test(start_paused = true)]
async fn calls_wait_for_a_probe_that_takes_long_and_a_lost_one_leaves_the_trial_to_them() {
    // The probe neither answers nor fails. After 15 s it is given up without a result, and the trial is a call.
    let (first, calls) = down(31);
    let first = first.with_probe(|_| std::future::pending().boxed());
    let second = Side::answering();
    let runtime = start(&first, &[&second], &MemoryJournal::new()).await;
    run(&runtime).await;
    let opened = calls.load(Ordering::Relaxed);
    sleep(Duration::from_secs(35)).await;
    assert_eq!(run(&runtime).await.text(), Some("from the second"), "the probe is in flight");
    sleep(Duration::from_secs(15)).await;
    assert_eq!(run(&runtime).await.text(), Some("from the first"));
    assert_eq!((calls.load(Ordering::Relaxed), first.probed().len()), (opened, 1));

    let (first, _) = down(31);
    let first = first.with_probe(|_| async { panic!("a bad probe") }.boxed());
    let runtime = start(&first, &[&second], &MemoryJournal::new()).await;
    run(&runtime).await;
    sleep(Duration::from_secs(35)).await;
    assert_eq!(run(&runtime).await.text(), Some("from the first"));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_begins_when_the_probe_has_closed_the_breaker() {
    let (first, calls) = down(31);
    let first = first.with_probe(|_| {
        async {
            sleep(Duration::from_secs(5)).await;
            Ok(())
        }
        .boxed()
    });
    let runtime = start(&first, &[], &MemoryJournal::new()).await;
    assert_eq!(run(&runtime).await.text(), None, "it was never reached");
    let found = calls.load(Ordering::Relaxed);
    let waits = run_new(&runtime);
    let ended =
        tokio::time::timeout(Duration::from_mins(1), waits).await.expect("the end of the probe admits it");
    assert_eq!(ended.text(), Some("from the first"));
    assert_eq!((calls.load(Ordering::Relaxed), first.probed().len()), (found, 1));
    let seconds = first.since.elapsed().as_secs();
    assert!((34..40).contains(&seconds), "{seconds}");
}

#[tokio::test(start_paused = true)]
async fn failures_of_a_model_are_not_probed_and_its_trial_is_a_call() {
    for class in [FailureClass::Overloaded, FailureClass::Auth] {
        let first = Listing::new(&Side::failing(3, class.clone()));
        let second = Side::answering();
        let runtime = start(&first, &[&second], &MemoryJournal::new()).await;
        for _ in 0..3 {
            run(&runtime).await;
        }
        sleep(Duration::from_hours(1)).await;
        assert_eq!(first.probed(), [0; 0], "{class:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_restarted_actor_probes_what_opened_before() {
    let (first, _) = down(40);
    let side = Side { provider: first.provider.clone(), ..Side::answering() };
    let clock = Arc::new(VirtualClock::new(1));
    let mut world = of(&[&side, &Side::answering()], (&MemoryJournal::new(), &clock));
    world.providers[0] = ("test".into(), Arc::new(first.clone()), 1_000);
    world.defaults.spec.chain[0] = "test/m".parse().expect("it is well formed");
    let runtime = Runtime::start(world).await.expect("the runtime starts");
    run(&runtime).await;
    inject(&runtime, ActorKind::Provider, ActorFault::Panic).await;
    sleep(Duration::from_secs(100)).await;
    assert_eq!(first.probed().len(), 2, "{:?}", first.probed());
    assert_eq!(run(&runtime).await.text(), Some("from the first"));
}
