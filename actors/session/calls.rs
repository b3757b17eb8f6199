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
    session::{Inner, SessionMsg, Wiring, said::Published, seek},
    turn::{DueAction, FailoverOptions, Input, Turn},
};

/// A summary waits no longer than this, in milliseconds, for a model that is not asked at present.
const SUMMARY_MS: u64 = 1_000;

/// Turns that other threads have for tasks that can run now: microseconds.
const TURNS_OF_OTHERS: usize = 16;

/// The running tasks of one session. The supervisor holds them too: it revives a session only when they have ended.
#[derive(Debug, Clone, Default)]
pub(crate) struct CallTasks(Arc<Running>);

#[derive(Debug)]
struct Running {
    /// `None` when they were ended: none is started any more.
    tasks: Mutex<Option<JoinSet<()>>>,
    /// Held while they are being ended, so that whoever comes second waits too.
    ending: tokio::sync::Mutex<()>,
    /// See [`CallTasks::idle_since`]; plus 1, and 0 for `None`.
    idle_since: AtomicU64,
}

impl Default for Running {
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

    pub(super) fn note_idle(&self, since: Option<u64>) {
        self.0.idle_since.store(since.map_or(0, |since| since + 1), Ordering::Relaxed);
    }

    /// Whether none is under way.
    pub(super) fn are_gone(&self) -> bool {
        let mut tasks = self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.as_mut().is_none_or(|tasks| {
            while tasks.try_join_next().is_some() {}
            tasks.is_empty()
        })
    }

    /// Aborts all and resolves when they are gone. None is started after this.
    pub(crate) async fn end(&self) {
        let _ending = self.0.ending.lock().await;
        let tasks = self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut tasks) = tasks {
            tasks.shutdown().await;
        }
    }

    /// The wrong twin of `end`: they go on.
    #[cfg(feature = "testkit")]
    pub(crate) fn outlive(&self) {
        if let Some(mut tasks) = self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner).take() {
            tasks.detach_all();
        }
    }
}

/// Something in flight.
#[derive(Debug)]
pub(crate) enum Begun {
    /// Ends by itself when told to, and then says how.
    Call(CancellationToken),
    /// Has nothing to say: ended by force.
    Wait(AbortHandle),
}

/// Starts tasks for one session.
#[derive(Debug)]
pub(crate) struct Tasks {
    pub(super) tasks: CallTasks,
    pub(super) session: ActorRef<SessionMsg>,
    pub(super) wiring: Arc<Wiring>,
    pub(super) id: SessionId,
}

impl Tasks {
    pub(crate) fn new(
        tasks: CallTasks,
        session: ActorRef<SessionMsg>,
        wiring: Arc<Wiring>,
        id: SessionId,
    ) -> Self {
        Self { tasks, session, wiring, id }
    }

    /// Cancels what is begun and not due, and forgets it; but a tool call that is to be brought to its end is not forgotten
    /// before it has ended.
    pub(crate) fn cancel_all_but(begun: &mut BTreeMap<DueAction, Begun>, due: &[DueAction]) {
        let mut ending = Vec::new();
        begun.retain(|effect, begun| {
            let keep = due.contains(effect);
            if !keep {
                match begun {
                    Begun::Call(cancel) => {
                        cancel.cancel();
                        let end = effect.end_action().filter(|end| due.contains(end));
                        ending.extend(end.map(|end| (end, Begun::Call(cancel.clone()))));
                    }
                    Begun::Wait(handle) => handle.abort(),
                }
            }
            keep
        });
        begun.extend(ending);
    }

    /// Forgets all timers: one of them has gone off, and whatever is still to be waited for is due again.
    pub(crate) fn forget_timers(begun: &mut BTreeMap<DueAction, Begun>) {
        let calls: Vec<DueAction> = begun.keys().filter(|effect| !effect.is_timer()).copied().collect();
        Self::cancel_all_but(begun, &calls);
    }

    /// Forgets the task that waited for what this input says: if that is still to be waited for, it is due again.
    pub(crate) fn forget_seek(begun: &mut BTreeMap<DueAction, Begun>, input: &Input) {
        if let Input::Leased { call, attempt, .. }
        | Input::NoLease { call, attempt, .. }
        | Input::Permitted { call, attempt } = *input
            && let Some(Begun::Wait(handle)) = begun.remove(&DueAction::Acquire { call, attempt })
        {
            handle.abort();
        }
    }

    /// The attempt of a model call cannot be made here: nobody was asked.
    pub(crate) fn not_made(&self, (call, attempt): (CallId, Attempt), why: &str) -> Begun {
        let failure = Failure::new(FailureClass::NotMade, why);
        let outlook = FailoverOptions::default();
        tell(
            &self.session,
            Inner::Input(Input::ModelFailed { call, attempt, failure: Box::new(failure), failover: outlook }),
        );
        Begun::Call(CancellationToken::new())
    }

    /// A call that is started without the grant it was started with cannot be made: it is lost, and tried again.
    pub(crate) fn lost(&self, call: CallId, attempt: Attempt) -> Begun {
        drop(Guard::new(self.session.clone(), call, attempt));
        Begun::Call(CancellationToken::new())
    }

    /// Waits for what the call needs.
    pub(crate) fn seek(&self, turn: &Turn, call: CallId, attempt: Attempt) -> Begun {
        // Nobody to choose from is no provider's word: the call is lost, and tried again.
        let candidates = match turn.candidates_of(call) {
            None if call.asks_model() => return self.lost(call, attempt),
            candidates => candidates.unwrap_or_default(),
        };
        let (wiring, session) = (Arc::clone(&self.wiring), self.session.clone());
        let published = Published::new(&self.wiring.hub, self.id, (call, attempt));
        let vigil = self.vigil();
        Begun::Wait(self.tasks.spawn(async move {
            let _vigil = vigil;
            let said = if call.asks_model() {
                // What a summary is for goes without one rather than wait for who does not answer.
                let most_ms = call.is_summary().then_some(SUMMARY_MS);
                match seek::lease(&wiring, &candidates, &published, most_ms).await {
                    Ok(lease) => Inner::Leased(
                        Input::Leased { call, attempt, model: lease.admission.model().clone() },
                        lease,
                    ),
                    Err(skipped) => Inner::Input(Input::NoLease { call, attempt, skipped }),
                }
            } else {
                match Arc::clone(&wiring.tools.permits).acquire_owned().await {
                    Ok(permit) => Inner::Permitted(Input::Permitted { call, attempt }, permit),
                    Err(_) => return,
                }
            };
            tell(&session, said);
        }))
    }

    /// A wait has nothing to say when it is aborted; but if it panics, nobody would ever come back from it.
    pub(super) fn vigil(&self) -> Vigil<impl Fn() + use<>> {
        let session = self.session.clone();
        Vigil(move || tell(&session, Inner::Broken))
    }

    /// Tells the session to go on when the tasks that can run now have run.
    pub(crate) fn gather(&self) {
        let session = self.session.clone();
        // Other threads run them at the same time, and none of them waits for this one.
        let is_alone = Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread;
        let turns = if is_alone { 1 } else { TURNS_OF_OTHERS };
        self.tasks.spawn(async move {
            for _ in 0..turns {
                tokio::task::yield_now().await;
            }
            tell(&session, Inner::GoOn);
        });
    }

    /// Wakes the session up after so many milliseconds.
    pub(crate) fn wake_in(&self, ms: u64) -> Begun {
        let session = self.session.clone();
        Begun::Wait(self.tasks.spawn(async move {
            tokio::time::sleep(std::time::Duration::from_millis(ms)).await;
            tell(&session, Inner::Input(Input::TimerFired));
        }))
    }
}

pub(super) fn tell(session: &ActorRef<SessionMsg>, said: Inner) {
    if session.cast(SessionMsg::Inner(said)).is_err() {
        tracing::debug!("a call ended after its session had gone");
    }
}

/// Does this if the task that holds it panics.
pub(super) struct Vigil<F: Fn()>(F);

impl<F: Fn()> Drop for Vigil<F> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            (self.0)();
        }
    }
}

/// Answers `Lost` unless the task has answered.
pub(super) struct Guard {
    session: ActorRef<SessionMsg>,
    lost: Option<Input>,
}

impl Guard {
    pub(super) fn new(session: ActorRef<SessionMsg>, call: CallId, attempt: Attempt) -> Self {
        Self { session, lost: Some(Input::Lost { call, attempt }) }
    }

    pub(super) fn answer(mut self, input: Input) {
        self.lost = None;
        tell(&self.session, Inner::Input(input));
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(lost) = self.lost.take() {
            tell(&self.session, Inner::Input(lost));
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
                let _vigil = Vigil(|| broken.set(true));
                assert!(!panics, "struck");
            }));
            assert_eq!((ended.is_err(), broken.get()), (panics, panics));
        };
        check(false);
        check(true);
    }
}
