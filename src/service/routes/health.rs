//! `/livez` and `/readyz`: whether the process works, for its supervisor.

use std::sync::Arc;

use axum::{extract::State, http::StatusCode};

use crate::service::{Service, lifecycle::unready_reasons, operations::Operations, problem::Problem};

pub(super) fn routes() -> Operations {
    Operations::default().with(__path_live, live).with(__path_ready, ready)
}

/// Whether the process works
///
/// The process answers, and no message handler hangs.
#[utoipa::path(get, path = "/livez", responses(
    (status = 200, description = "It works", body = String, content_type = "text/plain"),
    (status = 503, description = "A message handler does not return"),
))]
async fn live(State(service): State<Arc<Service>>) -> Result<&'static str, Problem> {
    let stalled = service.runtime.health_probe().stalled_handlers();
    if stalled.is_empty() {
        return Ok("ok\n");
    }
    let detail = format!("{} message handlers do not return", stalled.len());
    Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail))
}

/// Whether the service takes work
#[utoipa::path(get, path = "/readyz", responses(
    (status = 200, description = "It does", body = String, content_type = "text/plain"),
    (status = 503, description = "It is stopping, or tries unfinished runs one at a time after crashes"),
))]
async fn ready(state: State<Arc<Service>>) -> Result<&'static str, Problem> {
    if state.closing.is_cancelled() {
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the service is stopping"));
    }
    let reasons = unready_reasons(&state.runtime, &state.submitter);
    if reasons.is_empty() {
        return Ok("ok\n");
    }
    Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, reasons.join("; ")))
}
