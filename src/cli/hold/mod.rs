//! What every command does that holds the store and lets runs go on: it listens to others, counts deaths of the process,
//! and carries out what it is told.

mod holding;
mod orders;
mod room;
mod signals;
mod trial;

pub(crate) use holding::Holding;
pub(crate) use orders::{attend, stop};
pub(crate) use room::Room;
pub(crate) use signals::Signals;
pub(crate) use trial::{end_condemned, first_trial};
