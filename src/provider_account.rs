//! A provider's account in the configuration: the references of its keys, its OAuth account, and the limits of each
//! credential. Reports what is missing, and makes the credentials of the provider from the references.

use std::{collections::BTreeMap, path::Path};

use hermod_actors::model::{PoolStrategy, RateLimits};

use crate::{
    config::{OauthSection, ProviderSection},
    credential::{self, Oauth, OauthGrant, RefreshTokenFile},
    provider::{Credential, FormClient, KeyPlacement},
    secret::{MissingSecret, Reference},
};

/// The folder of refresh tokens in the state directory.
const TOKEN_FOLDER: &str = "credentials";

/// The configured credentials of one provider.
#[derive(Debug, Clone, Default)]
pub struct ProviderAccount {
    /// The OAuth section; its access tokens are then the first credential.
    pub oauth: Option<OauthSection>,
    /// The references of the keys.
    pub credentials: Vec<Reference>,
    /// The strategy that chooses a credential for an attempt.
    pub pool: PoolStrategy,
    /// The limits of each credential per minute.
    pub limits: RateLimits,
}

impl ProviderAccount {
    /// The account of a section; `default_key` is the key's reference if the section has neither keys nor OAuth.
    pub fn of_section(section: &ProviderSection, default_key: Option<Reference>) -> Self {
        let single = section.credential.as_ref().map(|credential| vec![credential.0.clone()]);
        let list = section.credentials.as_ref().map(|credentials| credentials.0.clone());
        let default_key = default_key.filter(|_| section.oauth.is_none()).into_iter().collect();
        Self {
            oauth: section.oauth.clone(),
            credentials: list.or(single).unwrap_or(default_key),
            pool: section.pool.map(|pool| pool.0).unwrap_or_default(),
            limits: RateLimits {
                requests: section.requests_per_minute.map(|count| count.0),
                tokens: section.tokens_per_minute.map(|count| count.0.into()),
            },
        }
    }

    /// Each credential as displayed, and its problem, as far as it shows without a request or a command.
    pub fn credential_report(
        &self,
        variables: &BTreeMap<String, String>,
    ) -> Vec<(String, Option<MissingSecret>)> {
        let oauth = self.oauth.as_ref().map(|oauth| {
            let secrets = [&oauth.refresh_token, &oauth.client_secret];
            let missing = secrets.into_iter().flatten().find_map(|secret| secret.0.resolve(variables).err());
            ("oauth".to_owned(), missing)
        });
        let error_of = |key: &Reference| match key {
            Reference::Command(_) => None,
            Reference::Variable(_) | Reference::File(_) => key.resolve(variables).err(),
        };
        let keys = self.credentials.iter().map(|key| (key.to_string(), error_of(key)));
        oauth.into_iter().chain(keys).collect()
    }

    /// This process redacts the secrets of the account from now on, before any of them is used. A command is not run for
    /// this; what it prints is redacted from its first use on. What cannot be read is reported when it is used.
    pub fn learn_secrets(&self, variables: &BTreeMap<String, String>) {
        let oauth = self.oauth.iter().flat_map(|oauth| [&oauth.refresh_token, &oauth.client_secret]);
        let oauth = oauth.flatten().map(|secret| &secret.0);
        for reference in self.credentials.iter().chain(oauth) {
            if let Err(missing) = credential::learn_reference(reference, variables) {
                tracing::debug!(%missing, "a secret is not redacted before its first use");
            }
        }
    }

    /// This process redacts the stored refresh token of the account from now on.
    pub fn learn_stored_token(&self, provider: &str, state: &Path) {
        if self.oauth.is_some() {
            RefreshTokenFile::new(state.join(TOKEN_FOLDER), provider).learn();
        }
    }

    /// The credentials of this provider; fails at the first that cannot be read. `state` is the state directory, where
    /// refresh tokens are kept.
    pub fn credentials(
        &self,
        provider: &str,
        variables: &BTreeMap<String, String>,
        state: &Path,
    ) -> Result<Vec<Credential>, MissingSecret> {
        let token_file = || RefreshTokenFile::new(state.join(TOKEN_FOLDER), provider);
        let oauth =
            self.oauth.as_ref().and_then(|section| oauth_credential(section, token_file(), variables));
        let keys = self.credentials.iter().map(|key| credential::of_reference(key, variables));
        oauth.into_iter().chain(keys).collect()
    }
}

/// The credential of an OAuth section; `None` if the section is incomplete, which the check of the configuration
/// reports.
fn oauth_credential(
    section: &OauthSection,
    token_file: RefreshTokenFile,
    variables: &BTreeMap<String, String>,
) -> Option<Result<Credential, MissingSecret>> {
    let (token_url, client_id) = (&section.token_url.as_ref()?.0, section.client_id.as_ref()?.0.clone());
    let refresh_token = &section.refresh_token.as_ref()?.0;
    let credential = || {
        let client_secret = section.client_secret.as_ref();
        let grant = OauthGrant {
            client_id,
            client_secret: client_secret.map(|secret| secret.0.resolve(variables)).transpose()?,
            refresh_token: refresh_token.resolve(variables)?,
            scope: section.scope.as_ref().map(|scope| scope.0.clone()),
        };
        let forms = FormClient::new(token_url).map_err(|reason| MissingSecret {
            reference: refresh_token.clone(),
            reason: format!("token_url: {reason}"),
        })?;
        Ok(Credential::from_source(Oauth::new(forms, grant, token_file), None, KeyPlacement::Bearer))
    };
    Some(credential())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, ConfigFile};

    /// Checks the sources of the credentials of a section with this text, whose usual key is in `USUAL`.
    #[track_caller]
    fn check(section: &str, expect: &[&str]) {
        let text = format!("[providers.acme]\nbase_url = \"http://a\"\n{section}");
        let variables = BTreeMap::new();
        let config = Config::load(&[ConfigFile { path: "hermod.toml".into(), text }], &variables).unwrap();
        let default_key = Reference::Variable("USUAL".to_owned());
        let account = ProviderAccount::of_section(&config.providers["acme"], Some(default_key));
        let reported: Vec<_> =
            account.credential_report(&variables).into_iter().map(|(shown, _)| shown).collect();
        assert_eq!(reported, expect, "{section}");
    }

    #[test]
    fn the_usual_key_is_for_who_says_nothing_else() {
        const OAUTH: &str =
            "[providers.acme.oauth]\ntoken_url = \"http://a\"\nclient_id = \"c\"\nrefresh_token = \"env:R\"";
        check("", &["env:USUAL"]);
        check("pool = \"round_robin\"", &["env:USUAL"]);
        check("credential = \"env:A\"", &["env:A"]);
        check("credentials = [\"env:A\", \"command:b c\"]", &["env:A", "command:b …"]);
        check(OAUTH, &["oauth"]);
        check(&format!("credential = \"env:A\"\n{OAUTH}"), &["oauth", "env:A"]);
    }
}
