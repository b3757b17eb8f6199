//! How keys are got that do not stay the same: out of files, from commands, for OAuth refresh tokens.

mod command;
mod file;
mod kept;
mod oauth;

use std::collections::BTreeMap;

pub use command::Command;
pub use file::KeyFile;
pub use kept::Kept;
pub use oauth::{Grant, Oauth};

use crate::{
    provider::{Carried, Credential},
    secret::{Missing, Reference},
};

/// The credential that a reference leads to. What a command prints is not got yet.
pub fn of_reference(
    reference: &Reference,
    variables: &BTreeMap<String, String>,
) -> Result<Credential, Missing> {
    let known = reference.resolve(variables)?;
    Ok(match (reference.placed(variables)?, known) {
        (Reference::Command(words), _) => Credential::fetched(Command::new(words), None, Carried::ByWire),
        (placed @ Reference::File(_), known) => {
            Credential::fetched(KeyFile::new(placed), known, Carried::ByWire)
        }
        (Reference::Variable(_), Some(key)) => Credential::fixed(key),
        // A variable that was resolved is known.
        (Reference::Variable(name), None) => {
            let reason = "the variable is not set".to_owned();
            return Err(Missing { reference: Reference::Variable(name), reason });
        }
    })
}
