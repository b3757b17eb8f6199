use std::{fmt::Debug, sync::Arc};

use bytes::Bytes;
use futures::future::BoxFuture;

use crate::model::{Answer, CallId, Failure, Message, ToolSpec};

/// One configured endpoint.
pub trait Provider: Debug + Send + Sync + 'static {
    /// How requests are written for it.
    fn encoder(&self) -> Arc<dyn Encoder>;

    /// Makes one attempt: no retry, no fallback. Dropping the future gives the request up. Resolves with an answer only
    /// if the stream ended as its wire format says it must.
    fn call<'a>(
        &'a self,
        request: ModelRequest,
        deltas: &'a dyn Deltas,
    ) -> BoxFuture<'a, Result<Answer, Failure>>;
}

/// Writes the parts of a request that stay the same from call to call, so that each is written once.
pub trait Encoder: Debug + Send + Sync + 'static {
    /// The system prompt and the tools, up to where the first message would begin.
    fn head(&self, system: &str, tools: &[ToolSpec]) -> Bytes;

    /// One message (never `System`), preceded by a comma.
    fn message(&self, message: &Message) -> Bytes;
}

/// Encoded messages, in order, in few pieces.
#[derive(Debug, Clone, Default)]
pub struct Segments {
    /// The pieces; their concatenation is `,message,message…`.
    pub pieces: Vec<Bytes>,
}

/// One attempt's request, still without the few fields that only the wire format can write.
#[derive(Debug, Clone)]
pub struct ModelRequest {
    /// The call, for correlation.
    pub call: CallId,
    /// The model, as the provider names it.
    pub model: Arc<str>,
    /// Output tokens asked for.
    pub max_tokens: u64,
    /// From [`Encoder::head`].
    pub head: Bytes,
    /// From [`Encoder::message`].
    pub messages: Segments,
}

/// Takes what streams in. Must not block and must not panic.
pub trait Deltas: Send + Sync {
    /// A piece of the answer's text.
    fn text(&self, delta: &str);
    /// A piece of what the model thinks.
    fn reasoning(&self, delta: &str);
}
