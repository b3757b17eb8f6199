//! `hermod run`: runs a task, or resumes an unfinished run, until its outcome.

mod args;
mod execute;
mod follow;
mod history;
mod images;
mod input;
mod key;
mod model;
mod stdin;
mod subagents;
mod target;

pub(crate) use args::{DurabilityArg, RunArgs};
pub(crate) use execute::execute;
pub(crate) use model::{OllamaProbe, discover};
