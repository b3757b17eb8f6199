//! Ports of the scheduler: when occurrences are due, and how one becomes a run.

use std::fmt::Debug;

use futures::future::BoxFuture;

use crate::model::{OccurrenceId, RunId, ScheduledTask, Timestamp, Timing};

/// Computes the times of occurrences.
pub trait Calendar: Debug + Send + Sync + 'static {
    /// The first occurrence after `after`; `None` if there is none. The error names what is wrong with the timing. For the
    /// same arguments it is always the same.
    fn next(&self, timing: &Timing, after: Timestamp) -> Result<Option<Timestamp>, String>;
}

/// Submits the runs of occurrences, with what the configuration says about them.
pub trait OccurrenceSubmitter: Debug + Send + Sync + 'static {
    /// Submits the run of an occurrence. If it resolves with `Ok`, the run and the row of the occurrence are durable. A
    /// repeat gets the first run.
    fn submit(
        &self,
        occurrence: OccurrenceId,
        task: ScheduledTask,
    ) -> BoxFuture<'static, Result<RunId, OccurrenceError>>;
}

/// Why an occurrence did not become a run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OccurrenceError {
    /// It may become one later, such as when the disk has space again.
    #[error("{0}")]
    NotNow(String),
    /// It cannot become one, such as if its agent is not configured any more.
    #[error("{0}")]
    Never(String),
    /// It has a row that says that it was left out.
    #[error("it was left out before")]
    LeftOut,
}
