//! `/v1/sessions`: the conversations, their runs and events.

use std::sync::Arc;

use axum::{
    Json,
    extract::{FromRequestParts, State},
    http::{HeaderMap, request::Parts},
    response::Response,
};
use hermod_actors::model::SessionRow;
use utoipa::IntoParams;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    service::{
        Service,
        authorization::{Granted, Read},
        events,
        extract::{Query, path_parameter},
        page::{Page, SessionsQuery},
        problem::Problem,
    },
    view::{SessionDetailView, SessionSummaryView},
};

/// Runs of a session that is shown; `/v1/runs?session=…` has all.
const MAX_RUNS: usize = 100;

pub(super) fn routes() -> OpenApiRouter<Arc<Service>> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(show)).routes(routes!(events_of_session))
}

/// The row of the session in the path, named by its id or its key.
#[derive(Debug, IntoParams)]
#[into_params(names("session"), parameter_in = Path)]
struct PathSession(#[param(value_type = String)] SessionRow);

impl FromRequestParts<Arc<Service>> for PathSession {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, service: &Arc<Service>) -> Result<Self, Problem> {
        let name = path_parameter(parts, service).await?;
        let reader = service.handler.reader();
        let row = reader.session_of_id_or_key(&name).await?;
        row.map(Self).ok_or_else(|| Problem::not_found(format!("there is no session `{name}`")))
    }
}

/// The sessions, the newest first
#[utoipa::path(
    get, path = "/v1/sessions", params(SessionsQuery),
    responses((status = 200, description = "A page", body = Page<SessionSummaryView>)),
    security(("token" = ["read"])),
)]
async fn list(
    _: Granted<Read>,
    State(service): State<Arc<Service>>,
    Query(query): Query<SessionsQuery>,
) -> Result<Json<Page<SessionSummaryView>>, Problem> {
    Ok(Json(query.page(&service).await?))
}

/// A session and its newest runs
#[utoipa::path(
    get, path = "/v1/sessions/{session}", params(PathSession),
    responses((status = 200, description = "The session", body = SessionDetailView)),
    security(("token" = ["read"])),
)]
async fn show(
    _: Granted<Read>,
    State(service): State<Arc<Service>>,
    PathSession(row): PathSession,
) -> Result<Json<SessionDetailView>, Problem> {
    Ok(Json(service.handler.session(&row.id.to_string(), MAX_RUNS).await?))
}

/// The events of a session, until the client goes
#[utoipa::path(
    get, path = "/v1/sessions/{session}/events",
    params(PathSession, ("Last-Event-ID" = Option<u64>, Header, description = "The `id` of the last seen record")),
    responses((status = 200, description = "Server-sent events", body = String, content_type = "text/event-stream")),
    security(("token" = ["read"])),
)]
async fn events_of_session(
    granted: Granted<Read>,
    State(service): State<Arc<Service>>,
    PathSession(row): PathSession,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    events::of_session(granted.reader(service), row.id, &headers)
}
