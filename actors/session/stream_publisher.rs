//! Publishes to watchers what happens during a call: the deltas of a model's answer, the progress of a tool, waits.
//! [`FirstDeltaObserver`] also tells the gate when an answer begins, and which limits the provider reports.

use std::sync::{Arc, Mutex, OnceLock};

use bytes::Bytes;

use crate::{
    hub::{DeltaBody, Hub, HubDelta, HubEvent},
    lock,
    model::{AttemptId, RateInfo, SessionId},
    port::{Clock, DeltaSink, RedactedStream, TextRedactor},
    provider::GateAdmission,
    supervisor::RuntimeParts,
};

/// Sends the deltas of one attempt directly to the hub's watchers, not through the session's actor. They are redacted: the
/// end of a delta that may begin a secret is sent with the next one.
pub(super) struct StreamPublisher {
    hub: Arc<Hub>,
    session: SessionId,
    id: AttemptId,
    redactor: Arc<dyn TextRedactor>,
    text: Mutex<StreamedText>,
    reasoning: Mutex<StreamedText>,
}

/// A text of which the beginning was sent. It is redacted and counted even without watchers, because one may subscribe
/// later.
#[derive(Default)]
struct StreamedText {
    /// Begins with the first delta.
    redacted: Option<Box<dyn RedactedStream>>,
    /// Bytes of earlier deltas.
    sent: u64,
}

impl StreamedText {
    /// The next delta to send, with the bytes before it; `None` if there is none yet.
    fn push(&mut self, delta: &str, redactor: &dyn TextRedactor) -> Option<(u64, Arc<str>)> {
        let redacted = self.redacted.get_or_insert_with(|| redactor.stream());
        let delta = redacted.push(Bytes::copy_from_slice(delta.as_bytes()));
        self.sent(&delta)
    }

    fn finish(&mut self) -> Option<(u64, Arc<str>)> {
        let rest = self.redacted.as_mut()?.finish();
        self.sent(&rest)
    }

    fn sent(&mut self, delta: &Bytes) -> Option<(u64, Arc<str>)> {
        let at = self.sent;
        self.sent += delta.len() as u64;
        (!delta.is_empty()).then(|| (at, String::from_utf8_lossy(delta).into()))
    }
}

impl StreamPublisher {
    pub(super) fn new(parts: &RuntimeParts, session: SessionId, id: AttemptId) -> Self {
        let (hub, redactor) = (Arc::clone(&parts.hub), Arc::clone(&parts.redactor));
        Self { hub, session, id, redactor, text: Mutex::default(), reasoning: Mutex::default() }
    }

    pub(super) fn publish(&self, piece: impl FnOnce() -> DeltaBody) {
        if self.hub.is_watched() {
            let delta = HubDelta { id: self.id, body: piece() };
            self.hub.publish(self.session, &HubEvent::Delta(delta));
        }
    }
}

impl StreamPublisher {
    /// Sends the rest of the texts: the answer is complete.
    pub(super) fn finish(&self) {
        self.publish_reasoning(lock(&self.reasoning).finish());
        self.publish_text(lock(&self.text).finish());
    }

    /// Sends the progress of a tool call.
    pub(super) fn progress(&self, note: &str) {
        self.publish(|| DeltaBody::Progress(self.redacted(note)));
    }

    fn publish_text(&self, delta: Option<(u64, Arc<str>)>) {
        if let Some((at, delta)) = delta {
            self.publish(|| DeltaBody::Text { at, delta });
        }
    }

    fn publish_reasoning(&self, delta: Option<(u64, Arc<str>)>) {
        if let Some((at, delta)) = delta {
            self.publish(|| DeltaBody::Reasoning { at, delta });
        }
    }

    fn redacted(&self, text: &str) -> Arc<str> {
        self.redactor.redacted(text).map_or_else(|| text.into(), Into::into)
    }
}

impl DeltaSink for StreamPublisher {
    fn text(&self, delta: &str) {
        let delta = lock(&self.text).push(delta, &*self.redactor);
        self.publish_text(delta);
    }

    fn reasoning(&self, delta: &str) {
        let delta = lock(&self.reasoning).push(delta, &*self.redactor);
        self.publish_reasoning(delta);
    }

    fn tool_call(&self, n: u32, tool: &str, arguments: &str) {
        self.publish(|| DeltaBody::ToolCall {
            n,
            tool: self.redacted(tool),
            arguments: self.redacted(arguments),
        });
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
