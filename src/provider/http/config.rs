use std::time::Duration;

use hermod_actors::model::{ModelDeadlines, PoolStrategy, RateLimits};
use reqwest::Url;

use crate::{
    provider::{CacheTtl, Credential},
    secret::redacted_url,
};

/// How long each part of a call may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlines {
    /// To connect, TLS included.
    pub connect: Duration,
    /// From when the key is there until the first piece of the answer.
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
    /// These, where the model has none of its own.
    #[must_use]
    pub fn overridden_by(self, own: &ModelDeadlines) -> Self {
        let or = |own: Option<u64>, else_: Duration| own.map_or(else_, Duration::from_millis);
        Self {
            connect: self.connect,
            first_event: or(own.first_event_ms, self.first_event),
            gap: or(own.gap_ms, self.gap),
            call: or(own.call_ms, self.call),
        }
    }
}

/// A configured endpoint.
#[derive(Debug, Clone)]
pub struct ProviderConfig {
    /// Its name in the configuration.
    pub name: String,
    /// Such as `https://api.openai.com/v1`; the wire format's path is put behind it.
    pub base_url: String,
    /// A name of [`WIRES`](crate::provider::WIRES).
    pub wire: String,
    /// Its credentials; none if it asks for none. A request says which one it is made with.
    pub credentials: Vec<Credential>,
    /// Which of them is used next.
    pub pool: PoolStrategy,
    /// What each of them may use up within a minute.
    pub limits: RateLimits,
    /// For how long its vendor is to cache how requests begin.
    pub cache: CacheTtl,
    /// How long calls may take, where a request does not say otherwise.
    pub deadlines: Deadlines,
}

/// A provider that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProviderConfigError {
    /// The base URL is none.
    #[error("providers.{provider}.base_url = \"{url}\": {reason}; give it as `https://host/v1`")]
    BaseUrl {
        /// The provider.
        provider: String,
        /// The URL; hidden if it may hold a password.
        url: String,
        /// What is wrong.
        reason: String,
    },
    /// No such wire format.
    #[error("providers.{provider}.wire = \"{wire}\": no such wire format; there are: {known}")]
    Wire {
        /// The provider.
        provider: String,
        /// The name.
        wire: String,
        /// The names that there are.
        known: String,
    },
    /// A credential that no header can carry.
    #[error("the credential of provider {provider} is empty or has a line break or control character in it")]
    Credential {
        /// The provider.
        provider: String,
    },
}

/// The base URL, without anything secret in it.
pub(super) fn base_url(config: &ProviderConfig) -> Result<Url, ProviderConfigError> {
    let text = &config.base_url;
    parse_base_url(text).map_err(|reason| ProviderConfigError::BaseUrl {
        provider: config.name.clone(),
        url: redacted_url(text),
        reason,
    })
}

/// Whether a text can be a base URL, or why not.
pub fn check_base_url(text: &str) -> Result<(), String> {
    parse_base_url(text).map(drop)
}

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
