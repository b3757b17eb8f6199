//! The journal of a life: it dies at a planned commit, and watches what is written of schedules and their runs.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use futures::{
    FutureExt,
    future::{BoxFuture, pending},
};
use hermod_actors::{
    model::{
        OccurrenceId, RunId, RunRow, RunState, ScheduleName, ScheduleOutcome, Seq, SessionId, Timestamp,
    },
    port::{
        Clock, IndexRow, Journal, JournalError, ReadFuture, RowReader, StoredRecord, WriteOp, WriteOutcome,
    },
};
use tokio::sync::Notify;

use crate::MemoryJournal;

/// What was seen in the writes of all lives.
#[derive(Debug, Default)]
pub(super) struct Watched {
    pub(super) violations: Vec<String>,
    pub(super) pauses: usize,
    /// Runs that a person has started.
    pub(super) by_person: BTreeSet<OccurrenceId>,
    /// The latest time of any clock.
    latest: Timestamp,
    /// The latest time by the clock at which the run of an occurrence was accepted.
    pub(super) accepted: BTreeMap<OccurrenceId, Timestamp>,
    next: BTreeMap<ScheduleName, Option<Timestamp>>,
    under_way: BTreeMap<ScheduleName, BTreeSet<RunId>>,
    known: BTreeSet<RunId>,
}

impl Watched {
    /// The clock shows a time.
    pub(super) fn sees_time(&mut self, at: Timestamp) {
        self.latest = self.latest.max(at);
    }

    /// An occurrence is submitted. A run that a person starts from here on is beside it.
    pub(super) fn sees_submission(&mut self, id: &OccurrenceId) {
        let others = self.under_way.get(&id.schedule).map_or(0, BTreeSet::len);
        if others > 0 && !self.by_person.contains(id) {
            self.violations.push(format!("{id} begins while {others} runs of its schedule are under way"));
        }
    }

    fn take(&mut self, write: &Written) {
        match write {
            Written::Next(name, next, is_pause) => {
                let before = self.next.insert(name.clone(), *next);
                let is_back = match (before, next) {
                    (Some(Some(before)), Some(next)) => *next < before,
                    (Some(None), Some(_)) => true,
                    (None, _) | (Some(_), None) => false,
                };
                if is_back {
                    self.violations
                        .push(format!("the next time of {name} went back from {before:?} to {next:?}"));
                }
                self.pauses += usize::from(*is_pause);
            }
            Written::Occurrence(id) => {
                self.accepted.insert(id.clone(), self.latest);
            }
            Written::Run(row) => {
                let Some(name) = &row.schedule else { return };
                let under_way = self.under_way.entry(name.clone()).or_default();
                self.known.insert(row.id);
                match row.state {
                    RunState::Ended => drop(under_way.remove(&row.id)),
                    RunState::Queued | RunState::Running | RunState::Parked => {
                        under_way.insert(row.id);
                    }
                }
            }
        }
    }
}

/// A part of a write that was made.
#[derive(Debug)]
enum Written {
    Next(ScheduleName, Option<Timestamp>, bool),
    Occurrence(OccurrenceId),
    Run(Box<RunRow>),
}

fn parts(write: &WriteOp) -> Vec<Written> {
    match write {
        WriteOp::Schedule(write) => {
            let schedule = &write.schedule;
            vec![Written::Next(schedule.name.clone(), schedule.next, !write.notices.is_empty())]
        }
        WriteOp::Append(append) => {
            let occurrences = append.index.iter().filter_map(|row| match row {
                IndexRow::Occurrence(row) => Some(Written::Occurrence(row.id.clone())),
                IndexRow::Session(_)
                | IndexRow::Run(_)
                | IndexRow::Model(_)
                | IndexRow::Outbox(_)
                | IndexRow::Message(_) => None,
            });
            let runs = append.index.iter().filter_map(|row| match row {
                IndexRow::Run(row) => Some(Written::Run(row.clone())),
                IndexRow::Session(_)
                | IndexRow::Occurrence(_)
                | IndexRow::Model(_)
                | IndexRow::Outbox(_)
                | IndexRow::Message(_) => None,
            });
            occurrences.chain(runs).collect()
        }
        WriteOp::Open(_)
        | WriteOp::Close(..)
        | WriteOp::Deliver(..)
        | WriteOp::UpdateDelivery(_)
        | WriteOp::RetryDelivery(..)
        | WriteOp::RemoveSchedule(..) => Vec::new(),
    }
}

/// The journal of one life.
#[derive(Debug, Clone)]
pub(super) struct WatchedJournal {
    pub(super) inner: MemoryJournal,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) watched: Arc<Mutex<Watched>>,
    pub(super) killed_at: Option<(u64, bool)>,
    pub(super) commits: Arc<AtomicU64>,
    pub(super) killed: Arc<Notify>,
}

impl WatchedJournal {
    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Journal for WatchedJournal {
    fn commit(&self, batch: Vec<WriteOp>) -> BoxFuture<'static, Result<Vec<WriteOutcome>, JournalError>> {
        let number = self.commits.fetch_add(1, Ordering::SeqCst);
        if self.killed_at.is_some_and(|(at, is_written)| number > at || number == at && !is_written) {
            self.killed.notify_one();
            return pending().boxed();
        }
        let written: Vec<_> = batch.iter().map(parts).collect();
        self.watched().sees_time(self.clock.at());
        let committed = self.inner.commit(batch).now_or_never();
        if let Some(Ok(outcomes)) = &committed {
            let is_made = |outcome: &WriteOutcome| {
                matches!(
                    outcome,
                    WriteOutcome::Appended(_) | WriteOutcome::ScheduleWritten(ScheduleOutcome::Written)
                )
            };
            let made = written.iter().zip(outcomes).filter(|(_, outcome)| is_made(outcome));
            made.flat_map(|(parts, _)| parts).for_each(|part| self.watched().take(part));
        }
        if self.killed_at.is_some_and(|(at, _)| number == at) {
            self.killed.notify_one();
            return pending().boxed();
        }
        committed.map_or_else(|| pending().boxed(), |committed| async { committed }.boxed())
    }

    fn records(&self, session: SessionId, from: Seq, max: usize) -> ReadFuture<Vec<StoredRecord>> {
        self.inner.records(session, from, max)
    }

    fn rows(&self) -> &dyn RowReader {
        self.inner.rows()
    }
}
