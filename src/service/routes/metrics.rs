//! `/metrics`: the metrics of the service.

use std::sync::Arc;

use axum::{Router, extract::State, http::HeaderMap, response::Response, routing::get};

use crate::service::{
    Service,
    authorization::{Granted, Read},
    metrics::scrape,
    problem::Problem,
};

pub(super) fn routes() -> Router<Arc<Service>> {
    Router::new().route("/metrics", get(metrics))
}

/// All metrics, as OpenMetrics text.
async fn metrics(
    _: Granted<Read>,
    State(service): State<Arc<Service>>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    scrape(&service, &headers).await
}
