//! Remote procedure calls: JSON-RPC 2.0 over `POST /rpc` and over a WebSocket at `GET /rpc`, and OpenClaw's gateway
//! protocol at `GET /gateway`. All call the same [`methods`], which are named as OpenClaw names them.
//!
//! `message.rs` and `gateway.rs` parse and write one framing each, and know no transport. `http.rs` and `socket.rs` are
//! the transports; `subscription.rs` has the events that a WebSocket gets. `docs/rpc.md` is the contract.

mod answer_budget;
mod client;
mod error;
mod framing;
mod gateway;
mod handshake;
mod http;
mod message;
mod methods;
mod params;
mod socket;
mod subscription;

use std::sync::Arc;

use axum::{Router, routing::get};

use super::Service;

pub(super) fn routes() -> Router<Arc<Service>> {
    Router::new()
        .route("/rpc", get(socket::upgrade).post(http::call))
        .route("/gateway", get(handshake::upgrade))
}
