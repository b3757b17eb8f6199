//! `/v1/approvals`: calls that wait for a person, and the answers.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, State},
};
use hermod_actors::model::{ApprovalDecision, ApprovalScope, PersonAnswer};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use crate::{
    control::{self, RequestError},
    service::{
        Service,
        authorization::{Approve, Granted, Read},
        extract::{JsonBody, OptionalJsonBody},
        operations::Operations,
        problem::Problem,
        reach::Reach,
    },
    view::{ApprovalView, DecisionView, schema},
};

pub(super) fn routes() -> Operations {
    Operations::default()
        .with(__path_list, list)
        .with(__path_allow, allow)
        .with(__path_deny, deny)
        .with(__path_answer, answer)
}

/// The call in a path.
#[derive(Debug, IntoParams)]
#[into_params(names("call"), parameter_in = Path)]
#[expect(dead_code, reason = "only the document has it")]
struct CallPath(#[param(value_type = schema::Call)] String);

/// The body of an approval.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct AllowBody {
    /// How far the approval goes.
    #[serde(default)]
    #[schema(value_type = schema::Scope)]
    scope: ApprovalScope,
}

/// The body of an answer.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct AnswerBody {
    /// The answer to the model's question.
    #[schema(pattern = r"\S")]
    text: String,
}

/// The calls that wait for a person
#[utoipa::path(
    get, path = "/v1/approvals",
    responses((status = 200, description = "The calls", body = Vec<ApprovalView>)),
    security(("token" = ["read"])),
)]
async fn list(
    granted: Granted<Read>,
    State(service): State<Arc<Service>>,
) -> Result<Json<Vec<ApprovalView>>, Problem> {
    Ok(Json(granted.reach(service).approvals().await?))
}

/// Allows a call
#[utoipa::path(
    post, path = "/v1/approvals/{call}/allow", params(CallPath), request_body = Option<AllowBody>,
    responses((status = 200, description = "The decision", body = DecisionView), (status = 409, description = "It was decided already")),
    security(("token" = ["approve"])),
)]
async fn allow(
    granted: Granted<Approve>,
    State(service): State<Arc<Service>>,
    Path(call): Path<String>,
    OptionalJsonBody(body): OptionalJsonBody<AllowBody>,
) -> Result<Json<DecisionView>, Problem> {
    decide(&granted.reach(service), &call, ApprovalDecision::Allow, body.scope).await
}

/// Denies a call
#[utoipa::path(
    post, path = "/v1/approvals/{call}/deny", params(CallPath),
    responses(
        (status = 200, description = "The decision", body = DecisionView),
        (status = 409, description = "It was decided already"),
        (status = 422, description = "The call asks for something else"),
    ),
    security(("token" = ["approve"])),
)]
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

/// Answers a question of a model
#[utoipa::path(
    post, path = "/v1/approvals/{call}/answer", params(CallPath), request_body = AnswerBody,
    responses((status = 200, description = "The decision", body = DecisionView), (status = 409, description = "It was decided already")),
    security(("token" = ["approve"])),
)]
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
