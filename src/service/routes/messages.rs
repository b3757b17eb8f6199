//! Messages to sessions: `POST /v1/sessions/{session}/messages`, and `/v1/messages`: what became of them.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    http::{HeaderMap, StatusCode},
};
use hermod_actors::{
    MAX_MESSAGE_BYTES,
    model::{Lane, QueueMode},
};
use serde::Deserialize;
use utoipa::ToSchema;

use super::{IdempotencyKey, idempotency_key};
use crate::{
    access::Scope,
    host::{BudgetLimits, MessageOptions, RunInput, Submission},
    service::{
        Service,
        authorization::{Granted, Read, Submit, require},
        data_url::parse_image,
        extract::{JsonBody, PathName},
        operations::Operations,
        problem::Problem,
    },
    view::{MessageAcceptedView, MessageFateView, schema},
};

/// Most images of a message.
const MAX_ATTACHMENTS: usize = 20;

pub(super) fn routes() -> Operations {
    Operations::default().with(__path_send, send).with(__path_show, show)
}

/// A message to a session.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct MessageBody {
    /// The text; not blank, and at most 262,144 bytes.
    #[schema(pattern = r"\S", max_length = 65_536)]
    text: String,
    /// What happens to it while a run of the session is under way; absent is what the configuration says (`queue.mode`).
    #[schema(value_type = Option<schema::QueueModeName>)]
    mode: Option<QueueMode>,
    /// Images that belong to it. A message with images becomes a run of its own, or part of one that has not begun.
    #[serde(default)]
    #[schema(max_items = 20)]
    attachments: Vec<Attachment>,
}

/// An image.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Attachment {
    /// A PNG, JPEG, GIF or WebP, as `data:image/png;base64,…`. Nothing is fetched.
    #[schema(pattern = "^data:image/[a-z]+;base64,[A-Za-z0-9+/]+=*$")]
    url: String,
}

/// Sends a message to a session
///
/// When this answers 202, the message is durable. It steers the run under way, becomes a run, joins one, or is dropped
/// because too many wait: `GET /v1/messages/{message}` tells which. A key that no session has makes a new session. With
/// an `Idempotency-Key`, a repeat gets the first message; the same key with another body is refused with 422.
#[utoipa::path(
    post, path = "/v1/sessions/{session}/messages", request_body = MessageBody,
    params(("session" = String, Path, description = "Id or key of the session"), IdempotencyKey),
    responses(
        (status = 202, description = "The message is durable", body = MessageAcceptedView),
        (status = 409, description = "The session cannot be read by this version"),
        (status = 429, description = "Too much waits"),
    ),
    security(("token" = ["submit"])),
)]
async fn send(
    granted: Granted<Submit>,
    State(service): State<Arc<Service>>,
    PathName(session): PathName,
    headers: HeaderMap,
    body: JsonBody<MessageBody>,
) -> Result<(StatusCode, Json<MessageAcceptedView>), Problem> {
    let JsonBody { value: body, hash } = body;
    body.check(&session)?;
    if matches!(body.mode, Some(QueueMode::Steer | QueueMode::Interrupt)) {
        require(&granted.token, Scope::Steer)?;
    }
    let message = MessageOptions { mode: body.mode, may_steer: granted.token.has(Scope::Steer) };
    let input = RunInput {
        images: body.images()?,
        text: body.text.into(),
        history: Vec::new(),
        isolation_key: None,
        expects: Vec::new(),
        request_hash: Some(hash),
    };
    let submission = Submission {
        input,
        session: Some(session),
        agent: None,
        model: None,
        workspace: None,
        budget: BudgetLimits::default(),
        timeout: None,
        thinking: None,
        system: None,
        deliver_to: None,
        must_answer: None,
        lane: Lane::Main,
        idempotency_key: idempotency_key(&headers, &granted.token)?,
        message: Some(message),
    };
    service.check_ready()?;
    let submission = granted.reach(Arc::clone(&service)).admit(submission).await?;
    let accepted = service.submit(submission).await?;
    Ok((StatusCode::ACCEPTED, Json(accepted.into())))
}

impl MessageBody {
    fn check(&self, session: &str) -> Result<(), Problem> {
        let wrong = |field: &str, text: String| {
            Err(Problem::unprocessable(format!("{field}: {text}")).with_field(field))
        };
        if session.trim().is_empty() {
            return Err(Problem::not_found("the path names no session; give its id or a key"));
        }
        if self.text.trim().is_empty() {
            return wrong("text", "is empty; say what the session is to know".to_owned());
        }
        if self.text.len() > MAX_MESSAGE_BYTES {
            let bytes = self.text.len();
            return wrong("text", format!("has {bytes} bytes, and at most {MAX_MESSAGE_BYTES} are taken"));
        }
        if self.attachments.len() > MAX_ATTACHMENTS {
            let count = self.attachments.len();
            return wrong("attachments", format!("are {count}, and at most {MAX_ATTACHMENTS} are taken"));
        }
        Ok(())
    }

    fn images(&self) -> Result<Vec<bytes::Bytes>, Problem> {
        let image = |(n, attachment): (usize, &Attachment)| {
            let field = format!("attachments[{n}].url");
            parse_image(&attachment.url)
                .map_err(|why| Problem::unprocessable(format!("{field}: {why}")).with_field(field))
        };
        self.attachments.iter().enumerate().map(image).collect()
    }
}

/// What became of a message
///
/// `queued`: no model has read it. `injected`: a run that has not ended reads it. `answered`: that run has completed.
/// `dropped`: no answer will come, and `reason` says why.
#[utoipa::path(
    get, path = "/v1/messages/{message}",
    params(("message" = schema::Id, Path, description = "The message")),
    responses((status = 200, description = "Where the message is", body = MessageFateView)),
    security(("token" = ["read"])),
)]
async fn show(
    granted: Granted<Read>,
    State(service): State<Arc<Service>>,
    PathName(message): PathName,
) -> Result<Json<MessageFateView>, Problem> {
    let fate = granted.reach(service).message(&message).await?;
    let missing = || Problem::not_found(format!("there is no message `{message}`"));
    Ok(Json(fate.ok_or_else(missing)?.into()))
}
