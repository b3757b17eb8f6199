//! The decision: the next step of a schedule, by its row, its runs and the time.

use std::{sync::Arc, time::Duration};

use super::{
    due::{DueOccurrences, MAX_LISTED},
    pause::{FailureStreak, pause_notices},
    times::{Jitter, NextTime, OccurrenceTime, ScheduleTimes},
};
use crate::model::{
    Misfire, Occurrence, OccurrenceId, OccurrenceState, OutboxMessage, Overlap, RunId, Schedule,
    SchedulePause, Timestamp,
};

/// Most occurrences that wait for the run before, unless all late ones run.
const MAX_WAITING: usize = 16;
/// The shortest grace in milliseconds: timers are not exact.
const MIN_GRACE_MS: u64 = 1_000;

/// A run of the schedule that has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunUnderWay {
    /// The run.
    pub run: RunId,
    /// When it was accepted.
    pub accepted_at: Timestamp,
    /// Whether it was told to stop.
    pub is_stopping: bool,
}

/// What the decision depends on.
#[derive(Debug, Clone, Copy)]
pub struct ScheduleFacts<'a> {
    /// The stored row.
    pub schedule: &'a Schedule,
    /// The time.
    pub now: Timestamp,
    /// Its runs that have not ended.
    pub under_way: &'a [RunUnderWay],
    /// When its last run ended.
    pub last_end: Option<Timestamp>,
    /// Its failed runs in a row.
    pub failures: &'a FailureStreak,
    /// Whether the occurrence `next` has a row already.
    pub has_row: bool,
    /// Draws the jitter of an occurrence: [`jitter_ms`](super::jitter_ms).
    pub jitter: Jitter,
    /// Why no run of `next` could be submitted so far.
    pub last_error: Option<&'a str>,
}

/// The next step of a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScheduleStep {
    /// Nothing, until it is changed or one of its runs ends: it is paused, or has no occurrences any more.
    Rest,
    /// Nothing until this time.
    WaitUntil(Timestamp),
    /// Nothing until one of its runs ends, or until this time.
    WaitForEnd(Option<Timestamp>),
    /// The run of this occurrence is submitted; then [`ScheduleTimes::after`] it is the next time.
    Start(Timestamp),
    /// The run is stopped, for a later occurrence.
    Stop(RunId),
    /// These occurrences are left out, and the next time is written; both in one write.
    LeaveOut(Vec<Occurrence>, Option<Timestamp>),
    /// It is paused, and its targets get these notices; both in one write.
    Pause(SchedulePause, Vec<OutboxMessage>),
}

/// Decides the next step. An error names what is wrong with the timing.
pub fn next_step(facts: ScheduleFacts<'_>, next: NextTime<'_>) -> Result<ScheduleStep, String> {
    let ScheduleFacts { schedule, now, .. } = facts;
    let times = ScheduleTimes::new(&schedule.name, &schedule.definition, next).with_jitter(facts.jitter);
    if schedule.paused.is_some() {
        return Ok(ScheduleStep::Rest);
    }
    if let Some(reason) = facts.failures.pause_reason(&schedule.definition.rules) {
        let pause = SchedulePause { since: now, reason };
        let notices = pause_notices(schedule, facts.failures, &pause);
        return Ok(ScheduleStep::Pause(pause, notices));
    }
    let Some(first) = schedule.next else { return Ok(ScheduleStep::Rest) };
    if !times.is_before_end(first) {
        return Ok(ScheduleStep::LeaveOut(Vec::new(), None));
    }
    if facts.has_row {
        // The process ended between the append with the occurrence and the write of the next time.
        return Ok(ScheduleStep::LeaveOut(Vec::new(), times.after(first)?));
    }
    let due = DueOccurrences::of(&times, first, now)?;
    match (due.listed.first(), due.next) {
        (None, Some(next)) => Ok(ScheduleStep::WaitUntil(next.begins_at)),
        (None, None) => Ok(ScheduleStep::Rest),
        (Some(_), _) if facts.under_way.is_empty() => Ok(facts.start(&due)),
        (Some(_), _) => Ok(facts.overlap(&due)),
    }
}

impl ScheduleFacts<'_> {
    const fn misfire(&self) -> Misfire {
        self.schedule.definition.rules.misfire
    }

    const fn overlap_rule(&self) -> Overlap {
        self.schedule.definition.rules.overlap
    }

    /// Occurrences are due, and no run is under way.
    fn start(&self, due: &DueOccurrences) -> ScheduleStep {
        let late = due.listed.iter().take_while(|occurrence| self.is_late(occurrence)).count();
        let left_out = match self.misfire() {
            Misfire::Skip => late,
            Misfire::RunOnce => late.saturating_sub(1),
            Misfire::RunAll => 0,
        };
        if left_out > 0 || due.older.is_some() {
            return self.leave_out(due, left_out, Self::missed);
        }
        if self.overlap_rule() == Overlap::Cancel && self.misfire() != Misfire::RunAll && due.listed.len() > 1
        {
            return self.leave_out(due, due.listed.len() - 1, |_, _| superseded());
        }
        due.listed.first().map_or(ScheduleStep::Rest, |first| ScheduleStep::Start(first.at))
    }

    /// Occurrences are due while a run is under way.
    fn overlap(&self, due: &DueOccurrences) -> ScheduleStep {
        let newest = self.under_way.iter().map(|run| run.accepted_at).max().unwrap_or_default();
        let was_due = |occurrence: Option<&OccurrenceTime>| {
            self.misfire() == Misfire::RunAll
                && occurrence.is_some_and(|occurrence| occurrence.begins_at <= newest)
        };
        match self.overlap_rule() {
            // Those that were late before the run was accepted run one after another.
            Overlap::Skip if was_due(due.listed.first()) => self.wait(due),
            Overlap::Queue => self.wait(due),
            Overlap::Cancel if was_due(due.listed.last()) => self.wait(due),
            Overlap::Skip => {
                let run = self.under_way.first().map(|run| run.run);
                self.leave_out(due, due.listed.len(), |_, _| OccurrenceState::Skipped {
                    reason: run.map_or_else(
                        || "overlap".into(),
                        |run| format!("overlap: run {run} was under way").into(),
                    ),
                })
            }
            Overlap::Cancel if due.listed.len() > 1 || due.older.is_some() => {
                self.leave_out(due, due.listed.len() - 1, |_, _| superseded())
            }
            Overlap::Cancel => match self.under_way.iter().find(|run| !run.is_stopping) {
                Some(run) => ScheduleStep::Stop(run.run),
                None => ScheduleStep::WaitForEnd(due.next.map(|next| next.begins_at)),
            },
        }
    }

    /// The due occurrences wait for a run, up to a limit.
    fn wait(&self, due: &DueOccurrences) -> ScheduleStep {
        let most = if self.misfire() == Misfire::RunAll { MAX_LISTED } else { MAX_WAITING };
        let surplus = due.listed.len().saturating_sub(most);
        if surplus > 0 || due.older.is_some() {
            let reason: Arc<str> = format!("overlap: {most} later ones wait for the run before").into();
            return self
                .leave_out(due, surplus, |_, _| OccurrenceState::Skipped { reason: Arc::clone(&reason) });
        }
        ScheduleStep::WaitForEnd(due.next.map(|next| next.begins_at))
    }

    /// Whether an occurrence is a misfire. One that waited for the run before is not late because of that.
    fn is_late(&self, occurrence: &OccurrenceTime) -> bool {
        let rules = &self.schedule.definition.rules;
        let waits = rules.overlap != Overlap::Skip || rules.misfire == Misfire::RunAll;
        let ready =
            self.last_end.filter(|_| waits).map_or(occurrence.begins_at, |end| end.max(occurrence.begins_at));
        self.now > ready.plus_ms(rules.grace_ms.max(MIN_GRACE_MS))
    }

    fn missed(&self, at: Timestamp) -> OccurrenceState {
        let late = humantime::format_duration(Duration::from_secs(self.now.ms_since(at) / 1_000));
        let why = self.last_error.map_or_else(
            || "the process did not run or could not begin it".to_owned(),
            |error| format!("its run could not be submitted: {error}"),
        );
        let instead = if self.misfire() == Misfire::RunOnce { "; a later one runs instead" } else { "" };
        OccurrenceState::Missed { reason: format!("it was {late} late: {why}{instead}").into() }
    }

    /// Leaves out the older ones and the first `count` of the listed ones.
    fn leave_out(
        &self,
        due: &DueOccurrences,
        count: usize,
        state: impl Fn(&Self, Timestamp) -> OccurrenceState,
    ) -> ScheduleStep {
        let row = |at, further| {
            let id = OccurrenceId { schedule: self.schedule.name.clone(), at };
            Occurrence { id, state: state(self, at), recorded_at: self.now, further }
        };
        let older = due.older.map(|(at, further)| row(at, further));
        let listed = due.listed.iter().take(count).map(|occurrence| row(occurrence.at, None));
        let next = due.listed.get(count).map(|next| next.at).or(due.next.map(|next| next.at));
        ScheduleStep::LeaveOut(older.into_iter().chain(listed).collect(), next)
    }
}

/// A later occurrence stops the run and takes the place of those before it.
fn superseded() -> OccurrenceState {
    OccurrenceState::Skipped { reason: "overlap: a later occurrence takes its place".into() }
}
