//! Simulation: whole runtimes on virtual time, from life to life, under schedules of faults that a seed determines.
//!
//! A [`Plan`] is a pure function of its seed: what is asked of a runtime, what models and tools make of it, and what goes
//! wrong. [`simulate`] lets it happen and says what must not be: a [`Report`]. A plan that fails is [`shrunk`] to the
//! fewest faults and runs that still fail.

mod book;
mod clients;
mod dice;
mod effects;
mod generate;
mod journal;
mod judge;
mod life;
mod model;
mod outside;
mod plan;
mod quiet;
mod report;
mod shrink;
mod spending;
mod tools;
mod views;

pub use book::Violation;
pub use plan::Plan;
pub use report::{Report, first_violation, simulate};
pub use shrink::{shrunk, shrunk_while};
