//! Doubles of the ports that unit tests of this crate need: a clock, artifacts, a model and tools. Behind the feature
//! `testkit`; `hermod-testkit` exports them with its journals, contracts and simulation.

mod artifacts;
mod clock;
mod invocation;
mod scripted;

pub use artifacts::MemoryArtifacts;
pub use clock::{SPLITMIX_GAMMA, START_MS, VirtualClock, mix};
pub use invocation::{invocation, run_call};
pub use scripted::{PlainEncoder, ScriptFn, ScriptedProvider, ScriptedTool, calls, says};
