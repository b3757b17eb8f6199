//! `/v1/responses`: create, fetch and cancel responses. A response is a run.

use std::sync::Arc;

use axum::{
    Extension, Json,
    extract::{Path, RawQuery, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
};
use hermod_actors::model::{RunRow, RunState};
use serde_json::Value;

use super::{
    error::ApiError,
    response_events::ResponseEvents,
    response_object::{RequestFacts, ResponseState, ResponseView, is_unstored, run_of_id},
    response_request::ResponseBody,
    sessions::KnownSessions,
    stream,
    submission::{ClientRun, Door},
};
use crate::{
    access::Scope,
    control,
    service::{
        Service,
        authorization::{Granted, Read, Steer, Submit},
        extract::JsonBody,
        operations::Operations,
        problem::Problem,
        reach::Reach,
        routes::IdempotencyKey,
    },
};

pub(super) fn routes() -> Operations {
    Operations::default().with(__path_create, create).with(__path_show, show).with(__path_cancel, cancel)
}

/// Begins a run, and answers when it has ended
///
/// With `background` it answers at once, and with `stream` by server-sent events. The errors after the acceptance of the
/// run have the status 422.
#[utoipa::path(
    post, path = "/v1/responses", request_body = ResponseBody,
    params(IdempotencyKey),
    responses(
        (status = 200, description = "The response", content(
            (ref("#/components/schemas/Response") = "application/json"),
            (crate::view::schema::ServerSentEvent = "text/event-stream"),
        )),
        (status = 404, description = "There is no such agent, or no such previous response"),
        (status = 409, description = "The session cannot be read by this version"),
        (status = 429, description = "Too much waits"),
    ),
    security(("token" = ["submit"])),
)]
async fn create(
    granted: Granted<Submit>,
    State(service): State<Arc<Service>>,
    Extension(sessions): Extension<KnownSessions>,
    headers: HeaderMap,
    JsonBody { value: body, hash }: JsonBody<ResponseBody>,
) -> Result<Response, ApiError> {
    body.check()?;
    let (conversation, thinking) = (body.conversation()?, body.thinking()?);
    let reach = granted.reach(Arc::clone(&service));
    let previous = match &body.previous_response_id {
        // The answer can tell what was said before.
        Some(_) if !granted.token.has(Scope::Read) => {
            let detail =
                format!("previous_response_id: the token `{}` has no scope `read`", granted.token.name);
            return Err(Problem::new(StatusCode::FORBIDDEN, detail)
                .with_field("previous_response_id")
                .into());
        }
        Some(id) => Some(row_of(&reach, id, "previous_response_id").await?),
        None => None,
    };
    let (model, operation) = ((body.model, previous), ("responses", hash));
    let run = ClientRun::new(reach, model, conversation, &headers, operation)?.with_thinking(thinking);
    let facts = RequestFacts {
        agent: run.agent.to_string(),
        instructions: body.instructions,
        previous: body.previous_response_id,
        metadata: body.metadata,
        is_stored: body.store.unwrap_or(true),
        is_background: body.background.unwrap_or(false),
    };
    let (is_stream, is_background) = (body.stream.unwrap_or(false), facts.is_background);
    let door = Door { service, sessions };
    let accepted = door.submit(&run).await?;
    let view = ResponseView::new(accepted.run, accepted.at, facts);
    if is_stream {
        let mut events = ResponseEvents::new(view);
        let first = events.first(&ResponseState::new("in_progress"));
        let rest = async move { events.last(door.wait(&run, accepted.run).await) };
        return Ok(stream::respond(first, rest));
    }
    if is_background {
        let row = door.service.runtime.row(accepted.run).await;
        let row = row.map_err(|error| ApiError::of_run(accepted.run, error))?;
        return Ok(Json(shown(&door.service, &row, &view).await?).into_response());
    }
    let result = door.wait(&run, accepted.run).await?;
    Ok(Json(view.ended(&result).0).into_response())
}

/// The response as it is now
#[utoipa::path(
    get, path = "/v1/responses/{response}", params(("response" = String, Path, description = "The id of the response")),
    responses((status = 200, description = "The response", body = ref("#/components/schemas/Response"))),
    security(("token" = ["read"])),
)]
async fn show(
    granted: Granted<Read>,
    State(service): State<Arc<Service>>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, ApiError> {
    if query.is_some_and(|query| query.split('&').any(|field| field == "stream=true")) {
        let reason = "a response is not streamed again; leave it out, or read /v1/runs/{run}/events";
        return Err(ApiError::field("stream", reason));
    }
    let row = row_of(&granted.reach(Arc::clone(&service)), &id, "response_id").await?;
    fetched(&service, &row).await.map(Json)
}

/// Stops the run, and shows its response afterwards
///
/// A response whose run has ended stays as it is.
#[utoipa::path(
    post, path = "/v1/responses/{response}/cancel",
    params(("response" = String, Path, description = "The id of the response")),
    responses((status = 200, description = "The response", body = ref("#/components/schemas/Response"))),
    security(("token" = ["steer"])),
)]
async fn cancel(
    granted: Granted<Steer>,
    State(service): State<Arc<Service>>,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let mut row = row_of(&granted.reach(Arc::clone(&service)), &id, "response_id").await?;
    if row.state != RunState::Ended {
        let stopped = control::stop(&service.runtime, vec![row.clone()]).await.map_err(Problem::from)?;
        row = stopped.into_iter().next().unwrap_or(row);
    }
    fetched(&service, &row).await.map(Json)
}

/// The run of a stored response.
async fn row_of(reach: &Reach, id: &str, field: &str) -> Result<RunRow, ApiError> {
    let unknown = || {
        let reason = if is_unstored(id) { "it was created with store = false" } else { "see /v1/runs" };
        ApiError::no_response(field, format!("{field}: there is no response `{id}`; {reason}"))
    };
    let run = run_of_id(id).ok_or_else(unknown)?;
    let row = reach.run(run).await?;
    // A subagent's run is part of another response.
    row.filter(|row| row.parent.is_none()).ok_or_else(unknown)
}

/// A response without the request that created it: of that, only the system message is kept.
async fn fetched(service: &Service, row: &RunRow) -> Result<Value, ApiError> {
    let accepted = service.handler.reader().acceptance(row).await.map_err(Problem::from)?;
    let facts = RequestFacts {
        agent: row.agent.to_string(),
        instructions: accepted.spec.system.as_deref().map(str::to_owned),
        is_stored: true,
        ..RequestFacts::default()
    };
    shown(service, row, &ResponseView::new(row.id, row.accepted_at, facts)).await
}

async fn shown(service: &Service, row: &RunRow, view: &ResponseView) -> Result<Value, ApiError> {
    if row.state != RunState::Ended {
        return Ok(view.unfinished(&ResponseState::of_row(row)));
    }
    let result = service.runtime.wait(row.id, None).await.map_err(Problem::from)?;
    Ok(view.ended(&result).0)
}
