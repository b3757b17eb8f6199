//! The rehearsal model: a scripted model behind a real loopback endpoint, for demos, tests and benchmarks. Here are
//! also the texts by which a rehearsal shows that it is one.
//!
//! [`wire`] parses the bytes of a request into a [`Conversation`], and [`next_answer`] computes the scripted answer.
//! [`wire`] renders it in the wire format, and [`Rehearsal`] does the I/O. All but the last is pure, so a revived run
//! gets the same answers from any process. `docs/rehearsal.md` describes the script format.

mod cache;
mod conversation;
mod fault_counter;
mod script;
mod scripted_answer;
mod server;
mod stream;
pub mod wire;

pub use cache::{CacheUsage, PromptCache};
pub use conversation::{BorrowedText, Conversation, RawContent, RequestMessage, ScriptTurn, ThinkingMode};
pub use fault_counter::FaultCounter;
pub use script::{AnswerPace, Cut, FaultRule, Script, ScriptError, ScriptFault};
pub use scripted_answer::{ScriptedAnswer, call_id, next_answer};
pub use server::{Rehearsal, RehearsalHandle};

/// Maximum size of a script file in bytes.
pub(crate) const MAX_SCRIPT_BYTES: u64 = 16 << 20;

/// Printed once at the start of the model, so that users do not mistake it for a real one.
pub const NOTICE: &str = "this is a rehearsal: the model is scripted, its tool calls are real";

/// Prefix of every answer with a text and without tool calls.
pub const PREFIX: &str = "[rehearsal] ";

/// The answer if the script has none (left) for a conversation.
pub const CLOSING: &str = "(rehearsal) nothing more to do";
