//! `/v1/deliveries`: messages to targets, and dead letters that are sent again.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, State},
};
use hermod_actors::model::DeliveryState;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{
    control::DeliveryFilter,
    service::{
        Service,
        authorization::{Admin, Granted, Read},
        extract::Query,
        operations::Operations,
        problem::Problem,
    },
    view::DeliveryView,
};

/// Messages of each state that a list has, if the request names no number, and at most.
const DEFAULT_ROWS: usize = 100;
const MAX_ROWS: usize = 1_000;

pub(super) fn routes() -> Operations {
    Operations::default().with(__path_list, list).with(__path_show, show).with(__path_retry, retry)
}

/// The query of a list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct DeliveriesQuery {
    /// Only those in this state; absent are those that are dead or pending.
    #[param(value_type = Option<StateName>, inline)]
    state: Option<DeliveryState>,
    /// Only those for this target.
    target: Option<String>,
    /// Most messages of each state: of pending ones the oldest, of others the newest.
    #[param(minimum = 1, maximum = 1_000)]
    max: Option<usize>,
}

/// The name of a state.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
#[expect(dead_code, reason = "only the document has it")]
enum StateName {
    Pending,
    Delivered,
    Dead,
}

/// A list of messages.
#[derive(Debug, Serialize, ToSchema)]
struct DeliveryList {
    /// The messages; their texts may be cut.
    items: Vec<DeliveryView>,
}

/// Lists messages to targets, the dead ones first
#[utoipa::path(
    get, path = "/v1/deliveries", params(DeliveriesQuery),
    responses((status = 200, description = "The messages", body = DeliveryList)),
    security(("token" = ["read"])),
)]
async fn list(
    granted: Granted<Read>,
    State(service): State<Arc<Service>>,
    Query(query): Query<DeliveriesQuery>,
) -> Result<Json<DeliveryList>, Problem> {
    let max = query.max.unwrap_or(DEFAULT_ROWS);
    if !(1..=MAX_ROWS).contains(&max) {
        return Err(Problem::unprocessable(format!("max: is not from 1 to {MAX_ROWS}")));
    }
    let filter = DeliveryFilter { state: query.state, target: query.target };
    let items = granted.reach(service).deliveries(&filter, max).await?;
    Ok(Json(DeliveryList { items }))
}

/// Shows a message to a target
#[utoipa::path(
    get, path = "/v1/deliveries/{delivery}",
    params(("delivery" = String, Path, description = "The id of the message")),
    responses((status = 200, description = "The message", body = DeliveryView)),
    security(("token" = ["read"])),
)]
async fn show(
    granted: Granted<Read>,
    State(service): State<Arc<Service>>,
    Path(id): Path<String>,
) -> Result<Json<DeliveryView>, Problem> {
    Ok(Json(granted.reach(service).delivery(&id).await?))
}

/// Sends a dead letter again, behind all other messages of its target
#[utoipa::path(
    post, path = "/v1/deliveries/{delivery}/retry",
    params(("delivery" = String, Path, description = "The id of the message")),
    responses(
        (status = 200, description = "It is pending again", body = DeliveryView),
        (status = 409, description = "It is not dead"),
    ),
    security(("token" = ["admin"])),
)]
async fn retry(
    granted: Granted<Admin>,
    State(service): State<Arc<Service>>,
    Path(id): Path<String>,
) -> Result<Json<DeliveryView>, Problem> {
    Ok(Json(granted.reach(service).retry_delivery(&id).await?))
}
