//! `/v1/sessions`: the conversations, their runs and events.

use std::sync::Arc;

use axum::{
    Json,
    extract::{FromRequestParts, State},
    http::{HeaderMap, StatusCode, request::Parts},
    response::Response,
};
use hermod_actors::model::{SessionId, SessionRow};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::{
    control::SessionRemoval,
    service::{
        Service,
        authorization::{Admin, Granted, Read},
        events,
        extract::{Query, path_parameter},
        operations::Operations,
        page::{FoundSession, MaxRows, Page, SessionsQuery},
        problem::Problem,
        reach::Reach,
    },
    view::{MessageView, SessionDetailView, schema},
};

/// Runs of a session that is shown; `/v1/runs?session=…` has all.
const MAX_RUNS: usize = 100;

pub(super) fn routes() -> Operations {
    Operations::default()
        .with(__path_list, list)
        .with(__path_show, show)
        .with(__path_remove, remove)
        .with(__path_messages, messages)
        .with(__path_events_of_session, events_of_session)
}

/// The row of the session in the path, named by its id or its key. The token of the request reaches it.
#[derive(Debug, IntoParams)]
#[into_params(names("session"), parameter_in = Path)]
pub(super) struct PathSession(#[param(value_type = String)] pub(super) SessionRow);

impl FromRequestParts<Arc<Service>> for PathSession {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, service: &Arc<Service>) -> Result<Self, Problem> {
        let name = path_parameter(parts, service).await?;
        let row = Reach::of_request(parts, service)?.session(&name).await?;
        row.map(Self).ok_or_else(|| Problem::not_found(format!("there is no session `{name}`")))
    }
}

/// The sessions, the one with the latest run first
///
/// With `text`, those that have it in their key, their title, a task, a message or an answer. It reads the records of
/// sessions: a page may have fewer rows than `max` although there are more.
#[utoipa::path(
    get, path = "/v1/sessions", params(SessionsQuery),
    responses((status = 200, description = "A page", body = Page<FoundSession>)),
    security(("token" = ["read"])),
)]
async fn list(
    granted: Granted<Read>,
    State(service): State<Arc<Service>>,
    Query(query): Query<SessionsQuery>,
) -> Result<Json<Page<FoundSession>>, Problem> {
    Ok(Json(query.page(&granted.reach(service)).await?))
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

/// The query of a conversation.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct MessagesQuery {
    /// Most messages of the page; 100 if it is absent.
    #[param(value_type = MaxRows, required = false)]
    max: Option<MaxRows>,
    /// The `next` of the page before.
    #[param(value_type = u64, required = false, maximum = 4_294_967_295_u32)]
    after: Option<u32>,
}

/// The conversation of a session, the oldest message first
///
/// It has the messages of all runs, also those that a model no longer gets because they were summarised.
#[utoipa::path(
    get, path = "/v1/sessions/{session}/messages", params(PathSession, MessagesQuery),
    responses((status = 200, description = "A page", body = Page<MessageView>)),
    security(("token" = ["read"])),
)]
async fn messages(
    _: Granted<Read>,
    State(service): State<Arc<Service>>,
    PathSession(row): PathSession,
    Query(query): Query<MessagesQuery>,
) -> Result<Json<Page<MessageView>>, Problem> {
    let first = query.after.map_or(0, |after| usize::try_from(after).unwrap_or(usize::MAX));
    let page = service.runtime.messages_page(row.id, first, MaxRows::or_default(query.max)).await?;
    let items: Vec<MessageView> = page.messages.iter().map(MessageView::from).collect();
    let next = page.has_more.then(|| (first + items.len()).to_string());
    Ok(Json(Page { items, next }))
}

/// Removes a session with its runs, and the sessions of its subagents
///
/// It is durable when this answers. A session with an unfinished run is refused.
#[utoipa::path(
    delete, path = "/v1/sessions/{session}", params(PathSession),
    responses(
        (status = 204, description = "The session is removed"),
        (status = 409, description = "A run has not ended, or something else needs the session"),
        (status = 429, description = "Another removal or a backup is under way"),
    ),
    security(("token" = ["admin"])),
)]
async fn remove(
    _: Granted<Admin>,
    State(service): State<Arc<Service>>,
    PathSession(row): PathSession,
) -> Result<StatusCode, Problem> {
    let removing = Arc::clone(&service);
    let removed = service.engine.spawn(async move { removing.remove_session(row.id).await }).await;
    match removed.map_err(|_| Problem::stopping())?? {
        SessionRemoval::Removed => Ok(StatusCode::NO_CONTENT),
        SessionRemoval::Open(_) => Err(retained(row.id, "it is in use; try again in a moment")),
        SessionRemoval::Retained(why) => Err(retained(row.id, why)),
    }
}

fn retained(session: SessionId, why: &str) -> Problem {
    Problem::new(StatusCode::CONFLICT, format!("session {session} is not removed: {why}"))
}

/// The events of a session, until the client goes
#[utoipa::path(
    get, path = "/v1/sessions/{session}/events",
    params(PathSession, events::SeenRecord),
    responses((status = 200, description = "Server-sent events", body = schema::ServerSentEvent, content_type = "text/event-stream")),
    security(("token" = ["read"])),
)]
async fn events_of_session(
    granted: Granted<Read>,
    State(service): State<Arc<Service>>,
    PathSession(row): PathSession,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    events::of_session(granted.reach(service), row.id, &headers)
}
