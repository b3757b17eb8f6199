//! The rehearsal model: a scripted model behind a real loopback endpoint, for demos, tests and benchmarks.
//!
//! A request's bytes become a [`Conversation`] ([`wire`]), [`next()`] says what the script answers to it, [`wire`]
//! renders that as the events of the wire format, and [`Rehearsal`] moves the bytes. All but the last is pure, so
//! whoever hosts the model, a revived run meets the same one. The script's format is described in `docs/rehearsal.md`.

mod cache;
mod conversation;
mod faults;
mod next;
mod script;
mod server;
mod stream;
pub mod wire;

pub use cache::{Cache, Cached};
pub use conversation::{Content, Conversation, Id, Message, Run, Thinking, Violation};
pub use faults::Faults;
pub use next::{Scripted, call_id, next};
pub use script::{Cut, Fault, FaultRule, Pace, Script, ScriptError};
pub use server::{Rehearsal, Running};

/// Bytes of a script's file.
pub(crate) const MAX_SCRIPT_BYTES: u64 = 16 << 20;

/// What whoever starts the model prints once, so that nobody takes it for a real one.
pub const NOTICE: &str = "this is a rehearsal: the model is scripted, its tool calls are real";

/// Stands before every answer that calls no tools.
pub const PREFIX: &str = "[rehearsal] ";

/// What the model says when its script has nothing (more) for a conversation.
pub const CLOSING: &str = "(rehearsal) nothing more to do";
