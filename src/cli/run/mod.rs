//! `hermod run`: a task, or an unfinished run, until its outcome.

mod args;
mod execute;
mod follow;
mod model;
mod orders;
mod pictures;
mod target;

pub(crate) use args::{Durability, RunArgs};
pub(crate) use execute::execute;
pub(crate) use follow::Signals as Interruption;
pub(crate) use model::{Local, discover};
