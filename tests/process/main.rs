//! Processes that are signalled, stopped, killed and started again, the commands that outlive them, and the tools.
#![allow(clippy::unwrap_used)] // a test ends where it fails

mod approvals;
mod crash;
mod expectations;
mod handover;
mod hooks;
mod hooks_compaction;
mod hooks_everywhere;
mod killed_command;
mod last;
mod loops;
mod memory_flush;
#[path = "../common/own_process.rs"]
mod own_process;
#[path = "../common/pictures.rs"]
mod pictures;
mod policy;
mod queued_behind_parked;
mod resume;
mod runner;
#[path = "../common/running.rs"]
mod running;
mod sandbox;
mod secrets;
mod signals;
mod skill_variables;
mod stopped_process;
mod tools;
mod watch;
#[path = "../common/world.rs"]
mod world;
