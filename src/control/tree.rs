//! Trees of runs and their subagents, built from the records: a parent's records name its subagents. A cache keeps what
//! has been read of each session. Also the views of a run and of its waits, as the runtime of this process knows them.

use std::collections::{BTreeMap, BTreeSet};

use hermod_actors::{
    HealthProbe, WaitTracker,
    model::{Record, RunId, RunRow, RunState, Seq, SessionId},
};

use super::{error::RequestError, reader::StoreReader, run_projection::RunProjection};
use crate::{
    clock,
    view::{NodeView, RunView, WaitView},
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
    /// The trees of these runs; each run is in exactly one of them. `vitals` tells their waits if this process has a
    /// runtime.
    pub async fn build(
        &mut self,
        reader: &StoreReader,
        vitals: Option<&HealthProbe>,
        runs: Vec<RunRow>,
    ) -> Result<Vec<NodeView>, RequestError> {
        let mut placed = Vec::<NodeWithParent>::new();
        let mut met = BTreeSet::new();
        // A stack: the next run is at the end.
        let roots = roots_first(reader, runs).await?;
        let mut left: Vec<(RunRow, Option<usize>)> = roots.into_iter().rev().map(|row| (row, None)).collect();
        while let Some((row, above)) = left.pop() {
            if !met.insert(row.id) {
                continue;
            }
            let (node, children) = self.node(reader, vitals, row).await?;
            for child in children.into_iter().rev() {
                let row = reader.read(|rows| rows.run(child)).await?;
                left.extend(row.map(|row| (row, Some(placed.len()))));
            }
            placed.push((node, above));
        }
        Ok(assemble(placed))
    }

    async fn node(
        &mut self,
        reader: &StoreReader,
        vitals: Option<&HealthProbe>,
        mut run: RunRow,
    ) -> Result<(NodeView, Vec<RunId>), RequestError> {
        // An account that cannot be read must not hide the runs.
        let account = reader.read(|rows| rows.account(run.account)).await.unwrap_or_else(|fault| {
            tracing::warn!(run = %run.id, %fault, "its account cannot be read");
            None
        });
        let seen = self.0.entry(run.session).or_insert_with(|| CachedSession::new(run.session));
        let is_open = run.state != RunState::Ended;
        // An ended run has no new records.
        if is_open || seen.next <= run.last {
            seen.update(reader, run.session).await?;
        }
        let projection = seen.runs.get(&run.id).cloned().unwrap_or_default();
        let mut waits = Vec::new();
        if is_open && seen.is_readable {
            (run.iterations, run.usage) = (projection.counts.iterations, projection.counts.usage);
            waits = wait_views(&run, &seen.waits, vitals).await;
        }
        let parent = run.parent;
        let node = NodeView::new(run_view(run, vitals).await, parent, account.as_ref());
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
pub(super) async fn wait_views(
    row: &RunRow,
    tracker: &WaitTracker,
    vitals: Option<&HealthProbe>,
) -> Vec<WaitView> {
    let waits = match vitals {
        Some(vitals) => vitals.waits(row.session, row.id, tracker).await,
        None => tracker.waits_unowned(row.id, clock::now()),
    };
    waits.into_iter().map(WaitView::from).collect()
}

/// The view of a run; the runtime of this process, if there is one, knows whether a process runs it.
pub async fn run_view(row: RunRow, vitals: Option<&HealthProbe>) -> RunView {
    let has_process = match vitals {
        Some(vitals) if row.state != RunState::Ended => vitals.runs(row.session).await,
        Some(_) | None => false,
    };
    if has_process { row.into() } else { RunView::without_process(row) }
}

/// Sorts runs without a given ancestor first: the others are then reached as their descendants.
async fn roots_first(reader: &StoreReader, runs: Vec<RunRow>) -> Result<Vec<RunRow>, RequestError> {
    let given: BTreeSet<RunId> = runs.iter().map(|row| row.id).collect();
    let mut placed = Vec::with_capacity(runs.len());
    for row in runs {
        let stands_below = reader.ancestors(&row).await?.iter().any(|above| given.contains(&above.id));
        placed.push((stands_below, row));
    }
    placed.sort_by_key(|(stands_below, row)| (*stands_below, row.id));
    Ok(placed.into_iter().map(|(_, row)| row).collect())
}

/// Links nodes, given in preorder, to trees.
fn assemble(mut placed: Vec<NodeWithParent>) -> Vec<NodeView> {
    let mut roots = Vec::new();
    while let Some((mut node, above)) = placed.pop() {
        // The children were added in reverse order.
        node.children.reverse();
        match above.and_then(|above| placed.get_mut(above)) {
            Some((above, _)) => above.children.push(node),
            None => roots.push(node),
        }
    }
    roots.reverse();
    roots
}
