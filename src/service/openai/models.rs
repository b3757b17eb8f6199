//! `/v1/models`: the agents, which clients of OpenAI's API call models.

use std::sync::Arc;

use axum::{Json, Router, extract::Path, routing::get};
use serde_json::{Value, json};

use super::error::ApiError;
use crate::{
    access::TokenEntry,
    service::{
        Service,
        authorization::{Granted, Read},
        routes::DEFAULT_AGENT,
    },
};

pub(super) fn routes() -> Router<Arc<Service>> {
    // The name of a model may have slashes.
    Router::new().route("/v1/models", get(list)).route("/v1/models/{*model}", get(show))
}

/// The agents that the token may use.
async fn list(granted: Granted<Read>) -> Json<Value> {
    let models: Vec<Value> = agents(&granted.token).map(model).collect();
    Json(json!({ "object": "list", "data": models }))
}

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
