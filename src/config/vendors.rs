//! The vendors that need no section of their own: a key in the environment is enough.

use http::Uri;

use super::wires;

/// A vendor that is found by its key.
#[derive(Debug)]
pub struct Vendor {
    /// The provider's name.
    pub name: &'static str,
    /// The variable with the key.
    pub key: &'static str,
    /// The variable that moves it to another base URL, if it has one; alone, it stands for an endpoint without a key.
    pub base_url_key: Option<&'static str>,
    /// The base URL.
    pub base_url: &'static str,
    /// The wire format, a name of [`crate::provider::WIRES`], where the vendor has one of its own; else the base URL tells.
    pub wire: Option<&'static str>,
    /// The model, if none is named.
    pub model: &'static str,
    /// Whether its own endpoint passes requests on to the models of others, named `vendor/model`; else no name of its models
    /// has a slash.
    pub is_router: bool,
}

/// All vendors, the preferred first: a new one is a line here.
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
        wire: Some(wires::ANTHROPIC_MESSAGES),
        model: "claude-sonnet-5-5",
        is_router: false,
    },
];

/// The name of a local Ollama among the providers.
pub const OLLAMA: &str = "ollama";

/// The vendor whose own endpoint, a regional one too, has this base URL.
pub fn vendor_at(base_url: &str) -> Option<&'static Vendor> {
    let host = host(base_url)?;
    VENDORS.iter().find(|vendor| {
        let own = self::host(vendor.base_url);
        own.is_some_and(|own| {
            host.strip_suffix(&*own).is_some_and(|region| region.is_empty() || region.ends_with('.'))
        })
    })
}

fn host(base_url: &str) -> Option<String> {
    let end = base_url.find(['?', '#']).unwrap_or(base_url.len());
    Some(base_url[..end].parse::<Uri>().ok()?.host()?.to_ascii_lowercase())
}

/// The names of all that need no base URL.
pub(super) fn names() -> Vec<&'static str> {
    VENDORS.iter().map(|vendor| vendor.name).chain([OLLAMA]).collect()
}

/// Whether a provider of this name needs no base URL.
pub fn is_known(name: &str) -> bool {
    names().contains(&name)
}
