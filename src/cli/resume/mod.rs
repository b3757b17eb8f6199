//! `hermod runs resume`: resumes unfinished runs concurrently.

mod display;
mod execute;

pub(crate) use execute::{ResumeArgs, execute};
