//! The operations of the service: a file per resource, each with its routes.

mod approvals;
mod feed;
mod health;
mod metrics;
mod runs;
mod sessions;
mod state;

use std::sync::Arc;

use axum::{Router, extract::OriginalUri, http::Method, middleware};

use super::{Service, authorization::authorize, openai, problem::Problem, rpc};

pub(super) use runs::idempotency_key;

/// All routes. Each request is authorized first.
pub(super) fn router(service: Arc<Service>) -> Router {
    Router::new()
        .merge(health::routes())
        .merge(metrics::routes())
        .merge(runs::routes())
        .merge(sessions::routes())
        .merge(approvals::routes())
        .merge(state::routes())
        .merge(feed::routes())
        .merge(openai::routes())
        .merge(rpc::routes())
        .fallback(unknown)
        .method_not_allowed_fallback(not_allowed)
        .layer(middleware::from_fn_with_state(Arc::clone(&service), authorize))
        .layer(middleware::from_fn(openai::render_errors))
        .with_state(service)
}

async fn unknown(OriginalUri(uri): OriginalUri) -> Problem {
    Problem::not_found(format!("there is no resource `{}`; see docs/service.md", uri.path()))
}

async fn not_allowed(method: Method, OriginalUri(uri): OriginalUri) -> Problem {
    let status = axum::http::StatusCode::METHOD_NOT_ALLOWED;
    Problem::new(status, format!("`{}` has no operation {method}", uri.path()))
}
