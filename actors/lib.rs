//! The actors and the pure core of Hermod.
#![warn(missing_docs)]

pub mod model;
pub mod port;
#[cfg(feature = "testkit")]
pub mod testkit;
