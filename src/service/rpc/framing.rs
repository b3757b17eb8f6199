//! The framings of messages on a WebSocket: JSON-RPC's, and OpenClaw's.

use super::{
    client::CallResult,
    gateway,
    message::{self, CallMessage, RequestId},
};
use crate::service::stream_event::StreamEvent;

/// How messages are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// JSON-RPC 2.0.
    JsonRpc,
    /// The frames of OpenClaw's gateway.
    Gateway,
}

impl Framing {
    /// Reads a message; `None` for one that asks for nothing.
    pub(super) fn parse(self, text: &str) -> Option<CallMessage> {
        match self {
            Self::JsonRpc => Some(CallMessage::parse(text.as_bytes())),
            Self::Gateway => gateway::parse(text),
        }
    }

    pub(super) fn write_answer(self, id: &RequestId, answer: &CallResult) -> String {
        match self {
            Self::JsonRpc => message::write_answer(id, answer),
            Self::Gateway => gateway::write_answer(id, answer),
        }
    }

    pub(super) fn write_event(self, subscription: &str, event: &StreamEvent) -> String {
        match self {
            Self::JsonRpc => message::write_event(subscription, event),
            Self::Gateway => gateway::write_subscribed(subscription, event),
        }
    }

    pub(super) fn write_end(self, subscription: &str) -> String {
        match self {
            Self::JsonRpc => message::write_end(subscription),
            Self::Gateway => gateway::write_end(subscription),
        }
    }

    /// A message beside each ping, for clients that do not see pings; `None` for those that do.
    pub(super) fn write_tick(self) -> Option<String> {
        match self {
            Self::JsonRpc => None,
            Self::Gateway => Some(gateway::write_tick()),
        }
    }

    /// Whether a client gets the events `chat` of the runs that its messages begin.
    pub(super) const fn has_chat_events(self) -> bool {
        matches!(self, Self::Gateway)
    }

    /// Whether a run that a call of `agent` began is answered again when it ends.
    pub(super) const fn has_final_answers(self) -> bool {
        matches!(self, Self::Gateway)
    }
}
