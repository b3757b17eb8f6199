//! The verdict on a schedule at the end: each occurrence has one fate, each run its row, and nothing is stuck.

use std::collections::{BTreeMap, BTreeSet};

use futures::FutureExt as _;
use hermod_actors::{
    model::{
        Occurrence, OccurrenceId, OccurrenceQuery, OccurrenceState, RunState, Schedule, ScheduleName,
        Timestamp, Timing,
    },
    port::{Calendar as _, ReadFuture, RowReader as _},
    schedule::{ScheduleTimes, jitter_ms},
};

use super::{ScheduleReport, calendar::ZoneCalendar, count, journal::Watched, plan::WeekPlan};
use crate::MemoryJournal;

/// Rows older than the kept ones may be gone.
const KEPT: usize = hermod_actors::model::KEPT_OCCURRENCES;

fn read<T>(read: ReadFuture<T>) -> T {
    match read.now_or_never() {
        Some(Ok(value)) => value,
        _ => panic!("a journal in memory is read at once"),
    }
}

/// What is left at the end.
pub(super) struct Evidence<'a> {
    pub(super) plan: &'a WeekPlan,
    pub(super) journal: &'a MemoryJournal,
    pub(super) wall: Timestamp,
    pub(super) watched: &'a Watched,
}

/// Adds what is wrong with a schedule.
pub(super) fn check(name: &ScheduleName, evidence: &Evidence<'_>, report: &mut ScheduleReport) {
    let Evidence { plan, journal, wall, watched } = *evidence;
    let Some(schedule) = read(journal.schedule(name.clone())) else { return };
    let rows = read(journal.occurrences(OccurrenceQuery::of(name.clone(), usize::MAX)));
    for row in &rows {
        count(report, &row.state, 1 + row.further.map_or(0, |further| further.count));
    }
    let mut violation = |text: String| report.violations.push(format!("{name}: {text}"));
    let mut runs = BTreeMap::new();
    for row in &rows {
        match &row.state {
            OccurrenceState::Ran { run } => {
                if let Some(other) = runs.insert(*run, row.id.at) {
                    violation(format!("run {run} is of {other} and of {}", row.id.at));
                }
            }
            OccurrenceState::Missed { reason } | OccurrenceState::Skipped { reason } => {
                if reason.trim().is_empty() {
                    violation(format!("{} was left out without a reason", row.id.at));
                }
            }
        }
    }
    let of_schedule = read(journal.runs(None, usize::MAX));
    let of_schedule: Vec<_> = of_schedule.iter().filter(|run| run.schedule.as_ref() == Some(name)).collect();
    for run in &of_schedule {
        if !runs.contains_key(&run.id) && rows.len() < KEPT {
            violation(format!("run {} has no row", run.id));
        }
    }
    let known: BTreeSet<_> = of_schedule.iter().map(|run| run.id).collect();
    for (run, at) in &runs {
        if !known.contains(run) {
            violation(format!("the run {run} of {at} is not there"));
        }
    }
    fates(&schedule, &rows, watched, &mut violation);
    let is_busy = of_schedule.iter().any(|run| run.state != RunState::Ended);
    stuck(&schedule, plan, wall, is_busy, &mut violation);
}

/// What every plan relies on.
const CALENDAR: &str = "the calendar knows the timings of plans";

/// Each occurrence before the next time has one fate, and none after it has one.
fn fates(schedule: &Schedule, rows: &[Occurrence], watched: &Watched, violation: &mut impl FnMut(String)) {
    let own: BTreeMap<Timestamp, &Occurrence> = rows.iter().map(|row| (row.id.at, row)).collect();
    let spans: Vec<(Timestamp, Timestamp)> =
        rows.iter().filter_map(|row| Some((row.id.at, row.further?.until))).collect();
    let of = |timing: &Timing, after| ZoneCalendar.next(timing, after);
    let times = ScheduleTimes::new(&schedule.name, &schedule.definition, &of);
    let oldest = if rows.len() < KEPT {
        schedule.created_at
    } else {
        rows.last().map_or(schedule.created_at, |row| row.id.at)
    };
    let mut at = times.after(oldest).expect(CALENDAR);
    while let Some(this) = at {
        let is_decided = schedule.next.is_none_or(|next| this < next);
        let spanned = spans.iter().filter(|(first, until)| *first < this && this <= *until).count();
        let by_person = OccurrenceId { schedule: schedule.name.clone(), at: this };
        let own = usize::from(own.contains_key(&this) && !watched.by_person.contains(&by_person));
        if is_decided && spanned + own != 1 && !watched.by_person.contains(&by_person) {
            violation(format!("{this} has {own} rows and {spanned} rows that stand for it"));
        }
        if !is_decided {
            if spanned > 0 {
                violation(format!("{this} is left out before its time"));
            }
            break;
        }
        if let Some(accepted) = watched.accepted.get(&by_person).filter(|_| own > 0) {
            let distance = times.after(this).expect(CALENDAR).map_or(u64::MAX, |next| next.ms_since(this));
            let most = schedule.definition.rules.jitter_ms.min(distance - 1);
            if *accepted < this.plus_ms(jitter_ms(&schedule.name, this, most)) {
                violation(format!("{this} began before its jitter was over"));
            }
        }
        at = times.after(this).expect(CALENDAR);
    }
}

/// At the end nothing is due that could have begun.
fn stuck(
    schedule: &Schedule,
    plan: &WeekPlan,
    wall: Timestamp,
    is_busy: bool,
    violation: &mut impl FnMut(String),
) {
    let slack_ms = 2 * 3_600_000 + schedule.definition.rules.jitter_ms;
    let is_due = schedule.next.is_some_and(|next| next.plus_ms(slack_ms) < wall);
    let catches_up = plan.lives.last().is_some_and(|life| life.lasts_ms > slack_ms);
    if is_due && catches_up && !is_busy && schedule.paused.is_none() {
        violation(format!("{:?} is due since long, and it is {wall}", schedule.next));
    }
}
