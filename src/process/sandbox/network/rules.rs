//! How much of the network commands may use.

use std::io;

use serde::{Deserialize, Serialize};

use super::hosts::HostRule;

/// How much of the network commands may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredAccess", into = "StoredAccess")]
pub enum NetworkAccess {
    /// Nothing, not even this machine's own addresses.
    Off,
    /// Everything.
    On,
    /// The hosts that a rule allows, through a proxy, and a loopback of their own.
    Hosts(Vec<HostRule>),
}

impl NetworkAccess {
    /// True if commands need a network namespace.
    pub fn is_limited_to_hosts(&self) -> bool {
        matches!(self, Self::Hosts(_))
    }
}

/// The form in tasks. Those of an earlier version have a bool.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum StoredAccess {
    Any(bool),
    Hosts(Vec<HostRule>),
}

impl From<StoredAccess> for NetworkAccess {
    fn from(stored: StoredAccess) -> Self {
        match stored {
            StoredAccess::Any(false) => Self::Off,
            StoredAccess::Any(true) => Self::On,
            StoredAccess::Hosts(rules) => Self::Hosts(rules),
        }
    }
}

impl From<NetworkAccess> for StoredAccess {
    fn from(access: NetworkAccess) -> Self {
        match access {
            NetworkAccess::Off => Self::Any(false),
            NetworkAccess::On => Self::Any(true),
            NetworkAccess::Hosts(rules) => Self::Hosts(rules),
        }
    }
}

/// Why the network of a command cannot be limited to hosts.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// There is no namespace.
    #[error(
        "sandbox.network lists hosts, and for that this system must allow network namespaces, which it does not ({0}): set sandbox.network to \"off\" or \"on\""
    )]
    Namespace(#[source] io::Error),
    /// There is no proxy.
    #[error("the proxy for the hosts of sandbox.network cannot be started: {0}")]
    Proxy(#[source] io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_of_an_earlier_version_is_read() {
        let check = |json: &str, access: NetworkAccess| {
            assert_eq!(serde_json::from_str::<NetworkAccess>(json).unwrap(), access);
            assert_eq!(serde_json::to_string(&access).unwrap(), json);
        };
        check("true", NetworkAccess::On);
        check("false", NetworkAccess::Off);
        let rules = ["example.com", "*.example.com:443"].map(|rule| rule.parse().unwrap()).to_vec();
        check(r#"["example.com","*.example.com:443"]"#, NetworkAccess::Hosts(rules));
        assert!(serde_json::from_str::<NetworkAccess>(r#"["http://x"]"#).is_err());
        assert!(serde_json::from_str::<NetworkAccess>("\"on\"").is_err());
    }
}
