//! `hermod tree`: runs, and the subagents below them.

mod board;
mod draw;
mod execute;
mod follow;
mod spend;

pub(crate) use draw::{below, ending};
pub(crate) use execute::{TreeArgs, execute};
