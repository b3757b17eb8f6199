//! How keys are got that do not stay the same: out of files, from commands, for OAuth refresh tokens.

mod command;
mod file;
mod oauth;
mod token_file;

use std::collections::BTreeMap;

pub use command::KeyCommand;
pub use file::KeyFile;
pub use oauth::{Oauth, OauthGrant};
pub use token_file::TokenFile;

use crate::{
    provider::{Credential, KeyPlacement},
    secret::{MissingSecret, Reference},
};

/// The credential that a reference leads to. What a command prints is not got yet.
pub fn of_reference(
    reference: &Reference,
    variables: &BTreeMap<String, String>,
) -> Result<Credential, MissingSecret> {
    let known = reference.resolve(variables)?;
    Ok(match (reference.expand_home(variables)?, known) {
        (Reference::Command(words), _) => {
            Credential::from_source(KeyCommand::new(words), None, KeyPlacement::ByWire)
        }
        (placed @ Reference::File(_), known) => {
            Credential::from_source(KeyFile::new(placed), known, KeyPlacement::ByWire)
        }
        (Reference::Variable(_), Some(key)) => Credential::fixed(key),
        // A variable that was resolved is known.
        (Reference::Variable(name), None) => {
            let reason = "the variable is not set".to_owned();
            return Err(MissingSecret { reference: Reference::Variable(name), reason });
        }
    })
}
