//! Chooses the model for a request among the discovered providers, and makes the chain with its fallbacks. Here are
//! also the errors that tell how to configure a provider.

use std::sync::Arc;

use hermod_actors::model::{ModelRef, ModelRefError};

use crate::{
    config::{OLLAMA, VENDORS, is_known, vendor_at},
    discovery::{DiscoveredProvider, providers::find_by_name},
    secret::MissingSecret,
};

/// The model that a user requests.
#[derive(Debug, Clone, Copy, Default)]
pub struct RequestedModel<'a> {
    /// Name of a provider.
    pub provider: Option<&'a str>,
    /// A model, or `provider/model`.
    pub model: Option<&'a str>,
}

/// Why no model can be called.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelChoiceError {
    /// No provider is configured.
    #[error(
        "no model provider is configured; there are four ways to get one:\n  \
        1. put a key into the environment: {keys}\n  \
        2. describe an endpoint in a section [providers.NAME] of the configuration\n  \
        3. start a local Ollama (looked for at ollama.address, 127.0.0.1:11434 unless configured)\n  \
        4. try it without a model: --rehearse plays a scripted one"
    )]
    NoProvider {
        /// The variables that would configure one.
        keys: String,
    },
    /// The named provider is not configured.
    #[error("there is no provider `{name}` here; configured are: {known}{remedy}")]
    Unknown {
        /// The unknown name.
        name: String,
        /// The configured providers.
        known: String,
        /// How to configure the provider.
        remedy: String,
    },
    /// The provider's credential is missing.
    #[error("provider `{name}` has no credential: {missing}")]
    Credential {
        /// Name of the provider.
        name: String,
        /// The place where it should be, and the remedy.
        missing: MissingSecret,
    },
    /// The request names no model.
    #[error(
        "`{name}` names no model; give MODEL or PROVIDER/MODEL, or leave it out for the provider's default"
    )]
    NoName {
        /// The requested text.
        name: String,
    },
    /// The provider has no default model.
    #[error("provider `{name}`: {reason}")]
    NoDefault {
        /// Name of the provider.
        name: String,
        /// The reason and the remedy.
        reason: String,
    },
    /// The provider's or the model's name is invalid.
    #[error(transparent)]
    Name(ModelRefError),
}

/// The model to call. `provider/model` is split at its first slash if that provider is configured. Otherwise the whole
/// text names a model of the first provider, unless that provider has no models with such names.
pub fn choose(
    providers: &[DiscoveredProvider],
    requested: RequestedModel<'_>,
) -> Result<ModelRef, ModelChoiceError> {
    if let Some(name) = requested.model.filter(|name| is_incomplete(name)) {
        return Err(ModelChoiceError::NoName { name: name.to_owned() });
    }
    let split = requested.model.and_then(|model| model.split_once('/'));
    let (provider, model) = match (requested.provider, split) {
        (Some(name), _) => (
            Some(find_by_name(providers, name).ok_or_else(|| unknown_provider(providers, name))?),
            requested.model,
        ),
        (None, Some((name, rest))) => match find_by_name(providers, name) {
            Some(provider) => (Some(provider), Some(rest)),
            None => (first_for_vendor(providers, name, rest)?, requested.model),
        },
        (None, None) => (providers.first(), requested.model),
    };
    let provider = provider.ok_or_else(no_provider)?;
    let model = match model {
        Some(model) => model.into(),
        None => provider
            .model
            .clone()
            .map_err(|reason| ModelChoiceError::NoDefault { name: provider.name.to_string(), reason })?,
    };
    ModelRef::new(Arc::clone(&provider.name), model).map_err(ModelChoiceError::Name)
}

/// True if a model's name, or a part of it beside a slash, is blank.
fn is_incomplete(name: &str) -> bool {
    name.split('/').any(|part| part.trim().is_empty())
}

/// The first provider, if it may have a model `vendor/rest`. The caller has found no provider named `vendor`.
fn first_for_vendor<'a>(
    providers: &'a [DiscoveredProvider],
    vendor: &str,
    rest: &str,
) -> Result<Option<&'a DiscoveredProvider>, ModelChoiceError> {
    let Some(first) = providers.first() else {
        return if is_known(vendor) { Err(unknown_provider(providers, vendor)) } else { Ok(None) };
    };
    if has_slashes(first, vendor) {
        return Ok(Some(first));
    }
    let mut error = unknown_provider(providers, vendor);
    if let ModelChoiceError::Unknown { remedy, .. } = &mut error {
        let alternative = match providers.iter().find(|provider| has_slashes(provider, vendor)) {
            Some(router) => format!(", or ask for `{}/{vendor}/{rest}`", router.name),
            None if is_known(vendor) => String::new(),
            None => format!(" (`--provider {}` asks that one by the whole name)", first.name),
        };
        remedy.push_str(&alternative);
    }
    Err(error)
}

/// True if a provider may have models whose names begin with this vendor. A vendor's own endpoint has no names with a
/// slash, unless it is a router. A local Ollama has `user/model`, but no models of a vendor with an endpoint of its
/// own.
fn has_slashes(provider: &DiscoveredProvider, vendor: &str) -> bool {
    match vendor_at(&provider.base_url) {
        Some(known) => known.is_router,
        None => *provider.name != *OLLAMA || !is_known(vendor),
    }
}

/// The chain of `first` and the fallbacks, each once. Their providers must be configured.
pub fn chain(
    providers: &[DiscoveredProvider],
    first: ModelRef,
    fallbacks: &[ModelRef],
) -> Result<Vec<ModelRef>, ModelChoiceError> {
    let mut chain = vec![first];
    for link in fallbacks {
        find_by_name(providers, link.provider())
            .ok_or_else(|| unknown_provider(providers, link.provider()))?;
        if !chain.contains(link) {
            chain.push(link.clone());
        }
    }
    Ok(chain)
}

fn no_provider() -> ModelChoiceError {
    ModelChoiceError::NoProvider {
        keys: VENDORS.iter().map(|vendor| vendor.key).collect::<Vec<_>>().join(", "),
    }
}

/// The error for a provider that is not configured.
pub fn unknown_provider(providers: &[DiscoveredProvider], name: &str) -> ModelChoiceError {
    let vendor = VENDORS.iter().find(|vendor| vendor.name == name);
    let known = match providers {
        [] => "none".to_owned(),
        providers => providers.iter().map(|provider| &*provider.name).collect::<Vec<_>>().join(", "),
    };
    let remedy = match vendor {
        Some(vendor) => format!("; set {} to have it", vendor.key),
        None if name == OLLAMA => "; start it, or set ollama.address to where it listens".to_owned(),
        None => {
            let vendors = VENDORS.iter().map(|vendor| format!("{} ({})", vendor.name, vendor.key));
            let vendors = vendors.collect::<Vec<_>>().join(", ");
            format!(
                "; describe it in a section [providers.{name}], or use one that is known: {vendors}, {OLLAMA}"
            )
        }
    };
    ModelChoiceError::Unknown { name: name.to_owned(), known, remedy }
}
