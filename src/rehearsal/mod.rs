//! The rehearsal model: a scripted model behind a real loopback endpoint, for demos, tests and benchmarks.
//!
//! A request's bytes become a [`Conversation`] ([`wire`]), [`next()`] says what the script answers to it, [`wire`]
//! renders that as the events of the wire format, and [`Rehearsal`] moves the bytes. All but the last is pure, so
//! whoever hosts the model, a revived run meets the same one. The script's format is described in `docs/rehearsal.md`.

mod cache;
mod conversation;
mod fault_counter;
mod script;
mod scripted_answer;
mod server;
mod stream;
pub mod wire;

pub use cache::{CacheUsage, PromptCache};
pub use conversation::{
    BorrowedText, Conversation, ConversationError, RawContent, RequestMessage, ScriptTurn, ThinkingMode,
};
pub use fault_counter::FaultCounter;
pub use script::{AnswerPace, Cut, FaultRule, Script, ScriptError, ScriptFault};
pub use scripted_answer::{ScriptedAnswer, call_id, next_answer};
pub use server::{Rehearsal, RehearsalHandle};

/// Bytes of a script's file.
pub(crate) const MAX_SCRIPT_BYTES: u64 = 16 << 20;

/// What whoever starts the model prints once, so that nobody takes it for a real one.
pub const NOTICE: &str = "this is a rehearsal: the model is scripted, its tool calls are real";

/// Stands before every answer that calls no tools.
pub const PREFIX: &str = "[rehearsal] ";

/// What the model says when its script has nothing (more) for a conversation.
pub const CLOSING: &str = "(rehearsal) nothing more to do";
