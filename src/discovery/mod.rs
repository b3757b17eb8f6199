//! Which model providers there are, configured or found by their keys, and which model of them is meant. Pure: settings
//! and variables in, values out.

mod choose;
mod providers;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub use choose::{ModelChoiceError, RequestedModel, chain, choose, unknown_provider};
pub use providers::{DiscoveredProvider, DiscoverySource, discover};

/// The variables of a process.
pub type Variables = BTreeMap<String, String>;
