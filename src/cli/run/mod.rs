//! `hermod run`: runs a task, or resumes an unfinished run, until its outcome.

mod args;
mod execute;
mod follow;
mod handover;
mod own_run;
mod subagents;
mod task_input;

pub(crate) use args::{DurabilityArg, RunArgs};
pub(crate) use execute::execute;
