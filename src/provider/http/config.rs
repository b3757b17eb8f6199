//! The configuration of a provider behind HTTP with its deadlines, and the checks of its base URL.

use std::time::Duration;

use hermod_actors::model::{ModelDeadlines, PoolStrategy, RateLimits};
use reqwest::Url;

use crate::provider::{CacheTtl, Credential};

/// Time limits of the parts of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlines {
    /// The connection, including TLS.
    pub connect: Duration,
    /// From the available key to the first piece of the answer.
    pub first_event: Duration,
    /// Between two pieces of the answer; comments and empty events do not count.
    pub gap: Duration,
    /// The whole call.
    pub call: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            first_event: Duration::from_secs(90),
            gap: Duration::from_secs(90),
            call: Duration::from_mins(30),
        }
    }
}

impl Deadlines {
    /// These deadlines, replaced by those that the model has of its own.
    #[must_use]
    pub fn overridden_by(self, overrides: &ModelDeadlines) -> Self {
        let or = |ms: Option<u64>, else_: Duration| ms.map_or(else_, Duration::from_millis);
        Self {
            connect: self.connect,
            first_event: or(overrides.first_event_ms, self.first_event),
            gap: or(overrides.gap_ms, self.gap),
            call: or(overrides.call_ms, self.call),
        }
    }
}

/// A configured endpoint.
#[derive(Debug, Clone)]
pub struct ProviderConfig {
    /// The name in the configuration.
    pub name: String,
    /// For example `https://api.openai.com/v1`; the wire format's path is appended.
    pub base_url: String,
    /// A name of [`WIRES`](crate::provider::WIRES).
    pub wire: String,
    /// The credentials; empty for an endpoint without authentication. Each request selects one.
    pub credentials: Vec<Credential>,
    /// How the next credential is selected.
    pub pool: PoolStrategy,
    /// Rate limits of each credential per minute.
    pub limits: RateLimits,
    /// How long the vendor caches prompt prefixes.
    pub cache: CacheTtl,
    /// Deadlines of calls whose request has none of its own.
    pub deadlines: Deadlines,
}

/// An invalid provider configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProviderConfigError {
    /// The base URL is invalid.
    #[error("providers.{provider}.base_url = \"{url}\": {reason}; give it as `https://host/v1`")]
    BaseUrl {
        /// The provider.
        provider: String,
        /// The URL; redacted if it may contain a password.
        url: String,
        /// What is wrong with the URL.
        reason: String,
    },
    /// The wire format is unknown.
    #[error("providers.{provider}.wire = \"{wire}\": no such wire format; there are: {known}")]
    Wire {
        /// The provider.
        provider: String,
        /// The configured name.
        wire: String,
        /// The known names.
        known: String,
    },
    /// The credential is invalid in an HTTP header.
    #[error("the credential of provider {provider} is empty or has a line break or control character in it")]
    Credential {
        /// The provider.
        provider: String,
    },
}

/// Checks that a text is a base URL; the error describes what is wrong.
pub fn check_base_url(text: &str) -> Result<(), String> {
    parse_base_url(text).map(drop)
}

/// The parsed base URL. Contains no user and no password.
pub(super) fn parse_base_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text.trim()).map_err(|reason| reason.to_string())?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("it holds a user or a password, which belong into the credential".to_owned());
    }
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err("it is neither http nor https".to_owned());
    }
    Ok(url)
}
