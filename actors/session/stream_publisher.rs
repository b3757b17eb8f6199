//! Publishes to watchers what happens during a call: the deltas of a model's answer, the progress of a tool, waits.
//! [`FirstDeltaObserver`] also tells the gate when an answer begins, and which limits the provider reports.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU64, Ordering},
};

use crate::{
    hub::{DeltaBody, Hub, HubDelta, HubEvent},
    model::{AttemptId, RateInfo, SessionId},
    port::{Clock, DeltaSink},
    provider::GateAdmission,
};

/// Sends the deltas of one attempt directly to the hub's watchers, not through the session's actor.
pub(super) struct StreamPublisher {
    hub: Arc<Hub>,
    session: SessionId,
    id: AttemptId,
    /// Bytes of earlier deltas; counted even without watchers, because one may subscribe later.
    text: AtomicU64,
    reasoning: AtomicU64,
}

impl StreamPublisher {
    pub(super) fn new(hub: &Arc<Hub>, session: SessionId, id: AttemptId) -> Self {
        let (text, reasoning) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { hub: Arc::clone(hub), session, id, text, reasoning }
    }

    pub(super) fn publish(&self, piece: impl FnOnce() -> DeltaBody) {
        if self.hub.is_watched() {
            let delta = HubDelta { id: self.id, body: piece() };
            self.hub.publish(self.session, &HubEvent::Delta(delta));
        }
    }
}

impl DeltaSink for StreamPublisher {
    fn text(&self, delta: &str) {
        let at = self.text.fetch_add(delta.len() as u64, Ordering::Relaxed);
        self.publish(|| DeltaBody::Text { at, delta: delta.into() });
    }

    fn reasoning(&self, delta: &str) {
        let at = self.reasoning.fetch_add(delta.len() as u64, Ordering::Relaxed);
        self.publish(|| DeltaBody::Reasoning { at, delta: delta.into() });
    }

    fn tool_call(&self, n: u32, tool: &str, arguments: &str) {
        self.publish(|| DeltaBody::ToolCall { n, tool: tool.into(), arguments: arguments.into() });
    }
}

/// Passes the deltas of a model call on. Reports to the gate when the answer begins to arrive, and the limits that the
/// provider reports.
pub(super) struct FirstDeltaObserver<'a> {
    publisher: &'a StreamPublisher,
    admission: &'a GateAdmission,
    clock: &'a dyn Clock,
    /// Monotonic milliseconds of the first delta.
    started_ms: OnceLock<u64>,
}

impl<'a> FirstDeltaObserver<'a> {
    pub(super) const fn new(
        publisher: &'a StreamPublisher,
        admission: &'a GateAdmission,
        clock: &'a dyn Clock,
    ) -> Self {
        Self { publisher, admission, clock, started_ms: OnceLock::new() }
    }

    fn mark_responded(&self) {
        if self.started_ms.get().is_none() && self.started_ms.set(self.clock.monotonic_ms()).is_ok() {
            self.admission.on_answer_start();
        }
    }

    /// Monotonic milliseconds of the first delta.
    pub(super) fn started_ms(&self) -> Option<u64> {
        self.started_ms.get().copied()
    }
}

impl DeltaSink for FirstDeltaObserver<'_> {
    fn text(&self, delta: &str) {
        self.mark_responded();
        self.publisher.text(delta);
    }

    fn reasoning(&self, delta: &str) {
        self.mark_responded();
        self.publisher.reasoning(delta);
    }

    fn tool_call(&self, n: u32, tool: &str, arguments: &str) {
        self.mark_responded();
        self.publisher.tool_call(n, tool, arguments);
    }

    fn limits(&self, info: RateInfo) {
        self.admission.on_rate_info(info, self.clock.at());
    }
}
