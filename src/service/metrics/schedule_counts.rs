//! Counts occurrences of schedules, from the writes that are committed.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use hermod_actors::{
    model::{Occurrence, OccurrenceState},
    port::{IndexRow, WriteOp},
};

/// Occurrences that became runs, were missed, and were skipped. A clone has the same ones.
#[derive(Debug, Clone, Default)]
pub(crate) struct ScheduleCounts(Arc<[AtomicU64; 3]>);

/// The names of the counts, in their order.
const STATES: [&str; 3] = ["ran", "missed", "skipped"];

/// What a write adds to each count.
pub(super) type OccurrenceChanges = [u64; 3];

/// What a write adds.
pub(super) fn occurrences_of(write: &WriteOp) -> OccurrenceChanges {
    let mut changes = OccurrenceChanges::default();
    let mut add = |occurrence: &Occurrence| {
        let further = occurrence.further.map_or(0, |further| further.count);
        let place = match occurrence.state {
            OccurrenceState::Ran { .. } => 0,
            OccurrenceState::Missed { .. } => 1,
            OccurrenceState::Skipped { .. } => 2,
        };
        changes[place] += 1 + further;
    };
    match write {
        WriteOp::Append(append) => append.index.iter().for_each(|row| match row {
            IndexRow::Occurrence(occurrence) => add(occurrence),
            IndexRow::Session(_)
            | IndexRow::Run(_)
            | IndexRow::Model(_)
            | IndexRow::Outbox(_)
            | IndexRow::Message(_) => {}
        }),
        WriteOp::Schedule(write) => write.left_out.iter().for_each(add),
        WriteOp::Open(_)
        | WriteOp::Close(..)
        | WriteOp::Deliver(..)
        | WriteOp::UpdateDelivery(_)
        | WriteOp::RetryDelivery(..)
        | WriteOp::RemoveSchedule(..) => {}
    }
    changes
}

impl ScheduleCounts {
    /// Takes over what a committed write has added.
    pub(super) fn take(&self, changes: OccurrenceChanges) {
        for (count, added) in self.0.iter().zip(changes) {
            count.fetch_add(added, Ordering::Relaxed);
        }
    }

    /// The counts by state.
    pub(super) fn by_state(&self) -> [(&'static str, u64); 3] {
        std::array::from_fn(|place| (STATES[place], self.0[place].load(Ordering::Relaxed)))
    }
}
