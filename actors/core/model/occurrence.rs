//! Occurrences of schedules: the times at which their tasks are due. Each has one row in the store, written by the append
//! that accepts its run, or by the write that leaves it out.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{RunId, ScheduleName, Timestamp, rfc3339};

/// Number of rows of occurrences that a store keeps of each schedule: the newest ones.
pub const KEPT_OCCURRENCES: usize = 10_000;
/// Most occurrences of a cron expression that are counted at once.
pub const MAX_COUNTED_OCCURRENCES: u64 = 5_000;

/// One occurrence of a schedule, by the time at which it is due, without jitter.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct OccurrenceId {
    /// The schedule.
    pub schedule: ScheduleName,
    /// The time.
    pub at: Timestamp,
}

/// The row of an occurrence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Occurrence {
    /// The occurrence.
    #[serde(flatten)]
    pub id: OccurrenceId,
    /// What became of it.
    #[serde(flatten)]
    pub state: OccurrenceState,
    /// When that was recorded.
    pub recorded_at: Timestamp,
    /// The later occurrences that were left out with it and have no rows, such as those of a pause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub further: Option<FurtherOccurrences>,
}

/// Occurrences without rows of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FurtherOccurrences {
    /// Their number. Not more than [`MAX_COUNTED_OCCURRENCES`] of a cron expression are counted.
    pub count: u64,
    /// The time of the last of them.
    pub until: Timestamp,
}

/// Which occurrences a read wants, the newest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OccurrenceQuery {
    /// Those of this schedule alone.
    pub schedule: Option<ScheduleName>,
    /// Those at this time or later.
    pub since: Option<Timestamp>,
    /// Those at this time or earlier.
    pub until: Option<Timestamp>,
    /// Those before this time, for the next page.
    pub before: Option<Timestamp>,
    /// Those with a run alone.
    pub with_run: bool,
    /// Most of them.
    pub max: usize,
}

/// What became of an occurrence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum OccurrenceState {
    /// Its run was accepted.
    Ran {
        /// The run.
        run: RunId,
    },
    /// It should have run, but could not.
    Missed {
        /// Why.
        reason: Arc<str>,
    },
    /// It was left out by a rule or a person.
    Skipped {
        /// Why.
        reason: Arc<str>,
    },
}

impl fmt::Display for OccurrenceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.schedule, rfc3339(self.at))
    }
}

impl Occurrence {
    /// The row of an occurrence whose run was accepted.
    pub const fn ran(id: OccurrenceId, run: RunId, recorded_at: Timestamp) -> Self {
        Self { id, state: OccurrenceState::Ran { run }, recorded_at, further: None }
    }
}

impl OccurrenceQuery {
    /// The newest occurrences of a schedule.
    pub fn of(schedule: ScheduleName, max: usize) -> Self {
        Self { schedule: Some(schedule), max, ..Self::default() }
    }

    /// The first and the last time that is wanted.
    pub fn times(&self) -> (Timestamp, Timestamp) {
        let before = self.before.map(|before| Timestamp(before.0.saturating_sub(1)));
        let last = [self.until, before].into_iter().flatten().min();
        (self.since.unwrap_or(Timestamp(i64::MIN)), last.unwrap_or(Timestamp(i64::MAX)))
    }

    /// Whether this row is wanted.
    pub fn wants(&self, row: &Occurrence) -> bool {
        let (first, last) = self.times();
        self.schedule.as_ref().is_none_or(|name| *name == row.id.schedule)
            && (first..=last).contains(&row.id.at)
            && (!self.with_run || row.state.run().is_some())
    }
}

impl OccurrenceState {
    /// The run, if it has one.
    pub const fn run(&self) -> Option<RunId> {
        match self {
            Self::Ran { run } => Some(*run),
            Self::Missed { .. } | Self::Skipped { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_occurrence_is_one_flat_object() {
        let check = |state: OccurrenceState, expect: serde_json::Value| {
            let id = OccurrenceId { schedule: "nightly".parse().unwrap(), at: Timestamp(5) };
            let row = Occurrence { id, state, recorded_at: Timestamp(7), further: None };
            assert_eq!(serde_json::to_value(&row).unwrap(), expect);
            assert_eq!(serde_json::from_value::<Occurrence>(expect).unwrap(), row);
        };
        let run = RunId::from_bits(1);
        let expect = json!({ "schedule": "nightly", "at": 5, "state": "ran", "run": run, "recorded_at": 7 });
        check(OccurrenceState::Ran { run }, expect);
        let expect =
            json!({ "schedule": "nightly", "at": 5, "state": "missed", "reason": "late", "recorded_at": 7 });
        check(OccurrenceState::Missed { reason: "late".into() }, expect);
    }
}
