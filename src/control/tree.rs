//! Runs and their subagents. Kinship is data: the records of a run name those that it has begun.

use std::collections::{BTreeMap, BTreeSet};

use hermod_actors::{
    Vitals, WaitTracker,
    model::{Record, RunId, RunRow, RunState, Seq, SessionId, Wait},
    port::{Clock, Read},
};

use super::{fault::Fault, protocol::Node, reader::Reader, status::RunStatus, told::Told};
use crate::clock::SystemClock;

/// What was read of sessions. Who asks again pays for what is new.
#[derive(Debug, Default)]
pub struct Forest(BTreeMap<SessionId, Seen>);

/// A session up to a record.
#[derive(Debug)]
struct Seen {
    next: Seq,
    waits: WaitTracker,
    runs: BTreeMap<RunId, Told>,
    /// Whether this program can read it.
    is_readable: bool,
}

/// A node without those below it, and the place of the one above it, which is before its own.
type Placed = (Node, Option<usize>);

impl Forest {
    /// The trees of these runs, each of which stands in one of them, once. What they wait for is told by `vitals`, if
    /// something runs here.
    pub async fn grow(
        &mut self,
        (reader, vitals): (&Reader, Option<&Vitals>),
        runs: Vec<RunRow>,
    ) -> Result<Vec<Node>, Fault> {
        let mut placed = Vec::<Placed>::new();
        let mut met = BTreeSet::new();
        // Taken from the end.
        let roots = roots_first(reader, runs).await?;
        let mut left: Vec<(RunRow, Option<usize>)> = roots.into_iter().rev().map(|row| (row, None)).collect();
        while let Some((row, above)) = left.pop() {
            if !met.insert(row.id) {
                continue;
            }
            let (node, children) = self.node((reader, vitals), row).await?;
            for child in children.into_iter().rev() {
                let rows = reader.runs(Read::Run(child)).await?;
                left.extend(rows.into_iter().map(|row| (row, Some(placed.len()))));
            }
            placed.push((node, above));
        }
        Ok(assembled(placed))
    }

    async fn node(
        &mut self,
        (reader, vitals): (&Reader, Option<&Vitals>),
        mut run: RunRow,
    ) -> Result<(Node, Vec<RunId>), Fault> {
        // An account that cannot be read must not hide the runs.
        let account = reader.account(run.account).await.unwrap_or_else(|fault| {
            tracing::warn!(run = %run.id, %fault, "its account cannot be read");
            None
        });
        let seen = self.0.entry(run.session).or_insert_with(|| Seen::new(run.session));
        let is_open = run.state != RunState::Ended;
        // Of a run that has ended there is nothing new.
        if is_open || seen.next <= run.last {
            seen.read_on(reader, run.session).await?;
        }
        let told = seen.runs.get(&run.id).cloned().unwrap_or_default();
        let mut waits = Vec::new();
        if is_open && seen.is_readable {
            (run.iterations, run.usage) = (told.iterations, told.usage);
            waits = seen.waits(&run, vitals).await;
        }
        let run = status(run, vitals).await;
        let node = Node { run, input: told.input, account, waits, children: Vec::new() };
        Ok((node, told.children))
    }
}

impl Seen {
    fn new(session: SessionId) -> Self {
        Self { next: 1, waits: WaitTracker::new(session), runs: BTreeMap::new(), is_readable: true }
    }

    async fn read_on(&mut self, reader: &Reader, session: SessionId) -> Result<(), Fault> {
        if !self.is_readable {
            return Ok(());
        }
        let from = self.next;
        let each = |(seq, record): (Seq, Record)| {
            self.next = seq + 1;
            self.waits.take(&record);
            if let Some(run) = record.body.run() {
                self.runs.entry(run).or_default().take(&record.body);
            }
            Ok::<(), Fault>(())
        };
        if let Err(fault) = reader.records(session, from, each).await {
            // What cannot be read cannot be told; it must not hide the other runs.
            self.is_readable = reader.quarantined(session).await?.is_none();
            return if self.is_readable { Err(fault) } else { Ok(()) };
        }
        Ok(())
    }

    async fn waits(&self, run: &RunRow, vitals: Option<&Vitals>) -> Vec<Wait> {
        match vitals {
            Some(vitals) => vitals.waits(run.session, run.id, &self.waits).await,
            None => self.waits.waits_unowned(run.id, SystemClock::default().at()),
        }
    }
}

/// A run as clients see it, by the runtime of this process, if there is one.
pub(super) async fn status(row: RunRow, vitals: Option<&Vitals>) -> RunStatus {
    let has_process = match vitals {
        Some(vitals) if row.state != RunState::Ended => vitals.runs(row.session).await,
        Some(_) | None => false,
    };
    if has_process { row.into() } else { RunStatus::at_rest(row) }
}

/// Those first that stand below none of the others: the others are met below them.
async fn roots_first(reader: &Reader, runs: Vec<RunRow>) -> Result<Vec<RunRow>, Fault> {
    let given: BTreeSet<RunId> = runs.iter().map(|row| row.id).collect();
    let mut placed = Vec::with_capacity(runs.len());
    for row in runs {
        let stands_below = reader.above(&row).await?.iter().any(|above| given.contains(&above.id));
        placed.push((stands_below, row));
    }
    placed.sort_by_key(|(stands_below, row)| (*stands_below, row.id));
    Ok(placed.into_iter().map(|(_, row)| row).collect())
}

/// The trees of nodes in the order in which they were met.
fn assembled(mut placed: Vec<Placed>) -> Vec<Node> {
    let mut roots = Vec::new();
    while let Some((mut node, above)) = placed.pop() {
        // Those below it came from the last to the first.
        node.children.reverse();
        match above.and_then(|above| placed.get_mut(above)) {
            Some((above, _)) => above.children.push(node),
            None => roots.push(node),
        }
    }
    roots.reverse();
    roots
}
