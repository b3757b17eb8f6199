//! `POST /v1/chat/completions`.

use std::sync::Arc;

use axum::{
    Extension, Json,
    extract::State,
    http::HeaderMap,
    response::{IntoResponse as _, Response},
};

use super::{
    chat_answer::AnswerHead,
    chat_request::ChatBody,
    error::ApiError,
    sessions::KnownSessions,
    stream,
    submission::{ClientRun, Door},
};
use crate::service::{
    Service,
    authorization::{Granted, Submit},
    extract::JsonBody,
    operations::Operations,
    routes::IdempotencyKey,
};

pub(super) fn routes() -> Operations {
    Operations::default().with(__path_create, create)
}

/// Begins a run, and answers when it has ended
///
/// A client that goes does not end the run. With `stream`, the chunks are server-sent events. The errors after the
/// acceptance of the run have the status 422.
#[utoipa::path(
    post, path = "/v1/chat/completions", request_body = ChatBody,
    params(IdempotencyKey),
    responses(
        (status = 200, description = "The answer", content(
            (ref("#/components/schemas/ChatCompletion") = "application/json"),
            (crate::view::schema::ServerSentEvent = "text/event-stream"),
        )),
        (status = 404, description = "There is no such agent"),
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
    JsonBody { value: body, hash }: JsonBody<ChatBody>,
) -> Result<Response, ApiError> {
    body.check()?;
    let (conversation, thinking) = (body.conversation()?, body.thinking()?);
    let has_usage = body.includes_usage();
    let is_stream = body.stream.unwrap_or(false);
    let run = ClientRun::new(
        granted.reach(Arc::clone(&service)),
        (body.model, None),
        conversation,
        &headers,
        ("chat", hash),
    )?;
    let run = run.with_thinking(thinking);
    let door = Door { service, sessions };
    let accepted = door.submit(&run).await?;
    let head = AnswerHead::new(&accepted, run.agent.as_str());
    if !is_stream {
        let result = door.wait(&run, accepted.run).await?;
        return Ok(Json(head.object(&result)?).into_response());
    }
    let first = vec![head.first_chunk(has_usage)];
    let rest = async move {
        let result = door.wait(&run, accepted.run).await;
        head.chunks(result, has_usage)
    };
    Ok(stream::respond(first, rest))
}
