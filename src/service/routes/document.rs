//! `/openapi.json`: the operations of the service, for programs.

use std::sync::Arc;

use axum::{
    Extension,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};

use crate::service::{document::Document, operations::Operations, problem::Problem};

const MEDIA_TYPE: HeaderValue = HeaderValue::from_static("application/json");

pub(super) fn routes() -> Operations {
    Operations::default().with(__path_show, show)
}

/// This document
///
/// It needs no token, as it tells nothing of this installation but its version.
#[utoipa::path(get, path = "/openapi.json", responses((status = 200, description = "The document", body = Object)))]
async fn show(Extension(document): Extension<Arc<Document>>) -> Result<Response, Problem> {
    let bytes = document.render().map_err(|error| {
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, format!("the document cannot be rendered: {error}"))
    })?;
    Ok(([(header::CONTENT_TYPE, MEDIA_TYPE)], bytes).into_response())
}
