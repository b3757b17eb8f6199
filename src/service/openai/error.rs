//! Errors in the form of OpenAI: `{"error": {"message", "type", "param", "code"}}`.

use axum::{
    Json,
    extract::Request,
    http::{HeaderValue, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use hermod_actors::{
    RunError, RunResult,
    model::{AgentName, RunId},
};
use serde_json::{Value, json};

use crate::{
    control::{RequestError, RequestErrorKind},
    host::HostError,
    service::problem::Problem,
};

/// Paths whose errors have the form of OpenAI, and those below them.
const PATHS: [&str; 3] = ["/v1/chat/completions", "/v1/responses", "/v1/models"];
/// With `false`, OpenAI's clients do not repeat a request by themselves.
const SHOULD_RETRY: &str = "x-should-retry";
/// The code of an agent that does not exist.
const MODEL_NOT_FOUND: &str = "model_not_found";

/// Why a request is refused, or its run has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ApiError {
    status: StatusCode,
    /// Names the value and the remedy.
    message: String,
    /// The field of the request.
    param: Option<String>,
    code: Option<&'static str>,
    /// False if a repeat could do the task a second time.
    may_retry: bool,
}

impl ApiError {
    fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), param: None, code: None, may_retry: true }
    }

    /// A field of the request is wrong, or asks for what the service cannot do.
    pub(super) fn field(param: impl Into<String>, reason: impl AsRef<str>) -> Self {
        let param = param.into();
        let message = format!("{param}: {}", reason.as_ref());
        Self { param: Some(param), ..Self::new(StatusCode::BAD_REQUEST, message) }
    }

    /// No agent has the name that the request gives as its model.
    pub(super) fn no_agent(model: &str, agents: &[AgentName]) -> Self {
        let agents = agents.iter().map(AgentName::as_str).collect::<Vec<_>>().join(", ");
        let message =
            format!("model: there is no agent `{model}`; a model is the name of an agent, such as {agents}");
        let error = Self::new(StatusCode::NOT_FOUND, message);
        Self { param: Some("model".into()), code: Some(MODEL_NOT_FOUND), ..error }
    }

    /// The token may not use an agent.
    pub(super) fn forbidden_agent(token: &str, agent: &str) -> Self {
        let message = format!("model: the token `{token}` may not use the agent `{agent}`");
        Self { param: Some("model".into()), ..Self::new(StatusCode::FORBIDDEN, message) }
    }

    /// There is no such response.
    pub(super) fn no_response(param: &str, message: String) -> Self {
        Self { param: Some(param.into()), ..Self::new(StatusCode::NOT_FOUND, message) }
    }

    /// The run ended without an answer. The task may have had effects.
    pub(super) fn no_answer(result: &RunResult) -> Self {
        let message = format!(
            "run {} ended without an answer: {}; /v1/runs/{0}/result has its messages",
            result.run, result.ended
        );
        Self::after_acceptance(message, result.ended.outcome.name())
    }

    /// The service stops before the run has ended.
    pub(super) fn stopping(run: RunId) -> Self {
        let message = format!(
            "the service is stopping; run {run} goes on at its next start, and /v1/runs/{run}/wait waits for it"
        );
        Self::after_acceptance(message, "service_stopping")
    }

    /// The run was accepted, but its outcome cannot be told.
    pub(super) fn of_run(run: RunId, error: RunError) -> Self {
        let message = format!("run {run} was accepted, but cannot be waited for: {error}");
        Self::after_acceptance(message, "result_unavailable")
    }

    /// An error of a run that was, or may have been, accepted. A client that repeated the request would start a second run.
    fn after_acceptance(message: String, code: &'static str) -> Self {
        let error = Self::new(StatusCode::UNPROCESSABLE_ENTITY, message);
        Self { code: Some(code), may_retry: false, ..error }
    }

    /// An error of a submission.
    pub(super) fn of_submission(error: HostError, has_key: bool) -> Self {
        let is_internal = |error: &RequestError| error.kind == RequestErrorKind::Internal;
        let may_be_accepted = match &error {
            HostError::End(_) | HostError::Run(RunError::Terminated(_)) => true,
            HostError::Request(error) => is_internal(error),
            HostError::Run(_) | HostError::Start(_) | HostError::ConnectionLost(_) => false,
        };
        let error = Self::from(Problem::from(error));
        if may_be_accepted && !has_key {
            let message = format!("{}; whether the run was accepted is in /v1/runs", error.message);
            return Self::after_acceptance(message, "acceptance_unknown");
        }
        error
    }

    /// The text of the error.
    pub(super) fn message(&self) -> &str {
        &self.message
    }

    /// The code, or the kind of the error.
    pub(super) fn code(&self) -> &'static str {
        self.code.unwrap_or_else(|| self.kind())
    }

    fn kind(&self) -> &'static str {
        if !self.may_retry {
            "run_error"
        } else if self.status == StatusCode::TOO_MANY_REQUESTS {
            "rate_limit_error"
        } else if self.status.is_server_error() {
            "server_error"
        } else {
            "invalid_request_error"
        }
    }

    /// The body of the error.
    pub(super) fn body(&self) -> Value {
        let Self { message, param, code, .. } = self;
        json!({ "error": { "message": message, "type": self.kind(), "param": param, "code": code } })
    }
}

impl From<Problem> for ApiError {
    fn from(problem: Problem) -> Self {
        // A wrong type of a field is no other error than a wrong value of it.
        let status = match problem.status() {
            StatusCode::UNPROCESSABLE_ENTITY if problem.field().is_some() => StatusCode::BAD_REQUEST,
            status => status,
        };
        let code = (status == StatusCode::UNAUTHORIZED).then_some("invalid_api_key");
        let param = problem.field().map(str::to_owned);
        Self { param, code, ..Self::new(status, problem.detail()) }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body())).into_response();
        if !self.may_retry {
            response.headers_mut().insert(SHOULD_RETRY, HeaderValue::from_static("false"));
        }
        response
    }
}

/// Renders the problems of these paths in the form that their clients read, also those of the authorization.
pub(in crate::service) async fn render_errors(request: Request, next: Next) -> Response {
    let is_own = is_own_path(request.uri().path());
    let mut response = next.run(request).await;
    match response.extensions_mut().remove::<Problem>() {
        Some(problem) if is_own => {
            let mut rendered = ApiError::from(problem).into_response();
            for name in [header::WWW_AUTHENTICATE, header::RETRY_AFTER, header::ALLOW] {
                if let Some(value) = response.headers_mut().remove(&name) {
                    rendered.headers_mut().insert(name, value);
                }
            }
            rendered
        }
        Some(_) | None => response,
    }
}

/// True for the paths whose errors have the form of OpenAI.
pub(in crate::service) fn is_own_path(path: &str) -> bool {
    let is_below =
        |own: &str| path.strip_prefix(own).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    PATHS.into_iter().any(is_below)
}

#[cfg(test)]
mod tests {
    use hermod_actors::{RuntimeEnd, SubmitError};

    use super::*;

    #[test]
    fn only_the_paths_of_openai_have_its_errors() {
        let check = |path: &str, expect: bool| assert_eq!(is_own_path(path), expect, "{path}");
        check("/v1/chat/completions", true);
        check("/v1/responses", true);
        check("/v1/responses/resp_1/cancel", true);
        check("/v1/models/a/b", true);
        check("/v1/modelsx", false);
        check("/v1/runs", false);
        check("/v1/chat", false);
    }

    #[test]
    fn a_problem_keeps_its_status_and_text() {
        let check = |problem: Problem, status: u16, expect: Value| {
            let error = ApiError::from(problem);
            assert_eq!((error.status.as_u16(), &error.body()["error"]), (status, &expect));
        };
        let body = |message: &str, kind: &str, param: Value, code: Value| json!({ "message": message, "type": kind, "param": param, "code": code });
        check(
            Problem::new(StatusCode::UNAUTHORIZED, "no token"),
            401,
            body("no token", "invalid_request_error", Value::Null, json!("invalid_api_key")),
        );
        check(
            Problem::unprocessable("messages: missing").with_field("messages"),
            400,
            body("messages: missing", "invalid_request_error", json!("messages"), Value::Null),
        );
        check(
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "later"),
            429,
            body("later", "rate_limit_error", Value::Null, Value::Null),
        );
        check(
            Problem::stopping(),
            503,
            body(Problem::stopping().detail(), "server_error", Value::Null, Value::Null),
        );
    }

    #[test]
    fn a_repeat_is_only_asked_for_where_it_starts_no_second_run() {
        let check = |error: HostError, has_key: bool, status: u16, may_retry: bool| {
            let text = format!("{error:?}");
            let error = ApiError::of_submission(error, has_key);
            assert_eq!((error.status.as_u16(), error.may_retry), (status, may_retry), "{text}");
        };
        let ended = || HostError::Run(RunError::Terminated(RuntimeEnd::Suspended));
        check(ended(), false, 422, false);
        check(ended(), true, 503, true);
        check(HostError::Request(RequestError::internal("gone")), false, 422, false);
        check(HostError::Run(SubmitError::Overloaded { waiting: 5 }.into()), false, 429, true);
        check(HostError::usage("no"), false, 422, true);
    }
}
