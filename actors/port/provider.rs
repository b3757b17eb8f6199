//! Port of LLM providers: an endpoint, the encoder of its requests, the request of one attempt, and the receiver of a
//! streamed answer. Retries, failover and budgets are the core's.

use std::{collections::BTreeMap, fmt::Debug, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::future::BoxFuture;

use super::MessageBuffer;
use crate::model::{
    CallId, CredentialId, Failure, Message, ModelAnswer, ModelDeadlines, ModelLimits, ModelProfile,
    PoolStrategy, RateInfo, RateLimits, SessionId, ThinkingRequest, ToolSpec,
};

/// A configured provider endpoint.
pub trait ModelProvider: Debug + Send + Sync + 'static {
    /// The encoder for requests to `model`. Equal arguments return the same encoder, so that encoded parts are reused.
    fn encoder(&self, model: &str, profile: &ModelProfile) -> Arc<dyn Encoder>;

    /// Makes one attempt, without retry or failover. Dropping the future cancels the request. Returns an answer only if
    /// the stream ended as its wire format requires.
    fn call<'a>(
        &'a self,
        request: ModelRequest,
        deltas: &'a dyn DeltaSink,
    ) -> BoxFuture<'a, Result<ModelAnswer, Failure>>;

    /// The number of credentials; [`ModelRequest::credential`] chooses one. Must not change: the runtime reads it when
    /// it takes the provider.
    fn credentials(&self) -> usize {
        1
    }

    /// The strategy that chooses the next credential. Read once, when the runtime takes the provider.
    fn pool(&self) -> PoolStrategy {
        PoolStrategy::default()
    }

    /// The limits per minute of each credential, over all sessions. Must not change: the runtime reads them when it
    /// takes the provider.
    fn limits(&self) -> RateLimits {
        RateLimits::default()
    }

    /// Time limit of a call whose request sets none; a longer call is dropped.
    fn longest_call(&self) -> Duration {
        Duration::from_mins(30)
    }

    /// Requests the limits of `model` from the provider's list of models, within a few seconds. `None` if the provider
    /// has no such list; the future returns `None` if the list did not answer, and the caller may ask again soon.
    fn model_limits<'a>(&'a self, model: &'a str) -> Option<BoxFuture<'a, Option<ModelLimits>>> {
        let _ = model;
        None
    }

    /// Finds out with a request that costs nothing whether the endpoint can be reached: `Ok` for any response, a
    /// failure if there is no connection. `None` if there is no such request.
    fn probe(&self) -> Option<BoxFuture<'_, Result<(), Failure>>> {
        None
    }

    /// Renews a refused credential; true if the new one differs. Concurrent calls share one renewal. If it fails, the
    /// old credential stays.
    fn renew(&self, credential: CredentialId) -> BoxFuture<'_, bool> {
        let _ = credential;
        Box::pin(std::future::ready(false))
    }
}

/// Encodes the parts of a request that stay the same between calls, so that each is encoded once.
pub trait Encoder: Debug + Send + Sync + 'static {
    /// Encodes the system prompt and the tools, up to where the first message begins.
    fn head(&self, system: &str, tools: &[ToolSpec]) -> EncodedHead;

    /// Appends messages (never `System`). An answer with tool calls comes in one list with the results of all its
    /// calls.
    fn messages(&self, messages: &[Message], to: &mut MessageBuffer);
}

/// The encoded system prompt and tools, written by [`Encoder::head`].
#[derive(Debug, Clone, Default)]
pub struct EncodedHead {
    /// The encoded bytes.
    pub bytes: Bytes,
    /// Registered tool names by their names on the wire, for tools whose names the vendor does not accept.
    pub renamed_tools: Arc<BTreeMap<String, String>>,
    /// True if the head contains tools.
    pub has_tools: bool,
}

/// Permission to call the tools of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ToolChoice {
    /// The model decides whether it calls tools.
    #[default]
    Auto,
    /// No tool calls. The tools are sent only to keep the prefix of the request before, for the provider's cache.
    NoCalls,
}

/// The request of one attempt, without the fields that only the wire format can write.
#[derive(Debug, Clone)]
pub struct ModelRequest {
    /// The call, used for correlation.
    pub call: CallId,
    /// The session. Requests of one session share a prefix, which the adapter may announce to the vendor's cache.
    pub session: SessionId,
    /// The model, as the provider names it.
    pub model: Arc<str>,
    /// The credential of the request.
    pub credential: CredentialId,
    /// Requested maximum of output tokens.
    pub max_tokens: u64,
    /// The requested thinking level; if absent, the model chooses.
    pub thinking: Option<ThinkingRequest>,
    /// Deadlines of the model; a field that is absent falls back to the provider's deadline.
    pub deadlines: ModelDeadlines,
    /// The output of [`Encoder::head`].
    pub head: EncodedHead,
    /// Permission to call the tools of the head; ignored if the head has none.
    pub tool_choice: ToolChoice,
    /// The output of [`Encoder::messages`].
    pub messages: MessageBuffer,
    /// Bytes of the messages' images by artifact handle, as stored.
    pub images: BTreeMap<String, Bytes>,
}

/// Receives the stream of an answer. Must not block and must not panic.
pub trait DeltaSink: Send + Sync {
    /// Receives a piece of the answer's text.
    fn text(&self, delta: &str);
    /// Receives a piece of the model's reasoning.
    fn reasoning(&self, delta: &str);
    /// Receives call `n` of the answer, counted from 1, once it is complete, as the model wrote it. Best effort: the
    /// final answer is authoritative.
    fn tool_call(&self, n: u32, tool: &str, arguments: &str) {
        let _ = (n, tool, arguments);
    }
    /// Receives the remaining limits of the account, as the response reports them.
    fn limits(&self, info: RateInfo) {
        let _ = info;
    }
}
