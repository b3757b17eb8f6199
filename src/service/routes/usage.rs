//! `/v1/usage`: what runs have used of models.

use std::sync::Arc;

use axum::{Json, extract::State};
use hermod_actors::model::RunId;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::{
    control::check_days,
    service::{
        Service,
        authorization::{Granted, Read},
        extract::Query,
        fields::from_text,
        operations::Operations,
        problem::Problem,
        time_field::TimeField,
    },
    view::{DaysView, UsageFold, UsageView, schema},
};

/// Runs whose rows are read for one answer, and records after which it ends; the next answer goes on there.
const MAX_RUNS: usize = 1_000;
const MAX_RECORDS: usize = 100_000;
/// Days of an answer if the request names no number.
const DEFAULT_DAYS: u32 = 14;

pub(super) fn routes() -> Operations {
    Operations::default().with(__path_usage, usage).with(__path_days, days)
}

/// The query of the usage.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct UsageQuery {
    /// Only runs that were accepted at this time or later.
    #[param(value_type = String, format = DateTime, required = false)]
    since: Option<TimeField>,
    /// Only runs that were accepted before this time.
    #[param(value_type = String, format = DateTime, required = false)]
    until: Option<TimeField>,
    /// The `next` of the part before.
    #[param(value_type = schema::Id, required = false)]
    before: Option<RunId>,
}

/// Tokens and money of model calls, by model
///
/// It counts what the records tell, also of runs under way, the newest runs first. One answer covers at most 1,000 runs:
/// `next` leads to the others. `limits` has what all runs together may use in the present hour, day and month, and what is
/// left of that.
#[utoipa::path(
    get, path = "/v1/usage", params(UsageQuery),
    responses((status = 200, description = "The usage", body = UsageView)),
    security(("token" = ["read"])),
)]
async fn usage(
    granted: Granted<Read>,
    State(service): State<Arc<Service>>,
    Query(query): Query<UsageQuery>,
) -> Result<Json<UsageView>, Problem> {
    let reach = granted.reach(service);
    let (rows, is_all) = reach.runs_before(query.before, MAX_RUNS).await?;
    let limits = reach.store_limits().await?;
    let (mut fold, mut runs, mut records, mut last) = (UsageFold::default(), 0, 0, None);
    for (id, row) in rows.into_iter().rev() {
        if records >= MAX_RECORDS {
            return Ok(Json(UsageView { models: fold.into_models(), runs, limits, next: last }));
        }
        last = Some(id.to_string());
        let Some(row) = row else { continue };
        // Ids are in the order of acceptance: all others are older.
        if query.since.is_some_and(|since| row.accepted_at < since.0) {
            return Ok(Json(UsageView { models: fold.into_models(), runs, limits, next: None }));
        }
        if query.until.is_none_or(|until| row.accepted_at < until.0) {
            let mut run = fold.run();
            reach
                .records_of_run(&row, |record| {
                    records += 1;
                    run.take(record);
                })
                .await?;
            runs += 1;
        }
    }
    Ok(Json(UsageView { models: fold.into_models(), runs, limits, next: last.filter(|_| !is_all) }))
}

/// The query of the days.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct DaysQuery {
    /// Number of days, today included; 14 if it is absent.
    #[serde(default, deserialize_with = "from_text")]
    #[param(value_type = u64, required = false, minimum = 1, maximum = 366)]
    days: Option<u32>,
}

/// What ran and what it cost, by day
///
/// A run counts on the day of UTC on which it was accepted, with the money of its subagents. It reads the rows of runs and
/// accounts and no records: at most 50,000 runs.
#[utoipa::path(
    get, path = "/v1/usage/days", params(DaysQuery),
    responses((status = 200, description = "The days", body = DaysView)),
    security(("token" = ["read"])),
)]
async fn days(
    granted: Granted<Read>,
    State(service): State<Arc<Service>>,
    Query(query): Query<DaysQuery>,
) -> Result<Json<DaysView>, Problem> {
    let count = check_days(query.days.unwrap_or(DEFAULT_DAYS));
    let count = count.map_err(|error| Problem::bad_request(error.text))?;
    Ok(Json(granted.reach(service).days(count).await?))
}
