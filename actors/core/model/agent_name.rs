//! The name of an agent: the configuration that a run was accepted under.

use std::{borrow::Borrow, fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};

/// The agent of runs that name none, and of runs recorded before there were agents.
const DEFAULT: &str = "default";

/// The name of an agent: 1 to 64 lower-case letters, digits, `-` and `_`; the first one is a letter or a digit.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "Arc<str>", try_from = "Arc<str>")]
pub struct AgentName(Arc<str>);

/// A text that is no name of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "is no name of an agent; use 1 to {} lower-case letters, digits, `-` and `_`, a letter or digit first",
    AgentName::MAX_CHARS
)]
pub struct AgentNameError;

impl AgentName {
    /// Most characters of a name.
    pub const MAX_CHARS: usize = 64;

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// True for the agent that always exists.
    pub fn is_default(&self) -> bool {
        &*self.0 == DEFAULT
    }
}

impl Default for AgentName {
    fn default() -> Self {
        Self(DEFAULT.into())
    }
}

impl fmt::Display for AgentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Borrow<str> for AgentName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl From<AgentName> for Arc<str> {
    fn from(name: AgentName) -> Self {
        name.0
    }
}

impl TryFrom<Arc<str>> for AgentName {
    type Error = AgentNameError;

    fn try_from(name: Arc<str>) -> Result<Self, AgentNameError> {
        if is_plain_name(&name, Self::MAX_CHARS) { Ok(Self(name)) } else { Err(AgentNameError) }
    }
}

/// True for lower-case letters, digits, `-` and `_` with a letter or digit first: a name that fits into paths, keys and
/// the names of variables. `max` bounds the number of its characters.
pub(super) fn is_plain_name(name: &str, max: usize) -> bool {
    let is_letter_or_digit = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_allowed = |byte: u8| is_letter_or_digit(byte) || byte == b'-' || byte == b'_';
    name.len() <= max && name.bytes().next().is_some_and(is_letter_or_digit) && name.bytes().all(is_allowed)
}

impl FromStr for AgentName {
    type Err = AgentNameError;

    fn from_str(name: &str) -> Result<Self, AgentNameError> {
        Arc::<str>::from(name).try_into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_short_and_fits_into_paths_and_keys() {
        let check = |name: &str, expect: bool| {
            assert_eq!(name.parse::<AgentName>().is_ok(), expect, "{name:?}");
            assert_eq!(serde_json::from_value::<AgentName>(name.into()).is_ok(), expect, "{name:?}");
        };
        check("default", true);
        check("reviewer-2_b", true);
        check("7", true);
        check(&"a".repeat(64), true);
        check(&"a".repeat(65), false);
        check("", false);
        check("-a", false);
        check("Reviewer", false);
        check("a.b", false);
        check("a/b", false);
        check("ä", false);
        assert!(AgentName::default().is_default());
        assert_eq!(AgentName::default(), "default".parse().unwrap());
    }
}
