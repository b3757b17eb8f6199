//! The wire format `anthropic_messages`: Anthropic's API and compatible servers. Here is its [`WireFormat`], which
//! refers to the modules.

mod block;
mod body;
mod decode;
mod encode;
mod event;
mod opaque;
#[cfg(test)]
mod tests;
mod write;

use std::sync::Arc;

use bytes::Bytes;
use hermod_actors::{
    model::AnswerOrigin,
    port::{Encoder, ModelRequest},
};

pub use encode::MessagesEncoder;

use super::{
    CacheTtl, Dialect,
    reader::ResponseReader,
    wire::{Decoder, EncodeTarget, WireFormat},
};
use decode::MessagesDecoder;

/// The name in the configuration.
pub const NAME: &str = "anthropic_messages";

/// The wire format, in one vendor's dialect.
#[derive(Debug, Clone, Copy, Default)]
pub struct AnthropicMessages {
    cache: CacheTtl,
}

impl AnthropicMessages {
    /// The format in the dialect of an endpoint.
    pub const fn of(dialect: &Dialect) -> Self {
        Self { cache: dialect.cache }
    }
}

impl WireFormat for AnthropicMessages {
    fn encoder(&self, target: EncodeTarget) -> Arc<dyn Encoder> {
        Arc::new(MessagesEncoder::new(target, self.cache))
    }

    fn body(&self, request: ModelRequest) -> Vec<Bytes> {
        body::body(self.cache, request)
    }

    fn decoder(&self, origin: Arc<AnswerOrigin>) -> Box<dyn Decoder> {
        Box::new(ResponseReader::<MessagesDecoder>::new(origin))
    }
}
