//! `hermod runs resume`: resumes unfinished runs concurrently.

mod execute;
mod follow;
mod probation;
mod resumed_runs;

pub(crate) use execute::{ResumeArgs, execute};
