//! The hub: publishes events to watchers of sessions, and wakes callers that wait for the end of a run. It is no part
//! of an actor: it outlives crashes of sessions, and deltas bypass the session. A watcher has a bounded buffer; one
//! that falls behind is dropped and subscribes again at its position.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::sync::{mpsc, oneshot, watch};

use crate::{
    encodings::Encodings,
    lock,
    model::{AttemptId, Body, Durable, Record, RunId, Seq, SessionEvent, SessionId, Timestamp},
};

/// Events in a watcher's buffer.
const MAX_BUFFERED_EVENTS: usize = 256;

/// An event of one session.
#[derive(Debug, Clone)]
pub(crate) enum HubEvent {
    /// A record became durable.
    Recorded(Seq, Durable<Arc<Record>>),
    /// An event that is not durable.
    Delta(HubDelta),
}

/// An event as a watcher receives it.
#[derive(Debug, Clone)]
pub(crate) struct LiveEvent {
    pub(crate) event: HubEvent,
    /// Of the events that follow from it, shared by all watchers.
    pub(crate) encodings: Arc<Encodings<SessionEvent>>,
}

/// A delta of one attempt of a call.
#[derive(Debug, Clone)]
pub(crate) struct HubDelta {
    pub(crate) id: AttemptId,
    pub(crate) body: DeltaBody,
}

/// The content of a delta. `at` is the length of the attempt's earlier deltas of that kind, in bytes.
#[derive(Debug, Clone)]
pub(crate) enum DeltaBody {
    Text { at: u64, delta: Arc<str> },
    Reasoning { at: u64, delta: Arc<str> },
    ToolCall { n: u32, tool: Arc<str>, arguments: Arc<str> },
    Waiting { reason: &'static str, until: Option<Timestamp> },
    Progress(Arc<str>),
}

/// The texts that an attempt of a model call has streamed so far, redacted.
#[derive(Debug)]
pub(crate) struct StreamedTexts {
    pub(crate) id: AttemptId,
    pub(crate) text: Mutex<String>,
    pub(crate) reasoning: Mutex<String>,
}

/// The watchers of sessions, and the waiters for ends of runs.
#[derive(Debug, Default)]
pub(crate) struct Hub {
    watching: AtomicUsize,
    watchers: Mutex<HashMap<SessionId, Vec<mpsc::Sender<LiveEvent>>>>,
    waiters: Mutex<HashMap<RunId, Vec<oneshot::Sender<()>>>>,
    /// By session: what the attempt under way has streamed, for watchers that join late.
    streams: Mutex<HashMap<SessionId, Arc<StreamedTexts>>>,
    /// Number of the appends that became durable.
    commits: watch::Sender<u64>,
}

impl Hub {
    /// Subscribes to a session's events from now on.
    pub(crate) fn watch(self: &Arc<Self>, session: SessionId) -> Subscription {
        let (sender, receiver) = mpsc::channel(MAX_BUFFERED_EVENTS);
        let mut watchers = lock(&self.watchers);
        watchers.entry(session).or_default().push(sender);
        self.watching.store(watchers.len(), Ordering::Release);
        Subscription { hub: Arc::clone(self), session, receiver }
    }

    /// Whether there is any watcher: checked before an event is built.
    pub(crate) fn is_watched(&self) -> bool {
        self.watching.load(Ordering::Acquire) > 0
    }

    /// Sends an event to the watchers of the session.
    pub(crate) fn publish(&self, session: SessionId, event: &HubEvent) {
        if !self.is_watched() {
            return;
        }
        let live = LiveEvent { event: event.clone(), encodings: Arc::default() };
        self.retain_watchers(session, |watcher| watcher.try_send(live.clone()).is_ok());
    }

    /// Publishes durable records of a session, the first with sequence number `first`; ends of runs wake their waiters.
    pub(crate) fn publish_records(&self, session: SessionId, first: Seq, records: &[Durable<Arc<Record>>]) {
        for (record, seq) in records.iter().zip(first..) {
            let run = record.body.run().map(tracing::field::display);
            tracing::debug!(%session, run, seq, kind = record.body.kind().name(), "recorded");
            self.publish(session, &HubEvent::Recorded(seq, record.clone()));
            if let Body::RunEnded(ended) = &record.body {
                tracing::info!(%session, run = %ended.run, outcome = %ended.ended, "run ended");
                self.notify_run_end(ended.run);
            }
        }
        self.commits.send_modify(|appends| *appends += 1);
    }

    /// Keeps what an attempt has streamed until [`Hub::end_stream`].
    pub(crate) fn begin_stream(&self, session: SessionId, texts: Arc<StreamedTexts>) {
        lock(&self.streams).insert(session, texts);
    }

    /// Forgets what this attempt has streamed.
    pub(crate) fn end_stream(&self, session: SessionId, id: AttemptId) {
        if let Entry::Occupied(stream) = lock(&self.streams).entry(session)
            && stream.get().id == id
        {
            stream.remove();
        }
    }

    /// What the attempt under way has streamed so far, as deltas from its start.
    pub(crate) fn streamed(&self, session: SessionId) -> Vec<HubDelta> {
        let Some(texts) = lock(&self.streams).get(&session).cloned() else { return Vec::new() };
        let text =
            |text: &Mutex<String>| Some(Arc::<str>::from(&**lock(text))).filter(|text| !text.is_empty());
        let reasoning = text(&texts.reasoning).map(|delta| DeltaBody::Reasoning { at: 0, delta });
        let text = text(&texts.text).map(|delta| DeltaBody::Text { at: 0, delta });
        reasoning.into_iter().chain(text).map(|body| HubDelta { id: texts.id, body }).collect()
    }

    /// Changes with each append that becomes durable, of any session.
    pub(crate) fn watch_commits(&self) -> watch::Receiver<u64> {
        self.commits.subscribe()
    }

    /// Keeps the watchers of the session for which `keep` returns true.
    fn retain_watchers(&self, session: SessionId, keep: impl Fn(&mpsc::Sender<LiveEvent>) -> bool) {
        let mut watchers = lock(&self.watchers);
        let Some(list) = watchers.get_mut(&session) else { return };
        list.retain(keep);
        if list.is_empty() {
            watchers.remove(&session);
            self.watching.store(watchers.len(), Ordering::Release);
        }
    }

    /// Waits until a run ends or is parked, durably, after this call.
    pub(crate) fn watch_run_end(&self, run: RunId) -> RunEndWaiter<'_> {
        let (sender, receiver) = oneshot::channel();
        let mut waiters = lock(&self.waiters);
        waiters.entry(run).or_default().push(sender);
        RunEndWaiter { hub: self, run, receiver }
    }

    /// Wakes the waiters of a run that has durably ended or is parked.
    pub(crate) fn notify_run_end(&self, run: RunId) {
        let waiters = lock(&self.waiters).remove(&run);
        for waiter in waiters.into_iter().flatten() {
            // A dropped waiter is no error.
            waiter.send(()).unwrap_or_default();
        }
    }

    /// Wakes all waiters and ends all subscriptions: they check the runtime again.
    pub(crate) fn wake_all(&self) {
        lock(&self.waiters).clear();
        lock(&self.watchers).clear();
        self.watching.store(0, Ordering::Release);
    }
}

/// Receives the events of a session until it is dropped.
#[derive(Debug)]
pub(crate) struct Subscription {
    hub: Arc<Hub>,
    session: SessionId,
    /// Returns the events; `None` if the subscription has fallen behind or the runtime has ended.
    pub(crate) receiver: mpsc::Receiver<LiveEvent>,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.receiver.close();
        self.hub.retain_watchers(self.session, |watcher| !watcher.is_closed());
    }
}

/// A waiter of [`Hub::watch_run_end`].
#[derive(Debug)]
pub(crate) struct RunEndWaiter<'h> {
    hub: &'h Hub,
    run: RunId,
    receiver: oneshot::Receiver<()>,
}

impl RunEndWaiter<'_> {
    /// Resolves when the run's row must be read again.
    pub(crate) async fn wait(mut self) {
        // A dropped sender wakes the waiter too.
        (&mut self.receiver).await.unwrap_or_default();
    }
}

impl Drop for RunEndWaiter<'_> {
    fn drop(&mut self) {
        self.receiver.close();
        let mut waiters = lock(&self.hub.waiters);
        if let Entry::Occupied(mut list) = waiters.entry(self.run) {
            list.get_mut().retain(|waiter| !waiter.is_closed());
            if list.get().is_empty() {
                list.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(hub: &Hub) -> (usize, usize, bool) {
        let (watchers, waiters) = (hub.watchers.lock().unwrap(), hub.waiters.lock().unwrap());
        (watchers.len(), waiters.len(), hub.is_watched())
    }

    #[test]
    fn whoever_has_gone_leaves_nothing_behind() {
        let hub = Arc::<Hub>::default();
        let (session, run) = (SessionId::from_bits(1), RunId::from_bits(2));
        let (first, second) = (hub.watch(session), hub.watch(session));
        let (wait, other) = (hub.watch_run_end(run), hub.watch_run_end(run));
        drop((first, wait));
        assert_eq!(sizes(&hub), (1, 1, true));
        drop((second, other));
        assert_eq!(sizes(&hub), (0, 0, false));
    }

    #[test]
    fn whoever_was_told_leaves_nothing_behind() {
        let hub = Hub::default();
        let settling = hub.watch_run_end(RunId::from_bits(2));
        hub.notify_run_end(RunId::from_bits(2));
        futures::executor::block_on(settling.wait());
        assert_eq!(sizes(&hub), (0, 0, false));
    }
}
