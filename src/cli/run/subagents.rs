//! Polls the subagents of a run for the live display of `hermod run`.

use std::{
    collections::BTreeSet,
    future,
    path::{Path, PathBuf},
    time::Duration,
};

use hermod_actors::{
    HealthProbe,
    model::{Body, RunId},
};
use tokio::time::{Instant, sleep_until};

use crate::{
    cli::tree,
    clock,
    control::{
        AskError, ControlClient, ControlRequest, ControlResponse, RequestError, RunTreeCache, StoreReader,
    },
    view::NodeView,
};

/// Pause between two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Polls the unfinished subagents, and those below them.
pub(super) struct SubagentMonitor {
    source: TreeSource,
    live: BTreeSet<RunId>,
    next_poll: Instant,
}

/// Where the trees of runs come from.
enum TreeSource {
    /// The store and the runtime of this process.
    Own { reader: StoreReader, health: HealthProbe, run_trees: RunTreeCache },
    /// The process that holds the store in this state directory, which keeps what it has read for the connection.
    Owner { state: PathBuf, client: Option<ControlClient> },
}

impl SubagentMonitor {
    /// A monitor without subagents.
    pub(super) fn new(reader: StoreReader, health: HealthProbe) -> Self {
        Self::with(TreeSource::Own { reader, health, run_trees: RunTreeCache::default() })
    }

    /// A monitor without subagents, for a run of the process that holds the store.
    pub(super) fn at_owner(state: PathBuf) -> Self {
        Self::with(TreeSource::Owner { state, client: None })
    }

    fn with(source: TreeSource) -> Self {
        Self { source, live: BTreeSet::new(), next_poll: Instant::now() }
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
        let nodes = match &mut self.source {
            TreeSource::Own { reader, health, run_trees } => {
                let mut rows = Vec::new();
                for run in &self.live {
                    rows.extend(reader.read(|rows| rows.run(*run)).await?);
                }
                run_trees.build(reader, Some(health), rows).await?
            }
            TreeSource::Owner { state, client } => {
                let mut nodes = Vec::new();
                for run in &self.live {
                    nodes.extend(tree_at_owner(state, client, *run).await?);
                }
                nodes
            }
        };
        let mut lines = Vec::new();
        tree::push_children(&nodes, clock::now(), "", &mut lines);
        Ok(lines)
    }
}

/// The tree of a run at the process that holds the store; empty if that has gone.
async fn tree_at_owner(
    state: &Path,
    client: &mut Option<ControlClient>,
    run: RunId,
) -> Result<Vec<NodeView>, RequestError> {
    if client.is_none() {
        *client = ControlClient::connect(state).await?;
    }
    let Some(connected) = client else { return Ok(Vec::new()) };
    match connected.request(&ControlRequest::Tree { run: Some(run.to_string()) }, |_| Ok(())).await {
        Ok(ControlResponse::Tree(nodes)) => Ok(nodes),
        Ok(_) | Err(AskError::Disconnected) => {
            *client = None;
            Ok(Vec::new())
        }
        Err(AskError::Rejected(error)) => Err(error),
    }
}
