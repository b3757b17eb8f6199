//! `chat_completions`: what OpenAI began and most vendors and local servers speak.

mod calls;
mod chunk;
mod decode;
mod draft;
mod encode;
#[cfg(test)]
mod tests;
mod think;

use std::sync::Arc;

use bytes::Bytes;
use hermod_actors::{
    model::Failure,
    port::{Encoder, ModelRequest},
};
use http::{HeaderMap, HeaderName, header};

pub use decode::ChatDecoder;
pub use encode::{ChatEncoder, MaxTokens};

use super::{
    failure::failure_of,
    wire::{Decoder, WireFormat},
};

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

    /// The dialect of a host.
    pub fn of_host(host: &str) -> Self {
        Self::new(if host == "api.openai.com" { MaxTokens::Completion } else { MaxTokens::Plain })
    }
}

impl WireFormat for ChatCompletions {
    fn path(&self) -> &'static [&'static str] {
        &["chat", "completions"]
    }

    fn credential(&self) -> (HeaderName, &'static str) {
        (header::AUTHORIZATION, "Bearer ")
    }

    fn encoder(&self) -> Arc<dyn Encoder> {
        Arc::new(ChatEncoder)
    }

    fn body(&self, request: ModelRequest) -> Vec<Bytes> {
        encode::body(self.max_tokens, request)
    }

    fn decoder(&self) -> Box<dyn Decoder> {
        Box::new(ChatDecoder::new())
    }

    fn failure(&self, status: u16, headers: &HeaderMap, body: &[u8]) -> Failure {
        failure_of(status, headers, body)
    }
}
