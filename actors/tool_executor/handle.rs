//! The part of the ToolExecutor that outlives its actor; sessions use it. It has the stable reference, the permits, the
//! current tools, the store of artifacts, and the limits of attempts in progress.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicUsize, Ordering, fence},
    },
    time::Duration,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::{
    PermitJob, ToolExecutorMsg,
    generation::{RegisteredTool, ToolGeneration, check, close},
};
use crate::{
    lock,
    model::{AttemptId, RunId, ToolClass},
    port::{Artifacts, CallPolicy, Tool},
    supervisor::StableActorRef,
};

/// How sessions reach the ToolExecutor, its permits and its tools.
#[derive(Debug)]
pub(crate) struct ToolExecutorHandle {
    pub(crate) actor: Arc<StableActorRef<ToolExecutorMsg>>,
    /// The store of whole outputs.
    pub(crate) artifacts: Arc<dyn Artifacts>,
    /// Judges each call before its admission.
    pub(crate) policy: Arc<dyn CallPolicy>,
    files: ClassPermits,
    processes: ClassPermits,
    /// Permits of each class.
    max_concurrent: usize,
    tools: Mutex<Tools>,
    /// Tools that no generation and no call has any more.
    unused: Mutex<Vec<Arc<dyn Tool>>>,
    /// Time limits of the attempts in progress whose tools have limits of their own.
    limits: Mutex<BTreeMap<AttemptId, Duration>>,
    counts: Mutex<CallCounts>,
}

/// The calls that are no more in progress, by tool.
#[derive(Debug, Clone, Default)]
pub(super) struct CallCounts {
    pub(super) ended: BTreeMap<String, u64>,
    /// Their tasks ended without a report.
    pub(super) lost: BTreeMap<String, u64>,
}

#[derive(Debug)]
struct ClassPermits {
    /// One permit for each call in progress.
    free: Arc<Semaphore>,
    /// Calls that wait for the actor's answer.
    waiting: AtomicUsize,
}

#[derive(Debug, Default)]
struct Tools {
    current: Arc<ToolGeneration>,
    /// All tools that are not closed, also those that only a call has.
    registered: Vec<Weak<RegisteredTool>>,
}

/// Permission for one call in progress; returned when dropped.
#[derive(Debug)]
pub(crate) struct ToolPermit {
    /// `None` after the return.
    permit: Option<OwnedSemaphorePermit>,
    class: ToolClass,
    executor: Arc<ToolExecutorHandle>,
    /// The tool of the call that began with the permit; `None` after its end.
    tool: Option<Arc<str>>,
}

impl ToolPermit {
    /// The permit of a call of this tool that begins now. Without an end, the call counts as lost.
    pub(crate) fn for_call(mut self, tool: Arc<str>) -> Self {
        self.tool = Some(tool);
        self
    }

    /// The call has ended.
    pub(crate) fn end_call(mut self) {
        if let Some(tool) = self.tool.take() {
            count(&mut lock(&self.executor.counts).ended, &tool);
        }
    }
}

impl Drop for ToolPermit {
    fn drop(&mut self) {
        if let Some(tool) = self.tool.take() {
            count(&mut lock(&self.executor.counts).lost, &tool);
        }
        drop(self.permit.take());
        // The pair of the fence of `WaitingCount`: a call that is not counted here finds the permit.
        fence(Ordering::SeqCst);
        let is_awaited = self.executor.permits(self.class).waiting.load(Ordering::Relaxed) > 0;
        if is_awaited && self.executor.actor.cast(ToolExecutorMsg::PermitFree).is_err() {
            tracing::debug!("the runtime has ended before the return of a permit");
        }
    }
}

fn count(calls: &mut BTreeMap<String, u64>, tool: &str) {
    match calls.get_mut(tool) {
        Some(calls) => *calls += 1,
        None => _ = calls.insert(tool.into(), 1),
    }
}

impl ToolExecutorHandle {
    /// A handle with `calls` permits of each class, at least one; or why the tools are refused.
    pub(crate) fn new(
        tools: Vec<Arc<dyn Tool>>,
        calls: usize,
        artifacts: Arc<dyn Artifacts>,
        policy: Arc<dyn CallPolicy>,
    ) -> Result<Arc<Self>, String> {
        let max_concurrent = calls.clamp(1, Semaphore::MAX_PERMITS);
        let permits =
            || ClassPermits { free: Arc::new(Semaphore::new(max_concurrent)), waiting: AtomicUsize::new(0) };
        let handle = Arc::new(Self {
            actor: Arc::default(),
            artifacts,
            policy,
            files: permits(),
            processes: permits(),
            max_concurrent,
            tools: Mutex::default(),
            unused: Mutex::default(),
            limits: Mutex::default(),
            counts: Mutex::default(),
        });
        handle.exchange(tools)?;
        Ok(handle)
    }

    /// The current tools.
    pub(crate) fn tools(&self) -> Arc<ToolGeneration> {
        Arc::clone(&lock(&self.tools).current)
    }

    /// Makes these tools the current ones and returns the number of their generation, or why they are refused. Calls
    /// that run keep their tools.
    pub(crate) fn exchange(self: &Arc<Self>, tools: Vec<Arc<dyn Tool>>) -> Result<u64, String> {
        check(&tools)?;
        let (number, before) = {
            let mut registry = lock(&self.tools);
            let live: Vec<_> = registry.registered.iter().filter_map(Weak::upgrade).collect();
            let find = |tool: &_| live.iter().find(|known| known.is(tool)).cloned();
            let next = registry.current.next(tools, &Arc::downgrade(self), find);
            registry.registered = live.iter().chain(next.tools()).map(Arc::downgrade).collect();
            (next.number, (std::mem::replace(&mut registry.current, Arc::new(next)), live))
        };
        // Without the lock: this may close tools.
        drop(before);
        Ok(number)
    }

    /// Retires all tools; those without a call are closed.
    pub(crate) fn shut_down(&self) {
        self.actor.close();
        let before = std::mem::take(&mut lock(&self.tools).current);
        drop(before);
        self.close_unused();
    }

    /// The run was ended without the ends of its calls: tools end those that still run.
    pub(crate) fn abandon(&self, run: RunId) {
        let live: Vec<_> = lock(&self.tools).registered.iter().filter_map(Weak::upgrade).collect();
        live.iter().for_each(|tool| tool.abandon(run));
    }

    /// Has the actor close a tool. Without an actor it is closed at once.
    pub(super) fn retire(&self, tool: Arc<dyn Tool>) {
        lock(&self.unused).push(tool);
        if self.actor.cast(ToolExecutorMsg::Retired).is_err() {
            self.close_unused();
        }
    }

    pub(super) fn close_unused(&self) {
        let unused = std::mem::take(&mut *lock(&self.unused));
        unused.iter().for_each(|tool| close(&**tool));
    }

    /// A permit if one is free and no call waits for it.
    pub(crate) fn try_permit(self: &Arc<Self>, class: ToolClass) -> Option<ToolPermit> {
        let is_queued = self.permits(class).waiting.load(Ordering::Relaxed) > 0;
        if is_queued { None } else { self.free_permit(class) }
    }

    /// Waits for a permit of the class, in turn with other runs; `None` if the runtime ends first. A request that is
    /// lost with the actor is sent again to the next one.
    pub(crate) async fn permit(&self, run: RunId, class: ToolClass, is_running: bool) -> Option<ToolPermit> {
        let _waiting = WaitingCount::new(&self.permits(class).waiting);
        loop {
            let (reply, permit) = oneshot::channel();
            self.actor.cast(ToolExecutorMsg::Request(PermitJob { run, class, is_running, reply })).ok()?;
            if let Ok(permit) = permit.await {
                return Some(permit);
            }
        }
    }

    pub(super) fn free_permit(self: &Arc<Self>, class: ToolClass) -> Option<ToolPermit> {
        let permit = Arc::clone(&self.permits(class).free).try_acquire_owned().ok()?;
        Some(ToolPermit { permit: Some(permit), class, executor: Arc::clone(self), tool: None })
    }

    pub(super) fn counts(&self) -> CallCounts {
        lock(&self.counts).clone()
    }

    /// The limit of an attempt in progress, if its tool has a limit of its own.
    pub(crate) fn limit_of(&self, attempt: AttemptId) -> Option<Duration> {
        lock(&self.limits).get(&attempt).copied()
    }

    /// Awaits an attempt with this limit, which is known meanwhile.
    pub(crate) async fn with_limit<T>(
        &self,
        attempt: AttemptId,
        limit: Option<Duration>,
        work: impl Future<Output = T>,
    ) -> T {
        lock(&self.limits).extend(limit.map(|limit| (attempt, limit)));
        let _known = KnownLimit { executor: self, attempt };
        work.await
    }

    /// Number of calls in progress.
    pub(super) fn running(&self, class: ToolClass) -> usize {
        self.max_concurrent.saturating_sub(self.permits(class).free.available_permits())
    }

    const fn permits(&self, class: ToolClass) -> &ClassPermits {
        match class {
            ToolClass::Files => &self.files,
            ToolClass::Processes => &self.processes,
        }
    }
}

/// Forgets the limit of an attempt when dropped.
struct KnownLimit<'a> {
    executor: &'a ToolExecutorHandle,
    attempt: AttemptId,
}

impl Drop for KnownLimit<'_> {
    fn drop(&mut self) {
        lock(&self.executor.limits).remove(&self.attempt);
    }
}

/// Counts a waiting call while it lives.
struct WaitingCount<'a>(&'a AtomicUsize);

impl<'a> WaitingCount<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for WaitingCount<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
