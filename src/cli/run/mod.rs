//! `hermod run`: runs a task, or resumes an unfinished run, until its outcome.

mod args;
mod execute;
mod expect_args;
mod follow;
mod followed_view;
mod handover;
mod own_run;
mod subagents;
mod task_input;
mod watch;

pub(crate) use args::{DurabilityArg, OutputArgs, RunArgs};
pub(crate) use execute::execute;
pub(in crate::cli) use task_input::read_images;
pub(crate) use watch::watch_run;
