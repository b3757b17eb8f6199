//! `/v1/sessions/{session}/queue`: how the messages of one session queue.

use std::sync::Arc;

use axum::{Json, extract::State};
use hermod_actors::model::{DropPolicy, QueueMode, QueueOverrides, SessionId};
use serde::Deserialize;
use utoipa::ToSchema;

use super::sessions::PathSession;
use crate::{
    control::check_queue,
    service::{
        Service,
        authorization::{Granted, Steer},
        extract::JsonBody,
        operations::Operations,
        problem::Problem,
    },
    view::{SessionDetailView, schema},
};

pub(super) fn routes() -> Operations {
    Operations::default().with(__path_set, set).with(__path_reset, reset)
}

/// How the messages of a session queue. What is absent is as configured.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct QueueBody {
    /// What happens to a message that names no mode, while a run of the session is under way.
    #[schema(value_type = Option<schema::QueueModeName>)]
    mode: Option<QueueMode>,
    /// Most messages that wait.
    #[schema(minimum = 1)]
    cap: Option<u32>,
    /// What is dropped when more arrive.
    #[schema(value_type = Option<schema::DropPolicyName>)]
    drop: Option<DropPolicy>,
    /// Milliseconds without another message after which collected messages become a run.
    #[schema(minimum = 1, maximum = 31_536_000_000_u64)]
    collect_ms: Option<u64>,
}

/// Sets how the messages of a session queue
///
/// It replaces the whole setting, is durable when this answers, and holds for messages that are sent from then on. A
/// message that names a mode has that mode. A session exists from its first message on.
#[utoipa::path(
    put, path = "/v1/sessions/{session}/queue", request_body = QueueBody, params(PathSession),
    responses(
        (status = 200, description = "The session", body = SessionDetailView),
        (status = 409, description = "The session cannot be read by this version"),
    ),
    security(("token" = ["steer"])),
)]
async fn set(
    _: Granted<Steer>,
    State(service): State<Arc<Service>>,
    PathSession(row): PathSession,
    body: JsonBody<QueueBody>,
) -> Result<Json<SessionDetailView>, Problem> {
    let QueueBody { mode, cap, drop, collect_ms } = body.value;
    let queue = QueueOverrides { mode, cap, drop, collect_ms };
    check_queue(&queue)
        .map_err(|(field, why)| Problem::unprocessable(format!("{field}: {why}")).with_field(field))?;
    change(&service, row.id, queue).await
}

/// Lets the messages of a session queue as configured
#[utoipa::path(
    delete, path = "/v1/sessions/{session}/queue", params(PathSession),
    responses(
        (status = 200, description = "The session", body = SessionDetailView),
        (status = 409, description = "The session cannot be read by this version"),
    ),
    security(("token" = ["steer"])),
)]
async fn reset(
    _: Granted<Steer>,
    State(service): State<Arc<Service>>,
    PathSession(row): PathSession,
) -> Result<Json<SessionDetailView>, Problem> {
    change(&service, row.id, QueueOverrides::default()).await
}

async fn change(
    service: &Service,
    session: SessionId,
    queue: QueueOverrides,
) -> Result<Json<SessionDetailView>, Problem> {
    service.runtime.set_queue(session, queue).await?;
    // Without its runs: `GET /v1/sessions/{session}` has them.
    Ok(Json(service.handler.session(&session.to_string(), 0).await?))
}
