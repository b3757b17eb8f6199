use std::sync::Arc;

use hermod_actors::model::ModelRef;

use crate::{
    config::{OLLAMA, VENDORS},
    environment::{Found, found::named},
    provider::WIRES,
    secret::Missing,
};

/// What somebody asks for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wanted<'a> {
    /// A provider's name.
    pub provider: Option<&'a str>,
    /// A model, or `provider/model`.
    pub model: Option<&'a str>,
}

/// Why no model can be asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoModel {
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
        missing: Missing,
    },
    /// The provider has no model to take when none is named.
    #[error("provider `{name}`: {reason}")]
    NoDefault {
        /// The provider.
        name: String,
        /// Why, and the remedy.
        reason: String,
    },
}

/// The model to ask. `provider/model` is split at its first slash only if that provider is configured.
pub fn choose(found: &[Found], wanted: Wanted<'_>) -> Result<ModelRef, NoModel> {
    let split = wanted.model.and_then(|model| model.split_once('/'));
    let (provider, model) = match (wanted.provider, split) {
        (None, Some((name, rest))) if !rest.is_empty() && named(found, name).is_some() => {
            (named(found, name), Some(rest))
        }
        (None, _) => (found.first(), wanted.model),
        (Some(name), _) => (Some(named(found, name).ok_or_else(|| unknown(found, name))?), wanted.model),
    };
    let provider = provider.ok_or_else(no_provider)?;
    speaks(provider)?;
    let model = match model {
        Some(model) => model.into(),
        None => provider
            .model
            .clone()
            .map_err(|reason| NoModel::NoDefault { name: provider.name.to_string(), reason })?,
    };
    Ok(ModelRef { provider: Arc::clone(&provider.name), model })
}

/// The model to ask, and those behind it: their providers have to be there.
pub fn chain(found: &[Found], first: ModelRef, fallbacks: &[ModelRef]) -> Result<Vec<ModelRef>, NoModel> {
    let mut chain = vec![first];
    for link in fallbacks {
        speaks(named(found, &link.provider).ok_or_else(|| unknown(found, &link.provider))?)?;
        if !chain.contains(link) {
            chain.push(link.clone());
        }
    }
    Ok(chain)
}

fn speaks(provider: &Found) -> Result<(), NoModel> {
    if WIRES.iter().any(|wire| wire.name == provider.wire) {
        return Ok(());
    }
    let known = WIRES.iter().map(|wire| wire.name).collect::<Vec<_>>().join(", ");
    Err(NoModel::Wire { name: provider.name.to_string(), wire: provider.wire, known })
}

fn no_provider() -> NoModel {
    NoModel::NoProvider { keys: VENDORS.iter().map(|vendor| vendor.key).collect::<Vec<_>>().join(", ") }
}

/// The error for a provider that is not among those found.
pub fn unknown(found: &[Found], name: &str) -> NoModel {
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
    NoModel::Unknown { name: name.to_owned(), known, remedy }
}
