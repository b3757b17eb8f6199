//! The `chat_completions` wire format: `POST /v1/chat/completions` of OpenAI and compatible servers.

mod read;
mod write;

pub use read::read;
pub use write::write;

use super::{Format, openai};

/// The format `chat_completions`.
pub const FORMAT: Format = Format {
    path: "/v1/chat/completions",
    header: None,
    read,
    write,
    error: openai::error,
    models: openai::models,
};
