//! The section `replies`: whether answers are due, and how chat surfaces get them.

use hermod_actors::shaping::{BlockBreak, ReasoningMode, Verbosity};
use serde::{Deserialize, Deserializer, de::Error as _};

use super::values::{Flag, PositiveCount, PositiveDuration};

/// The section `replies`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RepliesSection {
    /// Whether a model that answers `NO_REPLY` is called once more.
    pub required: Flag,
    /// Whether and how reasoning is part of a reply.
    pub reasoning: ReasoningModeName,
    /// Which summaries of tool calls are part of a reply.
    pub verbose: VerbosityName,
    /// When blocks are sent.
    pub block_break: BlockBreakName,
    /// Characters below which no block is sent.
    pub block_min_chars: PositiveCount,
    /// Characters above which a text is cut.
    pub block_max_chars: BlockCharacters,
    /// Time without text after which what is there is sent.
    pub block_idle: PositiveDuration,
}

/// Whether and how reasoning is part of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReasoningModeName(pub ReasoningMode);

/// Which summaries of tool calls are part of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerbosityName(pub Verbosity);

/// When blocks are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockBreakName(pub BlockBreak);

/// Most characters of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockCharacters(pub u32);

const MIN_BLOCK_CHARS: u32 = 100;
const MAX_BLOCK_CHARS: u32 = 100_000;

impl<'de> Deserialize<'de> for BlockCharacters {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let reason = || {
            D::Error::custom(format!("must be a whole number from {MIN_BLOCK_CHARS} to {MAX_BLOCK_CHARS}"))
        };
        let chars = u32::deserialize(from).map_err(|_| reason())?;
        if (MIN_BLOCK_CHARS..=MAX_BLOCK_CHARS).contains(&chars) { Ok(Self(chars)) } else { Err(reason()) }
    }
}

macro_rules! names {
    ($($name:ident($kind:ty): $rule:literal;)*) => {$(
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let name = String::deserialize(from).ok().and_then(|name| name.parse::<$kind>().ok());
                name.map(Self).ok_or_else(|| D::Error::custom($rule))
            }
        }
    )*};
}

names! {
    ReasoningModeName(ReasoningMode): "must be \"off\", \"stream\" or \"block\"";
    VerbosityName(Verbosity): "must be \"off\", \"on\" or \"full\"";
    BlockBreakName(BlockBreak): "must be \"text_end\" or \"message_end\"";
}
