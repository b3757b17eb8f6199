//! Schedules: they are created, changed, paused, resumed and removed here, by writes of their own. The scheduler serves
//! them once it was started; without it they are only kept.

use std::sync::Arc;

use super::{RunError, Runtime};
use crate::{
    model::{
        MAX_PAUSE_REASON_BYTES, Occurrence, OccurrenceId, OccurrenceQuery, RunId, Schedule,
        ScheduleDefinition, ScheduleName, ScheduleOutcome, SchedulePause, ScheduleSource, ScheduleWrite,
        Timestamp, Timing,
    },
    persistence::{self, WriteResult},
    policy::schedule::{ScheduleTimes, resume, validate_definition},
    port::{Calendar, OccurrenceError, OccurrenceSubmitter, ReadError},
    redaction::redact_text,
    scheduler::{SchedulerHealth, SchedulerMsg, SchedulerPorts},
};

/// Tries of a write that others change in between.
const MAX_TRIES: usize = 20;

/// Why a request about a schedule has failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// There is no schedule of this name.
    #[error("there is no schedule `{0}`; see `hermod schedules list`")]
    Unknown(ScheduleName),
    /// The configuration alone changes and removes it.
    #[error("the schedule `{0}` is of the configuration; change it in its section `[schedules.{0}]`")]
    Configured(ScheduleName),
    /// A field of the definition is invalid.
    #[error("{field}: {error}")]
    Invalid {
        /// The field.
        field: &'static str,
        /// What is wrong with it, and the remedy.
        error: String,
    },
    /// The store has as many schedules as it can have.
    #[error("there are {} schedules, which is the most; remove one first", crate::model::MAX_SCHEDULES)]
    TooMany,
    /// No scheduler runs in this process.
    #[error("no scheduler runs here; start `hermod serve`")]
    NotStarted,
    /// The run cannot be submitted now.
    #[error("the run cannot be submitted now: {0}; try again later")]
    NotNow(String),
    /// The run cannot be submitted.
    #[error("the run cannot be submitted: {0}")]
    Never(String),
    /// The runtime has ended, or the store cannot be read.
    #[error(transparent)]
    Runtime(#[from] RunError),
}

impl From<ReadError> for ScheduleError {
    fn from(error: ReadError) -> Self {
        Self::Runtime(error.into())
    }
}

type ScheduleResult<T> = Result<T, ScheduleError>;

impl Runtime {
    /// Starts the runs of schedules from now on: their times by `calendar`, their runs by `submitter`. Without this no
    /// occurrence has a run.
    pub fn start_scheduler(&self, calendar: Arc<dyn Calendar>, submitter: Arc<dyn OccurrenceSubmitter>) {
        self.parts.scheduler.set_ports(Some(SchedulerPorts { calendar, submitter }));
        self.notify_scheduler(SchedulerMsg::Start);
    }

    /// Starts no further run of a schedule.
    pub fn halt_scheduler(&self) {
        self.parts.scheduler.set_ports(None);
        self.notify_scheduler(SchedulerMsg::Halt);
    }

    /// The health of the scheduler; `None` if it was not started.
    pub fn scheduler_health(&self) -> Option<SchedulerHealth> {
        self.parts.scheduler.health(self.parts.clock.monotonic_ms())
    }

    /// All schedules, in the order of their names.
    pub async fn schedules(&self) -> ScheduleResult<Vec<Schedule>> {
        Ok(self.parts.journal.rows().schedules().await?)
    }

    /// One schedule.
    pub async fn schedule(&self, name: &ScheduleName) -> ScheduleResult<Schedule> {
        let schedule = self.parts.journal.rows().schedule(name.clone()).await?;
        schedule.ok_or_else(|| ScheduleError::Unknown(name.clone()))
    }

    /// Occurrences, the newest first.
    pub async fn schedule_history(&self, query: OccurrenceQuery) -> ScheduleResult<Vec<Occurrence>> {
        Ok(self.parts.journal.rows().occurrences(query).await?)
    }

    /// Creates or changes a schedule. The same definition changes nothing; another timing starts its times from now on;
    /// an interval that stays keeps its anchor.
    pub async fn put_schedule(
        &self,
        name: ScheduleName,
        source: ScheduleSource,
        mut definition: ScheduleDefinition,
        calendar: &dyn Calendar,
    ) -> ScheduleResult<Schedule> {
        redact_text(&mut definition.task.text, &*self.parts.redactor);
        validate_definition(&definition).map_err(|(field, error)| ScheduleError::Invalid { field, error })?;
        for _ in 0..MAX_TRIES {
            let before = self.parts.journal.rows().schedule(name.clone()).await?;
            if let Some(known) = &before {
                if known.source == ScheduleSource::Config && source == ScheduleSource::Command {
                    return Err(ScheduleError::Configured(name));
                }
                keep_anchor(&mut definition.timing, &known.definition.timing);
                if known.definition == definition && known.source == source {
                    return Ok(known.clone());
                }
            }
            let wanted = self.changed(&name, (source, &definition), before.as_ref(), calendar)?;
            if let Some(written) = self.write_schedule(wanted, Vec::new()).await? {
                return Ok(written);
            }
        }
        Err(changes_too_often(&name))
    }

    /// The row of a changed definition.
    fn changed(
        &self,
        name: &ScheduleName,
        (source, definition): (ScheduleSource, &ScheduleDefinition),
        before: Option<&Schedule>,
        calendar: &dyn Calendar,
    ) -> ScheduleResult<Schedule> {
        let now = self.parts.clock.at();
        let of = |timing: &Timing, after: Timestamp| calendar.next(timing, after);
        let times = ScheduleTimes::new(name, definition, &of);
        let same_times = before.filter(|before| before.definition.timing == definition.timing);
        if let Some(before) = same_times.filter(|before| before.next.is_some()) {
            let (source, definition) = (source, definition.clone());
            return Ok(Schedule { source, definition, ..before.clone() });
        }
        let invalid = |error| ScheduleError::Invalid { field: "timing", error };
        let next = times.after(now).map_err(invalid)?;
        if next.is_none() && same_times.is_none() {
            return Err(invalid(format!("has no time after {now}; give it a later one, or a later end")));
        }
        Ok(Schedule {
            name: name.clone(),
            source,
            definition: definition.clone(),
            created_at: now,
            next,
            paused: before.and_then(|before| before.paused.clone()),
            resumed_at: before.and_then(|before| before.resumed_at),
            revision: before.map_or(0, |before| before.revision),
        })
    }

    /// Pauses a schedule: occurrences of its pause are skipped. One that is paused already keeps its reason.
    pub async fn pause_schedule(&self, name: &ScheduleName, reason: &str) -> ScheduleResult<Schedule> {
        let mut reason: Arc<str> = reason.into();
        redact_text(&mut reason, &*self.parts.redactor);
        if reason.trim().is_empty() || reason.len() > MAX_PAUSE_REASON_BYTES {
            let error = format!("has {} bytes; give 1 to {MAX_PAUSE_REASON_BYTES}, not blank", reason.len());
            return Err(ScheduleError::Invalid { field: "reason", error });
        }
        for _ in 0..MAX_TRIES {
            let schedule = self.schedule(name).await?;
            if schedule.paused.is_some() {
                return Ok(schedule);
            }
            let paused = Some(SchedulePause { since: self.parts.clock.at(), reason: Arc::clone(&reason) });
            let paused = Schedule { paused, ..schedule };
            if let Some(written) = self.write_schedule(paused, Vec::new()).await? {
                return Ok(written);
            }
        }
        Err(changes_too_often(name))
    }

    /// Ends the pause of a schedule. One row says which occurrences were skipped.
    pub async fn resume_schedule(
        &self,
        name: &ScheduleName,
        calendar: &dyn Calendar,
    ) -> ScheduleResult<Schedule> {
        for _ in 0..MAX_TRIES {
            let schedule = self.schedule(name).await?;
            if schedule.paused.is_none() {
                return Ok(schedule);
            }
            let of = |timing: &Timing, after: Timestamp| calendar.next(timing, after);
            let times = ScheduleTimes::new(name, &schedule.definition, &of);
            let has_row = match schedule.next {
                Some(at) => {
                    let id = OccurrenceId { schedule: name.clone(), at };
                    self.parts.journal.rows().occurrence(id).await?.is_some()
                }
                None => false,
            };
            let (resumed, skipped) = resume(&schedule, &times, self.parts.clock.at(), has_row)
                .map_err(|error| ScheduleError::Invalid { field: "timing", error })?;
            if let Some(written) = self.write_schedule(resumed, skipped.into_iter().collect()).await? {
                return Ok(written);
            }
        }
        Err(changes_too_often(name))
    }

    /// Removes a schedule. Its runs go on, and the rows of its occurrences stay.
    pub async fn remove_schedule(&self, name: &ScheduleName, by: ScheduleSource) -> ScheduleResult<()> {
        for _ in 0..MAX_TRIES {
            let schedule = self.schedule(name).await?;
            if schedule.source == ScheduleSource::Config && by == ScheduleSource::Command {
                return Err(ScheduleError::Configured(name.clone()));
            }
            let write =
                persistence::remove_schedule(&self.parts.persistence, name.clone(), schedule.revision);
            if written(write.await)? == ScheduleOutcome::Written {
                self.notify_scheduler(SchedulerMsg::Changed(name.clone()));
                return Ok(());
            }
        }
        Err(changes_too_often(name))
    }

    /// Starts a run of a schedule now, outside of its times, as an occurrence of this moment. It starts even while another
    /// run is under way or the schedule is paused: a person asks for it. Later occurrences see it as a run under way.
    pub async fn run_schedule_now(&self, name: &ScheduleName) -> ScheduleResult<RunId> {
        self.check_running()?;
        let ports = self.parts.scheduler.ports().ok_or(ScheduleError::NotStarted)?;
        let schedule = self.schedule(name).await?;
        let mut at = self.parts.clock.at();
        for _ in 0..MAX_TRIES {
            let id = OccurrenceId { schedule: name.clone(), at };
            // Another one may have asked in the same millisecond.
            if self.parts.journal.rows().occurrence(id.clone()).await?.is_some() {
                at = at.plus_ms(1);
                continue;
            }
            let task = schedule.definition.task.clone();
            let run = match ports.submitter.submit(id, task).await {
                Ok(run) => run,
                Err(OccurrenceError::NotNow(error)) => return Err(ScheduleError::NotNow(error)),
                Err(OccurrenceError::Never(error)) => return Err(ScheduleError::Never(error)),
                Err(OccurrenceError::LeftOut) => continue,
            };
            self.notify_scheduler(SchedulerMsg::Submitted(name.clone(), run));
            return Ok(run);
        }
        Err(changes_too_often(name))
    }

    /// Writes a schedule over the revision that it has, and returns it; `None` if there is another one meanwhile.
    async fn write_schedule(
        &self,
        schedule: Schedule,
        left_out: Vec<Occurrence>,
    ) -> ScheduleResult<Option<Schedule>> {
        let write = ScheduleWrite::over(schedule, left_out, Vec::new());
        let schedule = write.schedule.clone();
        match written(persistence::write_schedule(&self.parts.persistence, write).await)? {
            ScheduleOutcome::Written => {
                self.notify_scheduler(SchedulerMsg::Changed(schedule.name.clone()));
                Ok(Some(schedule))
            }
            ScheduleOutcome::Changed(_) => Ok(None),
            ScheduleOutcome::TooMany => Err(ScheduleError::TooMany),
        }
    }

    fn notify_scheduler(&self, message: SchedulerMsg) {
        if self.parts.scheduler.actor.cast(message).is_err() {
            tracing::debug!("the runtime has ended: the scheduler is not told");
        }
    }
}

/// An interval that stays keeps the time from which it counts.
fn keep_anchor(timing: &mut Timing, before: &Timing) {
    if let (
        Timing::Every { interval_ms, anchor },
        Timing::Every { interval_ms: of_before, anchor: anchor_before },
    ) = (timing, before)
        && *interval_ms == *of_before
    {
        *anchor = *anchor_before;
    }
}

fn changes_too_often(name: &ScheduleName) -> ScheduleError {
    ScheduleError::NotNow(format!("the schedule `{name}` changes all the time"))
}

fn written<T>(result: WriteResult<T>) -> ScheduleResult<T> {
    let unavailable = |why: String| ScheduleError::Runtime(RunError::Read(ReadError::Unavailable(why)));
    match result {
        Ok(Ok(outcome)) => Ok(outcome),
        Ok(Err(refusal)) => Err(unavailable(refusal.to_string())),
        Err(error) => Err(unavailable(error.to_string())),
    }
}
