use std::sync::Arc;

use hermod_actors::model::{ModelRef, ModelRefError};

use crate::{
    config::{OLLAMA, VENDORS, is_known, vendor_at},
    discovery::{DiscoveredProvider, providers::find_by_name},
    provider::WIRES,
    secret::MissingSecret,
};

/// What somebody asks for.
#[derive(Debug, Clone, Copy, Default)]
pub struct RequestedModel<'a> {
    /// A provider's name.
    pub provider: Option<&'a str>,
    /// A model, or `provider/model`.
    pub model: Option<&'a str>,
}

/// Why no model can be asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelChoiceError {
    /// Nothing is configured.
    #[error(
        "no model provider is configured; there are four ways to get one:\n  \
        1. put a key into the environment: {keys}\n  \
        2. describe an endpoint in a section [providers.NAME] of the configuration\n  \
        3. start a local Ollama (looked for at ollama.address, 127.0.0.1:11434 unless configured)\n  \
        4. try it without a model: --rehearse plays a scripted one"
    )]
    NoProvider {
        /// The variables that are looked for.
        keys: String,
    },
    /// The name is not among the configured ones.
    #[error("there is no provider `{name}` here; configured are: {known}{remedy}")]
    Unknown {
        /// The name.
        name: String,
        /// The configured ones.
        known: String,
        /// The variable that would configure it, if it is a known vendor.
        remedy: String,
    },
    /// It is configured, and cannot be spoken to.
    #[error(
        "provider `{name}` speaks {wire}, which this version does not; there are: {known}. \
        Set the key of another provider, or choose one with --provider"
    )]
    Wire {
        /// The provider.
        name: String,
        /// Its wire format.
        wire: &'static str,
        /// The wire formats that there are.
        known: String,
    },
    /// Its key is not where the configuration says.
    #[error("provider `{name}` has no credential: {missing}")]
    Credential {
        /// The provider.
        name: String,
        /// Where it should be, and the remedy.
        missing: MissingSecret,
    },
    /// What was asked for names no model.
    #[error(
        "`{name}` names no model; give MODEL or PROVIDER/MODEL, or leave it out for the provider's default"
    )]
    NoName {
        /// What was asked for.
        name: String,
    },
    /// The provider has no model to take when none is named.
    #[error("provider `{name}`: {reason}")]
    NoDefault {
        /// The provider.
        name: String,
        /// Why, and the remedy.
        reason: String,
    },
    /// The provider or the model that is meant has a name that none can have.
    #[error(transparent)]
    Name(ModelRefError),
}

/// The model to ask. `provider/model` is split at its first slash if that provider is configured. Else all of it is a name for
/// the first provider, unless that one has no models with such names.
pub fn choose(
    found: &[DiscoveredProvider],
    wanted: RequestedModel<'_>,
) -> Result<ModelRef, ModelChoiceError> {
    if let Some(name) = wanted.model.filter(|name| is_incomplete(name)) {
        return Err(ModelChoiceError::NoName { name: name.to_owned() });
    }
    let split = wanted.model.and_then(|model| model.split_once('/'));
    let (provider, model) = match (wanted.provider, split) {
        (Some(name), _) => {
            (Some(find_by_name(found, name).ok_or_else(|| unknown_provider(found, name))?), wanted.model)
        }
        (None, Some((name, rest))) => match find_by_name(found, name) {
            Some(provider) => (Some(provider), Some(rest)),
            None => (first_for_vendor(found, (name, rest))?, wanted.model),
        },
        (None, None) => (found.first(), wanted.model),
    };
    let provider = provider.ok_or_else(no_provider)?;
    check_wire(provider)?;
    let model = match model {
        Some(model) => model.into(),
        None => provider
            .model
            .clone()
            .map_err(|reason| ModelChoiceError::NoDefault { name: provider.name.to_string(), reason })?,
    };
    ModelRef::new(Arc::clone(&provider.name), model).map_err(ModelChoiceError::Name)
}

/// Whether a model's name, or a part of it beside a slash, says nothing.
fn is_incomplete(name: &str) -> bool {
    name.split('/').any(|part| part.trim().is_empty())
}

/// The first provider, if it may have a model `vendor/rest`; no provider of the vendor's name is there.
fn first_for_vendor<'a>(
    found: &'a [DiscoveredProvider],
    (vendor, rest): (&str, &str),
) -> Result<Option<&'a DiscoveredProvider>, ModelChoiceError> {
    let Some(first) = found.first() else {
        return if is_known(vendor) { Err(unknown_provider(found, vendor)) } else { Ok(None) };
    };
    if has_slashes(first, vendor) {
        return Ok(Some(first));
    }
    let mut error = unknown_provider(found, vendor);
    if let ModelChoiceError::Unknown { remedy, .. } = &mut error {
        let more = match found.iter().find(|found| has_slashes(found, vendor)) {
            Some(router) => format!(", or ask for `{}/{vendor}/{rest}`", router.name),
            None if is_known(vendor) => String::new(),
            None => format!(" (`--provider {}` asks that one by the whole name)", first.name),
        };
        remedy.push_str(&more);
    }
    Err(error)
}

/// Whether a provider may have models whose names begin with this vendor. A vendor's own endpoint has none with a slash,
/// unless it is a router; a local Ollama has `user/model`, but none of a vendor that has an endpoint of its own.
fn has_slashes(provider: &DiscoveredProvider, vendor: &str) -> bool {
    match vendor_at(&provider.base_url) {
        Some(own) => own.is_router,
        None => *provider.name != *OLLAMA || !is_known(vendor),
    }
}

/// The model to ask, and those behind it: their providers have to be there.
pub fn chain(
    found: &[DiscoveredProvider],
    first: ModelRef,
    fallbacks: &[ModelRef],
) -> Result<Vec<ModelRef>, ModelChoiceError> {
    let mut chain = vec![first];
    for link in fallbacks {
        check_wire(
            find_by_name(found, link.provider()).ok_or_else(|| unknown_provider(found, link.provider()))?,
        )?;
        if !chain.contains(link) {
            chain.push(link.clone());
        }
    }
    Ok(chain)
}

fn check_wire(provider: &DiscoveredProvider) -> Result<(), ModelChoiceError> {
    if WIRES.iter().any(|wire| wire.name == provider.wire) {
        return Ok(());
    }
    let known = WIRES.iter().map(|wire| wire.name).collect::<Vec<_>>().join(", ");
    Err(ModelChoiceError::Wire { name: provider.name.to_string(), wire: provider.wire, known })
}

fn no_provider() -> ModelChoiceError {
    ModelChoiceError::NoProvider {
        keys: VENDORS.iter().map(|vendor| vendor.key).collect::<Vec<_>>().join(", "),
    }
}

/// The error for a provider that is not among those found.
pub fn unknown_provider(found: &[DiscoveredProvider], name: &str) -> ModelChoiceError {
    let vendor = VENDORS.iter().find(|vendor| vendor.name == name);
    let known = match found {
        [] => "none".to_owned(),
        found => found.iter().map(|found| &*found.name).collect::<Vec<_>>().join(", "),
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
