//! The index of a credential, and the strategy by which a provider's pool of credentials is used.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Index of a provider's credential, from 0. Only the adapter knows the secret behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CredentialId(pub usize);

impl fmt::Display for CredentialId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "credential {}", self.0)
    }
}

/// Chooses the credential of the next attempt among the available ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolStrategy {
    /// The first available credential.
    #[default]
    FillFirst,
    /// The credential after that of the last attempt.
    RoundRobin,
    /// The credential with the fewest attempts under way.
    LeastUsed,
}
