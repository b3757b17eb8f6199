//! A journal that measures how long its commits take, and counts unfinished runs, messages to sessions and messages to
//! targets. The actors measure nothing.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use hermod_actors::{
    model::{DiskFull, RunId, RunState, ScheduleOutcome, Seq, SessionId},
    port::{IndexRow, Journal, JournalError, ReadFuture, RowReader, StoredRecord, WriteOp, WriteOutcome},
};
use prometheus_client::metrics::histogram::Histogram;
use tokio::time::Instant;

use super::{
    JournalCounts,
    message_counts::MessageChanges,
    outbox_counts::OutboxChange,
    schedule_counts::{OccurrenceChanges, occurrences_of},
};

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
    counts: JournalCounts,
}

impl MeasuredJournal {
    /// Keeps the counts up to date, which have what is until now.
    pub(crate) const fn new(journal: Arc<dyn Journal>, counts: JournalCounts) -> Self {
        Self { journal, counts }
    }
}

/// Whether something was written.
const fn is_made(outcome: &WriteOutcome) -> bool {
    match outcome {
        WriteOutcome::Appended(_) => true,
        WriteOutcome::DeliveryUpdated(is_updated) => *is_updated,
        WriteOutcome::ScheduleWritten(outcome) => matches!(outcome, ScheduleOutcome::Written),
        WriteOutcome::Opened(_)
        | WriteOutcome::Closed(_)
        | WriteOutcome::Delivered(_)
        | WriteOutcome::Refused(_) => false,
    }
}

/// What a write changes of the counts.
struct Changes {
    runs: Vec<(RunId, RunState)>,
    messages: Option<MessageChanges>,
    outbox: Vec<OutboxChange>,
    occurrences: OccurrenceChanges,
}

impl Changes {
    fn of(write: &WriteOp) -> Self {
        let messages = match write {
            WriteOp::Append(append) => MessageChanges::of(append),
            WriteOp::Open(_)
            | WriteOp::Close(..)
            | WriteOp::Deliver(..)
            | WriteOp::UpdateDelivery(_)
            | WriteOp::RetryDelivery(..)
            | WriteOp::Schedule(_)
            | WriteOp::RemoveSchedule(..) => None,
        };
        Self {
            runs: run_states(write),
            messages,
            outbox: OutboxChange::of(write),
            occurrences: occurrences_of(write),
        }
    }

    /// Counts the changes of a write that was made.
    fn take_into(self, counts: &JournalCounts) {
        counts.run_states.update_states(self.runs);
        self.messages.iter().for_each(|messages| counts.messages.take(messages));
        counts.outbox.take(self.outbox);
        counts.schedules.take(self.occurrences);
    }
}

/// The states of runs that a write changes.
fn run_states(write: &WriteOp) -> Vec<(RunId, RunState)> {
    let WriteOp::Append(append) = write else { return Vec::new() };
    let state = |row: &IndexRow| match row {
        IndexRow::Run(row) => Some((row.id, row.state)),
        IndexRow::Session(_)
        | IndexRow::Model(_)
        | IndexRow::Outbox(_)
        | IndexRow::Message(_)
        | IndexRow::Occurrence(_) => None,
    };
    append.index.iter().filter_map(state).collect()
}

impl Journal for MeasuredJournal {
    fn commit(&self, batch: Vec<WriteOp>) -> BoxFuture<'static, Result<Vec<WriteOutcome>, JournalError>> {
        let (since, counts) = (Instant::now(), self.counts.clone());
        let changes: Vec<_> = batch.iter().map(Changes::of).collect();
        let committing = self.journal.commit(batch);
        Box::pin(async move {
            let committed = committing.await;
            counts.commits.add(since.elapsed());
            if let Ok(outcomes) = &committed {
                let made = changes.into_iter().zip(outcomes).filter(|(_, outcome)| is_made(outcome));
                made.for_each(|(changes, _)| changes.take_into(&counts));
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
