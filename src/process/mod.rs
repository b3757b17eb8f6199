//! Commands with a process group, a clean environment, bounded output and a time limit each.
//!
//! Such a command is killed when its future is dropped. A command of the [`runner`] outlives the process that started
//! it.
//!
//! A process that leaves its group (`setsid`) is out of reach here: the boundary for those is a cgroup.

mod capture;
mod command;
mod group;
mod pidfd;
mod pipes;
pub mod runner;
mod tee;

pub use capture::{Capture, HEAD_BYTES, TAIL_BYTES, TruncatedOutput, without_cut_end, without_cut_start};
pub use command::{Command, CommandResult, Environment, ExitCause, TERM_GRACE, inherited, run};
pub use tee::{OutputChunk, Tee};
