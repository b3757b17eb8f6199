//! What a token may be good for.

use std::{collections::BTreeSet, str::FromStr};

use serde::{Deserialize, Serialize};
use strum::IntoEnumIterator as _;

/// A permission of an access token.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    strum::Display,
    strum::EnumIter,
    strum::IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Scope {
    /// Reads runs, sessions and events.
    Read,
    /// Submits runs.
    Submit,
    /// Steers and stops runs.
    Steer,
    /// Answers what runs ask.
    Approve,
    /// Everything: includes all other scopes.
    Admin,
}

impl FromStr for Scope {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unknown =
            || format!("there is no such scope; known are {}", Self::names(&Self::iter().collect()));
        Self::iter().find(|scope| text == <&str>::from(scope)).ok_or_else(unknown)
    }
}

impl Scope {
    /// The names of scopes, separated by commas.
    pub fn names(scopes: &BTreeSet<Self>) -> String {
        scopes.iter().map(<&str>::from).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_has_one_name_everywhere() {
        let check = |text: &str, expect: Option<Scope>| {
            assert_eq!(text.parse().ok(), expect, "{text}");
            assert_eq!(serde_json::from_value(text.into()).ok(), expect, "{text}");
        };
        check("read", Some(Scope::Read));
        check("submit", Some(Scope::Submit));
        check("steer", Some(Scope::Steer));
        check("approve", Some(Scope::Approve));
        check("admin", Some(Scope::Admin));
        check("Read", None);
        check("", None);
        check("read ", None);
        let error = "write".parse::<Scope>().unwrap_err();
        assert!(error.ends_with("known are read, submit, steer, approve, admin"), "{error}");
    }
}
