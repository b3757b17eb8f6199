//! Uploads bytes to one URL: the spans of traces, and deliveries to webhooks.

use std::{fmt, time::Duration};

use bytes::Bytes;
use hermod_actors::ActiveDeadline;
use http::{HeaderMap, HeaderValue, header};
use reqwest::{Client, Url};

use super::{
    client::{build_client, read_prefix, root_cause},
    config::parse_base_url,
};
use crate::{provider::failure::BodyEnd, secret::redacted_url};

/// Time limit of the connection, and that of the whole request unless the caller sets one.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of bytes read of a response.
const MAX_BODY_BYTES: usize = 64 * 1024;

/// Uploads to one URL.
pub struct UploadClient {
    url: Url,
    /// The URL without secrets, for messages.
    redacted_url: String,
    headers: HeaderMap,
    client: Client,
    timeout: Duration,
}

/// A response to an upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadResponse {
    /// The HTTP status.
    pub status: u16,
    /// The header `Retry-After`.
    pub retry_after: Option<String>,
    /// The start of the body.
    pub body: Vec<u8>,
}

impl UploadClient {
    /// Touches no network. Each request has these headers, which are not shown. The error describes what is wrong with the
    /// URL.
    pub fn new(url: &str, content_type: &'static str, mut headers: HeaderMap) -> Result<Self, String> {
        let (url, redacted_url) = (parse_base_url(url)?, redacted_url(url));
        let client = build_client(&url, CONNECT_TIMEOUT)
            .map_err(|error| format!("cannot set up a connection to {redacted_url}: {error}"))?;
        headers.values_mut().for_each(|value| value.set_sensitive(true));
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        Ok(Self { url, redacted_url, headers, client, timeout: REQUEST_TIMEOUT })
    }

    /// This client with another time limit of a whole request.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// The URL without secrets, for messages.
    pub fn redacted_url(&self) -> &str {
        &self.redacted_url
    }

    /// Uploads bytes. The error says why there is no answer.
    pub async fn post(&self, bytes: Bytes) -> Result<UploadResponse, String> {
        self.upload(HeaderMap::new(), bytes, (self.timeout, MAX_BODY_BYTES)).await
    }

    /// Uploads bytes with further headers, as [`UploadClient::post`] does. The head of the answer decides: its body is not
    /// read.
    pub async fn post_with(&self, headers: HeaderMap, bytes: Bytes) -> Result<UploadResponse, String> {
        self.upload(headers, bytes, (self.timeout, 0)).await
    }

    /// Uploads bytes as [`UploadClient::post`] does, with this time limit, and reads at most so many bytes of the answer.
    pub async fn post_within(
        &self,
        bytes: Bytes,
        limit: Duration,
        max_bytes: usize,
    ) -> Result<UploadResponse, String> {
        self.upload(HeaderMap::new(), bytes, (limit, max_bytes)).await
    }

    async fn upload(
        &self,
        headers: HeaderMap,
        bytes: Bytes,
        (limit, max_bytes): (Duration, usize),
    ) -> Result<UploadResponse, String> {
        let result = ActiveDeadline::after(limit).bound(self.send(headers, bytes, max_bytes)).await;
        result.unwrap_or_else(|| Err(format!("no answer within {limit:?}")))
    }

    async fn send(
        &self,
        headers: HeaderMap,
        bytes: Bytes,
        max_bytes: usize,
    ) -> Result<UploadResponse, String> {
        let request =
            self.client.post(self.url.clone()).headers(self.headers.clone()).headers(headers).body(bytes);
        let mut response = request.send().await.map_err(|error| root_cause(&error))?;
        let retry_after = response.headers().get(header::RETRY_AFTER);
        let retry_after = retry_after.and_then(|value| value.to_str().ok()).map(str::to_owned);
        let status = response.status().as_u16();
        let mut body = Vec::new();
        if max_bytes > 0 && read_prefix(&mut response, max_bytes, &mut body).await == BodyEnd::Broken {
            return Err("the answer broke off".to_owned());
        }
        Ok(UploadResponse { status, retry_after, body })
    }
}

impl fmt::Debug for UploadClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UploadClient").field("url", &self.redacted_url).finish_non_exhaustive()
    }
}
