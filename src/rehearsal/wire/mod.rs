//! The wire formats: bytes of a request in, bytes of an answer out, nothing else.
//!
//! Each format is one file or folder with the same functions, and a line in [`FORMATS`].

pub mod anthropic_messages;
pub mod chat_completions;
pub mod codex_responses;
mod events;
mod fields;
mod image;
mod openai;
mod prefix;
mod seal;

pub use events::EventBuffer;
pub use prefix::{CacheBreakpoint, CachePolicy, CachePrefix};

use super::{BorrowedText, Conversation, ScriptedAnswer};

/// A wire format.
#[derive(Debug)]
pub struct Format {
    /// Where it is spoken.
    pub path: &'static str,
    /// A header without which a request is refused.
    pub header: Option<&'static str>,
    /// Reads a request as a strict provider would.
    pub read: fn(&[u8]) -> Result<ParsedRequest<'_>, RequestRefusal>,
    /// Writes an answer as it is wanted, by a model that calls itself so.
    pub write: fn(&ScriptedAnswer<'_>, &ParsedRequest<'_>, &str) -> EventBuffer,
    /// The body of an error response.
    pub error: fn(&RequestRefusal) -> String,
    /// The body of the list of models, of which there is one.
    pub models: fn(&str) -> String,
}

/// All formats; the first one answers where none can be told.
pub static FORMATS: [Format; 3] =
    [chat_completions::FORMAT, anthropic_messages::FORMAT, codex_responses::FORMAT];

/// A request that was understood.
#[derive(Debug)]
pub struct ParsedRequest<'a> {
    /// What is asked.
    pub conversation: Conversation<'a>,
    /// The model that is asked for: what is thought is sealed for it.
    pub model: BorrowedText<'a>,
    /// How the answer is wanted.
    pub reply: ReplyMode,
    /// What of it is wanted beside texts and calls.
    pub include: AnswerOptions,
    /// What a cache may know of the request.
    pub prefix: CachePrefix,
}

/// How an answer is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyMode {
    /// As one JSON object.
    Whole,
    /// As server-sent events.
    Stream,
}

/// What an answer contains only where it is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AnswerOptions {
    /// The usage, in a stream.
    pub usage: bool,
    /// What was thought, in words.
    pub thoughts: bool,
    /// What was thought, in the form that is sent back.
    pub sealed_thoughts: bool,
}

/// Why a request is refused, as the client will read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestRefusal {
    /// The HTTP status.
    pub status: u16,
    /// What is wrong and what is expected.
    pub message: String,
    /// The field at fault.
    pub param: Option<String>,
    /// The vendor's word for it.
    pub code: Option<&'static str>,
}

impl RequestRefusal {
    /// A response with an error.
    pub fn new(status: u16, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), param: None, code: None }
    }

    /// A request that no provider would accept.
    pub fn bad_request(param: Option<&str>, message: impl Into<String>) -> Self {
        Self { param: param.map(str::to_owned), ..Self::new(400, message) }
    }

    fn with_code(self, code: &'static str) -> Self {
        Self { code: Some(code), ..self }
    }
}

/// How an answer to `stream` comes.
fn reply_mode(stream: Option<bool>) -> ReplyMode {
    if stream == Some(true) { ReplyMode::Stream } else { ReplyMode::Whole }
}
