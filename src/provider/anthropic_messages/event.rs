use serde::Deserialize;
use serde_json::Value;

use crate::provider::loose::{Loose, Maybe};

/// One event of a stream.
#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Event<'a> {
    #[serde(rename = "type")]
    pub(super) kind: Loose<'a>,
    pub(super) index: Loose<'a>,
    /// Of `message_start`.
    pub(super) message: Maybe<Start<'a>>,
    /// Of `content_block_start`.
    pub(super) content_block: Value,
    /// Of `content_block_delta` and `message_delta`.
    pub(super) delta: Maybe<Delta<'a>>,
    /// Of `message_delta`.
    pub(super) usage: Maybe<UsageFields<'a>>,
    /// An error in place of the rest, under status 200.
    pub(super) error: Loose<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Start<'a> {
    pub(super) usage: Maybe<UsageFields<'a>>,
}

/// A piece of a block, or the end of the message.
#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Delta<'a> {
    #[serde(rename = "type")]
    pub(super) kind: Loose<'a>,
    pub(super) text: Loose<'a>,
    pub(super) thinking: Loose<'a>,
    pub(super) signature: Loose<'a>,
    pub(super) partial_json: Loose<'a>,
    pub(super) stop_reason: Loose<'a>,
}

/// A whole answer.
#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Document<'a> {
    pub(super) content: Maybe<Vec<Value>>,
    pub(super) stop_reason: Loose<'a>,
    pub(super) usage: Maybe<UsageFields<'a>>,
    /// An error in place of the rest, under status 200.
    pub(super) error: Loose<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct UsageFields<'a> {
    pub(super) input_tokens: Loose<'a>,
    pub(super) output_tokens: Loose<'a>,
    pub(super) cache_read_input_tokens: Loose<'a>,
    pub(super) cache_creation_input_tokens: Loose<'a>,
}
