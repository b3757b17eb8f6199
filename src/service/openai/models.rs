//! `/v1/models`: the agents, which clients of OpenAI's API call models.

use std::sync::Arc;

use axum::{Json, extract::Path};
use serde_json::{Value, json};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::error::ApiError;
use crate::{
    access::TokenEntry,
    service::{
        Service,
        authorization::{Granted, Read},
        routes::DEFAULT_AGENT,
    },
};

pub(super) fn routes() -> OpenApiRouter<Arc<Service>> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(show))
}

/// The agents that the token may use
#[utoipa::path(
    get, path = "/v1/models",
    responses((status = 200, description = "The agents", body = ref("#/components/schemas/ModelList"))),
    security(("token" = ["read"])),
)]
async fn list(granted: Granted<Read>) -> Json<Value> {
    let models: Vec<Value> = agents(&granted.token).map(model).collect();
    Json(json!({ "object": "list", "data": models }))
}

/// An agent
// The name of a model may have slashes.
#[utoipa::path(
    get, path = "/v1/models/{*model}", params(("model" = String, Path, description = "The name of the agent")),
    responses((status = 200, description = "The agent", body = ref("#/components/schemas/ModelObject"))),
    security(("token" = ["read"])),
)]
async fn show(granted: Granted<Read>, Path(name): Path<String>) -> Result<Json<Value>, ApiError> {
    let agent = agents(&granted.token).find(|agent| *agent == name);
    agent.map(|agent| Json(model(agent))).ok_or_else(|| ApiError::no_agent(&name, DEFAULT_AGENT))
}

fn agents(token: &TokenEntry) -> impl Iterator<Item = &'static str> {
    [DEFAULT_AGENT].into_iter().filter(|agent| token.may_use_agent(agent))
}

/// An agent has no date.
fn model(agent: &str) -> Value {
    json!({ "id": agent, "object": "model", "created": 0, "owned_by": "hermod" })
}
