//! A journal that measures how long its commits take, and counts the unfinished runs. The actors measure nothing.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use hermod_actors::{
    model::{DiskFull, RunId, RunState, Seq, SessionId},
    port::{IndexRow, Journal, JournalError, ReadFuture, RowReader, StoredRecord, WriteOp, WriteOutcome},
};
use prometheus_client::metrics::histogram::Histogram;
use tokio::time::Instant;

use super::run_states::RunStates;

/// Upper bounds of the buckets, in seconds: from a disk without a sync to one that hardly answers.
const BUCKETS: [f64; 12] = [0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0];

/// The durations of commits, in seconds. A clone has the same ones.
#[derive(Debug, Clone)]
pub(crate) struct CommitDurations(Histogram);

impl Default for CommitDurations {
    fn default() -> Self {
        Self(Histogram::new(BUCKETS))
    }
}

impl CommitDurations {
    pub(super) fn histogram(&self) -> Histogram {
        self.0.clone()
    }

    fn add(&self, duration: Duration) {
        self.0.observe(duration.as_secs_f64());
    }
}

/// Another journal whose commits are measured.
#[derive(Debug)]
pub(crate) struct MeasuredJournal {
    journal: Arc<dyn Journal>,
    durations: CommitDurations,
    states: RunStates,
}

impl MeasuredJournal {
    /// Adds the durations of the commits of `journal` to `durations`, and keeps `states` up to date, which has the states
    /// until now.
    pub(crate) fn new(journal: Arc<dyn Journal>, durations: CommitDurations, states: RunStates) -> Self {
        Self { journal, durations, states }
    }
}

/// The states of runs that a write changes.
fn run_states(write: &WriteOp) -> Vec<(RunId, RunState)> {
    let WriteOp::Append(append) = write else { return Vec::new() };
    let state = |row: &IndexRow| match row {
        IndexRow::Run(row) => Some((row.id, row.state)),
        IndexRow::Session(_) | IndexRow::Model(_) | IndexRow::Outbox(_) | IndexRow::Message(_) => None,
    };
    append.index.iter().filter_map(state).collect()
}

impl Journal for MeasuredJournal {
    fn commit(&self, batch: Vec<WriteOp>) -> BoxFuture<'static, Result<Vec<WriteOutcome>, JournalError>> {
        let (since, durations, states) = (Instant::now(), self.durations.clone(), self.states.clone());
        let changes: Vec<_> = batch.iter().map(run_states).collect();
        let committing = self.journal.commit(batch);
        Box::pin(async move {
            let committed = committing.await;
            durations.add(since.elapsed());
            if let Ok(outcomes) = &committed {
                let changes = changes.into_iter().zip(outcomes);
                let made = changes.filter(|(_, outcome)| matches!(outcome, WriteOutcome::Appended(_)));
                states.update_states(made.flat_map(|(states, _)| states));
            }
            committed
        })
    }

    fn restore_generation(&self) -> u64 {
        self.journal.restore_generation()
    }

    fn records(&self, session: SessionId, from: Seq, max: usize) -> ReadFuture<Vec<StoredRecord>> {
        self.journal.records(session, from, max)
    }

    fn rows(&self) -> &dyn RowReader {
        self.journal.rows()
    }

    fn disk_full(&self) -> Option<DiskFull> {
        self.journal.disk_full()
    }
}
