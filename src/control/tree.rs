//! Trees of runs and their subagents, built from the records: a parent's records name its subagents. A cache keeps what
//! has been read of each session. Also the views of a run and of its waits, as the runtime of this process knows them.

use std::collections::{BTreeMap, BTreeSet};

use hermod_actors::{
    HealthProbe, WaitTracker,
    model::{Record, RunId, RunRow, RunState, RunWait, Seq, SessionId},
};

use super::{error::RequestError, reader::StoreReader, run_folds::RunProjection};
use crate::{
    clock,
    view::{NodeView, RunView},
};

/// Cached projections of sessions. A repeated request reads only new records.
#[derive(Debug, Default)]
pub struct RunTreeCache(BTreeMap<SessionId, CachedSession>);

/// The projection of a session up to a record.
#[derive(Debug)]
struct CachedSession {
    next: Seq,
    waits: WaitTracker,
    runs: BTreeMap<RunId, RunProjection>,
    /// False if this version cannot read the session.
    is_readable: bool,
}

/// A node without its children, and the index of its parent, which is smaller than its own.
type NodeWithParent = (NodeView, Option<usize>);

impl RunTreeCache {
    /// The trees of these runs; each run is in exactly one of them. `health` tells their waits if this process has a
    /// runtime.
    pub async fn build(
        &mut self,
        reader: &StoreReader,
        health: Option<&HealthProbe>,
        runs: Vec<RunRow>,
    ) -> Result<Vec<NodeView>, RequestError> {
        let mut nodes = Vec::<NodeWithParent>::new();
        let mut seen = BTreeSet::new();
        // A stack: the next run is at the end.
        let roots = sort_roots_first(reader, runs).await?;
        let mut stack: Vec<(RunRow, Option<usize>)> =
            roots.into_iter().rev().map(|row| (row, None)).collect();
        while let Some((row, parent)) = stack.pop() {
            if !seen.insert(row.id) {
                continue;
            }
            let (node, children) = self.node(reader, health, row).await?;
            for child in children.into_iter().rev() {
                let row = reader.read(|rows| rows.run(child)).await?;
                stack.extend(row.map(|row| (row, Some(nodes.len()))));
            }
            nodes.push((node, parent));
        }
        Ok(link_nodes(nodes))
    }

    async fn node(
        &mut self,
        reader: &StoreReader,
        health: Option<&HealthProbe>,
        mut run: RunRow,
    ) -> Result<(NodeView, Vec<RunId>), RequestError> {
        // An account that cannot be read must not hide the runs.
        let account = reader.read(|rows| rows.account(run.account)).await.unwrap_or_else(|fault| {
            tracing::warn!(run = %run.id, %fault, "its account cannot be read");
            None
        });
        let cached = self.0.entry(run.session).or_insert_with(|| CachedSession::new(run.session));
        let is_open = run.state != RunState::Ended;
        // An ended run has no new records.
        if is_open || cached.next <= run.last {
            cached.update(reader, run.session).await?;
        }
        let projection = cached.runs.get(&run.id).cloned().unwrap_or_default();
        let mut waits = Vec::new();
        if is_open && cached.is_readable {
            (run.iterations, run.usage) = (projection.counts.iterations, projection.counts.usage);
            waits = run_waits(&run, &cached.waits, health).await;
        }
        let parent = run.parent;
        let node = NodeView::new(run_view(run, health).await, parent, account.as_ref());
        Ok((NodeView { input: projection.input, waits, ..node }, projection.children))
    }
}

impl CachedSession {
    fn new(session: SessionId) -> Self {
        Self { next: 1, waits: WaitTracker::new(session), runs: BTreeMap::new(), is_readable: true }
    }

    async fn update(&mut self, reader: &StoreReader, session: SessionId) -> Result<(), RequestError> {
        if !self.is_readable {
            return Ok(());
        }
        let from = self.next;
        let each = |seq, record: &Record| {
            self.next = seq + 1;
            self.waits.take(record);
            if let Some(run) = record.body.run() {
                self.runs.entry(run).or_default().take(&record.body);
            }
        };
        // A session that cannot be read must not hide the other runs.
        self.is_readable = reader.readable_records(session, from, each).await?.is_none();
        Ok(())
    }
}

/// What a run waits for; the runtime of this process, if there is one, knows what its sessions do.
pub(super) async fn run_waits(
    row: &RunRow,
    tracker: &WaitTracker,
    health: Option<&HealthProbe>,
) -> Vec<RunWait> {
    match health {
        Some(health) => health.waits(row.session, row.id, tracker).await,
        None => tracker.waits_unowned(row.id, clock::now()),
    }
}

/// The view of a run; the runtime of this process, if there is one, knows whether a process runs it.
pub async fn run_view(row: RunRow, health: Option<&HealthProbe>) -> RunView {
    if has_process(&row, health).await { row.into() } else { RunView::without_process(row) }
}

/// Whether the runtime of this process runs the session of an unfinished run.
pub(super) async fn has_process(row: &RunRow, health: Option<&HealthProbe>) -> bool {
    match health {
        Some(health) if row.state != RunState::Ended => health.runs(row.session).await,
        Some(_) | None => false,
    }
}

/// Sorts runs without a given ancestor first: the others are then reached as their descendants.
async fn sort_roots_first(reader: &StoreReader, runs: Vec<RunRow>) -> Result<Vec<RunRow>, RequestError> {
    let given: BTreeSet<RunId> = runs.iter().map(|row| row.id).collect();
    let mut rows = Vec::with_capacity(runs.len());
    for row in runs {
        let has_ancestor = reader.ancestors(&row).await?.iter().any(|ancestor| given.contains(&ancestor.id));
        rows.push((has_ancestor, row));
    }
    rows.sort_by_key(|(has_ancestor, row)| (*has_ancestor, row.id));
    Ok(rows.into_iter().map(|(_, row)| row).collect())
}

/// Links nodes, given in preorder, to trees.
fn link_nodes(mut nodes: Vec<NodeWithParent>) -> Vec<NodeView> {
    let mut roots = Vec::new();
    while let Some((mut node, parent)) = nodes.pop() {
        // The children were added in reverse order.
        node.children.reverse();
        match parent.and_then(|parent| nodes.get_mut(parent)) {
            Some((parent, _)) => parent.children.push(node),
            None => roots.push(node),
        }
    }
    roots.reverse();
    roots
}
