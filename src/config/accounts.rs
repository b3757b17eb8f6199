//! Checks that the settings of a provider's accounts fit together.

use super::{error::SettingError, keys::PROVIDERS, sections::Config};

/// Reports conflicting credentials and incomplete `oauth` sections.
pub(super) fn check(config: &Config, errors: &mut Vec<SettingError>) {
    for (name, section) in &config.providers {
        let key = |field: &str| format!("{PROVIDERS}.{name}.{field}");
        let setting = |field: &str| config.settings.get(&key(field));
        if let (Some(_), Some(setting)) = (&section.credential, setting("credentials")) {
            let reason = format!("{} is set too; put all into one of them", key("credential"));
            errors.push(SettingError::value(&key("credentials"), setting, reason));
        }
        let Some(oauth) = &section.oauth else { continue };
        let required = [
            ("token_url", oauth.token_url.is_some(), "the URL where access tokens are given"),
            ("client_id", oauth.client_id.is_some(), "the id under which this program is known there"),
            (
                "refresh_token",
                oauth.refresh_token.is_some(),
                "where the refresh token is, as env:NAME or file:PATH",
            ),
        ];
        for (field, _, hint) in required.into_iter().filter(|(_, is_present, _)| !is_present) {
            let reason = format!("it is missing; give {hint}");
            errors.push(SettingError::missing(&key("oauth"), field, &config.settings, reason));
        }
    }
}
