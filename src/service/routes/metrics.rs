//! `/metrics`: the metrics of the service.

use std::sync::Arc;

use axum::{extract::State, http::HeaderMap, response::Response};

use crate::service::{
    Service,
    authorization::{Granted, Read},
    metrics::scrape,
    operations::Operations,
    problem::Problem,
};

pub(super) fn routes() -> Operations {
    Operations::default().with(__path_metrics, metrics)
}

/// All metrics, as OpenMetrics text
///
/// They tell of all agents: a token that is limited to some is refused.
#[utoipa::path(
    get, path = "/metrics",
    responses((status = 200, description = "The metrics", body = String, content_type = "application/openmetrics-text")),
    security(("token" = ["read"])),
)]
async fn metrics(
    granted: Granted<Read>,
    State(service): State<Arc<Service>>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    granted.check_unlimited("metrics tell of all agents")?;
    scrape(&service, &headers).await
}
