//! Why a call has no result: an error object of JSON-RPC 2.0, with the problem document of the service in its `data`.

use axum::http::StatusCode;
use serde::{Serialize, Serializer, ser::SerializeStruct as _};
use serde_json::json;

use crate::service::problem::Problem;

/// The code of an error. Those up to -32600 are JSON-RPC's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ErrorCode {
    /// The message is no JSON.
    Parse = -32700,
    /// The message is JSON, and no request.
    InvalidRequest = -32600,
    /// There is no such method.
    NoMethod = -32601,
    /// A parameter is wrong.
    InvalidParams = -32602,
    /// The service failed.
    Internal = -32603,
    /// Not now; the same call may succeed later.
    Unavailable = -32000,
    /// The token may not do this.
    Forbidden = -32003,
    /// There is no such run, session or call.
    NotFound = -32004,
    /// The run or the session is in another state.
    Conflict = -32009,
}

/// An error of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RpcError {
    code: ErrorCode,
    problem: Problem,
}

impl RpcError {
    fn new(code: ErrorCode, status: StatusCode, detail: impl Into<String>) -> Self {
        Self { code, problem: Problem::new(status, detail) }
    }

    /// The message is no JSON.
    pub(super) fn parse(detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::Parse, StatusCode::BAD_REQUEST, detail)
    }

    /// The message is no request.
    pub(super) fn invalid_request(detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidRequest, StatusCode::BAD_REQUEST, detail)
    }

    /// The transport refuses the message.
    pub(super) const fn refused_message(problem: Problem) -> Self {
        Self { code: ErrorCode::InvalidRequest, problem }
    }

    /// There is no such method.
    pub(super) fn no_method(name: &str, known: &str) -> Self {
        let detail = format!("there is no method `{name}`; there are: {known}");
        Self::new(ErrorCode::NoMethod, StatusCode::NOT_FOUND, detail)
    }

    /// A parameter is wrong; `reason` names its value and the remedy.
    pub(super) fn param(field: &str, reason: impl AsRef<str>) -> Self {
        Problem::unprocessable(format!("{field}: {}", reason.as_ref())).with_field(field).into()
    }

    /// The service failed.
    pub(super) fn internal(detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::Internal, StatusCode::INTERNAL_SERVER_ERROR, detail)
    }

    /// Not now; the same call may succeed later.
    pub(super) fn unavailable(detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::Unavailable, StatusCode::TOO_MANY_REQUESTS, detail)
    }

    pub(super) const fn code(&self) -> ErrorCode {
        self.code
    }

    pub(super) const fn problem(&self) -> &Problem {
        &self.problem
    }
}

impl<P: Into<Problem>> From<P> for RpcError {
    fn from(problem: P) -> Self {
        let problem = problem.into();
        let code = match problem.status() {
            StatusCode::NOT_FOUND => ErrorCode::NotFound,
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => ErrorCode::Forbidden,
            StatusCode::CONFLICT => ErrorCode::Conflict,
            StatusCode::REQUEST_TIMEOUT
            | StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE => ErrorCode::Unavailable,
            status if status.is_client_error() => ErrorCode::InvalidParams,
            _ => ErrorCode::Internal,
        };
        Self { code, problem }
    }
}

/// Written as `{code, message, data: {status, problem, field?}}`.
impl Serialize for RpcError {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut data = json!({ "status": self.problem.status().as_u16(), "problem": self.problem });
        if let Some(field) = self.problem.field() {
            data["field"] = json!(field);
        }
        let mut error = to.serialize_struct("error", 3)?;
        error.serialize_field("code", &(self.code as i32))?;
        error.serialize_field("message", self.problem.detail())?;
        error.serialize_field("data", &data)?;
        error.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_carries_the_problem_document() {
        let check = |error: RpcError, code: i32, status: u16| {
            let shown = json!(error);
            assert_eq!((&shown["code"], &shown["data"]["status"]), (&json!(code), &json!(status)));
            assert_eq!(shown["message"], shown["data"]["problem"]["detail"]);
        };
        let of = |status: u16| RpcError::from(Problem::new(StatusCode::from_u16(status).unwrap(), "x"));
        check(of(404), -32004, 404);
        check(of(401), -32003, 401);
        check(of(403), -32003, 403);
        check(of(409), -32009, 409);
        check(of(422), -32602, 422);
        check(of(429), -32000, 429);
        check(of(503), -32000, 503);
        check(of(500), -32603, 500);
        check(RpcError::parse("x"), -32700, 400);
        check(RpcError::no_method("x", "y"), -32601, 404);
        assert_eq!(json!(RpcError::param("limit", "is 0"))["data"]["field"], "limit");
    }
}
