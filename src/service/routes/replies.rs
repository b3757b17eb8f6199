//! `/v1/runs/{run}/reply`: a run as a chat surface shows it.

use std::sync::Arc;

use axum::{extract::State, http::HeaderMap, response::Response};

use crate::{
    service::{
        Service,
        authorization::{Granted, Read},
        events,
        extract::{PathRun, Query},
        operations::Operations,
        problem::Problem,
        reply::ReplyQuery,
    },
    view::schema,
};

pub(super) fn routes() -> Operations {
    Operations::default().with(__path_reply, reply)
}

/// The reply of a run, as a chat shows it
///
/// Its events are `delta` or `block`, `reasoning`, `tool`, `retry`, and at the end one `final`. A client that reconnects with
/// `Last-Event-ID` gets what came after that event, and never a second `final`.
#[utoipa::path(
    get, path = "/v1/runs/{run}/reply",
    params(PathRun, ReplyQuery, events::SeenRecord),
    responses(
        (status = 200, description = "Server-sent events", body = schema::ServerSentEvent, content_type = "text/event-stream"),
        (status = 204, description = "The client has seen the final reply"),
    ),
    security(("token" = ["read"])),
)]
async fn reply(
    granted: Granted<Read>,
    State(service): State<Arc<Service>>,
    PathRun(row): PathRun,
    Query(query): Query<ReplyQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    events::reply_of_run(granted.reach(service), &row, query, &headers)
}
