//! Resumes unfinished runs: all at once, or after repeated crashes of the process one at a time. The trait
//! [`ResumeObserver`] is what a front door implements to show them. `hermod run --resume` resumes a single run without
//! this module.

mod execute;
mod probation;
mod resumed_runs;
mod revival;

use std::fmt::Debug;

use hermod_actors::model::{Record, RunId, RunRow};

pub use execute::{ResumeOutcome, ResumeRequest, resume_runs};
pub use revival::Revival;

/// Shows resumed runs.
pub trait ResumeObserver: Debug + Send {
    /// A record of a run was read. If it is not `is_new`, it precedes the revival of its session.
    fn on_record(&mut self, run: RunId, record: &Record, is_new: bool);

    /// A run has its outcome.
    fn on_end(&mut self, row: &RunRow);

    /// The disk became full, or has space again.
    fn on_disk(&mut self, line: &str);

    /// What is done with a run on probation.
    fn on_trial(&mut self, run: RunId, line: &str);
}
