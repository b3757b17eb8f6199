//! `/v1/runs/{run}/artifacts/{artifact}`: outputs and images of a run that are kept as files.

use std::{io, sync::Arc};

use axum::{
    body::{Body, Bytes},
    extract::{Path, State},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use futures::stream;
use hermod_actors::port::{ArtifactError, ArtifactName};

use crate::service::{
    Service,
    authorization::{Granted, Read},
    extract::PathRun,
    operations::Operations,
    problem::Problem,
};

/// Bytes of an artifact that are read at once.
const CHUNK_BYTES: usize = 256 << 10;

pub(super) fn routes() -> Operations {
    Operations::default().with(__path_artifact, artifact)
}

/// The bytes of an artifact of a run
///
/// Its name is the `handle` that results and messages have.
#[utoipa::path(
    get, path = "/v1/runs/{run}/artifacts/{artifact}",
    params(PathRun, ("artifact" = String, Path, description = "The handle of the artifact")),
    responses(
        (status = 200, description = "The bytes", body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 410, description = "It was removed when its retention time was over"),
    ),
    security(("token" = ["read"])),
)]
async fn artifact(
    _: Granted<Read>,
    State(service): State<Arc<Service>>,
    PathRun(row): PathRun,
    Path((_, handle)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let name = ArtifactName::from_handle(row.session, &handle).filter(|name| name.call.run == row.id);
    let name =
        name.ok_or_else(|| Problem::not_found(format!("run {} has no artifact `{handle}`", row.id)))?;
    let first = service.runtime.read_artifact(name, 0, CHUNK_BYTES).await.map_err(problem)?;
    let total = first.total;
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream")),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment")),
        (header::CONTENT_LENGTH, total.into()),
    ];
    Ok((headers, Body::from_stream(chunks(service, name, first.bytes))).into_response())
}

/// All bytes, of which the first are read already. An error breaks the connection off.
fn chunks(
    service: Arc<Service>,
    name: ArtifactName,
    first: Bytes,
) -> impl futures::Stream<Item = io::Result<Bytes>> {
    stream::try_unfold((service, 0_u64, Some(first)), move |(service, offset, first)| async move {
        let bytes = if let Some(first) = first {
            first
        } else {
            let read = service.runtime.read_artifact(name, offset, CHUNK_BYTES).await;
            read.map_err(io::Error::other)?.bytes
        };
        let next = offset + bytes.len() as u64;
        Ok((!bytes.is_empty()).then_some((bytes, (service, next, None))))
    })
}

fn problem(error: ArtifactError) -> Problem {
    let status = match &error {
        ArtifactError::NotFound(_) => StatusCode::NOT_FOUND,
        ArtifactError::Removed { .. } => StatusCode::GONE,
        ArtifactError::Altered(_) => StatusCode::INTERNAL_SERVER_ERROR,
        ArtifactError::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
    };
    Problem::new(status, error.to_string())
}
