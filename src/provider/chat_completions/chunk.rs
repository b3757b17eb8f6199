use serde::Deserialize;
use serde_json::Value;

use crate::provider::loose::{Loose, Maybe};

/// A `chat.completion.chunk`, or a whole `chat.completion`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Chunk<'a> {
    pub(super) choices: Maybe<Vec<Maybe<Choice<'a>>>>,
    pub(super) usage: Maybe<UsageFields<'a>>,
    /// An error in place of the rest, under status 200.
    pub(super) error: Loose<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Choice<'a> {
    pub(super) index: Loose<'a>,
    pub(super) delta: Maybe<Delta<'a>>,
    /// In a whole answer, in place of `delta`.
    pub(super) message: Maybe<Delta<'a>>,
    pub(super) finish_reason: Loose<'a>,
    /// Where one vendor puts it.
    pub(super) usage: Maybe<UsageFields<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Delta<'a> {
    pub(super) content: Loose<'a>,
    pub(super) reasoning_content: Loose<'a>,
    pub(super) reasoning: Loose<'a>,
    pub(super) reasoning_details: Maybe<Vec<Value>>,
    pub(super) refusal: Loose<'a>,
    pub(super) tool_calls: Maybe<Vec<Maybe<CallDelta<'a>>>>,
    /// What `tool_calls` was before 2024.
    pub(super) function_call: Maybe<Function<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct CallDelta<'a> {
    pub(super) index: Loose<'a>,
    pub(super) id: Loose<'a>,
    pub(super) function: Maybe<Function<'a>>,
    /// In place of `function`, for tools without a schema.
    pub(super) custom: Maybe<Function<'a>>,
    /// What one vendor signs its thoughts with.
    pub(super) extra_content: Loose<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Function<'a> {
    pub(super) name: Loose<'a>,
    pub(super) arguments: Loose<'a>,
    /// In place of `arguments`, for tools without a schema.
    pub(super) input: Loose<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct UsageFields<'a> {
    pub(super) prompt_tokens: Loose<'a>,
    pub(super) completion_tokens: Loose<'a>,
    pub(super) total_tokens: Loose<'a>,
    pub(super) completion_tokens_details: Maybe<CompletionDetails<'a>>,
    pub(super) prompt_tokens_details: Maybe<PromptDetails<'a>>,
    pub(super) prompt_cache_hit_tokens: Loose<'a>,
}

impl UsageFields<'_> {
    /// Tokens of reasoning that `completion_tokens` leaves out, as one vendor has it: the sum says so.
    pub(super) fn apart(&self) -> Option<u64> {
        let reasoning = self.completion_tokens_details.0.as_ref()?.reasoning_tokens.count()?;
        let listed = self.prompt_tokens.count()?.checked_add(self.completion_tokens.count()?)?;
        (listed.checked_add(reasoning) == self.total_tokens.count()).then_some(reasoning)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct CompletionDetails<'a> {
    pub(super) reasoning_tokens: Loose<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct PromptDetails<'a> {
    pub(super) cached_tokens: Loose<'a>,
    pub(super) cache_write_tokens: Loose<'a>,
}
