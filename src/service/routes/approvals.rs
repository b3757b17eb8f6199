//! `/v1/approvals`: calls that wait for a person, and the answers.

use std::sync::Arc;

use axum::{
    Json, Router,
    extract::{Path, State},
    routing::{get, post},
};
use hermod_actors::model::{ApprovalDecision, ApprovalScope, CallId, PersonAnswer};
use serde::Deserialize;

use crate::{
    control::{self, RequestError},
    service::{
        Service,
        authorization::{Approve, Granted, Read},
        extract::{JsonBody, OptionalJsonBody},
        problem::Problem,
    },
    view::{ApprovalView, DecisionView},
};

pub(super) fn routes() -> Router<Arc<Service>> {
    Router::new()
        .route("/v1/approvals", get(list))
        .route("/v1/approvals/{call}/allow", post(allow))
        .route("/v1/approvals/{call}/deny", post(deny))
        .route("/v1/approvals/{call}/answer", post(answer))
}

/// The body of an approval.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct AllowBody {
    /// How far the approval goes.
    #[serde(default)]
    scope: ApprovalScope,
}

/// The body of an answer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerBody {
    /// The answer to the model's question.
    text: String,
}

/// The calls that wait for a person.
async fn list(
    _: Granted<Read>,
    State(service): State<Arc<Service>>,
) -> Result<Json<Vec<ApprovalView>>, Problem> {
    Ok(Json(service.handler.reader().approvals().await?))
}

/// Allows a call.
async fn allow(
    _: Granted<Approve>,
    State(service): State<Arc<Service>>,
    Path(call): Path<String>,
    OptionalJsonBody(body): OptionalJsonBody<AllowBody>,
) -> Result<Json<DecisionView>, Problem> {
    decide(&service, &call, ApprovalDecision::Allow, body.scope).await
}

/// Denies a call.
async fn deny(
    _: Granted<Approve>,
    State(service): State<Arc<Service>>,
    Path(call): Path<String>,
) -> Result<Json<DecisionView>, Problem> {
    decide(&service, &call, ApprovalDecision::Deny, ApprovalScope::Once).await
}

async fn decide(
    service: &Arc<Service>,
    call: &str,
    verdict: ApprovalDecision,
    scope: ApprovalScope,
) -> Result<Json<DecisionView>, Problem> {
    record(service, call, move |approval| control::decision(approval, verdict, scope)).await
}

/// Answers a question of a model.
async fn answer(
    _: Granted<Approve>,
    State(service): State<Arc<Service>>,
    Path(call): Path<String>,
    JsonBody { value: body, .. }: JsonBody<AnswerBody>,
) -> Result<Json<DecisionView>, Problem> {
    record(&service, &call, move |approval| control::text_answer(approval, body.text)).await
}

/// Makes an answer durable, even if the client is gone meanwhile.
async fn record(
    service: &Arc<Service>,
    call: &str,
    answer: impl FnOnce(&ApprovalView) -> Result<PersonAnswer, RequestError> + Send + 'static,
) -> Result<Json<DecisionView>, Problem> {
    let call = pending_call(service, call).await?.to_string();
    let handler = service.handler.clone();
    let decided = service.engine.spawn(async move { handler.decide(&call, answer).await }).await;
    decided.map_err(|_| Problem::stopping())??.map(Json).ok_or_else(Problem::stopping)
}

/// The call in the path, which waits for an answer.
async fn pending_call(service: &Service, call: &str) -> Result<CallId, Problem> {
    let call: CallId =
        call.parse().map_err(|_| Problem::not_found(format!("`{call}` is no id of a call")))?;
    let open = service.handler.reader().approvals().await?;
    let is_open = open.iter().any(|approval| approval.call == call);
    is_open.then_some(call).ok_or_else(|| Problem::not_found(format!("call {call} waits for no answer")))
}
