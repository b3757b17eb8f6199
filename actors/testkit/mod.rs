//! For tests of whoever builds on this crate.

mod artifacts;
mod clock;
mod core_loop;
mod journal_contract;
mod memory;
mod scripted;
mod world;

pub use artifacts::{MemoryArtifacts, artifacts_contract};
pub use clock::VirtualClock;
pub use core_loop::CoreLoop;
pub use journal_contract::{CASES, Case, Open, journal_contract};
pub use memory::MemoryJournal;
pub use scripted::{PlainEncoder, Script, ScriptedProvider, ScriptedTool, calls, says};
pub use world::{invocation, world};
