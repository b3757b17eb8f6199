//! `chat_completions`: what OpenAI began and most vendors and local servers speak.

mod calls;
mod chunk;
mod draft;
mod encode;
#[cfg(test)]
mod encode_tests;
mod kept;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use hermod_actors::{
    model::{Failure, Origin},
    port::{Encoder, ModelRequest},
};
use http::{HeaderMap, HeaderName, header};

pub use encode::{ChatEncoder, Vendor};

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
    vendor: Vendor,
}

impl ChatCompletions {
    /// The dialect of an endpoint.
    pub fn of(dialect: &Dialect) -> Self {
        Self { vendor: Vendor::of(&dialect.host) }
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
        Arc::new(ChatEncoder::new(self.vendor, writing))
    }

    fn body(&self, request: ModelRequest) -> Vec<Bytes> {
        encode::body(self.vendor, request)
    }

    fn decoder(&self, origin: Arc<Origin>) -> Box<dyn Decoder> {
        Box::new(Reader::new(Draft::new(origin)))
    }

    fn failure(&self, status: u16, headers: &HeaderMap, body: &[u8]) -> Failure {
        failure_of(status, headers, body)
    }
}
