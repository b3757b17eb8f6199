//! The wire formats: bytes of a request in, bytes of an answer out, nothing else.
//!
//! Each format is one file with the same three functions: `read`, `write` and `error`.

pub mod chat_completions;
mod events;

pub use events::Events;

use super::Conversation;

/// A request that was understood.
#[derive(Debug)]
pub struct Exchange<'a> {
    /// What is asked.
    pub conversation: Conversation<'a>,
    /// How the answer is wanted.
    pub reply: Reply,
}

/// How an answer is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// As one JSON object.
    Whole,
    /// As server-sent events.
    Stream,
    /// As server-sent events, the usage in one of its own.
    StreamWithUsage,
}

/// Why a request is refused, as the client will read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The HTTP status.
    pub status: u16,
    /// What is wrong and what is expected.
    pub message: String,
    /// The field at fault.
    pub param: Option<String>,
}

impl Refusal {
    /// A request that no provider would accept.
    pub fn bad_request(param: Option<&str>, message: impl Into<String>) -> Self {
        Self { status: 400, message: message.into(), param: param.map(str::to_owned) }
    }
}
