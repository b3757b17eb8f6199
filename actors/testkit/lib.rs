//! The test kit of Hermod: doubles of the ports, contract tests of journals and artifacts, fault scenarios, and the
//! simulation of a whole runtime in virtual time.
//!
//! It drives a runtime by its public interface. Only [`hermod_actors::fault_injection`] reaches into the actors.
#![warn(missing_docs)]

mod artifacts_contract;
mod core_loop;
mod faulty;
mod journal_contract;
mod memory;
mod scenarios;
mod schedules;
pub mod simulation;
mod world;

pub use artifacts_contract::artifacts_contract;
pub use core_loop::CoreLoop;
pub use faulty::{FaultyJournal, JournalFault};
pub use hermod_actors::{
    doubles::{
        MemoryArtifacts, PlainEncoder, ScriptFn, ScriptedProvider, ScriptedTool, VirtualClock, calls,
        invocation, run_call, says,
    },
    fault_injection::{ActorFault, ActorKind, inject, inject_if_alive},
};
pub use journal_contract::{CASES, ContractCase, FAULTS, StoreOpener, fault_contract, journal_contract};
pub use memory::MemoryJournal;
pub use scenarios::{ExpectedOutcome, FAULT_SCENARIOS, FaultScenario, NO_FREEZE, ObservedOutcome};
pub use schedules::{ScheduleReport, ZoneCalendar, simulate_schedules};
pub use world::world;
