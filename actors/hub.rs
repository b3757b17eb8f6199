//! Where watchers listen. Apart from the actors, so that it outlives a session's death, and so that deltas go past the
//! session. A watcher has a bounded buffer; one that does not keep up is dropped and comes back with its position.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::sync::{mpsc, oneshot};

use crate::model::{Attempt, CallId, Durable, Record, RunId, Seq, SessionId, Timestamp};

/// Events that a watcher may be behind.
const BUFFER: usize = 256;

/// What there is to hear.
#[derive(Debug, Clone)]
pub(crate) enum Live {
    /// A record became durable.
    Recorded(Seq, Durable<Arc<Record>>),
    /// Something that is not durable.
    Delta(Delta),
}

/// A piece of what an attempt of a call has to say.
#[derive(Debug, Clone)]
pub(crate) struct Delta {
    pub(crate) call: CallId,
    pub(crate) attempt: Attempt,
    pub(crate) piece: Piece,
}

/// See [`Delta`]. `at` is the length of what the attempt has said before, in bytes.
#[derive(Debug, Clone)]
pub(crate) enum Piece {
    Text { at: u64, delta: Arc<str> },
    Reasoning { at: u64, delta: Arc<str> },
    Waits { reason: &'static str, until: Option<Timestamp> },
    Progress(Arc<str>),
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Hub {
    watching: AtomicUsize,
    watchers: Mutex<HashMap<SessionId, Vec<mpsc::Sender<Live>>>>,
    waiters: Mutex<HashMap<RunId, Vec<oneshot::Sender<()>>>>,
}

impl Hub {
    /// Listens to a session from now on. The receiver ends when it has fallen behind.
    pub(crate) fn watch(&self, session: SessionId) -> mpsc::Receiver<Live> {
        let (sender, receiver) = mpsc::channel(BUFFER);
        let mut watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        watchers.entry(session).or_default().push(sender);
        self.watching.store(watchers.len(), Ordering::Release);
        receiver
    }

    /// Whether anybody listens to anything: asked before an event is made.
    pub(crate) fn is_watched(&self) -> bool {
        self.watching.load(Ordering::Acquire) > 0
    }

    /// Tells whoever listens to the session.
    pub(crate) fn publish(&self, session: SessionId, live: &Live) {
        if !self.is_watched() {
            return;
        }
        let mut watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(list) = watchers.get_mut(&session) else { return };
        list.retain(|watcher| watcher.try_send(live.clone()).is_ok());
        if list.is_empty() {
            watchers.remove(&session);
            self.watching.store(watchers.len(), Ordering::Release);
        }
    }

    /// Resolves when it becomes durable that a run has ended or is parked, after this call. The row is to be read again then;
    /// and also when this resolves with an error.
    pub(crate) fn settling(&self, run: RunId) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        let mut waiters = self.waiters.lock().unwrap_or_else(PoisonError::into_inner);
        let list = waiters.entry(run).or_default();
        list.retain(|waiter| !waiter.is_closed());
        list.push(sender);
        receiver
    }

    /// It is durable that a run has ended, or is parked.
    pub(crate) fn settled(&self, run: RunId) {
        let waiters = self.waiters.lock().unwrap_or_else(PoisonError::into_inner).remove(&run);
        for waiter in waiters.into_iter().flatten() {
            // Whoever has gone does not wait any more.
            waiter.send(()).unwrap_or_default();
        }
    }

    /// Wakes everybody who waits for a run, so that they look again.
    pub(crate) fn wake_all(&self) {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.watching.store(0, Ordering::Release);
    }
}

/// The length of a piece, in bytes.
pub(crate) fn length(piece: &str) -> u64 {
    u64::try_from(piece.len()).unwrap_or(u64::MAX)
}
