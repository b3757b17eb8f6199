//! The pieces of a reply as a chat surface gets them, and what it asks for.

use serde::Deserialize;
use strum::{EnumString, IntoStaticStr};

use super::chunker::BlockSizes;
use crate::model::{Attempt, CallId, CallStatus, OutcomeDetail};

/// What a chat surface asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyOptions {
    /// How texts arrive.
    pub shape: ReplyShape,
    /// Whether and how reasoning arrives.
    pub reasoning: ReasoningMode,
    /// Which summaries of tool calls arrive.
    pub verbose: Verbosity,
}

/// How texts arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyShape {
    /// Each piece as it is streamed; the final reply has the whole text.
    Deltas,
    /// Whole blocks, each sent once; the final reply repeats none of them.
    Blocks(BlockSettings),
}

/// How texts are cut into blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockSettings {
    /// The sizes of a block.
    pub sizes: BlockSizes,
    /// When blocks are sent.
    pub break_at: BlockBreak,
    /// Milliseconds without text after which what is there is sent.
    pub idle_ms: u64,
}

/// When blocks are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, EnumString, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum BlockBreak {
    /// As soon as there are enough text, a pause, or something else than text.
    TextEnd,
    /// When the message is durable, so that no block is ever void.
    MessageEnd,
}

/// Whether and how reasoning arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, EnumString, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ReasoningMode {
    /// It does not.
    Off,
    /// Each piece as it is streamed, beside the text.
    Stream,
    /// As messages of its own, before the text that it led to.
    Block,
}

/// Which summaries of tool calls arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, EnumString, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Verbosity {
    /// None.
    Off,
    /// A line for each call that has ended.
    On,
    /// The line, with the beginning of the output.
    Full,
}

/// A piece of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplyPiece {
    /// A piece of a message's text.
    Delta {
        /// The model call with which the message begins. A message has several calls if the output limit has cut it.
        message: CallId,
        /// The model call.
        call: CallId,
        /// The attempt.
        attempt: Attempt,
        /// The piece.
        text: String,
    },
    /// A block of a message's text.
    Block {
        /// The model call with which the message begins.
        call: CallId,
        /// Where the block begins in the message, in bytes.
        at: u64,
        /// The block.
        text: String,
    },
    /// Reasoning: a piece of it, or a message of its own.
    Reasoning {
        /// The model call.
        call: CallId,
        /// The attempt.
        attempt: Attempt,
        /// The piece.
        text: String,
    },
    /// A tool call has ended.
    Tool(ToolSummary),
    /// What came of this model call is void: all of its deltas, blocks and reasoning.
    Retry {
        /// The model call.
        call: CallId,
        /// The model call with which its message begins: earlier calls may have brought the beginning of it.
        message: CallId,
        /// Bytes of the message that stay. Blocks that begin there or later are void.
        at: u64,
    },
    /// The run has ended. Nothing follows.
    Final(FinalReply),
}

/// The summary of a tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolSummary {
    /// The tool call.
    pub call: CallId,
    /// The tool.
    pub tool: String,
    /// The status of the result.
    pub status: CallStatus,
    /// The summary.
    pub text: String,
}

/// The last piece of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinalReply {
    /// The outcome of the run.
    pub ended: OutcomeDetail,
    /// The text to deliver: of deltas the whole one, which replaces them; of blocks what was in no block.
    pub text: Option<String>,
    /// Where the reply came from, if there is any.
    pub source: Option<ReplySource>,
    /// Whether the answer was `NO_REPLY`.
    pub is_silent: bool,
}

/// Where a reply came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum ReplySource {
    /// The answer of a completed run.
    Answer,
    /// The last text of a run that did not complete.
    Partial,
    /// The error of a tool: there was nothing else to deliver.
    ToolError,
    /// The reason why the run did not complete.
    Failure,
    /// A tool has sent the answer already.
    Sent,
}

macro_rules! named {
    ($($name:ident: $($variant:ident),+;)*) => {$(
        impl $name {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The public name.
            pub fn name(self) -> &'static str {
                self.into()
            }
        }
    )*};
}

named! {
    BlockBreak: TextEnd, MessageEnd;
    ReasoningMode: Off, Stream, Block;
    Verbosity: Off, On, Full;
    ReplySource: Answer, Partial, ToolError, Failure, Sent;
}
