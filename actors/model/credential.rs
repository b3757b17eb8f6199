use std::fmt;

use serde::{Deserialize, Serialize};

/// One of the credentials of a provider, counted from 0. The adapter knows what it is; nobody else sees a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CredentialId(pub usize);

impl fmt::Display for CredentialId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "credential {}", self.0)
    }
}

/// Which of several credentials is used for the next attempt, of those that may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolStrategy {
    /// The first.
    #[default]
    FillFirst,
    /// The one behind that of the last attempt.
    RoundRobin,
    /// The one with the fewest attempts under way.
    LeastUsed,
}
