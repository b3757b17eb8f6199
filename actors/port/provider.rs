use std::{collections::BTreeMap, fmt::Debug, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::future::BoxFuture;

use super::MessageBuffer;
use crate::model::{
    CallId, CredentialId, Failure, Message, ModelAnswer, ModelDeadlines, ModelLimits, ModelProfile,
    PoolStrategy, RateInfo, RateLimits, SessionId, ThinkingRequest, ToolSpec,
};

/// One configured endpoint.
pub trait ModelProvider: Debug + Send + Sync + 'static {
    /// How requests are written for one of its models. The same model and traits get the same encoder, so that what is
    /// written once stays written.
    fn encoder(&self, model: &str, traits: &ModelProfile) -> Arc<dyn Encoder>;

    /// Makes one attempt: no retry, no fallback. Dropping the future gives the request up. Resolves with an answer only
    /// if the stream ended as its wire format says it must.
    fn call<'a>(
        &'a self,
        request: ModelRequest,
        deltas: &'a dyn DeltaSink,
    ) -> BoxFuture<'a, Result<ModelAnswer, Failure>>;

    /// How many credentials it has; a request says which one it is made with. Read once, when the runtime starts.
    fn credentials(&self) -> usize {
        1
    }

    /// Which of them is used next. Read once, when the runtime starts.
    fn pool(&self) -> PoolStrategy {
        PoolStrategy::default()
    }

    /// What each of them may use up within a minute, over all sessions. Read once, when the runtime starts.
    fn limits(&self) -> RateLimits {
        RateLimits::default()
    }

    /// How long it lets a call take whose request does not say otherwise; one that goes on is dropped.
    fn longest_call(&self) -> Duration {
        Duration::from_mins(30)
    }

    /// What its list of models tells of one, within a few seconds. `None` if it has not answered: it may be asked again soon.
    fn model_limits<'a>(&'a self, model: &'a str) -> BoxFuture<'a, Option<ModelLimits>> {
        let _ = model;
        Box::pin(std::future::ready(None))
    }

    /// Renews a credential that was refused, and says whether it is another one now. Sessions may ask at the same time:
    /// it is renewed once for all of them, and the old one is kept if that fails.
    fn renew(&self, credential: CredentialId) -> BoxFuture<'_, bool> {
        let _ = credential;
        Box::pin(std::future::ready(false))
    }
}

/// Writes the parts of a request that stay the same from call to call, so that each is written once.
pub trait Encoder: Debug + Send + Sync + 'static {
    /// The system prompt and the tools, up to where the first message would begin.
    fn head(&self, system: &str, tools: &[ToolSpec]) -> EncodedHead;

    /// Messages (never `System`) that follow what is written already. An answer that asks for calls comes in one list
    /// with the results of all of them.
    fn messages(&self, messages: &[Message], to: &mut MessageBuffer);
}

/// What [`Encoder::head`] writes.
#[derive(Debug, Clone, Default)]
pub struct EncodedHead {
    /// The bytes.
    pub bytes: Bytes,
    /// The tools that are called otherwise there, because the vendor does not take their names: by that name.
    pub renamed_tools: Arc<BTreeMap<String, String>>,
    /// Whether it has tools.
    pub has_tools: bool,
}

/// Whether the model may call the tools of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// It may not: the tools are there only so that the request begins as the one before it.
    NoCalls,
}

/// One attempt's request, still without the few fields that only the wire format can write.
#[derive(Debug, Clone)]
pub struct ModelRequest {
    /// The call, for correlation.
    pub call: CallId,
    /// The session: requests of one session begin alike, and a vendor's cache may be told so.
    pub session: SessionId,
    /// The model, as the provider names it.
    pub model: Arc<str>,
    /// The credential that it is made with.
    pub credential: CredentialId,
    /// Output tokens asked for.
    pub max_tokens: u64,
    /// How much it is to think; its own choice if absent.
    pub thinking: Option<ThinkingRequest>,
    /// How long the call may take, where the model has times of its own.
    pub deadlines: ModelDeadlines,
    /// From [`Encoder::head`].
    pub head: EncodedHead,
    /// Whether the model may call the tools of the head; without tools it says nothing.
    pub tool_choice: ToolChoice,
    /// From [`Encoder::messages`].
    pub messages: MessageBuffer,
    /// The pictures of the messages as they were kept, by handle.
    pub images: BTreeMap<String, Bytes>,
}

/// Takes what streams in. Must not block and must not panic.
pub trait DeltaSink: Send + Sync {
    /// A piece of the answer's text.
    fn text(&self, delta: &str);
    /// A piece of what the model thinks.
    fn reasoning(&self, delta: &str);
    /// Call `n` of the answer, counted from 1, has come whole; as the model wrote it. Best effort: the answer counts.
    fn tool_call(&self, n: u32, tool: &str, arguments: &str) {
        let _ = (n, tool, arguments);
    }
    /// What the response says is left of the account's limits.
    fn limits(&self, info: RateInfo) {
        let _ = info;
    }
}
