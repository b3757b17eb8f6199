//! `hermod run`: runs a task, or resumes an unfinished run, until its outcome.

mod args;
mod execute;
mod follow;
mod history;
mod images;
mod stdin;
mod subagents;

pub(crate) use args::{DurabilityArg, RunArgs};
pub(crate) use execute::execute;
