//! `hermod run`: a task, or an unfinished run, until its outcome.

mod args;
mod execute;
mod follow;
mod history;
mod key;
mod model;
mod pictures;
mod stdin;
mod subagents;
mod target;
mod task;

pub(crate) use args::{Durability, RunArgs};
pub(crate) use execute::execute;
pub(crate) use model::{Local, discover};
