//! Simulation: whole runtimes on virtual time, from life to life, under schedules of faults that a seed determines.
//!
//! A [`Plan`] is a pure function of its seed: what is asked of a runtime, what models and tools make of it, and what goes
//! wrong. [`simulate`] lets it happen and says what must not be: a [`Report`]. A plan that fails is [`shrunk`] to the
//! fewest faults and runs that still fail.

mod answers;
#[allow(clippy::wildcard_enum_match_arm)] // what it follows of subagents are few of the kinds of records
mod book;
mod clients;
mod delegations;
mod dice;
#[allow(clippy::wildcard_enum_match_arm)] // an invariant looks for few of the kinds of records
mod effects;
mod generate;
mod journal;
#[allow(clippy::wildcard_enum_match_arm)] // likewise
mod judge;
mod life;
mod model;
mod names;
mod orders;
mod outside;
mod plan;
mod quiet;
mod report;
mod shrink;
#[allow(clippy::wildcard_enum_match_arm)] // likewise
mod spending;
mod squeeze;
#[allow(clippy::wildcard_enum_match_arm)] // likewise
mod subagents;
#[allow(clippy::wildcard_enum_match_arm)] // likewise
mod todo;
mod tools;
mod views;

pub use book::Violation;
pub use names::WRONGS;
pub use plan::Plan;
pub use report::{Report, first_violation, simulate};
pub use shrink::{shrunk, shrunk_while};
