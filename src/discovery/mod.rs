//! Finds the model providers, configured or known by their keys, and chooses a model. Pure: settings and variables in,
//! values out. Only the configuration of an adapter (`DiscoveredProvider::config`) reads files: those with keys.

mod choose;
mod providers;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub use choose::{ModelChoiceError, RequestedModel, chain, choose, unknown_provider};
pub use providers::{DiscoveredProvider, DiscoverySource, discover};

/// Environment variables by name.
pub type Variables = BTreeMap<String, String>;
