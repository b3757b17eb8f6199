//! Form requests (`application/x-www-form-urlencoded`) to one URL, such as those that fetch keys.

use std::{fmt, sync::OnceLock, time::Duration};

use hermod_actors::ActiveDeadline;
use http::header;
use reqwest::{Client, Url};

use super::{
    client::{build_client, read_prefix, root_cause},
    config::parse_base_url,
};
use crate::{
    provider::{credential::KeyError, failure::BodyEnd},
    secret::redacted_url,
};

/// Time limits of the connection and of the whole request.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum number of bytes read of a response.
const MAX_BODY_BYTES: usize = 64 * 1024;

/// Sends forms to one URL.
pub struct FormClient {
    url: Url,
    /// The URL without secrets, for messages.
    redacted_url: String,
    client: OnceLock<Client>,
}

/// A response to a form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormResponse {
    /// The HTTP status.
    pub status: u16,
    /// The start of the body.
    pub body: Vec<u8>,
}

impl FormClient {
    /// Touches no network. The error describes what is wrong with the URL.
    pub fn new(url: &str) -> Result<Self, String> {
        Ok(Self { url: parse_base_url(url)?, redacted_url: redacted_url(url), client: OnceLock::new() })
    }

    /// The URL without secrets, for messages.
    pub fn redacted_url(&self) -> &str {
        &self.redacted_url
    }

    /// Sends a form. Errors contain none of its fields.
    pub async fn post(&self, fields: &[(&str, &str)]) -> Result<FormResponse, KeyError> {
        let result = ActiveDeadline::after(REQUEST_TIMEOUT).bound(self.send(fields)).await;
        result.unwrap_or_else(|| {
            let (url, seconds) = (&self.redacted_url, REQUEST_TIMEOUT.as_secs());
            Err(KeyError::Unreachable(format!("{url} did not answer within {seconds} s")))
        })
    }

    fn client(&self) -> Result<&Client, KeyError> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let client = build_client(&self.url, CONNECT_TIMEOUT)
            .map_err(|error| self.network_error("cannot set up a connection to", &*error))?;
        Ok(self.client.get_or_init(|| client))
    }

    async fn send(&self, fields: &[(&str, &str)]) -> Result<FormResponse, KeyError> {
        let client = self.client()?;
        let request = client
            .post(self.url.clone())
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(header::ACCEPT, "application/json")
            .body(self.encode(fields));
        let response = request.send().await;
        let mut response = response.map_err(|error| self.network_error("no answer came from", &error))?;
        let mut body = Vec::new();
        // A cut body could be mistaken for a refusal.
        if read_prefix(&mut response, MAX_BODY_BYTES, &mut body).await == BodyEnd::Broken {
            return Err(KeyError::Unreachable(format!("the answer of {} broke off", self.redacted_url)));
        }
        Ok(FormResponse { status: response.status().as_u16(), body })
    }

    /// Encodes a form in the syntax of URL queries.
    fn encode(&self, fields: &[(&str, &str)]) -> String {
        let mut url = self.url.clone();
        url.query_pairs_mut().clear().extend_pairs(fields);
        url.query().unwrap_or_default().to_owned()
    }

    fn network_error(&self, what: &str, error: &(dyn std::error::Error + 'static)) -> KeyError {
        KeyError::Unreachable(format!("{what} {}: {}", self.redacted_url, root_cause(error)))
    }
}

impl fmt::Debug for FormClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FormClient").field("url", &self.redacted_url).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_encoded() {
        let forms = FormClient::new("https://host/token?tenant=1").unwrap();
        assert_eq!(forms.encode(&[("a", "b c"), ("d", "&=+ü")]), "a=b+c&d=%26%3D%2B%C3%BC");
        assert_eq!(forms.redacted_url(), "https://host/token?…");
        FormClient::new("ftp://host").unwrap_err();
    }
}
