//! JSON types of `anthropic_messages` responses: the events of a stream, and a whole answer.

use serde::Deserialize;
use serde_json::Value;

use crate::provider::loose::{LooseList, LooseObject, LooseValue};

/// One event of a stream.
#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Event<'a> {
    #[serde(rename = "type")]
    pub(super) kind: LooseValue<'a>,
    pub(super) index: LooseValue<'a>,
    /// Of `message_start`.
    pub(super) message: LooseObject<MessageStart<'a>>,
    /// Of `content_block_start`.
    pub(super) content_block: Value,
    /// Of `content_block_delta` and `message_delta`.
    pub(super) delta: LooseObject<Delta<'a>>,
    /// Of `message_delta`.
    pub(super) usage: LooseObject<UsageFields<'a>>,
    /// An error in place of the answer, under status 200.
    pub(super) error: LooseValue<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct MessageStart<'a> {
    pub(super) usage: LooseObject<UsageFields<'a>>,
}

/// A piece of a block, or the end of the message.
#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Delta<'a> {
    #[serde(rename = "type")]
    pub(super) kind: LooseValue<'a>,
    pub(super) text: LooseValue<'a>,
    pub(super) thinking: LooseValue<'a>,
    pub(super) signature: LooseValue<'a>,
    pub(super) partial_json: LooseValue<'a>,
    pub(super) stop_reason: LooseValue<'a>,
}

/// A whole answer.
#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct WholeAnswer<'a> {
    pub(super) content: LooseList<Value>,
    pub(super) stop_reason: LooseValue<'a>,
    pub(super) usage: LooseObject<UsageFields<'a>>,
    /// An error in place of the answer, under status 200.
    pub(super) error: LooseValue<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct UsageFields<'a> {
    pub(super) input_tokens: LooseValue<'a>,
    pub(super) output_tokens: LooseValue<'a>,
    pub(super) cache_read_input_tokens: LooseValue<'a>,
    pub(super) cache_creation_input_tokens: LooseValue<'a>,
}
