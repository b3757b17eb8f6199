//! Views of schedules and their occurrences.

use hermod_actors::model::{
    FurtherOccurrences, Occurrence, OccurrenceState, Outcome, RunId, Schedule, ScheduleName, ScheduleSource,
    Timestamp,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    encoding,
    schema::{Id, OutcomeName, Time},
};
use crate::schedule::ScheduleWords;

/// A schedule: when it is due next, what became of its last occurrence, and its definition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ScheduleView {
    /// Its name.
    #[schema(value_type = String)]
    pub name: ScheduleName,
    /// `config` if the configuration defines it, which alone changes and removes it; else `command`.
    #[schema(value_type = String)]
    pub source: ScheduleSource,
    /// Its next occurrence; absent if there is none.
    #[serde(with = "encoding::optional_time", default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Time>)]
    pub next: Option<Timestamp>,
    /// Why and since when it is paused; absent if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<SchedulePauseView>,
    /// The newest row of its history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<OccurrenceView>,
    /// When it was made, or its times were changed.
    #[serde(with = "encoding::time")]
    #[schema(value_type = Time)]
    pub created_at: Timestamp,
    /// What is due, when, and by which rules.
    pub definition: ScheduleWords,
}

/// A pause: `{since, reason}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SchedulePauseView {
    /// Since when.
    #[serde(with = "encoding::time")]
    #[schema(value_type = Time)]
    pub since: Timestamp,
    /// Why: what a person wrote, or the failures that caused it.
    pub reason: String,
}

/// A row of a history: what became of an occurrence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OccurrenceView {
    /// The schedule.
    #[schema(value_type = String)]
    pub schedule: ScheduleName,
    /// The time at which it was due.
    #[serde(with = "encoding::time")]
    #[schema(value_type = Time)]
    pub at: Timestamp,
    /// `ran`, `missed` if it should have run and could not, or `skipped` if a rule or a person left it out.
    pub state: String,
    /// Its run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Id>)]
    pub run: Option<RunId>,
    /// The outcome of its run, once it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<OutcomeName>)]
    pub outcome: Option<Outcome>,
    /// Why it was missed or skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Later occurrences without rows of their own, for which this one stands too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub further: Option<FurtherOccurrencesView>,
    /// When that was recorded.
    #[serde(with = "encoding::time")]
    #[schema(value_type = Time)]
    pub recorded_at: Timestamp,
}

/// Occurrences without rows of their own: `{count, until}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FurtherOccurrencesView {
    /// Their number.
    pub count: u64,
    /// The time of the last of them.
    #[serde(with = "encoding::time")]
    #[schema(value_type = Time)]
    pub until: Timestamp,
}

impl ScheduleView {
    /// A schedule, with the newest row of its history.
    pub fn new(schedule: Schedule, last: Option<OccurrenceView>) -> Self {
        let Schedule { name, source, definition, created_at, next, paused, .. } = schedule;
        let paused =
            paused.map(|pause| SchedulePauseView { since: pause.since, reason: pause.reason.to_string() });
        Self { name, source, next, paused, last, created_at, definition: ScheduleWords::from(&definition) }
    }
}

impl OccurrenceView {
    /// An occurrence, with the outcome of its run.
    pub fn new(Occurrence { id, state, recorded_at, further }: Occurrence, outcome: Option<Outcome>) -> Self {
        let run = state.run();
        let (state, reason) = match state {
            OccurrenceState::Ran { .. } => ("ran", None),
            OccurrenceState::Missed { reason } => ("missed", Some(reason)),
            OccurrenceState::Skipped { reason } => ("skipped", Some(reason)),
        };
        let further =
            further.map(|FurtherOccurrences { count, until }| FurtherOccurrencesView { count, until });
        Self {
            schedule: id.schedule,
            at: id.at,
            state: state.to_owned(),
            run,
            outcome,
            reason: reason.map(|reason| reason.to_string()),
            further,
            recorded_at,
        }
    }

    /// The number of occurrences for which it stands.
    pub fn count(&self) -> u64 {
        1 + self.further.as_ref().map_or(0, |further| further.count)
    }
}
