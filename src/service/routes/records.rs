//! `/v1/runs/{run}/records`: the journal of a run, in pages.

use std::sync::Arc;

use axum::{Json, extract::State};
use hermod_actors::model::Seq;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{
    service::{
        Service,
        authorization::{Granted, Read},
        extract::{PathRun, Query},
        fields::from_text,
        operations::Operations,
        problem::Problem,
    },
    view::EventView,
};

pub(super) fn routes() -> Operations {
    Operations::default().with(__path_records, records)
}

/// The query of a journal.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct RecordsQuery {
    /// The `next` of the page before.
    #[serde(default, deserialize_with = "from_text")]
    #[param(value_type = u64, required = false, maximum = 9_007_199_254_740_991_u64)]
    from: Option<Seq>,
}

/// A page of records.
#[derive(Debug, Serialize, ToSchema)]
struct RecordPage {
    /// The records as `hermod journal` prints them, in order.
    #[schema(value_type = Vec<Object>)]
    items: Vec<EventView>,
    /// The `from` of the next page; `null` if there are no more records now.
    #[schema(required)]
    next: Option<Seq>,
}

/// The records of a run, in order
///
/// Those of its session that are its own, or the session's. `/v1/runs/{run}/events` has those to come.
#[utoipa::path(
    get, path = "/v1/runs/{run}/records", params(PathRun, RecordsQuery),
    responses((status = 200, description = "A page", body = RecordPage)),
    security(("token" = ["read"])),
)]
async fn records(
    granted: Granted<Read>,
    State(service): State<Arc<Service>>,
    PathRun(row): PathRun,
    Query(query): Query<RecordsQuery>,
) -> Result<Json<RecordPage>, Problem> {
    let (items, next) = granted.reach(service).run_records(&row, query.from).await?;
    Ok(Json(RecordPage { items, next }))
}
