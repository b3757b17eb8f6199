//! A run as clients see it: its row, and whether a process runs it.

use std::ops::Deref;

use hermod_actors::model::{RunRow, RunState};
use serde::{Deserialize, Serialize};

/// The row of a run, and whether a process runs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunStatus {
    /// The row.
    #[serde(flatten)]
    pub row: RunRow,
    /// Whether it is under way or queued, and no process runs it: it was suspended, or its process died.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspended: bool,
}

impl RunStatus {
    /// A run that no process runs. One that waits for a person needs none.
    pub const fn at_rest(row: RunRow) -> Self {
        let suspended = matches!(row.state, RunState::Queued | RunState::Running);
        Self { row, suspended }
    }

    /// The state: of an unfinished run that no process runs `suspended`, else that of the row.
    pub const fn state(&self) -> &'static str {
        match self.row.state {
            _ if self.suspended => "suspended",
            RunState::Queued => "queued",
            RunState::Running => "running",
            RunState::Parked => "parked",
            RunState::Ended => "ended",
        }
    }
}

/// A run that this process runs, or one that has ended.
impl From<RunRow> for RunStatus {
    fn from(row: RunRow) -> Self {
        Self { row, suspended: false }
    }
}

impl Deref for RunStatus {
    type Target = RunRow;

    fn deref(&self) -> &RunRow {
        &self.row
    }
}
