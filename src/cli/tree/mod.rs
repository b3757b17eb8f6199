//! `hermod tree`: runs, and the subagents below them.

mod draw;
mod execute;
mod follow;
mod live_screen;
mod spend;

pub(crate) use draw::{id_suffix, push_children};
pub(crate) use execute::{TreeArgs, execute};
