//! The wire formats of the rehearsal model. Pure: request bytes in, answer bytes out. Here is what they have in common:
//! [`Format`], [`ParsedRequest`] and [`RequestRefusal`].
//!
//! Each format is a module with the same functions, and an entry in [`FORMATS`].

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
    /// The path of its endpoint.
    pub path: &'static str,
    /// A required header; a request without it is refused.
    pub header: Option<&'static str>,
    /// Parses a request by the rules of a strict provider.
    pub read: fn(&[u8]) -> Result<ParsedRequest<'_>, RequestRefusal>,
    /// Renders an answer in the requested mode. The last argument is the name of the model.
    pub write: fn(&ScriptedAnswer<'_>, &ParsedRequest<'_>, &str) -> EventBuffer,
    /// The body of an error response.
    pub error: fn(&RequestRefusal) -> String,
    /// The body of the model list, which contains the one model of this name.
    pub models: fn(&str) -> String,
}

/// All formats. The first one answers requests that match no format.
pub static FORMATS: [Format; 3] =
    [chat_completions::FORMAT, anthropic_messages::FORMAT, codex_responses::FORMAT];

/// A parsed request.
#[derive(Debug)]
pub struct ParsedRequest<'a> {
    /// The conversation to answer.
    pub conversation: Conversation<'a>,
    /// The requested model. Reasoning is sealed for it.
    pub model: BorrowedText<'a>,
    /// True if the answer is sent as events, false if it is one JSON object.
    pub is_stream: bool,
    /// The requested parts of the answer besides texts and calls.
    pub include: AnswerOptions,
    /// The prefixes of the request, for the cache.
    pub prefix: CachePrefix,
}

/// Parts of an answer that are sent only on request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AnswerOptions {
    /// The usage, in a stream.
    pub usage: bool,
    /// The reasoning as text.
    pub thoughts: bool,
    /// The reasoning in sealed form, for the client to send back.
    pub sealed_thoughts: bool,
}

/// Why a request is refused, in the client's terms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestRefusal {
    /// The HTTP status.
    pub status: u16,
    /// What is wrong, and what is expected.
    pub message: String,
    /// The invalid field.
    pub param: Option<String>,
    /// The vendor's error code.
    pub code: Option<&'static str>,
}

impl RequestRefusal {
    /// A refusal with this status.
    pub fn new(status: u16, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), param: None, code: None }
    }

    /// A refusal with status 400, for a request that a strict provider does not accept.
    pub fn bad_request(param: Option<&str>, message: impl Into<String>) -> Self {
        Self { param: param.map(str::to_owned), ..Self::new(400, message) }
    }

    fn with_code(self, code: &'static str) -> Self {
        Self { code: Some(code), ..self }
    }
}

/// True if the text has only the characters of tool names and call ids.
fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}
