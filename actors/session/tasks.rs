//! The set of running tasks of one session, and the part of starting and cancelling them that all share. Here are waits
//! for leases and permits, timers, and the guard that answers `Lost` if a call's task panics or is aborted. Model calls
//! are started in `model_task.rs`, tool calls in `tools.rs`. The set also publishes since when the session is idle.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use ractor::ActorRef;
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::watch,
    task::{AbortHandle, JoinSet},
};
use tokio_util::sync::CancellationToken;

use crate::{
    lock,
    model::{AttemptId, Failure, FailureClass, SessionId, SessionTime, ToolClass},
    policy::SummaryUrgency,
    session::{SessionInternalMsg, SessionMsg, lease_wait, shell::Grant, stream_publisher::StreamPublisher},
    supervisor::RuntimeParts,
    turn::{DueAction, FailoverOptions, Input, Turn},
};

/// Number of yields. Together they take microseconds, in which other threads run the ready tasks.
const YIELDS_WITH_OTHER_THREADS: usize = 16;

/// The running tasks of one session, and since when it is idle. The supervisor holds them too: it revives a session
/// only after they have ended.
#[derive(Debug, Clone, Default)]
pub(crate) struct CallTasks(Arc<TaskSet>);

#[derive(Debug)]
struct TaskSet {
    /// `None` after `abort_all`: no task is started any more.
    tasks: Mutex<Option<JoinSet<()>>>,
    /// Held during `abort_all`, so that a second caller waits too.
    ending: tokio::sync::Mutex<()>,
    /// [`CallTasks::idle_since`] plus 1; 0 stands for `None`.
    idle_since: AtomicU64,
}

impl Default for TaskSet {
    fn default() -> Self {
        let tasks = Mutex::new(Some(JoinSet::new()));
        Self { tasks, ending: tokio::sync::Mutex::default(), idle_since: AtomicU64::new(0) }
    }
}

impl CallTasks {
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let mut tasks = lock(&self.0.tasks);
        let Some(tasks) = &mut *tasks else {
            // The set is dropped at once, which aborts the task.
            return JoinSet::new().spawn(task);
        };
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task)
    }

    /// Since when the session is idle, in milliseconds of the process's monotonic clock; `None` while it is not.
    pub(crate) fn idle_since(&self) -> Option<u64> {
        self.0.idle_since.load(Ordering::Relaxed).checked_sub(1)
    }

    pub(super) fn set_idle_since(&self, since: Option<u64>) {
        self.0.idle_since.store(since.map_or(0, |since| since + 1), Ordering::Relaxed);
    }

    /// Whether no task is running.
    pub(super) fn is_empty(&self) -> bool {
        let mut tasks = lock(&self.0.tasks);
        tasks.as_mut().is_none_or(|tasks| {
            while tasks.try_join_next().is_some() {}
            tasks.is_empty()
        })
    }

    /// Aborts all tasks and resolves when they have ended. No task is started after this.
    pub(crate) async fn abort_all(&self) {
        let _ending = self.0.ending.lock().await;
        let tasks = lock(&self.0.tasks).take();
        if let Some(mut tasks) = tasks {
            tasks.shutdown().await;
        }
    }

    /// Mutant of `abort_all`: the tasks keep running.
    #[cfg(feature = "testkit")]
    pub(crate) fn detach_all(&self) {
        if let Some(mut tasks) = lock(&self.0.tasks).take() {
            tasks.detach_all();
        }
    }
}

/// A running action.
#[derive(Debug)]
pub(crate) enum InFlightTask {
    /// Ends after its cancellation and reports its result.
    Call(CancellationToken),
    /// Has no result to report: aborted.
    Wait(AbortHandle),
    /// Waits for the admission and the lease of an aside: aborted. The sender tells the Compressor how urgent the aside
    /// is.
    AsideWait(AbortHandle, watch::Sender<SummaryUrgency>),
}

impl InFlightTask {
    /// Tells the Compressor how urgent the aside is now, if this waits for one.
    pub(super) fn update_urgency(&self, urgency: impl FnOnce() -> Option<SummaryUrgency>) {
        if let Self::AsideWait(_, current) = self
            && let Some(urgency) = urgency()
        {
            current.send_if_modified(|current| std::mem::replace(current, urgency) != urgency);
        }
    }
}

/// Starts tasks for one session.
#[derive(Debug)]
pub(crate) struct TaskSpawner {
    pub(super) tasks: CallTasks,
    pub(super) session: ActorRef<SessionMsg>,
    pub(super) parts: Arc<RuntimeParts>,
    pub(super) id: SessionId,
}

impl TaskSpawner {
    pub(crate) fn new(
        tasks: CallTasks,
        session: ActorRef<SessionMsg>,
        parts: Arc<RuntimeParts>,
        id: SessionId,
    ) -> Self {
        Self { tasks, session, parts, id }
    }

    /// Cancels running actions that are not due and forgets them. A tool call with a due end action is kept under that
    /// action until it has ended.
    pub(crate) fn cancel_undue(running: &mut BTreeMap<DueAction, InFlightTask>, due: &[DueAction]) {
        let mut ending = Vec::new();
        running.retain(|action, task| {
            let keep = due.contains(action);
            if !keep {
                match task {
                    InFlightTask::Call(cancel) => {
                        cancel.cancel();
                        let end = action.end_action().filter(|end| due.contains(end));
                        ending.extend(end.map(|end| (end, InFlightTask::Call(cancel.clone()))));
                    }
                    InFlightTask::Wait(handle) | InFlightTask::AsideWait(handle, _) => handle.abort(),
                }
            }
            keep
        });
        running.extend(ending);
    }

    /// Forgets all timers after one has fired: times that are still in the future become due again.
    pub(crate) fn forget_timers(running: &mut BTreeMap<DueAction, InFlightTask>) {
        let calls: Vec<DueAction> = running.keys().filter(|action| !action.is_timer()).copied().collect();
        Self::cancel_undue(running, &calls);
    }

    /// Forgets the task that waited for this input's call: a wait that is still needed becomes due again.
    pub(crate) fn forget_acquire(running: &mut BTreeMap<DueAction, InFlightTask>, input: &Input) {
        let action = if let Input::Leased { id, .. }
        | Input::SummaryLeased { id, .. }
        | Input::NoLease { id, .. }
        | Input::Permitted(id) = *input
        {
            DueAction::Acquire(id)
        } else if let Input::MayBegin { run, .. } = *input {
            DueAction::Begin(run)
        } else {
            return;
        };
        if let Some(InFlightTask::Wait(handle)) = running.remove(&action) {
            handle.abort();
        }
    }

    /// Reports that an attempt of a model call failed because it was not sent to any provider.
    pub(crate) fn fail_unsent(&self, id: AttemptId, why: &str) -> InFlightTask {
        let failure = Box::new(Failure::new(FailureClass::NotSent, why));
        let failed = Input::ModelFailed { id, failure, failover: FailoverOptions::default() };
        send(&self.session, SessionInternalMsg::Input(failed));
        InFlightTask::Call(CancellationToken::new())
    }

    /// Reports a call whose grant is missing as lost.
    pub(crate) fn report_lost(&self, id: AttemptId) -> InFlightTask {
        drop(LostGuard::new(self.session.clone(), id));
        InFlightTask::Call(CancellationToken::new())
    }

    /// Waits for the lease or the permit of the call.
    pub(crate) fn acquire(&self, turn: &Turn, id: AttemptId, now: SessionTime) -> InFlightTask {
        // An empty chain is not a provider's failure, so the call counts as lost.
        let candidates = match turn.candidates_of(id.call) {
            None if id.call.is_model_call() => return self.report_lost(id),
            candidates => candidates.unwrap_or_default(),
        };
        if id.call.is_aside() {
            return self.acquire_aside(turn, id, candidates, turn.aside_urgency(id.call, now));
        }
        let class = turn.tool_class(id.call).unwrap_or(ToolClass::Files);
        let (parts, session) = (Arc::clone(&self.parts), self.session.clone());
        let publisher = StreamPublisher::new(&self.parts, self.id, id);
        let panic_guard = self.report_panic();
        InFlightTask::Wait(self.tasks.spawn(async move {
            let _panic_guard = panic_guard;
            let message = if id.call.is_model_call() {
                match lease_wait::wait_for_lease(&parts, &candidates, &publisher, None).await {
                    Ok(lease) => {
                        let model = lease.admission.model.clone();
                        SessionInternalMsg::Granted(Input::Leased { id, model }, Grant::Lease(lease))
                    }
                    Err(skipped) => SessionInternalMsg::Input(Input::NoLease { id, skipped }),
                }
            } else {
                match parts.executor.permit(id.call.run, class, false).await {
                    Some(permit) => SessionInternalMsg::Granted(Input::Permitted(id), Grant::Permit(permit)),
                    None => return,
                }
            };
            send(&session, message);
        }))
    }

    /// Reports a panic of a waiting task, for which the session would otherwise wait for ever. An aborted wait reports
    /// nothing.
    pub(super) fn report_panic(&self) -> OnPanic<impl Fn() + use<>> {
        let session = self.session.clone();
        OnPanic(move || send(&session, SessionInternalMsg::TaskFailed))
    }

    /// Sends `BatchReady` after the tasks that are ready have run.
    pub(crate) fn notify_after_yield(&self) {
        let session = self.session.clone();
        // On one thread, the ready tasks run during one yield. On several threads they run elsewhere, so more yields
        // give them time.
        let is_alone = Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread;
        let yields = if is_alone { 1 } else { YIELDS_WITH_OTHER_THREADS };
        self.tasks.spawn(async move {
            for _ in 0..yields {
                tokio::task::yield_now().await;
            }
            send(&session, SessionInternalMsg::BatchReady);
        });
    }

    /// Sends `TimerFired` after `ms` milliseconds.
    pub(crate) fn wake_in(&self, ms: u64) -> InFlightTask {
        let session = self.session.clone();
        InFlightTask::Wait(self.tasks.spawn(async move {
            tokio::time::sleep(std::time::Duration::from_millis(ms)).await;
            send(&session, SessionInternalMsg::Input(Input::TimerFired));
        }))
    }
}

pub(super) fn send(session: &ActorRef<SessionMsg>, message: SessionInternalMsg) {
    if session.cast(SessionMsg::Inner(message)).is_err() {
        tracing::debug!("a call ended after its session had gone");
    }
}

/// Calls the function if the task that holds it panics.
pub(super) struct OnPanic<F: Fn()>(F);

impl<F: Fn()> Drop for OnPanic<F> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            (self.0)();
        }
    }
}

/// Sends `Lost` unless the task has completed.
pub(super) struct LostGuard {
    session: ActorRef<SessionMsg>,
    lost: Option<Input>,
}

impl LostGuard {
    pub(super) fn new(session: ActorRef<SessionMsg>, id: AttemptId) -> Self {
        Self { session, lost: Some(Input::Lost(id)) }
    }

    pub(super) fn complete(mut self, message: SessionInternalMsg) {
        self.lost = None;
        send(&self.session, message);
    }
}

impl Drop for LostGuard {
    fn drop(&mut self) {
        if let Some(lost) = self.lost.take() {
            send(&self.session, SessionInternalMsg::Input(lost));
        }
    }
}
#[cfg(test)]
mod tests {
    use std::{
        cell::Cell,
        panic::{AssertUnwindSafe, catch_unwind},
    };

    use super::*;

    #[test]
    fn only_a_panic_breaks_a_vigil() {
        let broken = Cell::new(false);
        let check = |panics: bool| {
            broken.set(false);
            let ended = catch_unwind(AssertUnwindSafe(|| {
                let _vigil = OnPanic(|| broken.set(true));
                assert!(!panics, "struck");
            }));
            assert_eq!((ended.is_err(), broken.get()), (panics, panics));
        };
        check(false);
        check(true);
    }
}
