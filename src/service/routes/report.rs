//! `/v1/report`: what happened in a time, on one page.

use std::sync::Arc;

use axum::{Json, extract::State};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::{
    clock,
    service::{
        Service,
        authorization::{Granted, Read},
        extract::Query,
        operations::Operations,
        problem::Problem,
        time_field::TimeField,
    },
    view::ReportView,
};

pub(super) fn routes() -> Operations {
    Operations::default().with(__path_report, report)
}

/// The query of a report.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ReportQuery {
    /// The beginning of the time.
    #[param(value_type = String, format = DateTime)]
    since: TimeField,
    /// Its end; absent is now.
    #[param(value_type = String, format = DateTime, required = false)]
    until: Option<TimeField>,
}

/// What ran, what failed and why, what waits for a person, and what it cost
///
/// As `hermod report --json` prints it, without `service`. It reads the records of all runs of the time. It tells of all
/// agents: a token that is limited to some is refused.
#[utoipa::path(
    get, path = "/v1/report", params(ReportQuery),
    responses((status = 200, description = "The report", body = Object)),
    security(("token" = ["read"])),
)]
async fn report(
    granted: Granted<Read>,
    State(service): State<Arc<Service>>,
    Query(query): Query<ReportQuery>,
) -> Result<Json<ReportView>, Problem> {
    granted.check_unlimited("a report tells of all agents")?;
    let until = query.until.map_or_else(clock::now, |until| until.0);
    if query.since.0 >= until {
        return Err(Problem::bad_request("since: is not before the end of the time"));
    }
    let limits = service.runtime.store_limits();
    let report = Box::pin(service.handler.report((query.since.0, until), limits)).await?;
    Ok(Json(report))
}
