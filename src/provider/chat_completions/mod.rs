//! The wire format `chat_completions`: OpenAI's API, which most vendors and local servers support. Here is its
//! [`WireFormat`], which refers to the modules.

mod calls;
mod chunk;
mod decode;
mod echoed;
mod encode;
#[cfg(test)]
mod encode_tests;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use hermod_actors::{
    model::AnswerOrigin,
    port::{Encoder, ModelRequest},
};

pub use encode::{ChatDialect, ChatEncoder};

use super::{
    Dialect,
    reader::ResponseReader,
    wire::{Decoder, EncodeTarget, WireFormat},
};
use decode::ChatDecoder;

/// The name in the configuration.
pub const NAME: &str = "chat_completions";

/// The wire format, in one vendor's dialect.
#[derive(Debug, Clone, Copy, Default)]
pub struct ChatCompletions {
    dialect: ChatDialect,
}

impl ChatCompletions {
    /// The format in the dialect of an endpoint.
    pub fn of(dialect: &Dialect) -> Self {
        Self { dialect: ChatDialect::of(&dialect.host) }
    }
}

impl WireFormat for ChatCompletions {
    fn encoder(&self, target: EncodeTarget) -> Arc<dyn Encoder> {
        Arc::new(ChatEncoder::new(self.dialect, target))
    }

    fn body(&self, request: ModelRequest) -> Vec<Bytes> {
        encode::body(self.dialect, request)
    }

    fn decoder(&self, origin: Arc<AnswerOrigin>) -> Box<dyn Decoder> {
        Box::new(ResponseReader::<ChatDecoder>::new(origin))
    }
}
