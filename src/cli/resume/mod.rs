//! `hermod runs resume`: resumes unfinished runs concurrently. `host/resume` does the work; here are the arguments, the
//! display and the report.

mod display;
mod execute;

pub(crate) use execute::{ResumeArgs, execute};
