//! What a chat surface gets of a run: deltas or blocks, reasoning, summaries of tool calls, and one final reply. Pure:
//! events of a watcher in, pieces of the reply out; time is an argument.

mod chunker;
mod fence;
mod message;
mod reply;
mod shaper;
mod silence;
#[cfg(test)]
mod tests;
mod tools;

pub use chunker::{BlockChunker, BlockSizes, Cut, TextBlock};
pub use reply::{
    BlockBreak, BlockSettings, FinalReply, ReasoningMode, ReplyOptions, ReplyPiece, ReplyShape, ReplySource,
    ToolSummary, Verbosity,
};
pub use shaper::ReplyShaper;
pub use silence::{NO_REPLY, is_silent_reply, may_become_silent};
