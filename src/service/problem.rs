//! Errors of the service as problem documents (RFC 9457).

use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use hermod_actors::{RunError, RuntimeEnd, SubmitError};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    control::{RequestError, RequestErrorKind},
    host::{HostError, StartError},
};

/// Most bytes of the detail: it may repeat what a client has sent.
const MAX_DETAIL_BYTES: usize = 4_000;
/// Most bytes of the name of a field, which may be the client's own.
const MAX_FIELD_BYTES: usize = 200;

/// Seconds after which a refused request may be repeated.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

/// Why a request is refused: `{type, title, status, detail}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(super) struct Problem {
    /// Always `about:blank`: the status says what kind of problem it is.
    #[serde(rename = "type")]
    kind: &'static str,
    /// The name of the status.
    title: &'static str,
    /// The status.
    #[serde(serialize_with = "write_status")]
    #[schema(value_type = u16)]
    status: StatusCode,
    /// Names what is wrong, and the remedy.
    detail: String,
    /// The field of the body that is wrong; `detail` begins with it.
    #[serde(skip)]
    field: Option<String>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // the signature that serde calls
fn write_status<S: serde::Serializer>(status: &StatusCode, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u16(status.as_u16())
}

impl Problem {
    /// The media type of problem documents.
    pub(super) const MEDIA_TYPE: &str = "application/problem+json";

    /// A problem of this status; `detail` names the value and the remedy.
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        let title = status.canonical_reason().unwrap_or("Error");
        let detail = shorten(detail.into(), MAX_DETAIL_BYTES);
        Self { kind: "about:blank", title, status, detail, field: None }
    }

    /// This problem, of a field of the body.
    pub(super) fn with_field(self, field: impl Into<String>) -> Self {
        Self { field: Some(shorten(field.into(), MAX_FIELD_BYTES)), ..self }
    }

    pub(super) const fn status(&self) -> StatusCode {
        self.status
    }

    pub(super) fn detail(&self) -> &str {
        &self.detail
    }

    pub(super) fn field(&self) -> Option<&str> {
        self.field.as_deref()
    }

    pub(super) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    pub(super) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail)
    }

    /// The service ends before it has answered.
    pub(super) fn stopping() -> Self {
        let text =
            "the service stopped before it answered; look what became of the request at its next start";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, text)
    }

    pub(super) fn unprocessable(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
    }
}

/// The beginning of a long text.
fn shorten(mut text: String, max_bytes: usize) -> String {
    if text.len() > max_bytes {
        text.truncate(text.floor_char_boundary(max_bytes));
        text.push('…');
    }
    text
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(Self::MEDIA_TYPE));
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            headers.insert(header::RETRY_AFTER, RETRY_AFTER);
        }
        // Some paths have clients that read another form of errors.
        response.extensions_mut().insert(self);
        response
    }
}

impl From<RequestError> for Problem {
    fn from(error: RequestError) -> Self {
        let status = match error.kind {
            RequestErrorKind::Usage => StatusCode::UNPROCESSABLE_ENTITY,
            RequestErrorKind::Denied => StatusCode::FORBIDDEN,
            RequestErrorKind::Busy | RequestErrorKind::Crowded => StatusCode::TOO_MANY_REQUESTS,
            RequestErrorKind::Store => StatusCode::SERVICE_UNAVAILABLE,
            RequestErrorKind::Config | RequestErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, error.text)
    }
}

impl From<RunError> for Problem {
    fn from(error: RunError) -> Self {
        let status = match &error {
            RunError::NoRun(_) | RunError::NoSession(_) => StatusCode::NOT_FOUND,
            RunError::Ended(_) | RunError::NoPendingApproval(_) | RunError::NotRaised(..) => {
                StatusCode::CONFLICT
            }
            // The store and the runtime may be there again after a restart.
            RunError::Terminated(RuntimeEnd::Suspended | RuntimeEnd::Store(_) | RuntimeEnd::Actor { .. })
            | RunError::NotAccepted(SubmitError::LowDiskSpace(_) | SubmitError::CrashLooping(_)) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            RunError::NotAccepted(SubmitError::Quarantined { .. }) => StatusCode::CONFLICT,
            RunError::Invalid { .. }
            | RunError::KeyConflict(_)
            | RunError::MessageKeyConflict { .. }
            | RunError::NotAccepted(_)
            | RunError::Read(_)
            | RunError::WaitTimedOut(_)
            | RunError::NotCompleted(_) => return RequestError::from(error).into(),
        };
        Self::new(status, RequestError::from(error).text)
    }
}

impl From<HostError> for Problem {
    fn from(error: HostError) -> Self {
        match error {
            HostError::Request(error) => error.into(),
            HostError::Run(error) => error.into(),
            HostError::End(end) => RunError::Terminated(end).into(),
            HostError::Start(error) => error.into(),
            HostError::ConnectionLost(text) => Self::new(StatusCode::BAD_GATEWAY, text),
        }
    }
}

impl From<StartError> for Problem {
    fn from(error: StartError) -> Self {
        let status = match &error {
            StartError::Workspace { .. }
            | StartError::NoModel(_)
            | StartError::Agent { .. }
            | StartError::Provider(_) => StatusCode::UNPROCESSABLE_ENTITY,
            StartError::NoHome
            | StartError::Config(_)
            | StartError::Store(_)
            | StartError::State(_)
            | StartError::DuplicateName { .. }
            | StartError::NoModels
            | StartError::Script { .. }
            | StartError::Listen(_)
            | StartError::Actors(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, error.to_string())
    }
}
