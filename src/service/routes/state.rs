//! `/v1/tree` and `/v1/providers`: what the runtime does at the moment.

use std::sync::Arc;

use axum::{Json, Router, extract::State, routing::get};
use hermod_actors::ProviderStatus;

use crate::{
    service::{
        Service,
        authorization::{Granted, Read},
        problem::Problem,
    },
    view::NodeView,
};

pub(super) fn routes() -> Router<Arc<Service>> {
    Router::new().route("/v1/tree", get(tree)).route("/v1/providers", get(providers))
}

/// All unfinished runs with their subagents.
async fn tree(
    granted: Granted<Read>,
    State(service): State<Arc<Service>>,
) -> Result<Json<Vec<NodeView>>, Problem> {
    Ok(Json(granted.reach(service).tree().await?))
}

/// Which models are available, and which are not for a while.
async fn providers(
    _: Granted<Read>,
    State(service): State<Arc<Service>>,
) -> Result<Json<Vec<ProviderStatus>>, Problem> {
    Ok(Json(service.runtime.providers().await))
}
