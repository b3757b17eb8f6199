use std::{fmt, path::PathBuf, sync::Arc};

use serde_json::Value;

use super::{
    layer::{Setting, SettingOrigin},
    values::reference,
};
use crate::secret::redacted_url;

/// Values longer than this are cut in messages.
const MAX_VALUE_CHARS: usize = 80;

/// One mistake in the configuration. Never holds what may be a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// The file cannot be read.
    #[error("{}: {reason}; make it a readable text file, or point HERMOD_CONFIG to another one", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        reason: String,
    },
    /// The file is no TOML.
    #[error("{}:{line}:{column}: this is no TOML: {reason}", path.display())]
    NotToml {
        /// The file.
        path: Arc<std::path::Path>,
        /// From 1.
        line: usize,
        /// From 1.
        column: usize,
        /// What is wrong.
        reason: String,
    },
    /// There is no such key.
    #[error("{origin}: there is no key `{key}`; {}", did_you_mean(nearest.as_deref()))]
    UnknownKey {
        /// The key.
        key: String,
        /// Where it stands.
        origin: SettingOrigin,
        /// The known key that is most like it.
        nearest: Option<String>,
    },
    /// There is no such variable.
    #[error("{name}: there is no such variable; {}", did_you_mean(nearest.as_deref()))]
    UnknownVariable {
        /// The variable.
        name: String,
        /// The known variable that is most like it.
        nearest: Option<String>,
    },
    /// A value stands where a section should.
    #[error("{origin}: `{key}` is a section; write `[{key}]` and its keys below it")]
    Section {
        /// The section.
        key: String,
        /// Where it stands.
        origin: SettingOrigin,
    },
    /// A provider cannot have this name.
    #[error(
        "{origin}: `{name}` is no name for a provider; use lower-case letters, digits, `-` and single `_`"
    )]
    ProviderName {
        /// The name.
        name: String,
        /// Where it stands.
        origin: SettingOrigin,
    },
    /// A model cannot have this name.
    #[error("{origin}: `{name}` is no name of a model; write the name itself, or how names begin and `*`")]
    ModelName {
        /// The name.
        name: String,
        /// Where it stands.
        origin: SettingOrigin,
    },
    /// A variable speaks of a model, whose name no variable can hold.
    #[error(
        "{name}: what is known of a model cannot be set in the environment; write a section [models.\"NAME\"] into the file"
    )]
    ModelVariable {
        /// The variable.
        name: String,
    },
    /// A value does not do.
    #[error("{origin}: {key}{}: {reason}", equals(shown.as_deref()))]
    Value {
        /// The key.
        key: String,
        /// The value, if it may be shown.
        shown: Option<String>,
        /// Where it stands.
        origin: SettingOrigin,
        /// What is wrong with it, and the remedy.
        reason: String,
    },
}

impl SettingError {
    /// Where it is.
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

    /// The name that no provider or model can have.
    pub(super) fn name(&self) -> Option<&str> {
        match self {
            Self::ProviderName { name, .. } | Self::ModelName { name, .. } => Some(name),
            Self::Unreadable { .. }
            | Self::NotToml { .. }
            | Self::UnknownKey { .. }
            | Self::UnknownVariable { .. }
            | Self::Section { .. }
            | Self::ModelVariable { .. }
            | Self::Value { .. } => None,
        }
    }

    /// The value at `key` does not do.
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

/// A value as people may see it, in TOML; `None` if it may be a secret.
pub fn redacted_toml(key: &str, value: &Value) -> Option<String> {
    let value = redacted(key, value)?.to_string();
    match value.char_indices().nth(MAX_VALUE_CHARS) {
        Some((end, _)) => Some(format!("{}…", &value[..end])),
        None => Some(value),
    }
}

/// A value without what may be secret in it; `None` if that is all of it.
pub fn redacted(key: &str, value: &Value) -> Option<Value> {
    match key.rsplit('.').next() {
        Some("credential" | "client_secret" | "refresh_token") => redacted_reference(value),
        Some("credentials") => value.as_array()?.iter().map(redacted_reference).collect(),
        Some("base_url" | "token_url") => value.as_str().map(|url| redacted_url(url).into()),
        Some(_) | None => Some(value.clone()),
    }
}

/// A reference to a secret, without what may be secret in it.
fn redacted_reference(value: &Value) -> Option<Value> {
    reference(value).ok().map(|reference| reference.to_string().into())
}

/// All mistakes that were found.
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
