//! `/livez` and `/readyz`: whether the process works, for its supervisor.

use std::sync::Arc;

use axum::{Router, extract::State, http::StatusCode, routing::get};

use crate::service::{Service, lifecycle::unready_reasons, problem::Problem};

pub(super) fn routes() -> Router<Arc<Service>> {
    Router::new().route("/livez", get(live)).route("/readyz", get(ready))
}

/// The process answers, and no message handler hangs.
async fn live(State(service): State<Arc<Service>>) -> Result<&'static str, Problem> {
    let stalled = service.runtime.health_probe().stalled_handlers();
    if stalled.is_empty() {
        return Ok("ok\n");
    }
    let detail = format!("{} message handlers do not return", stalled.len());
    Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail))
}

/// The service takes work.
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
