//! The simulation of schedules: weeks of virtual time in three time zones, with jumps of the clock, kills at appends,
//! pauses, failures, and a submitter that refuses. A seed determines all of it. [`simulate_schedules`] names what broke.

mod calendar;
mod journal;
mod life;
mod plan;
mod verdict;

use std::sync::{Arc, Mutex, PoisonError};

pub use calendar::ZoneCalendar;
use hermod_actors::model::{OccurrenceState, ScheduleName, Timestamp};

use self::{journal::Watched, plan::WeekPlan};
use crate::MemoryJournal;

/// What a seed has led to.
#[derive(Debug, Clone, Default)]
pub struct ScheduleReport {
    /// What broke, one line each.
    pub violations: Vec<String>,
    /// Occurrences that ran.
    pub ran: usize,
    /// Occurrences that were missed, with those that have no row of their own.
    pub missed: u64,
    /// Occurrences that were skipped, with those that have no row of their own.
    pub skipped: u64,
    /// Process lives that ended by a kill at an append.
    pub kills: usize,
    /// Jumps of the clock.
    pub jumps: usize,
    /// Pauses after failures in a row.
    pub pauses: usize,
}

/// Simulates the schedules of a seed.
pub fn simulate_schedules(seed: u64) -> ScheduleReport {
    let plan = WeekPlan::of(seed);
    let mut report = ScheduleReport::default();
    let watched = Arc::new(Mutex::new(Watched::default()));
    let (mut journal, mut wall) = (MemoryJournal::new(), plan.starts_at);
    for (n, life) in plan.lives.iter().enumerate() {
        let ended = life::live(&plan, n, (&journal, wall), &watched);
        report.kills += usize::from(ended.was_killed);
        report.jumps += ended.jumps;
        wall = Timestamp(ended.wall.0.saturating_add(life.downtime_ms));
        journal = journal.reopened();
    }
    let watched = watched.lock().unwrap_or_else(PoisonError::into_inner);
    report.violations.extend(watched.violations.iter().cloned());
    report.pauses = watched.pauses;
    for schedule in &plan.schedules {
        let evidence = verdict::Evidence { plan: &plan, journal: &journal, wall, watched: &watched };
        verdict::check(&schedule.name, &evidence, &mut report);
    }
    report
}

/// Adds the number of occurrences that a row stands for.
fn count(report: &mut ScheduleReport, state: &OccurrenceState, number: u64) {
    match state {
        OccurrenceState::Ran { .. } => report.ran += 1,
        OccurrenceState::Missed { .. } => report.missed += number,
        OccurrenceState::Skipped { .. } => report.skipped += number,
    }
}

/// The name of the `n`th schedule.
fn name(n: usize) -> ScheduleName {
    format!("s{n}").parse().unwrap_or_else(|error| panic!("{error}"))
}
