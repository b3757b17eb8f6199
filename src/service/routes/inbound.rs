//! `POST /v1/hooks/{hook}`: webhooks of other services, which become messages to sessions. They bring no token: their
//! signature is checked before anything of them is parsed.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Request, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use hermod_actors::model::{Hash, QueueMode};
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::{
    clock,
    host::{MessageOptions, RunInput, Submission},
    inbound::{InboundEndpoint, InboundError, InboundMessage, InboundProbe},
    service::{
        Service,
        extract::{PathName, read_body},
        operations::Operations,
        problem::Problem,
        reach::InboundReach,
    },
    view::{InboundAnswerView, MessageAcceptedView},
};

/// Most bytes of a body.
const MAX_BODY_BYTES: usize = 4 << 20;
/// KiB that the bodies of all webhooks may have together: those without a signature must not take the memory of clients.
static BODIES: Semaphore = Semaphore::const_new(32 * 1024);

pub(super) fn routes() -> Operations {
    Operations::default().with(__path_receive, receive)
}

/// Takes a webhook of another service
///
/// The section `inbound.NAME` of the configuration says how it is signed, and which message to which session it becomes.
/// When this answers 202, the message is durable; a repeat with the id of its sender gets the same answer. Answered with
/// 200, it became no message. It needs no token, but the signature that its sender makes.
#[utoipa::path(
    post, path = "/v1/hooks/{hook}",
    request_body(content = Object, description = "The JSON of the sender, of at most 4 MiB", content_type = "application/json"),
    params(("hook" = String, Path, description = "The name of the section")),
    responses(
        (status = 200, description = "It is no message", body = InboundAnswerView),
        (status = 202, description = "The message is durable", body = MessageAcceptedView),
        (status = 401, description = "It is not signed as its section says, or there is no such section"),
        (status = 409, description = "The session cannot be read by this version"),
        (status = 429, description = "Too much waits"),
        (status = 503, description = "It cannot be taken now"),
    ),
)]
async fn receive(
    State(service): State<Arc<Service>>,
    PathName(name): PathName,
    request: Request,
) -> Result<Response, Problem> {
    let endpoint = service.inbound.get().find(&name).ok_or_else(unsigned)?;
    let headers = request.headers().clone();
    let claim = endpoint.claim(&headers, clock::now()).ok_or_else(unsigned)?;
    let (body, _space) = read_body(request, MAX_BODY_BYTES, &BODIES).await?;
    if !endpoint.verify(&claim, &body) {
        return Err(unsigned());
    }
    let json = parse(&body)?;
    if let Some(probe) = endpoint.probe(&headers, &json)? {
        let (challenge, ignored) = match probe {
            InboundProbe::Challenge(text) => (Some(text), None),
            InboundProbe::Ping => (None, Some("ping")),
        };
        return Ok(Json(InboundAnswerView { challenge, ignored }).into_response());
    }
    let reach = InboundReach(Arc::clone(&service));
    let key = endpoint.idempotency_key(&headers, &json)?;
    // What differs in a repeat does not count: senders count attempts in the body, and the configuration may have changed.
    if let Some(key) = &key
        && let Some(first) = reach.first_of_key(key).await?
    {
        return Ok((StatusCode::ACCEPTED, Json(first)).into_response());
    }
    let Some(message) = endpoint.read(&headers, &json)? else {
        return Ok(Json(InboundAnswerView { challenge: None, ignored: Some("events") }).into_response());
    };
    let hash = Hash::of(key.as_deref().map_or(&*body, str::as_bytes));
    let accepted = submit(&reach, &endpoint, (key, hash), message).await?;
    Ok((StatusCode::ACCEPTED, Json(accepted)).into_response())
}

/// Makes the message durable.
async fn submit(
    reach: &InboundReach,
    endpoint: &InboundEndpoint,
    (key, hash): (Option<Arc<str>>, Hash),
    message: InboundMessage,
) -> Result<MessageAcceptedView, Problem> {
    let service = &reach.0;
    service.check_ready()?;
    let input = RunInput {
        text: message.text.into(),
        images: Vec::new(),
        history: Vec::new(),
        isolation_key: None,
        expects: Vec::new(),
        request_hash: Some(hash),
    };
    // Only a mode that the operator has chosen for this sender may touch the run under way.
    let may_steer = matches!(endpoint.mode(), Some(QueueMode::Steer | QueueMode::Interrupt));
    let options = MessageOptions { mode: endpoint.mode(), may_steer };
    let submission = Submission {
        deliver_to: endpoint.deliver_to().map(<[String]>::to_vec),
        idempotency_key: key,
        ..Submission::of_message(message.session, input, options)
    };
    let submission = reach.admit(submission, endpoint.agent()).await?;
    Ok(service.submit(submission).await?.into())
}

/// The JSON of a body whose signature holds.
fn parse(body: &[u8]) -> Result<Value, Problem> {
    serde_json::from_slice(body).map_err(|error| {
        let text = format!("the body is no JSON: {error}; have the sender send application/json");
        Problem::bad_request(text)
    })
}

/// The same for each reason, so that nothing is learned by trying.
fn unsigned() -> Problem {
    let text = "this request is not signed as a section [inbound.NAME] of this path says";
    Problem::new(StatusCode::UNAUTHORIZED, text)
}

impl From<InboundError> for Problem {
    fn from(error: InboundError) -> Self {
        Self::unprocessable(error.to_string()).with_field(error.field)
    }
}
