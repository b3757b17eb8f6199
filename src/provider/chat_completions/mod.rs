//! `chat_completions`: what OpenAI began and most vendors and local servers speak.

mod calls;
mod chunk;
mod draft;
mod encode;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use hermod_actors::{
    model::{Failure, Origin},
    port::{Encoder, ModelRequest},
};
use http::{HeaderMap, HeaderName, header};

pub use encode::{ChatEncoder, MaxTokens};

use super::{
    Dialect,
    failure::failure_of,
    reader::Reader,
    wire::{Decoder, WireFormat, Writing},
};
use draft::Draft;

/// Its name.
pub const NAME: &str = "chat_completions";

/// The wire format, in one vendor's dialect.
#[derive(Debug, Clone, Copy, Default)]
pub struct ChatCompletions {
    max_tokens: MaxTokens,
}

impl ChatCompletions {
    /// The wire format with this field for the limit of the output.
    pub const fn new(max_tokens: MaxTokens) -> Self {
        Self { max_tokens }
    }

    /// The dialect of an endpoint.
    pub fn of(dialect: &Dialect) -> Self {
        Self::new(if dialect.host == "api.openai.com" { MaxTokens::Completion } else { MaxTokens::Plain })
    }
}

impl WireFormat for ChatCompletions {
    fn name(&self) -> &'static str {
        NAME
    }

    fn path(&self) -> &'static [&'static str] {
        &["chat", "completions"]
    }

    fn credential(&self) -> (HeaderName, &'static str) {
        (header::AUTHORIZATION, "Bearer ")
    }

    fn encoder(&self, writing: Writing) -> Arc<dyn Encoder> {
        Arc::new(ChatEncoder::new(writing))
    }

    fn body(&self, request: ModelRequest) -> Vec<Bytes> {
        encode::body(self.max_tokens, request)
    }

    fn decoder(&self, _: Arc<Origin>) -> Box<dyn Decoder> {
        Box::new(Reader::new(Draft::default()))
    }

    fn failure(&self, status: u16, headers: &HeaderMap, body: &[u8]) -> Failure {
        failure_of(status, headers, body)
    }
}
