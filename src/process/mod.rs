//! Commands with a process group, a clean environment, bounded output and a time limit each.
//!
//! Such a command is killed when its future is dropped. A command of the [`runner`] outlives the process that started
//! it.
//!
//! A command of a model runs in a [`sandbox`]. It ends with all that it has started, also with processes that have left
//! its group.

mod capture;
mod command;
mod descendants;
mod filter;
mod group;
mod helper;
mod pidfd;
mod pipes;
mod proc_stat;
pub mod runner;
pub mod sandbox;
mod tee;

pub use capture::{Capture, HEAD_BYTES, TAIL_BYTES, TruncatedOutput, without_cut_end, without_cut_start};
pub use command::{Command, CommandResult, Environment, ExitCause, TERM_GRACE, inherited, run};
use command::{CommandError, run_in};
pub use filter::{FilterCommand, FilterEnd, FilterResult, filter};
pub use helper::helper_main;
pub use tee::{OutputChunk, Tee};
