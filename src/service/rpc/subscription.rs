//! The events that a client of a WebSocket subscribes to. Each subscription is a task that reads a stream and waits until
//! the connection takes its events: a client that reads slowly slows only its own subscriptions.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{sync::mpsc, task::AbortHandle};
use tokio_util::sync::CancellationToken;

use super::{error::RpcError, framing::Framing, socket::OutgoingMessage};
use crate::service::events::EventSource;

/// Most subscriptions of a connection.
const MAX_SUBSCRIPTIONS: usize = 16;

/// The subscriptions of a connection. They end with it.
pub(super) struct Subscriptions {
    framing: Framing,
    outgoing: mpsc::Sender<OutgoingMessage>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    open: BTreeMap<u64, AbortHandle>,
    count: u64,
    is_closed: bool,
}

impl Subscriptions {
    /// None yet. Their events are sent to `outgoing`.
    pub(super) fn new(framing: Framing, outgoing: mpsc::Sender<OutgoingMessage>) -> Arc<Self> {
        Arc::new(Self { framing, outgoing, state: Mutex::default() })
    }

    /// Subscribes to a stream, whose events are sent once `answered` has fired. Returns the name of the subscription.
    pub(super) fn open(
        self: &Arc<Self>,
        source: EventSource,
        answered: CancellationToken,
    ) -> Result<String, RpcError> {
        let mut state = self.state();
        if state.is_closed {
            return Err(RpcError::unavailable("the connection is closed"));
        }
        if state.open.len() >= MAX_SUBSCRIPTIONS {
            let text = format!(
                "the connection has {MAX_SUBSCRIPTIONS} subscriptions; end one by events.unsubscribe"
            );
            return Err(RpcError::unavailable(text));
        }
        state.count += 1;
        let number = state.count;
        let task = tokio::spawn(Arc::clone(self).send(number, source, answered));
        state.open.insert(number, task.abort_handle());
        Ok(number.to_string())
    }

    /// Sends the events `chat` of a run that a message has begun, to a client that gets them without asking.
    pub(super) fn open_chat(self: &Arc<Self>, source: EventSource, answered: CancellationToken) {
        if self.framing.has_chat_events() {
            // A connection with too many subscriptions does without.
            let (Ok(_) | Err(_)) = self.open(source, answered);
        }
    }

    /// Ends a subscription; false if there is none of this name.
    pub(super) fn end(&self, name: &str) -> bool {
        let task = name.parse().ok().and_then(|number: u64| self.state().open.remove(&number));
        task.inspect(AbortHandle::abort).is_some()
    }

    /// Ends all, and lets no other begin.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        std::mem::take(&mut state.open).into_values().for_each(|task| task.abort());
    }

    async fn send(self: Arc<Self>, number: u64, mut source: EventSource, answered: CancellationToken) {
        answered.cancelled().await;
        let name = number.to_string();
        while let Some(event) = source.next().await {
            // A connection that is closed takes nothing.
            if self.outgoing.send(self.framing.write_event(&name, &event).into()).await.is_err() {
                return;
            }
        }
        self.state().open.remove(&number);
        // Its connection is closed. An end would say that nothing follows.
        if source.is_cut_off() {
            return;
        }
        // The last event of a chat is its end.
        if source.is_chat() && self.framing.has_chat_events() {
            return;
        }
        let (Ok(()) | Err(_)) = self.outgoing.send(self.framing.write_end(&name).into()).await;
    }

    /// Ignores poisoning: a panic between two updates leaves at most a task that ends by itself.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
