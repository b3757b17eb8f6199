//! `/v1/approvals`: calls that wait for a person, and the answers.

use std::sync::Arc;

use axum::{
    Json, Router,
    extract::{Path, State},
    routing::{get, post},
};
use hermod_actors::model::{ApprovalDecision, ApprovalScope, PersonAnswer};
use serde::Deserialize;

use crate::{
    control::{self, RequestError},
    service::{
        Service,
        authorization::{Approve, Granted, Read},
        extract::{JsonBody, OptionalJsonBody},
        problem::Problem,
        reach::Reach,
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
    granted: Granted<Read>,
    State(service): State<Arc<Service>>,
) -> Result<Json<Vec<ApprovalView>>, Problem> {
    Ok(Json(granted.reach(service).approvals().await?))
}

/// Allows a call.
async fn allow(
    granted: Granted<Approve>,
    State(service): State<Arc<Service>>,
    Path(call): Path<String>,
    OptionalJsonBody(body): OptionalJsonBody<AllowBody>,
) -> Result<Json<DecisionView>, Problem> {
    decide(&granted.reach(service), &call, ApprovalDecision::Allow, body.scope).await
}

/// Denies a call.
async fn deny(
    granted: Granted<Approve>,
    State(service): State<Arc<Service>>,
    Path(call): Path<String>,
) -> Result<Json<DecisionView>, Problem> {
    decide(&granted.reach(service), &call, ApprovalDecision::Deny, ApprovalScope::Once).await
}

async fn decide(
    reach: &Reach,
    call: &str,
    verdict: ApprovalDecision,
    scope: ApprovalScope,
) -> Result<Json<DecisionView>, Problem> {
    reach.check_scope(scope)?;
    record(reach, call, move |approval| control::decision(approval, verdict, scope)).await
}

/// Answers a question of a model.
async fn answer(
    granted: Granted<Approve>,
    State(service): State<Arc<Service>>,
    Path(call): Path<String>,
    JsonBody { value: body, .. }: JsonBody<AnswerBody>,
) -> Result<Json<DecisionView>, Problem> {
    record(&granted.reach(service), &call, move |approval| control::text_answer(approval, body.text)).await
}

/// Makes an answer durable, even if the client is gone meanwhile.
async fn record(
    reach: &Reach,
    call: &str,
    answer: impl FnOnce(&ApprovalView) -> Result<PersonAnswer, RequestError> + Send + 'static,
) -> Result<Json<DecisionView>, Problem> {
    let call = reach.pending_call(call).await?.to_string();
    let handler = reach.service().handler.clone();
    let decided = reach.service().engine.spawn(async move { handler.decide(&call, answer).await }).await;
    decided.map_err(|_| Problem::stopping())??.map(Json).ok_or_else(Problem::stopping)
}
