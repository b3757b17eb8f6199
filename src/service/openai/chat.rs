//! `POST /v1/chat/completions`.

use std::sync::Arc;

use axum::{
    Extension, Json, Router,
    extract::State,
    http::HeaderMap,
    response::{IntoResponse as _, Response},
    routing::post,
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
};

pub(super) fn routes() -> Router<Arc<Service>> {
    Router::new().route("/v1/chat/completions", post(create))
}

/// Begins a run and answers when it has ended. A client that goes does not end the run.
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
