//! The dashboard: pages of the service for a browser, at `/`. They are files of the program, use the operations of the
//! public API alone, and need nothing from elsewhere. `assets.rs` has the files, `sign_in.rs` how a browser presents a
//! token. docs/dashboard.md describes it, docs/decisions/dashboard.md says why it is as it is.

mod assets;
mod sign_in;

use std::sync::Arc;

use axum::{
    Router,
    body::Body,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
    routing::{get, post},
};
use hermod_actors::model::Hash;

use super::Service;
use assets::{ASSETS, Asset};
pub(super) use sign_in::presented;

const SIGN_IN: &str = "/login";
const SIGN_OUT: &str = "/logout";

/// What the pages may load and do: scripts, styles and requests of their own origin. Texts can become no code: nothing is
/// inline, and the sinks of the document that would make code of a text are closed.
const CONTENT_SECURITY_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; \
     base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
);

/// Headers of each file.
const HEADERS: [(header::HeaderName, HeaderValue); 6] = [
    (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    (header::HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
    // A browser asks each time whether the file is still the same, so that a new version holds at once.
    (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
];

/// True for paths that need no token: the files are the same for all and tell nothing, and a sign-in brings its token.
pub(super) fn is_open(path: &str) -> bool {
    path == SIGN_IN || path == SIGN_OUT || ASSETS.iter().any(|asset| asset.path == path)
}

/// The files, and signing in and out. The OpenAPI document does not have them: they are for browsers.
pub(super) fn routes() -> Router<Arc<Service>> {
    let router =
        Router::new().route(SIGN_IN, post(sign_in::sign_in)).route(SIGN_OUT, post(sign_in::sign_out));
    ASSETS.iter().fold(router, |router, asset| {
        let tag = format!("\"{}\"", Hash::of(asset.text.as_bytes()));
        router.route(asset.path, get(async move |headers: HeaderMap| serve(asset, &tag, &headers)))
    })
}

fn serve(asset: &Asset, tag: &str, request: &HeaderMap) -> Response {
    let known = request.get(header::IF_NONE_MATCH).and_then(|known| known.to_str().ok()).unwrap_or_default();
    let is_known = known.split(',').any(|known| known.trim().trim_start_matches("W/") == tag);
    let mut response = if is_known {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        Response::new(Body::from(asset.text))
    };
    let headers = response.headers_mut();
    headers.extend(HEADERS);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(asset.media));
    if let Ok(tag) = HeaderValue::from_str(tag) {
        headers.insert(header::ETAG, tag);
    }
    response
}
