//! Sources of keys that change (files, commands, OAuth refresh tokens), and the credential of a configured reference.
//! The credential itself is in `provider/credential.rs`, references are in `secret.rs`.

mod key_sources;
mod oauth;
mod token_file;

use std::collections::BTreeMap;

pub use key_sources::{KeyCommand, KeyFile};
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
    Ok(match reference.expand_home(variables)? {
        Reference::Command(words) => {
            Credential::from_source(KeyCommand::new(words), None, KeyPlacement::ByWire)
        }
        file @ Reference::File(_) => {
            let key = reference.resolve(variables)?;
            Credential::from_source(KeyFile::new(file), Some(key), KeyPlacement::ByWire)
        }
        Reference::Variable(_) => Credential::fixed(reference.resolve(variables)?),
    })
}
