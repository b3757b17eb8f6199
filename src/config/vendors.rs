//! Vendors that need no section in the configuration: an API key in the environment is enough. Also the vendor of a
//! base URL, and the names that need no base URL, among them the local Ollama.

use http::Uri;

use crate::provider::anthropic_messages;

/// A vendor that is configured by its API key alone.
#[derive(Debug)]
pub struct Vendor {
    /// Name of the provider.
    pub name: &'static str,
    /// Variable with the API key.
    pub key: &'static str,
    /// Variable that overrides the base URL, if there is one. Without a key, it configures an endpoint that needs none.
    pub base_url_key: Option<&'static str>,
    /// The default base URL.
    pub base_url: &'static str,
    /// The vendor's own wire format, a name of [`crate::provider::WIRES`]; `None` derives it from the base URL.
    pub wire: Option<&'static str>,
    /// The model of a run that names none.
    pub model: &'static str,
    /// True if its own endpoint routes requests to models of others, named `vendor/model`. Otherwise none of its model
    /// names contains a slash.
    pub is_router: bool,
}

/// All vendors, the preferred first.
pub const VENDORS: &[Vendor] = &[
    Vendor {
        name: "openai",
        key: "OPENAI_API_KEY",
        base_url_key: Some("OPENAI_BASE_URL"),
        base_url: "https://api.openai.com/v1",
        wire: None,
        model: "gpt-5-mini",
        is_router: false,
    },
    Vendor {
        name: "openrouter",
        key: "OPENROUTER_API_KEY",
        base_url_key: None,
        base_url: "https://openrouter.ai/api/v1",
        wire: None,
        model: "openrouter/auto",
        is_router: true,
    },
    Vendor {
        name: "anthropic",
        key: "ANTHROPIC_API_KEY",
        base_url_key: None,
        base_url: "https://api.anthropic.com/v1",
        wire: Some(anthropic_messages::NAME),
        model: "claude-sonnet-5-5",
        is_router: false,
    },
];

/// Provider name of the local Ollama.
pub const OLLAMA: &str = "ollama";

/// The vendor with this base URL on its own endpoint, including regional ones.
pub fn vendor_at(base_url: &str) -> Option<&'static Vendor> {
    let host = host(base_url)?;
    VENDORS.iter().find(|vendor| {
        let vendor_host = self::host(vendor.base_url);
        vendor_host.is_some_and(|vendor_host| {
            host.strip_suffix(&*vendor_host).is_some_and(|region| region.is_empty() || region.ends_with('.'))
        })
    })
}

fn host(base_url: &str) -> Option<String> {
    let end = base_url.find(['?', '#']).unwrap_or(base_url.len());
    Some(base_url[..end].parse::<Uri>().ok()?.host()?.to_ascii_lowercase())
}

/// Names of all providers that need no base URL.
pub(super) fn names() -> Vec<&'static str> {
    VENDORS.iter().map(|vendor| vendor.name).chain([OLLAMA]).collect()
}

/// True if a provider of this name needs no base URL.
pub fn is_known(name: &str) -> bool {
    names().contains(&name)
}
