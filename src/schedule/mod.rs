//! When schedules are due: cron expressions, intervals and single times, in time zones.
//!
//! `cron.rs` knows the expressions and the times of a wall clock that fit them; `zone.rs` finds out when a wall clock shows
//! such a time, over its changes for daylight saving time; `calendar.rs` joins them for the port `Calendar`; `text.rs` reads
//! and writes timings, and `words.rs` whole schedules. All of it is pure: no clock is read, and the time zones are compiled in.

mod calendar;
mod cron;
mod text;
mod words;
mod zone;

#[cfg(test)]
mod tests;

pub use calendar::SystemCalendar;
pub use text::in_zone;
pub use words::{ScheduleWords, WrongPart};
