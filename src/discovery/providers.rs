//! Finds the providers in the configuration and the environment, and makes the configuration of their adapters. The
//! table of vendors is in `config/vendors.rs`, the search for a local Ollama in `src/ollama.rs`.

use std::{path::Path, sync::Arc};

use crate::{
    config::{Config, ProviderDefaults, ProviderSection, VENDORS, Vendor, resolve},
    discovery::{ModelChoiceError, Variables},
    provider::ProviderConfig,
    provider_account::ProviderAccount,
    secret::Reference,
};

/// Where a provider was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiscoverySource {
    /// A section of the configuration.
    Config,
    /// An environment variable.
    Environment,
    /// A server on this machine that answers.
    Local,
}

impl DiscoverySource {
    /// The source's name for users.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Environment => "environment",
            Self::Local => "local",
        }
    }
}

/// A provider that was found.
#[derive(Debug, Clone)]
pub struct DiscoveredProvider {
    /// Name of the provider.
    pub name: Arc<str>,
    /// Where it was found.
    pub source: DiscoverySource,
    /// The base URL.
    pub base_url: String,
    /// The wire format.
    pub wire: &'static str,
    /// References to its credentials, if it needs any, with their rate limits.
    pub account: ProviderAccount,
    /// The default model; `Err` is the reason why there is none.
    pub model: Result<Arc<str>, String>,
    /// Concurrency, deadlines and prompt caching.
    pub limits: ProviderDefaults,
}

/// The configured providers, then the vendors whose variables are set, the preferred first.
pub fn discover(config: &Config, variables: &Variables) -> Vec<DiscoveredProvider> {
    let vendors: Vec<DiscoveredProvider> =
        VENDORS.iter().filter_map(|vendor| of_vendor(vendor, config, variables)).collect();
    let sections = config.providers_in_order();
    let mut providers: Vec<DiscoveredProvider> =
        sections.into_iter().map(|(name, section)| of_section(name, section, config, variables)).collect();
    for vendor in vendors {
        if find_by_name(&providers, &vendor.name).is_none() {
            providers.push(vendor);
        }
    }
    providers
}

fn non_empty<'a>(variables: &'a Variables, key: &str) -> Option<&'a str> {
    variables.get(key).map(|value| value.trim()).filter(|value| !value.is_empty())
}

/// A vendor whose variables are set.
fn of_vendor(vendor: &Vendor, config: &Config, variables: &Variables) -> Option<DiscoveredProvider> {
    let key = non_empty(variables, vendor.key).map(|_| Reference::Variable(vendor.key.to_owned()));
    let moved_url = vendor.base_url_key.and_then(|key| non_empty(variables, key));
    if key.is_none() && moved_url.is_none() {
        return None;
    }
    let (wire, base_url) = resolve(None, vendor.wire, moved_url.unwrap_or(vendor.base_url));
    Some(DiscoveredProvider {
        name: vendor.name.into(),
        source: DiscoverySource::Environment,
        base_url,
        wire,
        account: ProviderAccount { credentials: key.into_iter().collect(), ..ProviderAccount::default() },
        model: Ok(vendor.model.into()),
        limits: config.provider_defaults,
    })
}

/// A configured provider. The vendor of its name supplies what the section lacks. A section's own base URL never gets
/// the vendor's key.
fn of_section(
    name: &str,
    section: &ProviderSection,
    config: &Config,
    variables: &Variables,
) -> DiscoveredProvider {
    let configured_url = section.base_url.as_ref().map(|url| url.0.clone());
    let vendor = VENDORS.iter().find(|vendor| vendor.name == name);
    let moved_url = vendor.and_then(|vendor| vendor.base_url_key).and_then(|key| non_empty(variables, key));
    let default_key = vendor
        .filter(|vendor| {
            configured_url.is_none() && (moved_url.is_none() || non_empty(variables, vendor.key).is_some())
        })
        .map(|vendor| Reference::Variable(vendor.key.to_owned()));
    let default_url = || match (moved_url, vendor, &config.ollama.address.0) {
        (Some(moved_url), _, _) => moved_url.to_owned(),
        (None, Some(vendor), _) => vendor.base_url.to_owned(),
        (None, None, Some(address)) => format!("http://{address}/v1"),
        (None, None, None) => "http://127.0.0.1:11434/v1".to_owned(),
    };
    let model = section.model.as_ref().and_then(|model| model.0.clone());
    let model =
        model.or_else(|| vendor.filter(|_| configured_url.is_none()).map(|vendor| vendor.model.into()));
    let configured_wire = section.wire.or(section.api_mode).map(|wire| wire.0);
    let url = configured_url.unwrap_or_else(default_url);
    let (wire, base_url) = resolve(configured_wire, vendor.and_then(|vendor| vendor.wire), &url);
    DiscoveredProvider {
        name: name.into(),
        source: DiscoverySource::Config,
        base_url,
        wire,
        account: ProviderAccount::of_section(section, default_key),
        model: model.ok_or_else(|| {
            format!("it has no default model; name one with --model, or set providers.{name}.model")
        }),
        limits: config.provider_defaults.overridden_by(section),
    }
}

pub(super) fn find_by_name<'a>(
    providers: &'a [DiscoveredProvider],
    name: &str,
) -> Option<&'a DiscoveredProvider> {
    providers.iter().find(|provider| *provider.name == *name)
}

impl DiscoveredProvider {
    /// The adapter's configuration. Credentials are resolved for use only here. Refresh tokens are stored below
    /// `state`.
    pub fn config(&self, variables: &Variables, state: &Path) -> Result<ProviderConfig, ModelChoiceError> {
        let credentials = self.account.credentials(&self.name, variables, state);
        Ok(ProviderConfig {
            name: self.name.to_string(),
            base_url: self.base_url.clone(),
            wire: self.wire.to_owned(),
            credentials: credentials
                .map_err(|missing| ModelChoiceError::Credential { name: self.name.to_string(), missing })?,
            pool: self.account.pool,
            limits: self.account.limits,
            cache: self.limits.cache.0,
            deadlines: self.limits.deadlines(),
        })
    }
}
