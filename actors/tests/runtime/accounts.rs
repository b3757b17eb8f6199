//! Credentials of a provider and the limits of its accounts, shared by all sessions.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{
    FutureExt,
    future::{BoxFuture, join_all},
};
use hermod_actors::{
    RunRequest, Runtime, RuntimeDependencies, SessionChoice,
    model::{
        BreakerState, CredentialId, EventBody, Failure, FailureClass, ModelAnswer, ModelProfile, Outcome,
        PoolStrategy, RateInfo, RateLimits, RateQuota, RunStatus, Timestamp,
    },
    port::{DeltaSink, Encoder, ModelProvider, ModelRequest},
};
use hermod_testkit::{MemoryJournal, PlainEncoder, ScriptedProvider, says, world};
use tokio::time::Instant;

/// The result of an attempt at this time (milliseconds since the start) with this credential.
type Script = dyn Fn(u64, CredentialId) -> Result<ModelAnswer, Failure> + Send + Sync;

/// The remaining limits at a time in milliseconds since the start.
type Info = dyn Fn(u64) -> RateInfo + Send + Sync;

/// The wall clock at the start of a test.
const BEGIN: Timestamp = Timestamp(1_767_225_600_000);

/// A provider with several credentials, which records the time and the credential of each attempt.
struct Account {
    since: Instant,
    script: Box<Script>,
    credentials: usize,
    strategy: PoolStrategy,
    limits: RateLimits,
    info: Option<Box<Info>>,
    asked: Mutex<Vec<(u64, CredentialId)>>,
    renewals: AtomicUsize,
    renews: fn(usize) -> bool,
}

impl std::fmt::Debug for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Account")
    }
}

impl Account {
    fn new(
        script: impl Fn(u64, CredentialId) -> Result<ModelAnswer, Failure> + Send + Sync + 'static,
    ) -> Self {
        Self {
            since: Instant::now(),
            script: Box::new(script),
            credentials: 1,
            strategy: PoolStrategy::FillFirst,
            limits: RateLimits::default(),
            info: None,
            asked: Mutex::default(),
            renewals: AtomicUsize::new(0),
            renews: |_| false,
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn asked(&self) -> Vec<(u64, CredentialId)> {
        self.asked.lock().expect("no panic holds it").clone()
    }

    /// The numbers of the used credentials, in order.
    fn used(&self) -> Vec<usize> {
        self.asked().into_iter().map(|(_, credential)| credential.0).collect()
    }
}

impl ModelProvider for Account {
    fn encoder(&self, _: &str, _: &ModelProfile) -> Arc<dyn Encoder> {
        Arc::new(PlainEncoder)
    }

    fn call<'a>(
        &'a self,
        request: ModelRequest,
        deltas: &'a dyn DeltaSink,
    ) -> BoxFuture<'a, Result<ModelAnswer, Failure>> {
        async move {
            self.asked.lock().expect("no panic holds it").push((self.now(), request.credential));
            tokio::time::sleep(Duration::from_millis(20)).await;
            let answer = (self.script)(self.now(), request.credential);
            if let Some(info) = &self.info {
                deltas.limits(info(self.now()));
            }
            tokio::time::sleep(Duration::from_secs(2)).await;
            answer
        }
        .boxed()
    }

    fn credentials(&self) -> usize {
        self.credentials
    }

    fn pool(&self) -> PoolStrategy {
        self.strategy
    }

    fn limits(&self) -> RateLimits {
        self.limits
    }

    fn renew(&self, _: CredentialId) -> BoxFuture<'_, bool> {
        let before = self.renewals.fetch_add(1, Ordering::SeqCst);
        std::future::ready((self.renews)(before)).boxed()
    }
}

async fn start(account: &Arc<Account>) -> Runtime {
    let nobody = ScriptedProvider::new(Duration::ZERO, |_| Ok(says("nobody")));
    let world = world(Arc::new(MemoryJournal::new()), nobody, Vec::new());
    let endpoint = Arc::clone(account) as Arc<dyn ModelProvider>;
    let world = RuntimeDependencies { providers: vec![("test".into(), endpoint, 1_000)], ..world };
    Runtime::start(world).await.expect("the runtime starts")
}

fn fails<T>(class: FailureClass) -> Result<T, Failure> {
    Err(Failure::new(class, "no"))
}

#[tokio::test(start_paused = true)]
async fn a_refused_credential_gives_way_to_the_next_one() {
    for class in [
        FailureClass::Auth,
        FailureClass::QuotaExhausted { reset_at: None },
        FailureClass::RateLimited { retry_after_ms: Some(3_600_000), reset_at: None },
    ] {
        let refused = class.clone();
        let mut account = Account::new(move |_, credential| match credential.0 {
            0 | 1 => fails(refused.clone()),
            _ => Ok(says("hello")),
        });
        account.credentials = 3;
        let account = Arc::new(account);
        let runtime = start(&account).await;
        for _ in 0..2 {
            assert_eq!(runtime.chat("hi").await.as_deref(), Ok("hello"), "{class:?}");
        }
        assert_eq!(account.used(), [0, 1, 2, 2], "{class:?}");
        let states = runtime.providers().await.remove(0).models;
        let open = states.iter().map(|model| matches!(model.breaker, BreakerState::Open { .. }));
        assert_eq!(open.collect::<Vec<_>>(), [true, true, false], "{class:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn when_every_credential_is_refused_the_run_ends() {
    let mut account = Account::new(|_, _| fails(FailureClass::Auth));
    account.credentials = 3;
    let account = Arc::new(account);
    let result = start(&account).await.run(RunRequest::new("hi")).await.expect("it ends");
    assert_eq!(result.ended.to_string(), "failed (provider: auth: no)");
    assert_eq!(account.used(), [0, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn the_strategy_says_which_credential_is_used() {
    for (strategy, expect) in [
        (PoolStrategy::FillFirst, [0, 0, 0, 0]),
        (PoolStrategy::RoundRobin, [0, 1, 2, 0]),
        (PoolStrategy::LeastUsed, [0, 1, 2, 0]),
    ] {
        let account = Account::new(|_, _| Ok(says("hello")));
        let account = Arc::new(Account { credentials: 3, strategy, ..account });
        let runtime = start(&account).await;
        join_all((0..4).map(|_| runtime.chat("hi"))).await;
        assert_eq!(account.used(), expect, "{strategy:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_credential_is_renewed_once() {
    // The new credential is accepted after the renewal, and refused an hour later.
    let accepted = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&accepted);
    let account = Account::new(move |_, _| match seen.fetch_add(1, Ordering::SeqCst) {
        0 | 2 => fails(FailureClass::Auth),
        _ => Ok(says("hello")),
    });
    let account = Arc::new(Account { renews: |_| true, ..account });
    let runtime = start(&account).await;
    assert_eq!(runtime.chat("hi").await.as_deref(), Ok("hello"));
    assert_eq!(runtime.chat("hi").await.as_deref(), Ok("hello"));
    assert_eq!((account.renewals.load(Ordering::SeqCst), account.used().len()), (2, 4));

    // After a renewal that does not help, there is no other one until the credential is accepted.
    let account = Account::new(|_, _| fails(FailureClass::Auth));
    let account = Arc::new(Account { renews: |_| true, ..account });
    let runtime = start(&account).await;
    for requests in [2, 3] {
        let result = runtime.run(RunRequest::new("hi")).await.expect("it ends");
        assert_eq!(result.ended.outcome, Outcome::Failed);
        assert_eq!((account.renewals.load(Ordering::SeqCst), account.used().len()), (1, requests));
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_was_refused_for_the_old_credential_goes_on_with_the_new_one() {
    let check = async |accepted_from: u64, outcome: Outcome, most: usize| {
        let account = Account::new(move |now, _| match now < accepted_from {
            true => fails(FailureClass::Auth),
            false => Ok(says("hello")),
        });
        let account = Arc::new(Account { renews: |_| true, ..account });
        let runtime = start(&account).await;
        // The second run is refused after the credential was renewed for the first one, and before the new one was
        // accepted.
        let later = |ms| {
            let runtime = &runtime;
            async move {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                runtime.run(RunRequest::new("hi")).await.expect("it ends").ended.outcome
            }
        };
        assert_eq!(futures::future::join(later(0), later(1_000)).await, (outcome, outcome));
        assert!(account.used().len() <= most, "{:?}", account.asked());
    };
    check(2_000, Outcome::Completed, 4).await;
    // If the renewed credential is refused too, it is not renewed again.
    check(u64::MAX, Outcome::Failed, 4).await;
}

/// A provider's own limiter: at most `most` requests within any minute. It counts those that it refuses.
struct Server {
    most: usize,
    seen: Mutex<VecDeque<u64>>,
    refused: AtomicUsize,
}

impl Server {
    fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, seen: Mutex::default(), refused: AtomicUsize::new(0) })
    }

    fn ask(&self, now: u64) -> Result<ModelAnswer, Failure> {
        let mut seen = self.seen.lock().expect("no panic holds it");
        while seen.front().is_some_and(|at| now - at >= 60_000) {
            seen.pop_front();
        }
        if seen.len() >= self.most {
            self.refused.fetch_add(1, Ordering::SeqCst);
            return fails(FailureClass::RateLimited { retry_after_ms: Some(20_000), reset_at: None });
        }
        seen.push_back(now);
        Ok(says("hello"))
    }

    fn left(&self, now: u64) -> RateInfo {
        let seen = self.seen.lock().expect("no panic holds it");
        let remaining = u64::try_from(self.most - seen.len()).unwrap_or(0);
        let reset_at = BEGIN.plus_ms(seen.back().unwrap_or(&now) + 60_000);
        let limit = u64::try_from(self.most).ok();
        RateInfo { requests: Some(RateQuota { remaining, reset_at, limit }), tokens: None }
    }
}

/// Whether a server reports its remaining limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manners {
    Silent,
    Telling,
}

/// Starts 200 runs at once with one account, and checks how many requests are refused.
async fn check_runs(limits: RateLimits, manners: Manners, most_refused: usize) {
    let server = Server::new(40);
    let (asked, told) = (Arc::clone(&server), Arc::clone(&server));
    let account = Account::new(move |now, _| asked.ask(now));
    let info = (manners == Manners::Telling).then(|| Box::new(move |now| told.left(now)) as Box<Info>);
    let account = Arc::new(Account { limits, info, ..account });
    let runtime = start(&account).await;
    let answers = join_all((0..200).map(|_| runtime.chat("hi"))).await;
    assert!(answers.iter().all(|answer| answer.as_deref() == Ok("hello")), "{limits:?}: {answers:?}");
    let (refused, made) = (server.refused.load(Ordering::SeqCst), account.used().len());
    assert!(refused <= most_refused, "{limits:?}, {manners:?}: {refused} of {made} requests were refused");
}

#[tokio::test(start_paused = true)]
async fn many_runs_over_one_account_keep_its_limit() {
    check_runs(RateLimits { requests: Some(40), tokens: None }, Manners::Silent, 0).await;
    // 15 tokens for each answer, so 40 answers a minute. The cost of an answer is known when the first one has ended.
    check_runs(RateLimits { requests: Some(60), tokens: Some(600) }, Manners::Silent, 0).await;
    // Eight requests start before the first response reports the limit.
    check_runs(RateLimits::default(), Manners::Telling, 0).await;
    // The limit is not reported: the refused runs wait, one probes, and then all start at once.
    check_runs(RateLimits::default(), Manners::Silent, 420).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_provider_says_is_left_is_kept_and_the_wait_is_told() {
    let left = |now: u64| {
        let remaining = if now < 1_000 { 0 } else { 100 };
        let left = RateQuota { remaining, reset_at: BEGIN.plus_ms(30_000), limit: Some(100) };
        RateInfo { requests: Some(left), tokens: None }
    };
    let account = Account::new(|_, _| Ok(says("hello")));
    let account = Arc::new(Account { info: Some(Box::new(left)), ..account });
    let runtime = start(&account).await;
    let request = || RunRequest { session: SessionChoice::Key("k".into()), ..RunRequest::new("hi") };
    let first = runtime.run(request()).await.expect("it ends");
    let mut watch = runtime.watch(first.session, 1);
    let second = runtime.submit(request()).await.expect("it is accepted");
    // The gate waits a little longer than the reported reset time.
    let until = BEGIN.plus_ms(30_100);
    let mut waits = 0;
    loop {
        let event = watch.next().await.expect("the store is read");
        if let EventBody::Status(RunStatus::Waiting { reason, until: told }) = &event.body {
            assert_eq!((&**reason, *told), ("limits", Some(until)));
            waits += 1;
        }
        let has_ended = matches!(event.body, EventBody::Status(RunStatus::Ended(_)));
        if has_ended && event.run == Some(second.run) {
            break;
        }
    }
    assert_eq!(waits, 1);
    assert_eq!(account.asked().iter().map(|(at, _)| *at).collect::<Vec<_>>(), [0, 30_100]);
}
