//! Simulation: whole runtimes on virtual time, from life to life, under schedules of faults that a seed determines.
//!
//! A [`SimulationPlan`] is a pure function of its seed: what is asked of a runtime, what models and tools make of it, and what goes
//! wrong. [`simulate`] lets it happen and says what must not be: a [`SimulationReport`]. A plan that fails is [`shrunk`] to the
//! fewest faults and runs that still fail.

mod answers;
mod clients;
mod context_pressure;
mod delegations;
#[allow(clippy::wildcard_enum_match_arm)] // an invariant looks for few of the kinds of records
mod effect_invariants;
mod events;
mod external_world;
mod fault_names;
mod generate;
#[allow(clippy::wildcard_enum_match_arm)] // likewise
mod invariants;
mod journal;
mod life;
mod model;
#[allow(clippy::wildcard_enum_match_arm)] // what it follows of subagents are few of the kinds of records
mod observations;
mod panic_capture;
mod plan;
mod report;
mod seeded_rng;
mod shrink;
#[allow(clippy::wildcard_enum_match_arm)] // likewise
mod spending_invariants;
#[allow(clippy::wildcard_enum_match_arm)] // likewise
mod subagents;
#[allow(clippy::wildcard_enum_match_arm)] // likewise
mod todo;
mod tools;
mod view_invariants;

pub use fault_names::FAULT_NAMES;
pub use observations::Violation;
pub use plan::SimulationPlan;
pub use report::{SimulationReport, first_violation, simulate};
pub use shrink::{shrink, shrink_while};
