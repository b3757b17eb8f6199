//! Calls an API that has its methods below one base URL. Paths may have secrets, so no message shows one.

use std::{fmt, time::Duration};

use bytes::Bytes;
use hermod_actors::ActiveDeadline;
use http::{HeaderValue, header};
use reqwest::{Client, RequestBuilder, Url};

use super::{
    client::{build_client, read_prefix, root_cause},
    config::parse_base_url,
};
use crate::{provider::failure::BodyEnd, secret::redacted_url};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Calls the methods of one API.
pub struct ApiClient {
    base: Url,
    client: Client,
}

/// Bounds of a call.
#[derive(Debug, Clone, Copy)]
pub struct CallLimits {
    /// Time limit of the whole call.
    pub time: Duration,
    /// Most bytes of the response's body; a longer one is an error.
    pub bytes: usize,
}

/// A body of `multipart/form-data`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormBody {
    /// What separates its parts.
    pub boundary: String,
    /// The parts.
    pub bytes: Bytes,
}

/// A response with its whole body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiResponse {
    /// The HTTP status.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
}

impl ApiClient {
    /// Touches no network. The error describes what is wrong with the URL.
    pub fn new(base: &str) -> Result<Self, String> {
        let (base, shown) = (parse_base_url(base)?, redacted_url(base));
        let client = build_client(&base, CONNECT_TIMEOUT)
            .map_err(|error| format!("cannot set up a connection to {shown}: {error}"))?;
        Ok(Self { base, client })
    }

    /// Posts JSON to a method below the base URL. The error says why there is no answer.
    pub async fn post(&self, path: &str, json: Bytes, limits: CallLimits) -> Result<ApiResponse, String> {
        let request = self.client.post(self.url(path)).body(json);
        let json = HeaderValue::from_static("application/json");
        call(request.header(header::CONTENT_TYPE, json), limits).await
    }

    /// Posts a form with files to a method below the base URL. The error says why there is no answer.
    pub async fn post_form(
        &self,
        path: &str,
        form: FormBody,
        limits: CallLimits,
    ) -> Result<ApiResponse, String> {
        let media_type = format!("multipart/form-data; boundary={}", form.boundary);
        let media_type = HeaderValue::try_from(media_type).map_err(|error| error.to_string())?;
        let request = self.client.post(self.url(path)).body(form.bytes);
        call(request.header(header::CONTENT_TYPE, media_type), limits).await
    }

    /// Gets what lies below the base URL. The error says why there is no answer.
    pub async fn get(&self, path: &str, limits: CallLimits) -> Result<ApiResponse, String> {
        call(self.client.get(self.url(path)), limits).await
    }

    fn url(&self, path: &str) -> Url {
        let mut url = self.base.clone();
        url.set_path(&format!("{}/{path}", self.base.path().trim_end_matches('/')));
        url
    }
}

async fn call(request: RequestBuilder, limits: CallLimits) -> Result<ApiResponse, String> {
    let calling = async {
        let mut response = request.send().await.map_err(|error| root_cause(&error))?;
        let (status, mut body) = (response.status().as_u16(), Vec::new());
        match read_prefix(&mut response, limits.bytes, &mut body).await {
            BodyEnd::Broken => Err("the answer broke off".to_owned()),
            BodyEnd::Limit => Err(format!("the answer has more than {} bytes", limits.bytes)),
            BodyEnd::Complete => Ok(ApiResponse { status, body }),
        }
    };
    let result = ActiveDeadline::after(limits.time).bound(calling).await;
    result.unwrap_or_else(|| Err(format!("no answer within {:?}", limits.time)))
}

impl fmt::Debug for ApiClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiClient").field("host", &self.base.host_str()).finish_non_exhaustive()
    }
}
