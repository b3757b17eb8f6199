//! Simulation: whole runtimes on virtual time, over several process lives, under fault schedules derived from a seed.
//!
//! A [`SimulationPlan`] is a pure function of its seed: the submitted runs, the behaviour of models and tools, and the
//! faults. [`simulate`] runs it and returns a [`SimulationReport`] with the violated invariants. [`shrink()`] reduces a
//! failing plan to the fewest faults and runs that still fail.

mod answers;
mod asides;
mod begin;
mod clients;
mod context_pressure;
mod delegations;
#[allow(clippy::wildcard_enum_match_arm)] // matches few of the record kinds
mod descriptions;
#[allow(clippy::wildcard_enum_match_arm)] // matches few of the record kinds
mod effect_invariants;
mod events;
mod external_world;
mod fault_names;
#[allow(clippy::wildcard_enum_match_arm)] // matches few of the record kinds
mod flushes;
mod generate;
#[allow(clippy::wildcard_enum_match_arm)] // matches few of the record kinds
mod invariants;
mod journal;
mod life;
#[allow(clippy::wildcard_enum_match_arm)] // matches few of the record kinds
mod loops;
#[allow(clippy::wildcard_enum_match_arm)] // matches few of the record kinds
mod messages;
mod model;
#[allow(clippy::wildcard_enum_match_arm)] // matches few of the record kinds
mod observations;
mod panic_capture;
mod plan;
#[allow(clippy::wildcard_enum_match_arm)] // matches few of the record kinds
mod policy;
mod report;
pub(crate) mod seeded_rng;
mod shrink;
#[allow(clippy::wildcard_enum_match_arm)] // matches few of the record kinds
mod spending_invariants;
mod store_limits;
#[allow(clippy::wildcard_enum_match_arm)] // matches few of the record kinds
mod subagents;
#[allow(clippy::wildcard_enum_match_arm)] // matches few of the record kinds
mod titles;
#[allow(clippy::wildcard_enum_match_arm)] // matches few of the record kinds
mod todo;
mod tools;
#[allow(clippy::wildcard_enum_match_arm)] // matches few of the record kinds
mod verification;
mod view_invariants;

pub use fault_names::FAULT_NAMES;
pub use observations::Violation;
pub use plan::SimulationPlan;
pub use report::{SimulationReport, first_violation, simulate};
pub use shrink::{shrink, shrink_while};
