//! `/v1/tree`, `/v1/providers` and `/v1/supervision`: what the runtime does at the moment. `/v1/token`: what the client may do.

use std::sync::Arc;

use axum::{Json, extract::State};
use hermod_actors::ProviderStatus;

use crate::{
    service::{
        Service,
        authorization::{Granted, Read},
        lifecycle::unready_reasons,
        operations::Operations,
        problem::Problem,
    },
    view::{NodeView, SupervisionView, TokenView, schema},
};

pub(super) fn routes() -> Operations {
    Operations::default()
        .with(__path_tree, tree)
        .with(__path_providers, providers)
        .with(__path_supervision, supervision)
        .with(__path_token, token)
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

/// The supervisors and their children, with their restarts
///
/// They belong to all agents: a token that is limited to some is refused.
#[utoipa::path(
    get, path = "/v1/supervision",
    responses((status = 200, description = "The actors", body = SupervisionView)),
    security(("token" = ["read"])),
)]
async fn supervision(
    granted: Granted<Read>,
    State(service): State<Arc<Service>>,
) -> Result<Json<SupervisionView>, Problem> {
    granted.check_unlimited("the actors work for all agents")?;
    let tree = service.runtime.supervision_tree().await?;
    let reasons = unready_reasons(&service.runtime, &service.submitter);
    Ok(Json(SupervisionView::new(tree, service.metrics.started_at, reasons)))
}

/// The token of the request: what it may do
#[utoipa::path(
    get, path = "/v1/token",
    responses((status = 200, description = "The token, without itself", body = TokenView)),
    security(("token" = ["read"])),
)]
async fn token(granted: Granted<Read>) -> Json<TokenView> {
    Json(TokenView::from((*granted.token).clone()))
}
