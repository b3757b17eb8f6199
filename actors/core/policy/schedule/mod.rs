//! What a schedule does next. Pure: times come from a function, states of runs from the caller.
//!
//! `next_step` decides from the stored row alone, its runs and the time. A process that dies between two steps
//! therefore decides the same again, and the store refuses what would be done twice.

mod due;
mod pause;
mod step;
#[cfg(test)]
mod tests;
mod times;

pub use pause::{FailureStreak, failures_in_row, resume};
pub use step::{RunUnderWay, ScheduleFacts, ScheduleStep, next_step};
pub use times::{Jitter, NextTime, ScheduleTimes, jitter_ms, validate_definition};
