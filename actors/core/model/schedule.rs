//! Schedules: tasks that begin at a time. A schedule has occurrences, the times at which its task is due. Each occurrence
//! has one row in the store, written by the append that accepts its run, or by the write that leaves it out.

use std::{borrow::Borrow, fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use super::{AgentName, Occurrence, OutboxMessage, Timestamp, agent_name::is_plain_name};

/// Most bytes of the text of a scheduled task.
pub const MAX_SCHEDULE_TEXT_BYTES: usize = 64 << 10;
/// Most schedules of a store.
pub const MAX_SCHEDULES: u64 = 1_000;
/// Most failed runs in a row after which a schedule can be told to pause.
pub const MAX_PAUSE_AFTER: u32 = 100;
/// Most bytes of the reason of a pause.
pub const MAX_PAUSE_REASON_BYTES: usize = 1_000;
/// The shortest interval, in milliseconds.
pub const MIN_INTERVAL_MS: u64 = 1_000;

/// The name of a schedule: 1 to 64 lower-case letters, digits, `-` and `_`; the first one is a letter or a digit.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "Arc<str>", try_from = "Arc<str>")]
pub struct ScheduleName(Arc<str>);

/// A text that is no name of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "is no name of a schedule; use 1 to {} lower-case letters, digits, `-` and `_`, a letter or digit first",
    ScheduleName::MAX_CHARS
)]
pub struct ScheduleNameError;

/// A schedule as the store keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// Its name, unique in the store.
    pub name: ScheduleName,
    /// Where its definition comes from.
    pub source: ScheduleSource,
    /// What is due, when, and by which rules.
    pub definition: ScheduleDefinition,
    /// The time of its creation, or of the last change of its timing.
    pub created_at: Timestamp,
    /// Its next occurrence; `None` if there is none any more. It only grows, unless the timing changes.
    pub next: Option<Timestamp>,
    /// Why it is paused; `None` if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<SchedulePause>,
    /// The end of its last pause. Runs of earlier occurrences count for no new pause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumed_at: Option<Timestamp>,
    /// Counts its writes: a write names the number that it has read, and is refused if there is another one.
    pub revision: u64,
}

/// Where the definition of a schedule comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ScheduleSource {
    /// A section of the configuration, which alone changes and removes it.
    Config,
    /// A command or a request.
    Command,
}

/// A pause of a schedule. Occurrences of its time are skipped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedulePause {
    /// Since when.
    pub since: Timestamp,
    /// Why: a person's words, or the failures that caused it.
    pub reason: Arc<str>,
}

/// What is due, when, and by which rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleDefinition {
    /// The times of its occurrences.
    pub timing: Timing,
    /// The task.
    pub task: ScheduledTask,
    /// What happens to occurrences that are late or overlap, and when it ends.
    #[serde(default)]
    pub rules: ScheduleRules,
}

/// The times of the occurrences of a schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Timing {
    /// At fixed distances from `anchor` on, which is no occurrence itself.
    Every {
        /// The distance in milliseconds, at least [`MIN_INTERVAL_MS`].
        interval_ms: u64,
        /// The time from which the distances count.
        anchor: Timestamp,
    },
    /// At the times of a cron expression in a time zone.
    Cron {
        /// The expression: five fields, or six with seconds first.
        expression: Arc<str>,
        /// The name of the time zone in the IANA database.
        zone: Arc<str>,
    },
    /// At one time.
    Once {
        /// The time.
        at: Timestamp,
    },
}

/// The task of a schedule. What is absent is as the agent or the session is configured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduledTask {
    /// The text, not blank, at most [`MAX_SCHEDULE_TEXT_BYTES`].
    pub text: Arc<str>,
    /// Whether this is the heartbeat of a standing agent: its runs need no answer, and are told how to say nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub heartbeat: bool,
    /// The agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
    /// The key of the session of all its runs; each has a new session if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<Arc<str>>,
    /// The model, as `provider/model` or a name that one provider has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Arc<str>>,
    /// The folder in which the tools work; it must exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<Arc<str>>,
    /// The targets that get the results of its runs, and notices of its pause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deliver_to: Option<Arc<[Arc<str>]>>,
    /// Active time in milliseconds after which a run is timed out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Limits of the budget of each run, as pairs of a name and an amount (`iterations=20`), checked at the definition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Arc<str>>,
}

/// What happens to occurrences that are late or overlap, and when a schedule ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ScheduleRules {
    /// What happens to occurrences that are later than `grace_ms`.
    pub misfire: Misfire,
    /// How late an occurrence may begin without being a misfire, in milliseconds.
    pub grace_ms: u64,
    /// What happens to an occurrence while the run of an earlier one has not ended.
    pub overlap: Overlap,
    /// Most milliseconds by which a run begins later than its occurrence; how many is drawn from a hash of both, so that
    /// each process draws the same.
    pub jitter_ms: u64,
    /// The time from which there are no further occurrences.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<Timestamp>,
    /// The number of failed runs in a row that pauses the schedule; never if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause_after: Option<u32>,
}

impl Default for ScheduleRules {
    fn default() -> Self {
        Self {
            misfire: Misfire::default(),
            grace_ms: 60_000,
            overlap: Overlap::default(),
            jitter_ms: 0,
            ends_at: None,
            pause_after: None,
        }
    }
}

/// What happens to occurrences that are late, such as after downtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Misfire {
    /// The last of them runs, the others are missed.
    #[default]
    RunOnce,
    /// All of them run, in their order, one after another.
    RunAll,
    /// All of them are missed.
    Skip,
}

/// What happens to an occurrence while the run of an earlier one has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Overlap {
    /// It is skipped.
    #[default]
    Skip,
    /// It waits until that run has ended.
    Queue,
    /// That run is stopped; the occurrence begins when it has ended.
    Cancel,
}

/// A write of a schedule: all of it or nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleWrite {
    /// The whole new row.
    pub schedule: Schedule,
    /// The revision of the row that it replaces; 0 if there must be none.
    pub expected: u64,
    /// Occurrences that it leaves out. Those that have a row already keep that.
    pub left_out: Vec<Occurrence>,
    /// Messages for the outbox.
    pub notices: Vec<OutboxMessage>,
}

/// What became of a write of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScheduleOutcome {
    /// It is on disk.
    Written,
    /// The row has this other revision, 0 if there is none. Nothing was written.
    Changed(u64),
    /// There are [`MAX_SCHEDULES`] already. Nothing was written.
    TooMany,
}

impl ScheduledTask {
    /// A task of a text; the rest is as configured.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self {
            text: text.into(),
            heartbeat: false,
            agent: None,
            session: None,
            model: None,
            workspace: None,
            deliver_to: None,
            timeout_ms: None,
            budget: None,
        }
    }
}

impl ScheduleWrite {
    /// A write of this row over the revision that it names; the row gets the next one.
    pub fn over(mut schedule: Schedule, left_out: Vec<Occurrence>, notices: Vec<OutboxMessage>) -> Self {
        let expected = schedule.revision;
        schedule.revision = expected.saturating_add(1);
        Self { schedule, expected, left_out, notices }
    }
}

impl ScheduleName {
    /// Most characters of a name.
    pub const MAX_CHARS: usize = 64;

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ScheduleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Borrow<str> for ScheduleName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl From<ScheduleName> for Arc<str> {
    fn from(name: ScheduleName) -> Self {
        name.0
    }
}

impl TryFrom<Arc<str>> for ScheduleName {
    type Error = ScheduleNameError;

    fn try_from(name: Arc<str>) -> Result<Self, ScheduleNameError> {
        if is_plain_name(&name, Self::MAX_CHARS) { Ok(Self(name)) } else { Err(ScheduleNameError) }
    }
}

impl FromStr for ScheduleName {
    type Err = ScheduleNameError;

    fn from_str(name: &str) -> Result<Self, ScheduleNameError> {
        Arc::<str>::from(name).try_into()
    }
}

impl Misfire {
    /// All rules.
    pub const ALL: [Self; 3] = [Self::RunOnce, Self::RunAll, Self::Skip];

    /// The name, as in records and requests.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl Overlap {
    /// All rules.
    pub const ALL: [Self; 3] = [Self::Skip, Self::Queue, Self::Cancel];

    /// The name, as in records and requests.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_definition_leaves_out_has_a_default() {
        let definition = json!({
            "timing": { "kind": "once", "at": 9 },
            "task": { "text": "Look" },
            "rules": { "overlap": "queue" },
        });
        let definition: ScheduleDefinition = serde_json::from_value(definition).unwrap();
        assert_eq!(definition.rules, ScheduleRules { overlap: Overlap::Queue, ..ScheduleRules::default() });
        assert_eq!(definition.timing, Timing::Once { at: Timestamp(9) });
    }
}
