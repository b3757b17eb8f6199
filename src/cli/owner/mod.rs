//! Shared by the commands that own the store and run sessions: control server, crash history, signals, and the
//! commands of other processes.

mod commands;
mod disk_full;
mod owned_store;
mod probation;
mod signals;

pub(crate) use commands::{serve_commands, stop};
pub(crate) use disk_full::DiskFullMonitor;
pub(crate) use owned_store::OwnedStore;
pub(crate) use probation::{fail_crash_looping, first_trial};
pub(crate) use signals::Signals;
