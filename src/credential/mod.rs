//! Sources of keys that change (files, commands, OAuth refresh tokens), and the credential of a configured reference.
//! The credential itself is in `provider/credential.rs`, references are in `secret.rs`.

mod key_sources;
mod oauth;
mod token_file;

use std::collections::BTreeMap;

pub use key_sources::{KeyCommand, KeyFile};
pub use oauth::{Oauth, OauthGrant};
pub use token_file::RefreshTokenFile;

use crate::{
    provider::{Credential, KeyPlacement},
    redaction,
    secret::{MissingSecret, Reference, Secret},
};

/// The credential of a reference. A command is not run yet.
pub fn of_reference(
    reference: &Reference,
    variables: &BTreeMap<String, String>,
) -> Result<Credential, MissingSecret> {
    let resolve = || learn_reference(reference, variables);
    Ok(match reference.expand_home(variables)? {
        Reference::Command(words) => {
            Credential::from_source(KeyCommand::new(words), None, KeyPlacement::ByWire)
        }
        file @ Reference::File(_) => {
            Credential::from_source(KeyFile::new(file), Some(resolve()?), KeyPlacement::ByWire)
        }
        Reference::Variable(_) => Credential::fixed(resolve()?),
    })
}

/// Reads the secret of a reference, which this process redacts from now on under the name of its variable or file.
pub(crate) fn learn_reference(
    reference: &Reference,
    variables: &BTreeMap<String, String>,
) -> Result<Secret, MissingSecret> {
    let secret = reference.resolve(variables)?;
    let label = match reference {
        Reference::Variable(name) => name.clone(),
        Reference::File(path) => path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        Reference::Command(_) => "command".to_owned(),
    };
    redaction::learn(&label, &secret);
    Ok(secret)
}
