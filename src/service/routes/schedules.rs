//! `/v1/schedules`: tasks that begin at a time, and what became of their occurrences.

use std::sync::Arc;

use axum::{
    Json,
    extract::{FromRequestParts, State},
    http::{StatusCode, request::Parts},
};
use hermod_actors::model::{RunId, ScheduleName, ScheduleSource, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{
    control::ScheduleChange,
    schedule::ScheduleWords,
    service::{
        Service,
        authorization::{Granted, Read, Submit},
        extract::{JsonBody, OptionalJsonBody, Query, path_parameter},
        operations::Operations,
        problem::Problem,
        reach::Reach,
        time_field::TimeField,
    },
    view::{OccurrenceView, ScheduleView, schema},
};

/// Rows of a history that names no number, and at most.
const DEFAULT_ROWS: usize = 100;
const MAX_ROWS: usize = 1_000;

pub(super) fn routes() -> Operations {
    Operations::default()
        .with(__path_list, list)
        .with(__path_create, create)
        .with(__path_show, show)
        .with(__path_put, put)
        .with(__path_remove, remove)
        .with(__path_pause, pause)
        .with(__path_resume, resume)
        .with(__path_run, run)
        .with(__path_history, history)
}

/// The name of a schedule in the path.
#[derive(Debug, IntoParams)]
#[into_params(names("schedule"), parameter_in = Path)]
struct PathSchedule(#[param(value_type = String)] ScheduleName);

impl FromRequestParts<Arc<Service>> for PathSchedule {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, service: &Arc<Service>) -> Result<Self, Problem> {
        let name = path_parameter(parts, service).await?;
        let unknown = |_| Problem::not_found(format!("there is no schedule `{name}`"));
        name.parse().map(Self).map_err(unknown)
    }
}

/// A list of schedules.
#[derive(Debug, Serialize, ToSchema)]
struct ScheduleList {
    /// The schedules, by name.
    items: Vec<ScheduleView>,
}

/// A new schedule.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewSchedule {
    /// Its name: 1 to 64 lower-case letters, digits, `-` and `_`.
    #[schema(pattern = "^[a-z0-9][a-z0-9_-]{0,63}$")]
    name: String,
    /// What is due, when, and by which rules.
    definition: ScheduleWords,
}

/// A pause.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
struct PauseBody {
    /// Why; at most 1,000 bytes.
    reason: Option<String>,
}

/// The run that was started.
#[derive(Debug, Serialize, ToSchema)]
struct ScheduledRun {
    /// The run, which is durable.
    #[schema(value_type = schema::Id)]
    run: RunId,
}

/// The query of a history.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct HistoryQuery {
    /// Most rows.
    #[param(minimum = 1, maximum = 1_000)]
    max: Option<usize>,
    /// Only occurrences at this time or later.
    #[param(value_type = schema::Time, required = false)]
    since: Option<TimeField>,
}

/// A history.
#[derive(Debug, Serialize, ToSchema)]
struct OccurrenceList {
    /// The occurrences, the newest first.
    items: Vec<OccurrenceView>,
}

/// Lists the schedules
#[utoipa::path(
    get, path = "/v1/schedules",
    responses((status = 200, description = "The schedules", body = ScheduleList)),
    security(("token" = ["read"])),
)]
async fn list(
    granted: Granted<Read>,
    State(service): State<Arc<Service>>,
) -> Result<Json<ScheduleList>, Problem> {
    let reach = granted.reach(service);
    Ok(Json(ScheduleList { items: reach.schedules().await? }))
}

/// Makes a schedule
///
/// A repeat with the same definition changes nothing.
#[utoipa::path(
    post, path = "/v1/schedules", request_body = NewSchedule,
    responses(
        (status = 201, description = "It is durable", body = ScheduleView),
        (status = 409, description = "There is a schedule of this name with another definition"),
    ),
    security(("token" = ["submit"])),
)]
async fn create(
    granted: Granted<Submit>,
    State(service): State<Arc<Service>>,
    body: JsonBody<NewSchedule>,
) -> Result<(StatusCode, Json<ScheduleView>), Problem> {
    let NewSchedule { name, definition } = body.value;
    let name: ScheduleName = name
        .parse()
        .map_err(|error| Problem::unprocessable(format!("name: `{name}` {error}")).with_field("name"))?;
    let reach = granted.reach(Arc::clone(&service));
    let made = definition.definition(&name).map_err(|part| wrong_part("definition.", part))?;
    let is_other = |present: &ScheduleView| present.definition != ScheduleWords::from(&made);
    if reach.find_schedule(&name).await?.is_some_and(|present| is_other(&present)) {
        let detail = format!("name: there is a schedule `{name}` with another definition; PUT changes it");
        return Err(Problem::new(StatusCode::CONFLICT, detail).with_field("name"));
    }
    Ok((StatusCode::CREATED, define(&service, &reach, name, &definition, "definition.").await?))
}

/// Shows a schedule
#[utoipa::path(
    get, path = "/v1/schedules/{schedule}", params(PathSchedule),
    responses((status = 200, description = "The schedule", body = ScheduleView)),
    security(("token" = ["read"])),
)]
async fn show(
    granted: Granted<Read>,
    State(service): State<Arc<Service>>,
    PathSchedule(name): PathSchedule,
) -> Result<Json<ScheduleView>, Problem> {
    Ok(Json(granted.reach(service).schedule(&name).await?))
}

/// Makes a schedule, or gives it this definition
///
/// Other times begin from now on. With other rules or another task alone, the next time stays.
#[utoipa::path(
    put, path = "/v1/schedules/{schedule}", params(PathSchedule), request_body = ScheduleWords,
    responses(
        (status = 200, description = "It is durable", body = ScheduleView),
        (status = 409, description = "The configuration defines it"),
    ),
    security(("token" = ["submit"])),
)]
async fn put(
    granted: Granted<Submit>,
    State(service): State<Arc<Service>>,
    PathSchedule(name): PathSchedule,
    body: JsonBody<ScheduleWords>,
) -> Result<Json<ScheduleView>, Problem> {
    let reach = granted.reach(Arc::clone(&service));
    if let Some(present) = reach.find_schedule(&name).await? {
        check_changeable(&reach, &present)?;
    }
    define(&service, &reach, name, &body.value, "").await
}

/// Removes a schedule; its history stays
#[utoipa::path(
    delete, path = "/v1/schedules/{schedule}", params(PathSchedule),
    responses(
        (status = 204, description = "It is removed"),
        (status = 409, description = "The configuration defines it"),
    ),
    security(("token" = ["submit"])),
)]
async fn remove(
    granted: Granted<Submit>,
    State(service): State<Arc<Service>>,
    PathSchedule(name): PathSchedule,
) -> Result<StatusCode, Problem> {
    let reach = granted.reach(Arc::clone(&service));
    check_changeable(&reach, &reach.schedule(&name).await?)?;
    let _removed = change(&service, name, ScheduleChange::Remove).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Pauses a schedule: its occurrences are skipped until it is resumed
#[utoipa::path(
    post, path = "/v1/schedules/{schedule}/pause", params(PathSchedule), request_body = Option<PauseBody>,
    responses((status = 200, description = "It is paused", body = ScheduleView)),
    security(("token" = ["submit"])),
)]
async fn pause(
    granted: Granted<Submit>,
    State(service): State<Arc<Service>>,
    PathSchedule(name): PathSchedule,
    OptionalJsonBody(body): OptionalJsonBody<PauseBody>,
) -> Result<Json<ScheduleView>, Problem> {
    let reach = granted.reach(Arc::clone(&service));
    reach.schedule(&name).await?;
    let reason = body.reason.unwrap_or_else(|| format!("by the token `{}`", reach.token().name));
    change(&service, name, ScheduleChange::Pause { reason }).await
}

/// Lets a paused schedule go on with its next time
#[utoipa::path(
    post, path = "/v1/schedules/{schedule}/resume", params(PathSchedule),
    responses((status = 200, description = "It goes on", body = ScheduleView)),
    security(("token" = ["submit"])),
)]
async fn resume(
    granted: Granted<Submit>,
    State(service): State<Arc<Service>>,
    PathSchedule(name): PathSchedule,
) -> Result<Json<ScheduleView>, Problem> {
    let reach = granted.reach(Arc::clone(&service));
    reach.schedule(&name).await?;
    change(&service, name, ScheduleChange::Resume).await
}

/// Runs a schedule now, beside its times
///
/// Also while it is paused, and while an earlier run is under way. Each request starts a run.
#[utoipa::path(
    post, path = "/v1/schedules/{schedule}/run", params(PathSchedule),
    responses((status = 201, description = "Its run is durable", body = ScheduledRun)),
    security(("token" = ["submit"])),
)]
async fn run(
    granted: Granted<Submit>,
    State(service): State<Arc<Service>>,
    PathSchedule(name): PathSchedule,
) -> Result<(StatusCode, Json<ScheduledRun>), Problem> {
    let reach = granted.reach(Arc::clone(&service));
    reach.schedule(&name).await?;
    let run = service.handler.run_schedule(name).await?.ok_or_else(Problem::stopping)?;
    Ok((StatusCode::CREATED, Json(ScheduledRun { run })))
}

/// What became of the occurrences of a schedule
#[utoipa::path(
    get, path = "/v1/schedules/{schedule}/history", params(PathSchedule, HistoryQuery),
    responses((status = 200, description = "The occurrences", body = OccurrenceList)),
    security(("token" = ["read"])),
)]
async fn history(
    granted: Granted<Read>,
    State(service): State<Arc<Service>>,
    PathSchedule(name): PathSchedule,
    Query(query): Query<HistoryQuery>,
) -> Result<Json<OccurrenceList>, Problem> {
    let reach = granted.reach(service);
    let max = query.max.unwrap_or(DEFAULT_ROWS);
    if !(1..=MAX_ROWS).contains(&max) {
        return Err(Problem::unprocessable(format!("max: is not from 1 to {MAX_ROWS}")));
    }
    let since: Option<Timestamp> = query.since.map(|since| since.0);
    let items = reach.schedule_history(name, since, max).await?;
    Ok(Json(OccurrenceList { items }))
}

/// Gives a schedule this definition. `prefix` stands before the names of its parts in errors.
async fn define(
    service: &Service,
    reach: &Reach,
    name: ScheduleName,
    words: &ScheduleWords,
    prefix: &str,
) -> Result<Json<ScheduleView>, Problem> {
    let definition = words.definition(&name).map_err(|part| wrong_part(prefix, part))?;
    let agent = definition.task.agent.clone().unwrap_or_default();
    if !reach.sees(&agent) {
        let detail = format!("the token `{}` may not use the agent `{agent}`", reach.token().name);
        return Err(Problem::new(StatusCode::FORBIDDEN, detail));
    }
    let checked = service.submitter.settings().config.check_schedule(&definition);
    checked.map_err(|part| wrong_part(prefix, part))?;
    change(service, name, ScheduleChange::Put { definition: Box::new(definition), replace: true }).await
}

async fn change(
    service: &Service,
    name: ScheduleName,
    change: ScheduleChange,
) -> Result<Json<ScheduleView>, Problem> {
    let changed = service.handler.change_schedule(name, change).await?;
    changed.map(Json).ok_or_else(Problem::stopping)
}

fn wrong_part(prefix: &str, (part, reason): (&'static str, String)) -> Problem {
    Problem::unprocessable(format!("{prefix}{part}: {reason}")).with_field(format!("{prefix}{part}"))
}

/// Refuses a change of what the configuration defines, or of what the token does not reach.
fn check_changeable(reach: &Reach, present: &ScheduleView) -> Result<(), Problem> {
    if !reach.sees_schedule(present) {
        let detail = format!("the token `{}` may not change `{}`", reach.token().name, present.name);
        return Err(Problem::new(StatusCode::FORBIDDEN, detail));
    }
    match present.source {
        ScheduleSource::Command => Ok(()),
        ScheduleSource::Config => {
            let name = &present.name;
            let detail =
                format!("the configuration defines `{name}`: change [schedules.{name}] there, and reload it");
            Err(Problem::new(StatusCode::CONFLICT, detail))
        }
    }
}
