//! What a call says while it is under way.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use crate::{
    hub::{Delta, Hub, Live, Piece, length},
    model::{Attempt, CallId, RateInfo, SessionId},
    port::{Clock, Deltas},
    provider::Admission,
};

/// Hands what a call says to the watchers, past the session.
pub(super) struct Published {
    hub: Arc<Hub>,
    session: SessionId,
    call: CallId,
    attempt: Attempt,
    /// What was said before, in bytes; counted even if nobody listens, because somebody may come.
    text: AtomicU64,
    reasoning: AtomicU64,
}

impl Published {
    pub(super) fn new(hub: &Arc<Hub>, session: SessionId, (call, attempt): (CallId, Attempt)) -> Self {
        let (text, reasoning) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { hub: Arc::clone(hub), session, call, attempt, text, reasoning }
    }

    pub(super) fn publish(&self, piece: impl FnOnce() -> Piece) {
        if self.hub.is_watched() {
            let delta = Delta { call: self.call, attempt: self.attempt, piece: piece() };
            self.hub.publish(self.session, &Live::Delta(delta));
        }
    }
}

impl Deltas for Published {
    fn text(&self, delta: &str) {
        let at = self.text.fetch_add(length(delta), Ordering::Relaxed);
        self.publish(|| Piece::Text { at, delta: delta.into() });
    }

    fn reasoning(&self, delta: &str) {
        let at = self.reasoning.fetch_add(length(delta), Ordering::Relaxed);
        self.publish(|| Piece::Reasoning { at, delta: delta.into() });
    }

    fn tool_call(&self, n: u32, tool: &str, arguments: &str) {
        self.publish(|| Piece::ToolCall { n, tool: tool.into(), arguments: arguments.into() });
    }
}

/// Tells the gate too, when the answer begins to come in.
pub(super) struct Heard<'a> {
    published: &'a Published,
    admission: &'a Admission,
    clock: &'a dyn Clock,
    begun: AtomicBool,
}

impl<'a> Heard<'a> {
    pub(super) const fn new(
        published: &'a Published,
        admission: &'a Admission,
        clock: &'a dyn Clock,
    ) -> Self {
        Self { published, admission, clock, begun: AtomicBool::new(false) }
    }

    fn begins(&self) {
        if !self.begun.swap(true, Ordering::Relaxed) {
            self.admission.answering();
        }
    }
}

impl Deltas for Heard<'_> {
    fn text(&self, delta: &str) {
        self.begins();
        self.published.text(delta);
    }

    fn reasoning(&self, delta: &str) {
        self.begins();
        self.published.reasoning(delta);
    }

    fn tool_call(&self, n: u32, tool: &str, arguments: &str) {
        self.begins();
        self.published.tool_call(n, tool, arguments);
    }

    fn limits(&self, info: RateInfo) {
        self.admission.learn(info, self.clock.at());
    }
}
