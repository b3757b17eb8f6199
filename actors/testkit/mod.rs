//! Test doubles, contract tests and fault injection, for tests of this crate and of crates that use it. Behind the
//! feature `testkit`.

mod artifacts;
mod clock;
mod core_loop;
mod faulty;
mod inject;
mod journal_contract;
mod memory;
mod scenarios;
mod scripted;
pub mod simulation;
mod world;

pub use artifacts::{MemoryArtifacts, artifacts_contract};
pub use clock::VirtualClock;
pub use core_loop::CoreLoop;
pub use faulty::{FaultyJournal, JournalFault};
pub use inject::{ActorFault, ActorKind, inject, inject_if_alive};
pub use journal_contract::{CASES, ContractCase, FAULTS, StoreOpener, fault_contract, journal_contract};
pub use memory::MemoryJournal;
pub use scenarios::{ExpectedOutcome, FAULT_SCENARIOS, FaultScenario, NO_FREEZE, ObservedOutcome};
pub use scripted::{PlainEncoder, ScriptFn, ScriptedProvider, ScriptedTool, calls, says};
pub use world::{invocation, world};
