//! Polls the subagents of a run for the live display of `hermod run`.

use std::{collections::BTreeSet, future, time::Duration};

use hermod_actors::{
    HealthProbe,
    model::{Body, RunId},
};
use tokio::time::{Instant, sleep_until};

use crate::{
    cli::tree,
    clock,
    control::{RequestError, RunTreeCache, StoreReader},
};

/// Pause between two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Polls the unfinished subagents, and those below them.
pub(super) struct SubagentMonitor {
    reader: StoreReader,
    health: HealthProbe,
    run_trees: RunTreeCache,
    live: BTreeSet<RunId>,
    next_poll: Instant,
}

impl SubagentMonitor {
    /// A monitor without subagents.
    pub(super) fn new(reader: StoreReader, health: HealthProbe) -> Self {
        Self {
            reader,
            health,
            run_trees: RunTreeCache::default(),
            live: BTreeSet::new(),
            next_poll: Instant::now(),
        }
    }

    /// Updates the subagents with a record of the run; true if its last subagent has ended with it.
    pub(super) fn take(&mut self, body: &Body) -> bool {
        if let Body::CallStarted(started) = body {
            self.live.extend(started.children.iter().map(|child| child.run));
            return false;
        }
        let Body::ChildEnded(ended) = body else { return false };
        self.live.remove(&ended.child.run) && self.live.is_empty()
    }

    /// Resolves when the next poll is due; never without subagents.
    pub(super) async fn wait_for_poll(&self) {
        if self.live.is_empty() {
            return future::pending().await;
        }
        sleep_until(self.next_poll).await;
    }

    /// Lines for the current subagents; a single line with the reason if they cannot be read.
    pub(super) async fn poll(&mut self) -> Vec<String> {
        self.next_poll = Instant::now() + POLL_INTERVAL;
        self.lines().await.unwrap_or_else(|error| vec![format!("subagents cannot be shown: {error}")])
    }

    async fn lines(&mut self) -> Result<Vec<String>, RequestError> {
        let mut rows = Vec::new();
        for run in &self.live {
            rows.extend(self.reader.read(|rows| rows.run(*run)).await?);
        }
        let nodes = self.run_trees.build(&self.reader, Some(&self.health), rows).await?;
        let mut lines = Vec::new();
        tree::push_children(&nodes, clock::now(), "", &mut lines);
        Ok(lines)
    }
}
