//! `/v1/events`: the records of all sessions.

use std::sync::Arc;

use axum::{Router, extract::State, http::HeaderMap, response::Response, routing::get};
use serde::Deserialize;

use crate::service::{
    Service,
    authorization::{Granted, Read},
    events,
    extract::Query,
    fields::from_text,
    problem::Problem,
};

pub(super) fn routes() -> Router<Arc<Service>> {
    Router::new().route("/v1/events", get(feed))
}

/// The query of the feed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FeedQuery {
    /// The `id` of an event, or `0.0` for the beginning.
    #[serde(default, deserialize_with = "from_text")]
    after: Option<hermod_actors::port::FeedCursor>,
}

/// The records of all sessions, in one durable order.
async fn feed(
    granted: Granted<Read>,
    State(service): State<Arc<Service>>,
    Query(query): Query<FeedQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    events::of_all(granted.reach(service), query.after, &headers).await
}
