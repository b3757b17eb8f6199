//! Sources of keys that change: files, commands, and OAuth refresh tokens.

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

/// The credential of a reference. A command is not run yet.
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
        // A variable that was resolved has a value.
        (Reference::Variable(name), None) => {
            let reason = "the variable is not set".to_owned();
            return Err(MissingSecret { reference: Reference::Variable(name), reason });
        }
    })
}
