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
#[cfg(feature = "testkit")]
pub mod testkit;
mod tool_executor;
mod turn;

pub use runtime::{Defaults, RunError, RunRequest, RunResult, Runtime, SessionChoice, Watch, World};
pub use session::{Accepted, NotAccepted};
pub use supervisor::Terminated;
