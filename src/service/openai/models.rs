//! `/v1/models`: the agents, which clients of OpenAI's API call models.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, State},
};
use hermod_actors::model::AgentName;
use serde_json::{Value, json};

use super::error::ApiError;
use crate::service::{
    Service,
    authorization::{Granted, Read},
    operations::Operations,
};

pub(super) fn routes() -> Operations {
    Operations::default().with(__path_list, list).with(__path_show, show)
}

/// The agents that the token may use
#[utoipa::path(
    get, path = "/v1/models",
    responses((status = 200, description = "The agents", body = ref("#/components/schemas/ModelList"))),
    security(("token" = ["read"])),
)]
async fn list(granted: Granted<Read>, State(service): State<Arc<Service>>) -> Json<Value> {
    let models: Vec<Value> = granted.reach(service).agents().iter().map(model).collect();
    Json(json!({ "object": "list", "data": models }))
}

/// An agent
// The name of a model may have slashes.
#[utoipa::path(
    get, path = "/v1/models/{*model}", params(("model" = String, Path, description = "The name of the agent")),
    responses((status = 200, description = "The agent", body = ref("#/components/schemas/ModelObject"))),
    security(("token" = ["read"])),
)]
async fn show(
    granted: Granted<Read>,
    State(service): State<Arc<Service>>,
    Path(name): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let agents = granted.reach(service).agents();
    let agent = agents.iter().find(|agent| agent.as_str() == name);
    agent.map(|agent| Json(model(agent))).ok_or_else(|| ApiError::no_agent(&name, &agents))
}

/// An agent has no date.
fn model(agent: &AgentName) -> Value {
    json!({ "id": agent, "object": "model", "created": 0, "owned_by": "hermod" })
}
