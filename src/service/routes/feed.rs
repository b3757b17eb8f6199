//! `/v1/events`: the records of all sessions.

use std::sync::Arc;

use axum::{extract::State, http::HeaderMap, response::Response};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::{
    service::{
        Service,
        authorization::{Granted, Read},
        events,
        extract::Query,
        fields::from_text,
        operations::Operations,
        problem::Problem,
    },
    view::schema,
};

pub(super) fn routes() -> Operations {
    Operations::default().with(__path_feed, feed)
}

/// The query of the feed.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct FeedQuery {
    /// The `id` of an event, or `0.0` for the beginning.
    #[serde(default, deserialize_with = "from_text")]
    #[param(value_type = String, required = false, pattern = "^[0-9]{1,18}[.][0-9]{1,9}$")]
    after: Option<hermod_actors::port::FeedCursor>,
}

/// The header of a client that reconnects.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "only the document has it")]
struct SeenEvent {
    /// The `id` of the last event that the client has seen.
    #[param(rename = "Last-Event-ID", required = false, pattern = "^[0-9]{1,18}[.][0-9]{1,9}$")]
    last: String,
}

/// The records of all sessions, in one durable order
///
/// They begin after the header, else after the parameter, else with the next record. The stream has no end.
#[utoipa::path(
    get, path = "/v1/events",
    params(FeedQuery, SeenEvent),
    responses((status = 200, description = "Server-sent events", body = schema::ServerSentEvent, content_type = "text/event-stream")),
    security(("token" = ["read"])),
)]
async fn feed(
    granted: Granted<Read>,
    State(service): State<Arc<Service>>,
    Query(query): Query<FeedQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    events::of_all(granted.reach(service), query.after, &headers).await
}
