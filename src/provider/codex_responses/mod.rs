//! The wire format `codex_responses`: OpenAI's Responses API, also of Azure, xAI and many local servers. Here is its
//! [`WireFormat`], which refers to the modules.

mod body;
mod decode;
mod encode;
mod event;
mod items;
mod opaque;
mod slot;
mod streamed_text;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use hermod_actors::{
    model::AnswerOrigin,
    port::{Encoder, ModelRequest},
};

pub use encode::ResponsesEncoder;

use super::{
    Dialect,
    reader::ResponseReader,
    wire::{Decoder, EncodeTarget, WireFormat},
};
use decode::ResponsesDecoder;

/// The name in the configuration.
pub const NAME: &str = "codex_responses";

/// The wire format, in one vendor's dialect.
#[derive(Debug, Clone, Copy)]
pub struct CodexResponses {
    /// True if the server accepts a limit of the output.
    has_output_limit: bool,
}

impl CodexResponses {
    /// The format in the dialect of an endpoint.
    pub fn of(dialect: &Dialect) -> Self {
        Self { has_output_limit: dialect.host != "chatgpt.com" }
    }
}

impl WireFormat for CodexResponses {
    fn encoder(&self, target: EncodeTarget) -> Arc<dyn Encoder> {
        Arc::new(ResponsesEncoder::new(target))
    }

    fn body(&self, request: ModelRequest) -> Vec<Bytes> {
        body::body(self.has_output_limit, request)
    }

    fn decoder(&self, origin: Arc<AnswerOrigin>) -> Box<dyn Decoder> {
        Box::new(ResponseReader::<ResponsesDecoder>::new(origin))
    }
}
