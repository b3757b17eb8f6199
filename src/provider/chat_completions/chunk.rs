//! JSON types of `chat_completions` responses: a chunk of a stream, or a whole answer.

use serde::Deserialize;
use serde_json::Value;

use crate::provider::loose::{LooseList, LooseObject, LooseValue};

/// A `chat.completion.chunk`, or a whole `chat.completion`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Chunk<'a> {
    pub(super) choices: LooseList<LooseObject<Choice<'a>>>,
    pub(super) usage: LooseObject<UsageFields<'a>>,
    /// An error in place of the answer, under status 200.
    pub(super) error: LooseValue<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Choice<'a> {
    pub(super) index: LooseValue<'a>,
    pub(super) delta: LooseObject<Delta<'a>>,
    /// In a whole answer, in place of `delta`.
    pub(super) message: LooseObject<Delta<'a>>,
    pub(super) finish_reason: LooseValue<'a>,
    /// The place of the usage for one vendor.
    pub(super) usage: LooseObject<UsageFields<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Delta<'a> {
    pub(super) content: LooseValue<'a>,
    pub(super) reasoning_content: LooseValue<'a>,
    pub(super) reasoning: LooseValue<'a>,
    pub(super) reasoning_details: LooseList<Value>,
    pub(super) refusal: LooseValue<'a>,
    pub(super) tool_calls: LooseList<LooseObject<CallDelta<'a>>>,
    /// The predecessor of `tool_calls`, before 2024.
    pub(super) function_call: LooseObject<Function<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct CallDelta<'a> {
    pub(super) index: LooseValue<'a>,
    pub(super) id: LooseValue<'a>,
    pub(super) function: LooseObject<Function<'a>>,
    /// In place of `function`, for tools without a schema.
    pub(super) custom: LooseObject<Function<'a>>,
    /// One vendor's signature of its reasoning.
    pub(super) extra_content: LooseValue<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Function<'a> {
    pub(super) name: LooseValue<'a>,
    pub(super) arguments: LooseValue<'a>,
    /// In place of `arguments`, for tools without a schema.
    pub(super) input: LooseValue<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct UsageFields<'a> {
    pub(super) prompt_tokens: LooseValue<'a>,
    pub(super) completion_tokens: LooseValue<'a>,
    pub(super) total_tokens: LooseValue<'a>,
    pub(super) completion_tokens_details: LooseObject<CompletionDetails<'a>>,
    pub(super) prompt_tokens_details: LooseObject<PromptDetails<'a>>,
    pub(super) prompt_cache_hit_tokens: LooseValue<'a>,
}

impl UsageFields<'_> {
    /// Reasoning tokens that `completion_tokens` does not include; one vendor reports them so. `total_tokens` reveals
    /// it.
    pub(super) fn unlisted_reasoning(&self) -> Option<u64> {
        let reasoning = self.completion_tokens_details.0.as_ref()?.reasoning_tokens.count()?;
        let listed = self.prompt_tokens.count()?.checked_add(self.completion_tokens.count()?)?;
        (listed.checked_add(reasoning) == self.total_tokens.count()).then_some(reasoning)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct CompletionDetails<'a> {
    pub(super) reasoning_tokens: LooseValue<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct PromptDetails<'a> {
    pub(super) cached_tokens: LooseValue<'a>,
    pub(super) cache_write_tokens: LooseValue<'a>,
}
