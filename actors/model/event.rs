use std::sync::Arc;

use super::{Attempt, CallId, Durable, Record, Seq, SessionId};

/// What a watcher sees: records as they become durable, and what is not durable.
#[derive(Debug, Clone)]
pub struct Event {
    /// The session.
    pub session: SessionId,
    /// What happened.
    pub body: EventBody,
}

/// See [`Event`].
#[derive(Debug, Clone)]
pub enum EventBody {
    /// A record became durable.
    Recorded {
        /// Its position: where a watcher that comes back goes on.
        seq: Seq,
        /// The record.
        record: Durable<Arc<Record>>,
    },
    /// A piece of the answer's text. Void if a later attempt of the same call starts.
    Text {
        /// The call.
        call: CallId,
        /// The attempt it belongs to.
        attempt: Attempt,
        /// The piece.
        delta: Arc<str>,
    },
    /// A piece of what the model thinks. Void like text.
    Reasoning {
        /// The call.
        call: CallId,
        /// The attempt it belongs to.
        attempt: Attempt,
        /// The piece.
        delta: Arc<str>,
    },
}
