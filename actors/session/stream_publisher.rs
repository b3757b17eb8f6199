//! Publishes to watchers what happens during a call: the deltas of a model's answer, the progress of a tool, waits.
//! [`FirstDeltaObserver`] also tells the gate when an answer begins, and which limits the provider reports.

use std::sync::{Arc, Mutex, OnceLock};

use bytes::Bytes;

use crate::{
    hub::{DeltaBody, Hub, HubDelta, HubEvent, StreamedTexts},
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
    /// For watchers that join late; it begins with the first delta.
    streamed: OnceLock<Arc<StreamedTexts>>,
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

    /// What is held back. The next delta begins another part, so that parts of a text keep their place between others.
    fn end_part(&mut self) -> Option<(u64, Arc<str>)> {
        let rest = self.redacted.take()?.finish();
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
        let (text, reasoning, streamed) = (Mutex::default(), Mutex::default(), OnceLock::new());
        Self { hub, session, id, redactor, text, reasoning, streamed }
    }

    fn streamed(&self) -> &StreamedTexts {
        self.streamed.get_or_init(|| {
            let (text, reasoning) = (Mutex::default(), Mutex::default());
            let texts = Arc::new(StreamedTexts { id: self.id, text, reasoning });
            // No watcher is shown the text of an aside, and a run's answer may be under way beside it.
            if !self.id.call.is_aside() {
                self.hub.begin_stream(self.session, Arc::clone(&texts));
            }
            texts
        })
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
        self.end_reasoning();
        self.end_text();
    }

    /// Sends the progress of a tool call.
    pub(super) fn progress(&self, note: &str) {
        self.publish(|| DeltaBody::Progress(self.redacted(note)));
    }

    fn end_text(&self) {
        let rest = lock(&self.text).end_part();
        self.publish_text(rest);
    }

    fn end_reasoning(&self) {
        let rest = lock(&self.reasoning).end_part();
        self.publish_reasoning(rest);
    }

    fn publish_text(&self, delta: Option<(u64, Arc<str>)>) {
        if let Some((at, delta)) = delta {
            lock(&self.streamed().text).push_str(&delta);
            self.publish(|| DeltaBody::Text { at, delta });
        }
    }

    fn publish_reasoning(&self, delta: Option<(u64, Arc<str>)>) {
        if let Some((at, delta)) = delta {
            lock(&self.streamed().reasoning).push_str(&delta);
            self.publish(|| DeltaBody::Reasoning { at, delta });
        }
    }

    fn redacted(&self, text: &str) -> Arc<str> {
        self.redactor.redacted(text).map_or_else(|| text.into(), Into::into)
    }
}

impl Drop for StreamPublisher {
    fn drop(&mut self) {
        if self.streamed.get().is_some() {
            self.hub.end_stream(self.session, self.id);
        }
    }
}

impl DeltaSink for StreamPublisher {
    fn text(&self, delta: &str) {
        self.end_reasoning();
        let delta = lock(&self.text).push(delta, &*self.redactor);
        self.publish_text(delta);
    }

    fn reasoning(&self, delta: &str) {
        self.end_text();
        let delta = lock(&self.reasoning).push(delta, &*self.redactor);
        self.publish_reasoning(delta);
    }

    fn tool_call(&self, n: u32, tool: &str, arguments: &str) {
        self.end_reasoning();
        self.end_text();
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Holds back the last byte of a stream.
    #[derive(Debug, Default)]
    struct HoldOne(Vec<u8>);

    impl TextRedactor for HoldOne {
        fn redacted(&self, _: &str) -> Option<String> {
            None
        }

        fn stream(&self) -> Box<dyn RedactedStream> {
            Box::new(Self::default())
        }
    }

    impl RedactedStream for HoldOne {
        fn push(&mut self, bytes: Bytes) -> Bytes {
            self.0.extend_from_slice(&bytes);
            let held = self.0.split_off(self.0.len().saturating_sub(1));
            std::mem::replace(&mut self.0, held).into()
        }

        fn finish(&mut self) -> Bytes {
            std::mem::take(&mut self.0).into()
        }
    }

    #[test]
    fn what_is_held_back_keeps_its_place() {
        let mut text = StreamedText::default();
        let sent = |delta: Option<(u64, Arc<str>)>| delta.map(|(at, delta)| (at, delta.to_string()));
        assert_eq!(sent(text.push("abc", &HoldOne::default())), Some((0, "ab".into())));
        assert_eq!(sent(text.end_part()), Some((2, "c".into())));
        assert_eq!(sent(text.end_part()), None);
        assert_eq!(sent(text.push("de", &HoldOne::default())), Some((3, "d".into())));
        assert_eq!(sent(text.end_part()), Some((4, "e".into())));
    }
}
