//! `/v1/models`: the agents, which clients of OpenAI's API call models.

use std::sync::Arc;

use axum::{
    Json, Router,
    extract::{Path, State},
    routing::get,
};
use hermod_actors::model::AgentName;
use serde_json::{Value, json};

use super::error::ApiError;
use crate::service::{
    Service,
    authorization::{Granted, Read},
};

pub(super) fn routes() -> Router<Arc<Service>> {
    // The name of a model may have slashes.
    Router::new().route("/v1/models", get(list)).route("/v1/models/{*model}", get(show))
}

/// The agents that the token may use.
async fn list(granted: Granted<Read>, State(service): State<Arc<Service>>) -> Json<Value> {
    let models: Vec<Value> = granted.reach(service).agents().iter().map(model).collect();
    Json(json!({ "object": "list", "data": models }))
}

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
