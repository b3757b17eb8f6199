//! Port of the memory files: adds entries that a flush has found in a conversation.

use std::{fmt::Debug, future::ready};

use futures::future::BoxFuture;

use crate::model::{AgentName, MemoryEntry};

/// Adds entries to the memory files of agents. It belongs to the process, as the tools do.
pub trait MemoryWriter: Debug + Send + Sync + 'static {
    /// Adds these entries, in order, with the checks of the tool `memory`. Returns for each entry whether it is new, or
    /// why no file has it. What is reported as added is durable. The same entries may be added again: a file has each
    /// once. When the future is dropped, a write that has begun may go on.
    fn add(
        &self,
        agent: &AgentName,
        entries: Vec<MemoryEntry>,
    ) -> BoxFuture<'static, Vec<Result<bool, String>>>;
}

/// The memory of a runtime that was given none.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoMemory;

impl MemoryWriter for NoMemory {
    fn add(&self, _: &AgentName, entries: Vec<MemoryEntry>) -> BoxFuture<'static, Vec<Result<bool, String>>> {
        let results = entries.iter().map(|_| Err("nothing is remembered here".to_owned())).collect();
        Box::pin(ready(results))
    }
}
