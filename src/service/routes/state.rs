//! `/v1/tree` and `/v1/providers`: what the runtime does at the moment.

use std::sync::Arc;

use axum::{Json, extract::State};
use hermod_actors::ProviderStatus;

use crate::{
    service::{
        Service,
        authorization::{Granted, Read},
        operations::Operations,
        problem::Problem,
    },
    view::{NodeView, schema},
};

pub(super) fn routes() -> Operations {
    Operations::default().with(__path_tree, tree).with(__path_providers, providers)
}

/// All unfinished runs with their subagents
#[utoipa::path(
    get, path = "/v1/tree",
    responses((status = 200, description = "The runs that are no subagents'", body = Vec<NodeView>)),
    security(("token" = ["read"])),
)]
async fn tree(
    granted: Granted<Read>,
    State(service): State<Arc<Service>>,
) -> Result<Json<Vec<NodeView>>, Problem> {
    Ok(Json(granted.reach(service).tree().await?))
}

/// Which models are available, and which are not for a while
#[utoipa::path(
    get, path = "/v1/providers",
    responses((status = 200, description = "The providers that runs use", body = Vec<schema::Provider>)),
    security(("token" = ["read"])),
)]
async fn providers(
    _: Granted<Read>,
    State(service): State<Arc<Service>>,
) -> Result<Json<Vec<ProviderStatus>>, Problem> {
    Ok(Json(service.runtime.providers().await))
}
