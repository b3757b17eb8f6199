//! A run as clients see it: its row, and whether a process runs it.

use std::ops::Deref;

use hermod_actors::model::{BudgetAccount, ModelRef, RunAccepted, RunRow, RunState};
use serde::{Deserialize, Serialize};

/// The row of a run, and whether a process runs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRowStatus {
    /// The row.
    #[serde(flatten)]
    pub row: RunRow,
    /// Whether it is under way or queued, and no process runs it: it was suspended, or its process died.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspended: bool,
}

impl RunRowStatus {
    /// A run that no process runs. One that waits for a person needs none.
    pub const fn without_process(row: RunRow) -> Self {
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

/// Characters of an input that lists show.
const MAX_INPUT_CHARS: usize = 200;

/// A run as a list has it: its status, and what it was accepted with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSummary {
    /// Its status.
    #[serde(flatten)]
    pub status: RunRowStatus,
    /// The beginning of its input, at most 200 characters; empty if its session cannot be read.
    #[serde(default)]
    pub input: String,
    /// The first model of its chain; `None` if its session cannot be read.
    #[serde(default)]
    pub model: Option<ModelRef>,
    /// The folder in which its tools work; `None` if its session cannot be read.
    #[serde(default)]
    pub workspace: Option<String>,
    /// The nano-dollars booked on its account, those of its subagents too; `None` if no price was known.
    #[serde(default)]
    pub spent_usd: Option<u64>,
    /// Why its session or its account cannot be read, if one cannot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
}

impl RunSummary {
    /// Of a run with its account and the record that accepted it, as far as they can be read.
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
