//! What a chat surface gets of a run: deltas or blocks, reasoning, summaries of tool calls, and one final reply. Pure:
//! events of a watcher in, pieces of the reply out; time is an argument.

mod chunker;
mod fence;
mod silence;

pub use chunker::{BlockChunker, BlockSizes, Cut, TextBlock};
pub use silence::{NO_REPLY, is_silent_reply, may_become_silent};
