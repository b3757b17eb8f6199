//! The operations of the service: a file per resource, each with its routes.

mod approvals;
mod artifacts;
mod deliveries;
mod document;
mod feed;
mod health;
mod inbound;
mod messages;
mod metrics;
mod records;
mod replies;
mod report;
mod runs;
mod schedules;
mod session_queue;
mod sessions;
mod state;
mod usage;

use std::sync::Arc;

use axum::{
    Extension, Router,
    extract::OriginalUri,
    http::{Method, StatusCode, header},
    middleware,
    response::IntoResponse,
};

use super::{
    Service, authorization::authorize, dashboard, document::Document, openai, operations::Operations,
    problem::Problem, rpc,
};

pub(super) use runs::{IdempotencyKey, idempotency_key};

/// All operations.
fn operations() -> Operations {
    Operations::default()
        .merge(health::routes())
        .merge(metrics::routes())
        .merge(document::routes())
        .merge(runs::routes())
        .merge(records::routes())
        .merge(replies::routes())
        .merge(artifacts::routes())
        .merge(sessions::routes())
        .merge(session_queue::routes())
        .merge(messages::routes())
        .merge(approvals::routes())
        .merge(deliveries::routes())
        .merge(inbound::routes())
        .merge(schedules::routes())
        .merge(state::routes())
        .merge(usage::routes())
        .merge(report::routes())
        .merge(feed::routes())
        .merge(openai::routes())
}

/// All routes. Each request is authorized first.
pub(super) fn router(service: Arc<Service>) -> Router {
    let (routes, descriptions) = operations().into_parts();
    routes
        .merge(rpc::routes())
        .merge(if service.dashboard { dashboard::routes() } else { Router::new() })
        .layer(Extension(Arc::new(Document::of(descriptions))))
        .fallback(unknown)
        .method_not_allowed_fallback(not_allowed)
        .layer(middleware::from_fn_with_state(Arc::clone(&service), authorize))
        .layer(middleware::from_fn(openai::render_errors))
        .with_state(service)
}

/// The routes of connections above the limit: a supervisor must not take a busy service for a dead one.
pub(super) fn probes(service: Arc<Service>) -> Router {
    let (routes, _) = health::routes().into_parts();
    routes
        .fallback(crowded)
        .layer(middleware::from_fn_with_state(Arc::clone(&service), authorize))
        .layer(middleware::from_fn(openai::render_errors))
        .with_state(service)
}

async fn crowded() -> impl IntoResponse {
    let text =
        "there are as many connections as service.connections allows; try again later, with the same key";
    ([(header::RETRY_AFTER, "1")], Problem::new(StatusCode::SERVICE_UNAVAILABLE, text))
}

async fn unknown(OriginalUri(uri): OriginalUri) -> Problem {
    Problem::not_found(format!("there is no resource `{}`; see docs/service.md", uri.path()))
}

async fn not_allowed(method: Method, OriginalUri(uri): OriginalUri) -> Problem {
    let status = StatusCode::METHOD_NOT_ALLOWED;
    Problem::new(status, format!("`{}` has no operation {method}", uri.path()))
}
