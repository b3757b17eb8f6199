//! Errors of the configuration; and the redaction of values that may be secrets, also for `hermod config show`.

use std::{fmt, path::PathBuf, sync::Arc};

use serde_json::Value;

use super::{
    keys::below,
    layer::{Setting, SettingLayer, SettingOrigin},
    values::reference,
};
use crate::{excerpt::first_chars, secret::redacted_url};

/// Longer values are truncated in messages.
const MAX_VALUE_CHARS: usize = 80;

/// One error in the configuration. It never contains a possible secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// A file cannot be read.
    #[error("{}: {reason}; make it a readable text file, or point HERMOD_CONFIG to another one", path.display())]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// The reason, mostly the system's error.
        reason: String,
    },
    /// A file is not valid TOML.
    #[error("{}:{line}:{column}: this is no TOML: {reason}", path.display())]
    NotToml {
        /// Path of the file.
        path: Arc<std::path::Path>,
        /// Line, counted from 1.
        line: usize,
        /// Column in characters, counted from 1.
        column: usize,
        /// The parser's message.
        reason: String,
    },
    /// A key is unknown.
    #[error("{origin}: there is no key `{key}`; {}", did_you_mean(nearest.as_deref()))]
    UnknownKey {
        /// The dotted key.
        key: String,
        /// Origin of the key.
        origin: SettingOrigin,
        /// The most similar known key.
        nearest: Option<String>,
    },
    /// A variable is unknown.
    #[error("{name}: there is no such variable; {}", did_you_mean(nearest.as_deref()))]
    UnknownVariable {
        /// Name of the variable.
        name: String,
        /// The most similar known variable.
        nearest: Option<String>,
    },
    /// A section has a value instead of keys.
    #[error("{origin}: `{key}` is a section; write `[{key}]` and its keys below it")]
    Section {
        /// Key of the section.
        key: String,
        /// Origin of the value.
        origin: SettingOrigin,
    },
    /// A provider's name is invalid.
    #[error(
        "{origin}: `{name}` is no name for a provider; use lower-case letters, digits, `-` and single `_`"
    )]
    ProviderName {
        /// The invalid name.
        name: String,
        /// Origin of the name.
        origin: SettingOrigin,
    },
    /// A model's name is invalid.
    #[error("{origin}: `{name}` is no name of a model; write the name itself, or how names begin and `*`")]
    ModelName {
        /// The invalid name.
        name: String,
        /// Origin of the name.
        origin: SettingOrigin,
    },
    /// A variable sets a model's key. Variables cannot, since their names cannot hold a model's name.
    #[error(
        "{name}: what is known of a model cannot be set in the environment; write a section [models.\"NAME\"] into the file"
    )]
    ModelVariable {
        /// Name of the variable.
        name: String,
    },
    /// A value is invalid.
    #[error("{origin}: {key}{}: {reason}", equals(shown.as_deref()))]
    Value {
        /// The dotted key.
        key: String,
        /// The redacted value; `None` if it may be a secret.
        shown: Option<String>,
        /// Origin of the value.
        origin: SettingOrigin,
        /// What is wrong with the value, and the remedy.
        reason: String,
    },
}

impl SettingError {
    /// The origin of the error, by which errors are sorted.
    pub fn origin(&self) -> SettingOrigin {
        match self {
            Self::Unreadable { path, .. } => SettingOrigin::File { path: path.as_path().into(), line: 0 },
            Self::NotToml { path, line, .. } => SettingOrigin::File { path: Arc::clone(path), line: *line },
            Self::UnknownVariable { name, .. } | Self::ModelVariable { name } => {
                SettingOrigin::Variable(name.as_str().into())
            }
            Self::UnknownKey { origin, .. }
            | Self::Section { origin, .. }
            | Self::ProviderName { origin, .. }
            | Self::ModelName { origin, .. }
            | Self::Value { origin, .. } => origin.clone(),
        }
    }

    /// The error of a key that `section` lacks. Its origin is that of the section's first setting.
    pub(super) fn missing(
        section: &str,
        field: &str,
        settings: &SettingLayer,
        reason: impl Into<String>,
    ) -> Self {
        let is_in_section = |key: &str| key == section || below(section, key).is_some();
        let first = settings.iter().find(|(key, _)| is_in_section(key));
        let origin = first.map_or(SettingOrigin::Default, |(_, setting)| setting.origin.clone());
        Self::Value { key: format!("{section}.{field}"), shown: None, origin, reason: reason.into() }
    }

    /// The error of the value at `key`.
    pub(super) fn value(key: &str, setting: &Setting, reason: impl Into<String>) -> Self {
        let shown = redacted_toml(key, &setting.value);
        Self::Value { key: key.to_owned(), shown, origin: setting.origin.clone(), reason: reason.into() }
    }
}

fn did_you_mean(nearest: Option<&str>) -> String {
    match nearest {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None => "`hermod config show --effective` lists all that there are".to_owned(),
    }
}

fn equals(shown: Option<&str>) -> String {
    shown.map_or_else(String::new, |shown| format!(" = {shown}"))
}

/// The redacted value as text, truncated; `None` if all of it may be secret.
pub fn redacted_toml(key: &str, value: &Value) -> Option<String> {
    Some(first_chars(&redacted(key, value)?.to_string(), MAX_VALUE_CHARS).into_owned())
}

/// The value without possible secrets; `None` if all of it may be secret.
pub fn redacted(key: &str, value: &Value) -> Option<Value> {
    match key.rsplit('.').next() {
        Some("credential" | "client_secret" | "refresh_token") => redacted_reference(value),
        Some("credentials") => value.as_array()?.iter().map(redacted_reference).collect(),
        Some("base_url" | "token_url") => value.as_str().map(|url| redacted_url(url).into()),
        Some(_) | None => Some(value.clone()),
    }
}

/// A reference to a secret in its printable form; `None` if it is invalid and may be the secret itself.
fn redacted_reference(value: &Value) -> Option<Value> {
    reference(value).ok().map(|reference| reference.to_string().into())
}

/// All errors of a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ConfigErrors(pub Vec<SettingError>);

impl From<SettingError> for ConfigErrors {
    fn from(error: SettingError) -> Self {
        Self(vec![error])
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [error] = self.0.as_slice() {
            return error.fmt(f);
        }
        write!(f, "{} mistakes in the configuration:", self.0.len())?;
        self.0.iter().try_for_each(|error| write!(f, "\n  {error}"))
    }
}
