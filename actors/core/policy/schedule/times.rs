//! The times of a schedule: its occurrences, when their runs may begin, and the check of a definition.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::model::{
    MAX_PAUSE_AFTER, MAX_SCHEDULE_TEXT_BYTES, MIN_INTERVAL_MS, ScheduleDefinition, ScheduleName, Timestamp,
    Timing,
};

/// Most bytes of a field of a definition that is not its text: Linux has no longer paths.
const MAX_WORD_BYTES: usize = 4_096;
/// Most targets of a schedule.
const MAX_TARGETS: usize = 100;

/// Returns the first occurrence of a timing after a time.
pub type NextTime<'a> = &'a (dyn Fn(&Timing, Timestamp) -> Result<Option<Timestamp>, String> + Sync);

/// Returns the jitter of an occurrence in milliseconds, at most the number.
pub type Jitter = fn(&ScheduleName, Timestamp, u64) -> u64;

/// The times of one schedule.
#[derive(Clone, Copy)]
pub struct ScheduleTimes<'a> {
    name: &'a ScheduleName,
    definition: &'a ScheduleDefinition,
    next: NextTime<'a>,
    jitter: Jitter,
}

/// An occurrence with the time at which its run may begin, and the occurrence after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OccurrenceTime {
    pub(super) at: Timestamp,
    pub(super) begins_at: Timestamp,
    pub(super) following: Option<Timestamp>,
}

impl fmt::Debug for ScheduleTimes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScheduleTimes").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<'a> ScheduleTimes<'a> {
    /// The times of a schedule by this function.
    pub const fn new(name: &'a ScheduleName, definition: &'a ScheduleDefinition, next: NextTime<'a>) -> Self {
        Self { name, definition, next, jitter: jitter_ms }
    }

    /// The times with this jitter.
    #[must_use]
    pub const fn with_jitter(self, jitter: Jitter) -> Self {
        Self { jitter, ..self }
    }

    /// The first occurrence after a time; `None` if there is none before the schedule's end.
    pub fn after(&self, after: Timestamp) -> Result<Option<Timestamp>, String> {
        let next = (self.next)(&self.definition.timing, after)?;
        if let Some(next) = next.filter(|next| *next <= after) {
            return Err(format!("the calendar returns {next} as the time after {after}"));
        }
        Ok(next.filter(|next| self.is_before_end(*next)))
    }

    /// Whether an occurrence may be at this time.
    pub(super) fn is_before_end(&self, at: Timestamp) -> bool {
        self.definition.rules.ends_at.is_none_or(|end| at < end)
    }

    /// The distance of the occurrences in milliseconds, if it is fixed.
    pub(super) const fn interval_ms(&self) -> Option<u64> {
        match self.definition.timing {
            Timing::Every { interval_ms, .. } => Some(interval_ms),
            Timing::Cron { .. } | Timing::Once { .. } => None,
        }
    }

    /// An occurrence with its times.
    pub(super) fn occurrence(&self, at: Timestamp) -> Result<OccurrenceTime, String> {
        let following = self.after(at)?;
        let distance = following.map_or(u64::MAX, |following| following.ms_since(at));
        let most = self.definition.rules.jitter_ms.min(distance.saturating_sub(1));
        let jitter = (self.jitter)(self.name, at, most);
        Ok(OccurrenceTime { at, begins_at: at.plus_ms(jitter), following })
    }
}

/// Milliseconds by which the run of an occurrence begins later, at most `most`: from a hash, so that each process draws
/// the same.
pub fn jitter_ms(name: &ScheduleName, at: Timestamp, most: u64) -> u64 {
    let mut hasher = Sha256::new();
    hasher.update(name.as_str());
    hasher.update([0]);
    hasher.update(at.0.to_be_bytes());
    let hash = hasher.finalize();
    let drawn = hash.iter().take(8).fold(0_u64, |drawn, byte| drawn << 8 | u64::from(*byte));
    most.checked_add(1).map_or(drawn, |limit| drawn % limit)
}

/// Refuses a definition that no schedule can have. The error is the field and what is wrong with it, with the remedy.
pub fn validate_definition(definition: &ScheduleDefinition) -> Result<(), (&'static str, String)> {
    let (task, rules) = (&definition.task, &definition.rules);
    if task.text.trim().is_empty() {
        return Err(("text", "is empty; say what is to be done".into()));
    }
    if task.text.len() > MAX_SCHEDULE_TEXT_BYTES {
        let bytes = task.text.len();
        return Err(("text", format!("has {bytes} bytes; give it at most {MAX_SCHEDULE_TEXT_BYTES}")));
    }
    validate_words(definition)?;
    if task.session.as_ref().is_some_and(|key| key.trim().is_empty()) {
        return Err(("session", "is an empty key; give it one, or leave it out for new sessions".into()));
    }
    if let Timing::Every { interval_ms, .. } = definition.timing
        && interval_ms < MIN_INTERVAL_MS
    {
        return Err(("every", format!("is {interval_ms} ms; give it at least {MIN_INTERVAL_MS} ms")));
    }
    if let Some(failures) = rules.pause_after
        && !(1..=MAX_PAUSE_AFTER).contains(&failures)
    {
        let error = format!("is {failures}; give it 1 to {MAX_PAUSE_AFTER}, or leave it out for never");
        return Err(("pause_after", error));
    }
    Ok(())
}

/// Bounds what is not the text: each is a name, a path or an expression.
fn validate_words(definition: &ScheduleDefinition) -> Result<(), (&'static str, String)> {
    let task = &definition.task;
    let (cron, zone) = match &definition.timing {
        Timing::Cron { expression, zone } => (Some(expression), Some(zone)),
        Timing::Every { .. } | Timing::Once { .. } => (None, None),
    };
    let targets = task.deliver_to.as_deref().unwrap_or_default();
    if targets.len() > MAX_TARGETS {
        let count = targets.len();
        return Err(("deliver_to", format!("names {count} targets; name at most {MAX_TARGETS}")));
    }
    let words = [
        ("cron", cron),
        ("tz", zone),
        ("session", task.session.as_ref()),
        ("model", task.model.as_ref()),
        ("workspace", task.workspace.as_ref()),
        ("budget", task.budget.as_ref()),
    ];
    let given = words.into_iter().filter_map(|(field, word)| Some((field, word?)));
    for (field, word) in given.chain(targets.iter().map(|target| ("deliver_to", target))) {
        if word.len() > MAX_WORD_BYTES {
            let bytes = word.len();
            return Err((field, format!("has {bytes} bytes; give it at most {MAX_WORD_BYTES}")));
        }
    }
    Ok(())
}
