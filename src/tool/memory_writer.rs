//! Writes what memory flushes find to the memory files of the agents, by the settings of the tool `memory`. The default of
//! the port [`MemoryWriter`].

use futures::future::BoxFuture;
use hermod_actors::{
    model::{AgentName, MemoryEntry},
    port::MemoryWriter,
};
use tokio::task::spawn_blocking;

use super::Settings;
use crate::memory;

/// Writes the files of these settings.
#[derive(Debug)]
pub struct MemoryFilesWriter {
    settings: Settings,
}

impl MemoryFilesWriter {
    /// A writer with these settings.
    pub fn new(settings: Settings) -> Self {
        Self { settings }
    }
}

impl MemoryWriter for MemoryFilesWriter {
    fn add(
        &self,
        agent: &AgentName,
        entries: Vec<MemoryEntry>,
    ) -> BoxFuture<'static, Vec<Result<bool, String>>> {
        let files = self.settings.for_agent(agent).memory;
        Box::pin(async move {
            let count = entries.len();
            let Some(files) = files else { return refused(count, "nothing is remembered here") };
            let added = spawn_blocking(move || memory::add(&files, &entries)).await;
            added.unwrap_or_else(|_| refused(count, "it was not written: that panicked"))
        })
    }
}

fn refused(count: usize, reason: &str) -> Vec<Result<bool, String>> {
    vec![Err(reason.to_owned()); count]
}
