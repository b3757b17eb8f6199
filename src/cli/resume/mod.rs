//! `hermod runs resume`: unfinished runs go on, all at once.

mod execute;
mod follow;
mod probation;
mod resumed_runs;

pub(crate) use execute::{ResumeArgs, execute};
