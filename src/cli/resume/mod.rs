//! `hermod runs resume`: unfinished runs go on, all at once.

mod crowd;
mod execute;
mod follow;
mod trials;

pub(crate) use execute::{ResumeArgs, execute};
