//! The text with which a caller names a run, session, key, call, provider or model: it is not blank.
//! `control/reader.rs` finds the runs and sessions.

use std::{fmt, ops::Deref, str::FromStr};

use hermod_actors::model::RunId;

/// A name that is not blank. A blank argument is usually an unset shell variable, so it is rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identifier(String);

impl FromStr for Identifier {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.trim().is_empty() {
            return Err("it is empty; give a name, or leave it out where it is optional");
        }
        Ok(Self(text.to_owned()))
    }
}

impl Deref for Identifier {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl From<Identifier> for String {
    fn from(identifier: Identifier) -> Self {
        identifier.0
    }
}

/// There is no `From<String>`: a parser of arguments would use it instead of `FromStr`, and reject nothing.
impl From<RunId> for Identifier {
    fn from(run: RunId) -> Self {
        Self(run.to_string())
    }
}

impl fmt::Display for Identifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
