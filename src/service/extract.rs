//! What operations take out of requests: bodies, ids and query parameters, each with an error that names the field.

use std::{sync::Arc, time::Duration};

use axum::{
    body::to_bytes,
    extract::{FromRequest, FromRequestParts, Request},
    http::{HeaderMap, StatusCode, header, request::Parts},
};
use bytes::Bytes;
use hermod_actors::model::{Hash, RunId, RunRow};
use http_body::Body as _;
use serde::de::DeserializeOwned;
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::timeout,
};
use utoipa::IntoParams;

use super::{Service, problem::Problem, reach::Reach};
use crate::view::schema;

/// Most bytes of a body. A task may bring a conversation with it.
pub(super) const MAX_BODY_BYTES: usize = 8 << 20;
/// KiB that the bodies of all clients may have together while they are read.
static BODIES: Semaphore = Semaphore::const_new(128 * 1024);
/// Time in which a body must be complete.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// The bytes of a body that is said to be JSON, with the memory that they take.
#[derive(Debug)]
pub(super) struct JsonText {
    pub(super) bytes: Bytes,
    _space: SemaphorePermit<'static>,
}

impl<S: Sync> FromRequest<S> for JsonText {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        if !is_json(request.headers()) {
            let text = "the header Content-Type is not application/json";
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
        }
        let (bytes, space) = read_body(request, MAX_BODY_BYTES, &BODIES).await?;
        Ok(Self { bytes, _space: space })
    }
}

/// The bytes of a body of at most this many, with the memory that they take of `space`.
pub(super) async fn read_body(
    request: Request,
    max_bytes: usize,
    space: &'static Semaphore,
) -> Result<(Bytes, SemaphorePermit<'static>), Problem> {
    let space = body_space(&request, max_bytes, space)?;
    let read = timeout(BODY_TIMEOUT, to_bytes(request.into_body(), max_bytes)).await;
    let bytes = read
        .map_err(|_| {
            let text = format!("the body was not complete after {} s", BODY_TIMEOUT.as_secs());
            Problem::new(StatusCode::REQUEST_TIMEOUT, text)
        })?
        .map_err(|error| {
            let text = format!("the body cannot be read, or is longer than {max_bytes} bytes: {error}");
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, text)
        })?;
    Ok((bytes, space))
}

/// A JSON body, and its hash.
#[derive(Debug)]
pub(super) struct JsonBody<T> {
    pub(super) value: T,
    pub(super) hash: Hash,
}

impl<T: DeserializeOwned, S: Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let JsonText { bytes, _space } = JsonText::from_request(request, state).await?;
        // A list would be read as the fields in the order of their declaration.
        if bytes.trim_ascii_start().first().is_some_and(|first| *first == b'[') {
            return Err(Problem::bad_request("the body is a list; it must be a JSON object"));
        }
        let mut json = serde_json::Deserializer::from_slice(&bytes);
        let value = serde_path_to_error::deserialize(&mut json).map_err(|error| {
            // A text that is no JSON has no field that is wrong.
            if !error.inner().is_data() {
                return Problem::bad_request(error.inner().to_string());
            }
            let field = error.path().to_string();
            if field == "." {
                return Problem::unprocessable(error.inner().to_string());
            }
            Problem::unprocessable(format!("{field}: {}", error.inner())).with_field(field)
        })?;
        json.end().map_err(|error| Problem::bad_request(error.to_string()))?;
        Ok(Self { value, hash: Hash::of(&bytes) })
    }
}

/// Takes memory for a body, of which all clients have so much together.
fn body_space(
    request: &Request,
    max_bytes: usize,
    space: &'static Semaphore,
) -> Result<SemaphorePermit<'static>, Problem> {
    let bytes = request.body().size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok());
    let kib = bytes.unwrap_or(max_bytes).min(max_bytes) / 1024 + 1;
    space.try_acquire_many(u32::try_from(kib).unwrap_or(u32::MAX)).map_err(|_| {
        let text = "other requests take the memory for bodies; try again in a moment";
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, text)
    })
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/json")
}

/// A JSON body that may be left out.
#[derive(Debug)]
pub(super) struct OptionalJsonBody<T>(pub(super) T);

impl<T: DeserializeOwned + Default, S: Sync> FromRequest<S> for OptionalJsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        if request.body().size_hint().exact() == Some(0) {
            return Ok(Self(T::default()));
        }
        let body = JsonBody::<Option<T>>::from_request(request, state).await?;
        Ok(Self(body.value.unwrap_or_default()))
    }
}

/// The query of a request; unknown parameters are refused.
#[derive(Debug)]
pub(super) struct Query<T>(pub(super) T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let query = parts.uri.query().unwrap_or_default();
        let read = serde_urlencoded::from_str(query);
        read.map(Self).map_err(|error| Problem::bad_request(format!("the query `{query}`: {error}")))
    }
}

/// The row of the run in the path, which the token of the request reaches.
#[derive(Debug, IntoParams)]
#[into_params(names("run"), parameter_in = Path)]
pub(super) struct PathRun(#[param(value_type = schema::Id)] pub(super) RunRow);

impl FromRequestParts<Arc<Service>> for PathRun {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, service: &Arc<Service>) -> Result<Self, Problem> {
        let id = path_parameter(parts, service).await?;
        let unknown = || Problem::not_found(format!("there is no run `{id}`"));
        let run: RunId = id.parse().map_err(|_| unknown())?;
        let row = Reach::of_request(parts, service)?.run(run).await?;
        row.map(Self).ok_or_else(unknown)
    }
}

/// The first parameter of the path.
pub(super) async fn path_parameter(parts: &mut Parts, service: &Arc<Service>) -> Result<String, Problem> {
    let parameters = axum::extract::RawPathParams::from_request_parts(parts, service).await;
    let parameters = parameters.map_err(|error| Problem::bad_request(error.to_string()))?;
    Ok(parameters.iter().next().map_or_else(String::new, |(_, value)| value.to_owned()))
}

/// The parameter of the path, decoded.
#[derive(Debug)]
pub(super) struct PathName(pub(super) String);

impl FromRequestParts<Arc<Service>> for PathName {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, service: &Arc<Service>) -> Result<Self, Problem> {
        path_parameter(parts, service).await.map(Self)
    }
}
