use std::{fmt, sync::OnceLock, time::Duration};

use hermod_actors::ActiveDeadline;
use http::header;
use reqwest::{Client, Url};

use super::{
    client::{begin_of, client, root_cause},
    config::parse_base_url,
};
use crate::{provider::failure::BodyEnd, secret::shown_url};

/// How long a connection may take, and all of it.
const CONNECT: Duration = Duration::from_secs(10);
const WHOLE: Duration = Duration::from_secs(20);
/// Bytes of an answer that are read.
const BODY: usize = 64 * 1024;

/// Sends forms to one URL.
pub struct Forms {
    url: Url,
    /// The URL as people may see it.
    shown: String,
    client: OnceLock<Client>,
}

/// An answer to a form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// Its status.
    pub status: u16,
    /// The begin of its body.
    pub body: Vec<u8>,
}

/// Why no answer came.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotPosted(String);

impl Forms {
    /// Touches no network. The error says what is wrong with the URL.
    pub fn new(url: &str) -> Result<Self, String> {
        Ok(Self { url: parse_base_url(url)?, shown: shown_url(url), client: OnceLock::new() })
    }

    /// The URL as people may see it.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Sends a form. What is in it is in no error.
    pub async fn post(&self, fields: &[(&str, &str)]) -> Result<Reply, NotPosted> {
        match ActiveDeadline::after(WHOLE).bound(self.exchange(fields)).await {
            Some(replied) => replied,
            None => Err(NotPosted(format!("{} did not answer within {} s", self.shown, WHOLE.as_secs()))),
        }
    }

    fn client(&self) -> Result<&Client, NotPosted> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let client = client(&self.url, CONNECT)
            .map_err(|error| self.failed("cannot set up a connection to", &*error))?;
        Ok(self.client.get_or_init(|| client))
    }

    async fn exchange(&self, fields: &[(&str, &str)]) -> Result<Reply, NotPosted> {
        let client = self.client()?;
        let request = client
            .post(self.url.clone())
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(header::ACCEPT, "application/json")
            .body(self.encoded(fields));
        let response = request.send().await;
        let mut response = response.map_err(|error| self.failed("no answer came from", &error))?;
        let mut body = Vec::new();
        // A refusal may not be told from an answer that broke off.
        if begin_of(&mut response, BODY, &mut body).await == BodyEnd::Broken {
            return Err(NotPosted(format!("the answer of {} broke off", self.shown)));
        }
        Ok(Reply { status: response.status().as_u16(), body })
    }

    /// A form is written as queries are.
    fn encoded(&self, fields: &[(&str, &str)]) -> String {
        let mut url = self.url.clone();
        url.query_pairs_mut().clear().extend_pairs(fields);
        url.query().unwrap_or_default().to_owned()
    }

    fn failed(&self, what: &str, error: &(dyn std::error::Error + 'static)) -> NotPosted {
        NotPosted(format!("{what} {}: {}", self.shown, root_cause(error)))
    }
}

impl fmt::Debug for Forms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forms").field("url", &self.shown).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_encoded() {
        let forms = Forms::new("https://host/token?tenant=1").unwrap();
        assert_eq!(forms.encoded(&[("a", "b c"), ("d", "&=+ü")]), "a=b+c&d=%26%3D%2B%C3%BC");
        assert_eq!(forms.shown(), "https://host/token?…");
        Forms::new("ftp://host").unwrap_err();
    }
}
