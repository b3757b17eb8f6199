use std::{fmt::Debug, sync::Arc};

use bytes::Bytes;
use hermod_actors::{
    model::{Answer, Failure},
    port::{Deltas, Encoder, ModelRequest},
};
use http::{HeaderMap, HeaderName};

/// How one family of providers talks. Pure: no socket, no clock.
pub trait WireFormat: Debug + Send + Sync + 'static {
    /// The segments of the path below the base URL.
    fn path(&self) -> &'static [&'static str];

    /// The header that carries the credential, and what stands in front of it there.
    fn credential(&self) -> (HeaderName, &'static str);

    /// How the lasting parts of a request are written.
    fn encoder(&self) -> Arc<dyn Encoder>;

    /// A request's body, as the pieces whose concatenation it is.
    fn body(&self, request: ModelRequest) -> Vec<Bytes>;

    /// Reads one response that has status 200.
    fn decoder(&self) -> Box<dyn Decoder>;

    /// What a response with another status means. `body` may be cut off.
    fn failure(&self, status: u16, headers: &HeaderMap, body: &[u8]) -> Failure;
}

/// Reads one response: however its bytes are cut, the answer is the same.
pub trait Decoder: Debug + Send {
    /// Takes the next bytes; what of the answer they show goes to `deltas`. After an error nothing more may be pushed.
    fn push(&mut self, bytes: &[u8], deltas: &dyn Deltas) -> Result<Progress, Failure>;

    /// Whether the answer is whole, though the stream may go on.
    fn is_whole(&self) -> bool;

    /// The end of the stream: the answer, or why there is none.
    fn finish(self: Box<Self>, deltas: &dyn Deltas) -> Result<Answer, Failure>;
}

/// What some bytes of a response brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Nothing of the answer: a comment, a role, half an event.
    Quiet,
    /// A piece of the answer.
    Content,
    /// The mark behind which nothing follows.
    Done,
}
