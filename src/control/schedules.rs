//! Schedules, for clients: lists, histories, and changes.

use std::sync::Arc;

use hermod_actors::{
    Runtime, ScheduleError,
    model::{
        Occurrence, OccurrenceQuery, Outcome, RunId, Schedule, ScheduleDefinition, ScheduleName,
        ScheduleSource, Timestamp,
    },
};
use serde::{Deserialize, Serialize};

use super::{
    error::{RequestError, RequestErrorKind},
    handler::RequestHandler,
    protocol::{ControlRequest, ControlResponse},
    reader::StoreReader,
};
use crate::{
    redaction,
    schedule::SystemCalendar,
    view::{OccurrenceView, ScheduleView},
};

/// A change of a schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScheduleChange {
    /// It is made, or has this definition from now on.
    Put {
        /// The definition.
        definition: Box<ScheduleDefinition>,
        /// Whether it may replace another definition.
        replace: bool,
    },
    /// It is paused.
    Pause {
        /// Why.
        reason: String,
    },
    /// It goes on.
    Resume,
    /// It is removed. Its history stays.
    Remove,
}

impl StoreReader {
    /// All schedules by name.
    pub async fn schedules(&self) -> Result<Vec<ScheduleView>, RequestError> {
        let mut views = Vec::new();
        for schedule in self.read(|rows| rows.schedules()).await? {
            views.push(self.schedule_view(schedule).await?);
        }
        Ok(views)
    }

    /// The schedule of this name.
    pub async fn schedule(&self, name: &ScheduleName) -> Result<ScheduleView, RequestError> {
        match self.read(|rows| rows.schedule(name.clone())).await? {
            Some(schedule) => self.schedule_view(schedule).await,
            None => Err(ScheduleError::Unknown(name.clone()).into()),
        }
    }

    /// A schedule with its newest occurrence.
    pub async fn schedule_view(&self, schedule: Schedule) -> Result<ScheduleView, RequestError> {
        let last = self.history(OccurrenceQuery::of(schedule.name.clone(), 1)).await?.pop();
        Ok(ScheduleView::new(schedule, last))
    }

    /// Occurrences, the newest first.
    pub async fn history(&self, query: OccurrenceQuery) -> Result<Vec<OccurrenceView>, RequestError> {
        let mut views = Vec::new();
        for occurrence in self.read(|rows| rows.occurrences(query)).await? {
            let outcome = self.outcome_of(&occurrence).await?;
            views.push(OccurrenceView::new(occurrence, outcome));
        }
        Ok(views)
    }

    /// The outcome of the run of an occurrence; `None` if it has none, or the run was removed.
    async fn outcome_of(&self, occurrence: &Occurrence) -> Result<Option<Outcome>, RequestError> {
        let Some(run) = occurrence.state.run() else { return Ok(None) };
        let row = self.read(|rows| rows.run(run)).await?;
        Ok(row.and_then(|row| row.ended).map(|ended| ended.outcome))
    }

    /// The history of a schedule, also of one that was removed; of all schedules without a name.
    pub async fn schedule_history(
        &self,
        schedule: Option<ScheduleName>,
        since: Option<Timestamp>,
        max: usize,
    ) -> Result<Vec<OccurrenceView>, RequestError> {
        let query = OccurrenceQuery { schedule: schedule.clone(), since, max, ..OccurrenceQuery::default() };
        let found = self.history(query).await?;
        match schedule {
            Some(name) if found.is_empty() => self.schedule(&name).await.map(|_| found),
            Some(_) | None => Ok(found),
        }
    }
}

/// Changes a schedule by this runtime, and returns it as it is then; as it was, if it is removed. Its agent and its targets
/// have been checked.
pub async fn change_schedule(
    runtime: &Runtime,
    reader: &StoreReader,
    name: &ScheduleName,
    change: ScheduleChange,
) -> Result<ScheduleView, RequestError> {
    let changed = match change {
        ScheduleChange::Put { mut definition, replace } => {
            // The stored text is redacted, and a repeat is compared with it.
            let text = redaction::of_process().redact(&definition.task.text).into_owned();
            definition.task.text = text.into();
            let present = reader.read(|rows| rows.schedule(name.clone())).await?;
            if !replace && present.is_some_and(|present| present.definition != *definition) {
                return Err(RequestError::usage(format!(
                    "there is a schedule `{name}` already; `--replace` changes it, and `hermod schedules show {name}` shows it"
                )));
            }
            runtime.put_schedule(name.clone(), ScheduleSource::Command, *definition, &SystemCalendar).await?
        }
        ScheduleChange::Pause { reason } => runtime.pause_schedule(name, &reason).await?,
        ScheduleChange::Resume => runtime.resume_schedule(name, &SystemCalendar).await?,
        ScheduleChange::Remove => {
            let present = reader.schedule(name).await?;
            runtime.remove_schedule(name, ScheduleSource::Command).await?;
            return Ok(present);
        }
    };
    reader.schedule_view(changed).await
}

impl RequestHandler {
    /// Answers a request about schedules; `None` if the runtime has ended.
    pub(super) async fn answer_about_schedules(
        &self,
        request: ControlRequest,
    ) -> Result<Option<ControlResponse>, RequestError> {
        let reader = self.reader();
        #[expect(clippy::wildcard_enum_match_arm, reason = "the handler passes no other request")]
        Ok(match request {
            ControlRequest::SchedulesList {} => Some(ControlResponse::Schedules(reader.schedules().await?)),
            ControlRequest::SchedulesShow { name } => {
                Some(ControlResponse::Schedule(Box::new(reader.schedule(&name).await?)))
            }
            ControlRequest::SchedulesHistory { name, since, max } => {
                Some(ControlResponse::Occurrences(reader.schedule_history(name, since, max).await?))
            }
            ControlRequest::SchedulesChange { name, change } => {
                let changed = self.change_schedule(name, change).await?;
                changed.map(|schedule| ControlResponse::Schedule(Box::new(schedule)))
            }
            ControlRequest::SchedulesRun { name } => {
                self.run_schedule(name).await?.map(|run| ControlResponse::ScheduleRun { run })
            }
            _ => return Err(RequestError::internal("this is no request about schedules")),
        })
    }

    /// Changes a schedule, once its agent and its targets are found in the configuration.
    pub async fn change_schedule(
        &self,
        name: ScheduleName,
        change: ScheduleChange,
    ) -> Result<Option<ScheduleView>, RequestError> {
        let reader = self.reader();
        let change = async |runtime: Arc<Runtime>, service: Arc<dyn super::SubmissionService>| {
            if let ScheduleChange::Put { definition, .. } = &change {
                service.check_schedule(definition)?;
            }
            change_schedule(&runtime, reader, &name, change).await
        };
        self.slot()?.execute_with(change).await.transpose()
    }

    /// Runs a schedule now, beside its times.
    pub async fn run_schedule(&self, name: ScheduleName) -> Result<Option<RunId>, RequestError> {
        self.execute(async |runtime| Ok(runtime.run_schedule_now(&name).await?)).await
    }
}

impl From<ScheduleError> for RequestError {
    fn from(error: ScheduleError) -> Self {
        match error {
            ScheduleError::Unknown(name) => {
                Self::usage(format!("there is no schedule `{name}`; `hermod schedules list` shows them"))
            }
            ScheduleError::Configured(name) => Self::usage(format!(
                "the configuration defines the schedule `{name}`: change [schedules.{name}] there, and reload it with \
                 `hermod config reload`; `hermod schedules pause {name}` stops it meanwhile"
            )),
            ScheduleError::Runtime(error) => error.into(),
            ScheduleError::NotNow(_) => Self::new(RequestErrorKind::Busy, error.to_string()),
            ScheduleError::Invalid { .. }
            | ScheduleError::TooMany
            | ScheduleError::NotStarted
            | ScheduleError::Never(_) => Self::usage(error.to_string()),
        }
    }
}
