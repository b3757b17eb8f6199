//! Port of redaction: hides secrets in texts that come from outside, before they become a record, an artifact or an
//! event.

use std::fmt::Debug;

use bytes::Bytes;

/// Replaces known secrets by a mark that needs no escape in JSON. The set of secrets may grow at any time.
pub trait TextRedactor: Debug + Send + Sync + 'static {
    /// `text` with its secrets replaced; `None` if it has none. Linear in the text, and must not block.
    fn redacted(&self, text: &str) -> Option<String>;

    /// Redacts a stream whose pieces end anywhere, also within a secret.
    fn stream(&self) -> Box<dyn RedactedStream>;
}

/// The redaction of one stream. A stream of whole characters stays one.
pub trait RedactedStream: Debug + Send {
    /// Takes the next bytes, and returns those that can be no part of a secret any more, redacted. The bytes that are
    /// held back are bounded by the longest secret.
    fn push(&mut self, bytes: Bytes) -> Bytes;

    /// Returns the bytes that are held back.
    fn finish(&mut self) -> Bytes;
}

/// A redactor that knows no secret.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoRedaction;

impl TextRedactor for NoRedaction {
    fn redacted(&self, _text: &str) -> Option<String> {
        None
    }

    fn stream(&self) -> Box<dyn RedactedStream> {
        Box::new(Self)
    }
}

impl RedactedStream for NoRedaction {
    fn push(&mut self, bytes: Bytes) -> Bytes {
        bytes
    }

    fn finish(&mut self) -> Bytes {
        Bytes::new()
    }
}
