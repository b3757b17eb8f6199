//! Which model providers there are, configured or found by their keys, and which model of them is meant. Pure: settings
//! and variables in, values out.

mod choose;
mod found;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub use choose::{NoModel, Wanted, chain, choose, unknown};
pub use found::{Found, Source, found};

/// The variables of a process.
pub type Variables = BTreeMap<String, String>;
