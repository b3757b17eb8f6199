//! Pauses: after failed runs in a row, with the notices of it, and what becomes of the occurrences of a pause.

use std::sync::Arc;

use super::{due::further, times::ScheduleTimes};
use crate::model::{
    Occurrence, OccurrenceId, OccurrenceState, OutboxContent, OutboxMessage, Outcome, RunRow, Schedule,
    SchedulePause, ScheduleRules, Timestamp,
};

/// Failed runs in a row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FailureStreak {
    /// Their number.
    pub count: u32,
    /// The last of them.
    pub last: Option<Box<RunRow>>,
}

/// The failed runs in a row, of the newest runs of a schedule, the newest first. A stopped run is neither a failure nor a
/// success.
pub fn failures_in_row(newest: impl IntoIterator<Item = RunRow>) -> FailureStreak {
    let mut streak = FailureStreak::default();
    for row in newest {
        match row.ended.as_ref().map(|ended| ended.outcome) {
            Some(Outcome::Completed) => break,
            None | Some(Outcome::Stopped) => {}
            Some(
                Outcome::Failed
                | Outcome::TimedOut
                | Outcome::BudgetExhausted
                | Outcome::LoopDetected
                | Outcome::Refused,
            ) => {
                streak.count = streak.count.saturating_add(1);
                streak.last.get_or_insert_with(|| Box::new(row));
            }
        }
    }
    streak
}

impl FailureStreak {
    /// Why the schedule is paused, if these failures are reason enough.
    pub(super) fn pause_reason(&self, rules: &ScheduleRules) -> Option<Arc<str>> {
        let most = rules.pause_after.filter(|most| self.count >= *most)?;
        let last = self.last.as_ref()?;
        let ended = last.ended.as_ref().map(ToString::to_string).unwrap_or_default();
        Some(format!("{most} runs in a row did not complete; the last one was {}: {ended}", last.id).into())
    }
}

/// The notices of a pause, for the targets of the schedule. They are of the session of its last run.
pub(super) fn pause_notices(
    schedule: &Schedule,
    streak: &FailureStreak,
    pause: &SchedulePause,
) -> Vec<OutboxMessage> {
    let Some(last) = &streak.last else { return Vec::new() };
    let name = &schedule.name;
    let text: Arc<str> = format!(
        "The schedule `{name}` is paused: {}. `hermod schedules resume {name}` starts it again.",
        pause.reason
    )
    .into();
    let targets = schedule.definition.task.deliver_to.iter().flat_map(|targets| targets.iter());
    let notice = |target: &Arc<str>| OutboxMessage {
        id: OutboxMessage::id_of_pause(last.id, target),
        target: Arc::clone(target),
        session: last.session,
        run: last.id,
        created_at: pause.since,
        content: OutboxContent::Notice { text: Arc::clone(&text) },
    };
    targets.map(notice).collect()
}

/// Ends the pause of a schedule: the changed row, and the row of the occurrences that have passed. One row stands for all
/// of them. `has_row` tells whether the occurrence `next` has a row already.
pub fn resume(
    schedule: &Schedule,
    times: &ScheduleTimes<'_>,
    now: Timestamp,
    has_row: bool,
) -> Result<(Schedule, Option<Occurrence>), String> {
    let mut resumed = Schedule { paused: None, resumed_at: Some(now), ..schedule.clone() };
    // The run of `next` may have been accepted just before the pause: its row stays, and is no row of the pause.
    let first = match schedule.next {
        Some(next) if has_row => times.after(next)?,
        next => next,
    };
    resumed.next = first;
    let (Some(pause), Some(at)) = (&schedule.paused, first.filter(|first| *first <= now)) else {
        return Ok((resumed, None));
    };
    resumed.next = times.after(now)?;
    if !times.is_before_end(at) {
        return Ok((resumed, None));
    }
    let last =
        schedule.definition.rules.ends_at.map_or(now, |end| now.min(Timestamp(end.0.saturating_sub(1))));
    let further = further(times, at, last)?;
    let reason = format!("paused from {} to {now}: {}", pause.since, pause.reason).into();
    let id = OccurrenceId { schedule: schedule.name.clone(), at };
    let state = OccurrenceState::Skipped { reason };
    Ok((resumed, Some(Occurrence { id, state, recorded_at: now, further })))
}
