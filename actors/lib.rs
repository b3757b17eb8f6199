//! The actors and the pure core of Hermod.
#![warn(missing_docs)]

mod hub;
pub mod model;
mod persistence;
mod policy;
pub mod port;
mod provider;
mod runtime;
mod session;
mod supervisor;
mod tool_executor;
mod turn;
