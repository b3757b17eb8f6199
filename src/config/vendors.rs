//! The vendors that need no section of their own: a key in the environment is enough.

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
    },
    Vendor {
        name: "openrouter",
        key: "OPENROUTER_API_KEY",
        base_url_key: None,
        base_url: "https://openrouter.ai/api/v1",
        wire: None,
        model: "openrouter/auto",
    },
    Vendor {
        name: "anthropic",
        key: "ANTHROPIC_API_KEY",
        base_url_key: None,
        base_url: "https://api.anthropic.com/v1",
        wire: Some(wires::ANTHROPIC_MESSAGES),
        model: "claude-sonnet-5-5",
    },
];

/// The name of a local Ollama among the providers.
pub const OLLAMA: &str = "ollama";

/// The names of all that need no base URL.
pub(super) fn names() -> Vec<&'static str> {
    VENDORS.iter().map(|vendor| vendor.name).chain([OLLAMA]).collect()
}

/// Whether a provider of this name needs no base URL.
pub(super) fn is_known(name: &str) -> bool {
    names().contains(&name)
}
