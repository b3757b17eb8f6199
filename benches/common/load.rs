//! Runs that go on for ever, and who counts their iterations.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use hermod::provider::{CacheTtl, Deadlines, Dialect, HttpProvider, ProviderConfig, WIRES};
use hermod_actors::{
    RuntimeDependencies,
    model::{
        AssistantMessage, EffectClass, Failure, FinishReason, ModelAnswer, ModelProfile, PoolStrategy,
        RateLimits, ToolCall, Usage,
    },
    port::{AllowAllCalls, DeltaSink, Encoder, Journal, ModelProvider, ModelRequest},
};
use hermod_testkit::{PlainEncoder, ScriptedProvider, ScriptedTool, VirtualClock, says, world};
use tokio::sync::Notify;

/// Counts answers, and wakes whoever waits for a number of them: nobody else is disturbed.
#[derive(Debug, Default)]
pub(crate) struct Ticks {
    count: AtomicUsize,
    target: AtomicUsize,
    reached: Notify,
}

impl Ticks {
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// One more.
    pub(crate) fn tick(&self) {
        let count = self.count.fetch_add(1, Ordering::SeqCst) + 1;
        if count == self.target.load(Ordering::SeqCst) {
            self.reached.notify_one();
        }
    }

    /// Resolves after `more` answers from now.
    pub(crate) async fn after(&self, more: usize) {
        let target = self.count() + more;
        self.target.store(target, Ordering::SeqCst);
        while self.count() < target {
            self.reached.notified().await;
        }
    }
}

/// A provider whose answers are counted, and whose requests can be looked at.
#[derive(Debug)]
pub(crate) struct Counted<P> {
    inner: P,
    pub(crate) ticks: Arc<Ticks>,
    keep: AtomicBool,
    kept: Mutex<Option<ModelRequest>>,
}

impl<P> Counted<P> {
    pub(crate) fn new(inner: P) -> Arc<Self> {
        let (ticks, keep, kept) = (Arc::default(), AtomicBool::new(false), Mutex::default());
        Arc::new(Self { inner, ticks, keep, kept })
    }

    /// Keeps the next request.
    pub(crate) fn keep(&self) {
        self.keep.store(true, Ordering::SeqCst);
    }

    /// The body of the request that was kept, as it is sent.
    pub(crate) fn body(&self) -> Bytes {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let wire = (WIRES[0].make)(&Dialect::default());
        wire.body(kept.expect("a request was made")).concat().into()
    }
}

impl<P: ModelProvider> ModelProvider for Counted<P> {
    fn encoder(&self, model: &str, traits: &ModelProfile) -> Arc<dyn Encoder> {
        self.inner.encoder(model, traits)
    }

    fn call<'a>(
        &'a self,
        request: ModelRequest,
        deltas: &'a dyn DeltaSink,
    ) -> BoxFuture<'a, Result<ModelAnswer, Failure>> {
        if self.keep.load(Ordering::SeqCst) && self.keep.swap(false, Ordering::SeqCst) {
            *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(request.clone());
        }
        let answer = self.inner.call(request, deltas);
        answer.inspect(|_| self.ticks.tick()).boxed()
    }
}

/// A model behind HTTP.
pub(crate) fn remote(base_url: &str) -> HttpProvider {
    let config = ProviderConfig {
        name: "test".into(),
        base_url: base_url.into(),
        wire: WIRES[0].name.into(),
        credentials: Vec::new(),
        pool: PoolStrategy::default(),
        limits: RateLimits::default(),
        cache: CacheTtl::default(),
        deadlines: Deadlines::default(),
    };
    HttpProvider::new(config).expect("a plain configuration")
}

/// A model in this process that asks for `calls` ticks after a delay, whatever it is told.
#[derive(Debug)]
pub(crate) struct Local {
    delay: Duration,
    calls: usize,
    asked: AtomicUsize,
    encoder: Arc<PlainEncoder>,
}

impl Local {
    pub(crate) fn new(delay: Duration, calls: usize) -> Self {
        Self { delay, calls, asked: AtomicUsize::new(0), encoder: Arc::default() }
    }
}

impl ModelProvider for Local {
    fn encoder(&self, _: &str, _: &ModelProfile) -> Arc<dyn Encoder> {
        Arc::<PlainEncoder>::clone(&self.encoder)
    }

    fn call<'a>(
        &'a self,
        _: ModelRequest,
        _: &'a dyn DeltaSink,
    ) -> BoxFuture<'a, Result<ModelAnswer, Failure>> {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        let call = |n| ToolCall {
            id: format!("c{asked}_{n}"),
            name: "tick".into(),
            // No answer repeats an earlier one, which the guard against loops would notice.
            arguments: format!(r#"{{"text":"{asked:040}"}}"#),
        };
        let calls = (0..self.calls).map(call).collect();
        let message = AssistantMessage { calls, ..AssistantMessage::default() };
        let usage = Some(Usage { input_tokens: 10, output_tokens: 5, ..Usage::default() });
        let answer = ModelAnswer { message, finish: FinishReason::ToolCalls, usage };
        async move {
            if !self.delay.is_zero() {
                tokio::time::sleep(self.delay).await;
            }
            Ok(answer)
        }
        .boxed()
    }
}

/// A world with this model, and the tool that it asks for.
pub(crate) fn endless(
    journal: Arc<dyn Journal>,
    provider: Arc<dyn ModelProvider>,
    seed: u64,
) -> RuntimeDependencies {
    let tick = ScriptedTool::fixed("tick", EffectClass::Pure, &"0123456789".repeat(20));
    let nobody = ScriptedProvider::new(Duration::ZERO, |_| Ok(says("nothing")));
    RuntimeDependencies {
        providers: vec![("test".into(), provider, 100_000)],
        policy: Arc::new(AllowAllCalls),
        tool_calls: 100_000,
        clock: Arc::new(VirtualClock::new(seed)),
        ..world(journal, nobody, vec![Arc::new(tick)])
    }
}
