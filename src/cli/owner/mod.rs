//! What every command does that holds the store and lets runs go on: it listens to others, counts deaths of the process,
//! and carries out what it is told.

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
