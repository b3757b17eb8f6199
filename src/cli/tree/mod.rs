//! `hermod tree`: runs, and the subagents below them.

mod draw;
mod execute;
mod live_screen;

pub(crate) use draw::{id_suffix, lines, push_children};
pub(crate) use execute::{TreeArgs, execute};
