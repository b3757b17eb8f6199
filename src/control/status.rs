//! Status of runs for clients: a run's row, and whether a process runs it.

use std::ops::Deref;

use hermod_actors::model::{BudgetAccount, ModelRef, RunAccepted, RunRow, RunState};
use serde::{Deserialize, Serialize};

/// The row of a run, and whether a process runs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRowStatus {
    /// The row.
    #[serde(flatten)]
    pub row: RunRow,
    /// True if the run is running or queued and no process runs it: it was suspended, or its process died.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspended: bool,
}

impl RunRowStatus {
    /// The status of a run without a process. A parked run needs none and is not suspended.
    pub const fn without_process(row: RunRow) -> Self {
        let suspended = matches!(row.state, RunState::Queued | RunState::Running);
        Self { row, suspended }
    }

    /// The name of the state: `suspended` for such a run, else the state of the row.
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

/// The status of an ended run, or of one that this process runs.
impl From<RunRow> for RunRowStatus {
    fn from(row: RunRow) -> Self {
        Self { row, suspended: false }
    }
}

impl Deref for RunRowStatus {
    type Target = RunRow;

    fn deref(&self) -> &RunRow {
        &self.row
    }
}

/// Characters of an input in a list.
const MAX_INPUT_CHARS: usize = 200;

/// A run in a list: its status and the main facts of its acceptance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSummary {
    /// The run's status.
    #[serde(flatten)]
    pub status: RunRowStatus,
    /// The beginning of the input, at most 200 characters; empty if the session cannot be read.
    #[serde(default)]
    pub input: String,
    /// The first model of the chain; `None` if the session cannot be read.
    #[serde(default)]
    pub model: Option<ModelRef>,
    /// The folder in which the run's tools work; `None` if the session cannot be read.
    #[serde(default)]
    pub workspace: Option<String>,
    /// Nano-dollars booked on the run's account, including its subagents; `None` if no price was known.
    #[serde(default)]
    pub spent_usd: Option<u64>,
    /// Why the session or the account cannot be read; `None` if both can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
}

impl RunSummary {
    /// Summarizes a run from its account and its acceptance record, as far as these can be read.
    pub(super) fn new(
        status: RunRowStatus,
        accepted: Option<&RunAccepted>,
        account: Option<&BudgetAccount>,
    ) -> Self {
        Self {
            status,
            unreadable: None,
            spent_usd: account.and_then(|account| account.spent.usd),
            input: accepted
                .map(|accepted| accepted.input.chars().take(MAX_INPUT_CHARS).collect())
                .unwrap_or_default(),
            model: accepted.and_then(|accepted| accepted.spec.chain.first().cloned()),
            workspace: accepted.map(|accepted| accepted.spec.workspace.clone()),
        }
    }
}
