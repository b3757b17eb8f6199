//! The pure core of Hermod: what an input means (as records), what a record changes, and which actions are due.
//!
//! A session's state is the fold of its records. This crate knows no actor, no async runtime, no I/O and no clock: time
//! and chance are arguments. The shell around it is the crate `hermod-actors`.
#![warn(missing_docs)]

pub mod journal;
pub mod model;
#[doc(hidden)]
pub mod mutants;
pub mod policy;
pub mod turn;
