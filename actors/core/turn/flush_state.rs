//! State of the memory flushes: the call for one, and the entries that are to be written. `flush/` folds and decides.

use std::sync::Arc;

use crate::{
    model::{CallId, HistoryPosition, MemoryEntry, RunSpec},
    turn::aside_call::AsideCall,
};

/// The flush of a compaction.
#[derive(Debug, Clone)]
pub(super) struct MemoryFlush {
    pub(super) call: AsideCall,
    /// What the attempt under way reads.
    pub(super) part: FlushedPart,
    /// Whether no further attempt is made.
    pub(super) is_over: bool,
}

/// A part of the conversation, as a flush reads it.
#[derive(Debug, Clone, Default)]
pub(super) struct FlushedPart {
    /// The user message of the request.
    pub(super) text: Arc<str>,
    /// The end of the part.
    pub(super) end: HistoryPosition,
}

/// What flushes have found in the session.
#[derive(Debug, Clone, Default)]
pub(super) struct FlushedMemory {
    /// The end of the part that was read.
    pub(super) end: HistoryPosition,
    /// The entries that are to be written.
    pub(super) pending: Option<Arc<PendingMemory>>,
}

/// Entries that are to be written to the memory files of an agent.
#[derive(Debug, Clone)]
pub struct PendingMemory {
    /// The flush.
    pub call: CallId,
    /// The spec of its run.
    pub spec: Arc<RunSpec>,
    /// The entries, at least one.
    pub entries: Vec<MemoryEntry>,
}

impl MemoryFlush {
    pub(super) fn new() -> Self {
        Self { call: AsideCall::new(1), part: FlushedPart::default(), is_over: false }
    }
}
