//! `/openapi.json`: the operations of the service, for programs.

use std::sync::Arc;

use axum::{
    Extension,
    http::{HeaderValue, header},
    response::{IntoResponse as _, Response},
};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::service::{Service, document::Document};

const MEDIA_TYPE: HeaderValue = HeaderValue::from_static("application/json");

pub(super) fn routes() -> OpenApiRouter<Arc<Service>> {
    OpenApiRouter::new().routes(routes!(show))
}

/// This document
///
/// It needs no token, as it tells nothing of this installation but its version.
#[utoipa::path(get, path = "/openapi.json", responses((status = 200, description = "The document", body = Object)))]
async fn show(Extension(Document(bytes)): Extension<Document>) -> Response {
    ([(header::CONTENT_TYPE, MEDIA_TYPE)], bytes).into_response()
}
