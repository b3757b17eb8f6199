//! For tests of whoever builds on this crate.

mod artifacts;
mod clock;
mod core_loop;
mod drill;
mod faulty;
mod journal_contract;
mod memory;
mod scripted;
pub mod simulation;
mod strike;
mod world;

pub use artifacts::{MemoryArtifacts, artifacts_contract};
pub use clock::VirtualClock;
pub use core_loop::CoreLoop;
pub use drill::{DRILLS, Drill, Expect, NO_FREEZE, Seen};
pub use faulty::{FaultyJournal, JournalFault};
pub use journal_contract::{CASES, Case, FAULTS, Open, fault_contract, journal_contract};
pub use memory::MemoryJournal;
pub use scripted::{PlainEncoder, Script, ScriptedProvider, ScriptedTool, calls, says};
pub use strike::{Part, Strike, strike, strike_perhaps};
pub use world::{invocation, world};
