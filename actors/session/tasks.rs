//! The tasks of a session's calls. A task makes one attempt and answers; a guard in it answers `Lost` if it panics or is
//! aborted, so that nobody waits for ever.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use ractor::ActorRef;
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    task::{AbortHandle, JoinSet},
};
use tokio_util::sync::CancellationToken;

use crate::{
    model::{Attempt, CallId, Failure, FailureClass, SessionId},
    session::{
        SessionDependencies, SessionInternalMsg, SessionMsg, lease_wait, stream_publisher::StreamPublisher,
    },
    turn::{DueAction, FailoverOptions, Input, Turn},
};

/// A summary waits no longer than this, in milliseconds, for a model that is not asked at present.
const MAX_SUMMARY_WAIT_MS: u64 = 1_000;

/// Turns that other threads have for tasks that can run now: microseconds.
const YIELDS_WITH_OTHER_THREADS: usize = 16;

/// The running tasks of one session. The supervisor holds them too: it revives a session only when they have ended.
#[derive(Debug, Clone, Default)]
pub(crate) struct CallTasks(Arc<TaskSet>);

#[derive(Debug)]
struct TaskSet {
    /// `None` when they were ended: none is started any more.
    tasks: Mutex<Option<JoinSet<()>>>,
    /// Held while they are being ended, so that whoever comes second waits too.
    ending: tokio::sync::Mutex<()>,
    /// See [`CallTasks::idle_since`]; plus 1, and 0 for `None`.
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
        let mut tasks = self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(tasks) = &mut *tasks else {
            // A set that is dropped aborts what is in it.
            return JoinSet::new().spawn(task);
        };
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task)
    }

    /// Since when the session has had nothing to do, on the process's clock; `None` while it has.
    pub(crate) fn idle_since(&self) -> Option<u64> {
        self.0.idle_since.load(Ordering::Relaxed).checked_sub(1)
    }

    pub(super) fn set_idle_since(&self, since: Option<u64>) {
        self.0.idle_since.store(since.map_or(0, |since| since + 1), Ordering::Relaxed);
    }

    /// Whether none is under way.
    pub(super) fn is_empty(&self) -> bool {
        let mut tasks = self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.as_mut().is_none_or(|tasks| {
            while tasks.try_join_next().is_some() {}
            tasks.is_empty()
        })
    }

    /// Aborts all and resolves when they are gone. None is started after this.
    pub(crate) async fn abort_all(&self) {
        let _ending = self.0.ending.lock().await;
        let tasks = self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut tasks) = tasks {
            tasks.shutdown().await;
        }
    }

    /// The wrong twin of `end`: they go on.
    #[cfg(feature = "testkit")]
    pub(crate) fn detach_all(&self) {
        if let Some(mut tasks) = self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner).take() {
            tasks.detach_all();
        }
    }
}

/// Something in flight.
#[derive(Debug)]
pub(crate) enum InFlightTask {
    /// Ends by itself when told to, and then says how.
    Call(CancellationToken),
    /// Has nothing to say: ended by force.
    Wait(AbortHandle),
}

/// Starts tasks for one session.
#[derive(Debug)]
pub(crate) struct TaskSpawner {
    pub(super) tasks: CallTasks,
    pub(super) session: ActorRef<SessionMsg>,
    pub(super) wiring: Arc<SessionDependencies>,
    pub(super) id: SessionId,
}

impl TaskSpawner {
    pub(crate) fn new(
        tasks: CallTasks,
        session: ActorRef<SessionMsg>,
        wiring: Arc<SessionDependencies>,
        id: SessionId,
    ) -> Self {
        Self { tasks, session, wiring, id }
    }

    /// Cancels what is begun and not due, and forgets it; but a tool call that is to be brought to its end is not forgotten
    /// before it has ended.
    pub(crate) fn cancel_undue(begun: &mut BTreeMap<DueAction, InFlightTask>, due: &[DueAction]) {
        let mut ending = Vec::new();
        begun.retain(|effect, begun| {
            let keep = due.contains(effect);
            if !keep {
                match begun {
                    InFlightTask::Call(cancel) => {
                        cancel.cancel();
                        let end = effect.end_action().filter(|end| due.contains(end));
                        ending.extend(end.map(|end| (end, InFlightTask::Call(cancel.clone()))));
                    }
                    InFlightTask::Wait(handle) => handle.abort(),
                }
            }
            keep
        });
        begun.extend(ending);
    }

    /// Forgets all timers: one of them has gone off, and whatever is still to be waited for is due again.
    pub(crate) fn forget_timers(begun: &mut BTreeMap<DueAction, InFlightTask>) {
        let calls: Vec<DueAction> = begun.keys().filter(|effect| !effect.is_timer()).copied().collect();
        Self::cancel_undue(begun, &calls);
    }

    /// Forgets the task that waited for what this input says: if that is still to be waited for, it is due again.
    pub(crate) fn forget_acquire(begun: &mut BTreeMap<DueAction, InFlightTask>, input: &Input) {
        if let Input::Leased { call, attempt, .. }
        | Input::NoLease { call, attempt, .. }
        | Input::Permitted { call, attempt } = *input
            && let Some(InFlightTask::Wait(handle)) = begun.remove(&DueAction::Acquire { call, attempt })
        {
            handle.abort();
        }
    }

    /// The attempt of a model call cannot be made here: nobody was asked.
    pub(crate) fn fail_unsent(&self, (call, attempt): (CallId, Attempt), why: &str) -> InFlightTask {
        let failure = Failure::new(FailureClass::NotSent, why);
        let outlook = FailoverOptions::default();
        send(
            &self.session,
            SessionInternalMsg::Input(Input::ModelFailed {
                call,
                attempt,
                failure: Box::new(failure),
                failover: outlook,
            }),
        );
        InFlightTask::Call(CancellationToken::new())
    }

    /// A call that is started without the grant it was started with cannot be made: it is lost, and tried again.
    pub(crate) fn report_lost(&self, call: CallId, attempt: Attempt) -> InFlightTask {
        drop(LostGuard::new(self.session.clone(), call, attempt));
        InFlightTask::Call(CancellationToken::new())
    }

    /// Waits for what the call needs.
    pub(crate) fn acquire(&self, turn: &Turn, call: CallId, attempt: Attempt) -> InFlightTask {
        // Nobody to choose from is no provider's word: the call is lost, and tried again.
        let candidates = match turn.candidates_of(call) {
            None if call.is_model_call() => return self.report_lost(call, attempt),
            candidates => candidates.unwrap_or_default(),
        };
        let (wiring, session) = (Arc::clone(&self.wiring), self.session.clone());
        let published = StreamPublisher::new(&self.wiring.hub, self.id, (call, attempt));
        let vigil = self.report_panic();
        InFlightTask::Wait(self.tasks.spawn(async move {
            let _vigil = vigil;
            let said = if call.is_model_call() {
                // What a summary is for goes without one rather than wait for who does not answer.
                let most_ms = call.is_summary().then_some(MAX_SUMMARY_WAIT_MS);
                match lease_wait::wait_for_lease(&wiring, &candidates, &published, most_ms).await {
                    Ok(lease) => SessionInternalMsg::Leased(
                        Input::Leased { call, attempt, model: lease.admission.model().clone() },
                        lease,
                    ),
                    Err(skipped) => SessionInternalMsg::Input(Input::NoLease { call, attempt, skipped }),
                }
            } else {
                match Arc::clone(&wiring.tools.permits).acquire_owned().await {
                    Ok(permit) => SessionInternalMsg::Permitted(Input::Permitted { call, attempt }, permit),
                    Err(_) => return,
                }
            };
            send(&session, said);
        }))
    }

    /// A wait has nothing to say when it is aborted; but if it panics, nobody would ever come back from it.
    pub(super) fn report_panic(&self) -> OnPanic<impl Fn() + use<>> {
        let session = self.session.clone();
        OnPanic(move || send(&session, SessionInternalMsg::WaitPanicked))
    }

    /// Tells the session to go on when the tasks that can run now have run.
    pub(crate) fn notify_after_yield(&self) {
        let session = self.session.clone();
        // Other threads run them at the same time, and none of them waits for this one.
        let is_alone = Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread;
        let turns = if is_alone { 1 } else { YIELDS_WITH_OTHER_THREADS };
        self.tasks.spawn(async move {
            for _ in 0..turns {
                tokio::task::yield_now().await;
            }
            send(&session, SessionInternalMsg::BatchReady);
        });
    }

    /// Wakes the session up after so many milliseconds.
    pub(crate) fn wake_in(&self, ms: u64) -> InFlightTask {
        let session = self.session.clone();
        InFlightTask::Wait(self.tasks.spawn(async move {
            tokio::time::sleep(std::time::Duration::from_millis(ms)).await;
            send(&session, SessionInternalMsg::Input(Input::TimerFired));
        }))
    }
}

pub(super) fn send(session: &ActorRef<SessionMsg>, said: SessionInternalMsg) {
    if session.cast(SessionMsg::Inner(said)).is_err() {
        tracing::debug!("a call ended after its session had gone");
    }
}

/// Does this if the task that holds it panics.
pub(super) struct OnPanic<F: Fn()>(F);

impl<F: Fn()> Drop for OnPanic<F> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            (self.0)();
        }
    }
}

/// Answers `Lost` unless the task has answered.
pub(super) struct LostGuard {
    session: ActorRef<SessionMsg>,
    lost: Option<Input>,
}

impl LostGuard {
    pub(super) fn new(session: ActorRef<SessionMsg>, call: CallId, attempt: Attempt) -> Self {
        Self { session, lost: Some(Input::Lost { call, attempt }) }
    }

    pub(super) fn complete(mut self, input: Input) {
        self.lost = None;
        send(&self.session, SessionInternalMsg::Input(input));
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
