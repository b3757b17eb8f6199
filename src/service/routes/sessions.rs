//! `/v1/sessions`: the conversations, their runs and events.

use std::sync::Arc;

use axum::{
    Json, Router,
    extract::{FromRequestParts, State},
    http::{HeaderMap, request::Parts},
    response::Response,
    routing::get,
};
use hermod_actors::model::{SessionId, SessionRow};

use crate::{
    service::{
        Service,
        authorization::{Granted, Read},
        events,
        extract::{Query, path_parameter},
        page::{Page, SessionsQuery},
        problem::Problem,
        reach::Reach,
    },
    view::{SessionDetailView, SessionSummaryView},
};

/// Runs of a session that is shown; `/v1/runs?session=…` has all.
const MAX_RUNS: usize = 100;

pub(super) fn routes() -> Router<Arc<Service>> {
    Router::new()
        .route("/v1/sessions", get(list))
        .route("/v1/sessions/{session}", get(show))
        .route("/v1/sessions/{session}/events", get(events_of_session))
}

/// The row of the session in the path, named by its id or its key. The token of the request reaches it.
#[derive(Debug)]
struct PathSession(SessionRow);

impl FromRequestParts<Arc<Service>> for PathSession {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, service: &Arc<Service>) -> Result<Self, Problem> {
        let name = path_parameter(parts, service).await?;
        let row = Reach::of_request(parts, service)?.session(&name).await?;
        row.map(Self).ok_or_else(|| Problem::not_found(format!("there is no session `{name}`")))
    }
}

/// The sessions, the newest first.
async fn list(
    granted: Granted<Read>,
    State(service): State<Arc<Service>>,
    Query(query): Query<SessionsQuery>,
) -> Result<Json<Page<SessionSummaryView, SessionId>>, Problem> {
    Ok(Json(query.page(&granted.reach(service)).await?))
}

/// A session and its newest runs.
async fn show(
    _: Granted<Read>,
    State(service): State<Arc<Service>>,
    PathSession(row): PathSession,
) -> Result<Json<SessionDetailView>, Problem> {
    Ok(Json(service.handler.session(&row.id.to_string(), MAX_RUNS).await?))
}

/// The events of a session, until the client goes.
async fn events_of_session(
    granted: Granted<Read>,
    State(service): State<Arc<Service>>,
    PathSession(row): PathSession,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    events::of_session(granted.reach(service), row.id, &headers)
}
