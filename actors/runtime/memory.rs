//! The memory files of a runtime, exchanged while runs continue.

use std::sync::{Arc, PoisonError, RwLock};

use super::Runtime;
use crate::port::{MemoryWriter, NoMemory};

/// What writes the memory files at present. A write ends with the one that it began with.
#[derive(Debug)]
pub(crate) struct PresentMemory(RwLock<Arc<dyn MemoryWriter>>);

impl Default for PresentMemory {
    fn default() -> Self {
        Self(RwLock::new(Arc::new(NoMemory)))
    }
}

impl PresentMemory {
    // Ignores poisoning: each access is one copy.
    pub(crate) fn get(&self) -> Arc<dyn MemoryWriter> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn set(&self, memory: Arc<dyn MemoryWriter>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = memory;
    }
}

impl Runtime {
    /// Writes entries of memory flushes by this from now on. Without this they are refused.
    pub fn set_memory(&self, memory: Arc<dyn MemoryWriter>) {
        self.parts.memory.set(memory);
    }
}
