//! Errors of the configuration; and the redaction of values that may be secrets, also for `hermod config show`.

use std::{
    fmt::{self, Display},
    path::Path,
    sync::Arc,
};

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
#[error("{message}")]
pub struct SettingError {
    /// The origin, by which errors are sorted.
    pub origin: SettingOrigin,
    /// The place, the problem and the remedy.
    pub message: String,
}

impl SettingError {
    /// The error of what stands at `origin`.
    pub(super) fn new(origin: SettingOrigin, problem: impl Display) -> Self {
        Self { message: format!("{origin}: {problem}"), origin }
    }

    /// The error of a file that cannot be read.
    pub(super) fn unreadable(path: &Path, reason: impl Display) -> Self {
        let remedy = "make it a readable text file, or point HERMOD_CONFIG to another one";
        let message = format!("{}: {reason}; {remedy}", path.display());
        Self { origin: SettingOrigin::File { path: path.into(), line: 0 }, message }
    }

    /// The error of a file with `text` that is not valid TOML. The parser's message contains none of the text, which
    /// may contain a secret.
    pub(super) fn not_toml(path: Arc<Path>, text: &str, error: &toml::de::Error) -> Self {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or(before).chars().count() + 1;
        let message = format!("{}:{line}:{column}: this is no TOML: {}", path.display(), error.message());
        Self { origin: SettingOrigin::File { path, line }, message }
    }

    /// The error of an unknown name; `nearest` is the most similar known one.
    pub(super) fn unknown(origin: SettingOrigin, what: impl Display, nearest: Option<&str>) -> Self {
        let hint = match nearest {
            Some(nearest) => format!("did you mean `{nearest}`?"),
            None => "`hermod config show --effective` lists all that there are".to_owned(),
        };
        Self::new(origin, format_args!("there is no {what}; {hint}"))
    }

    /// The error of a key that `section` lacks. Its origin is that of the section's first setting.
    pub(super) fn missing(section: &str, field: &str, settings: &SettingLayer, reason: impl Display) -> Self {
        let is_in_section = |key: &str| key == section || below(section, key).is_some();
        let first = settings.iter().find(|(key, _)| is_in_section(key));
        let origin = first.map_or(SettingOrigin::Default, |(_, setting)| setting.origin.clone());
        Self::new(origin, format_args!("{section}.{field}: {reason}"))
    }

    /// The error of the value at `key`.
    pub(super) fn value(key: &str, setting: &Setting, reason: impl Display) -> Self {
        let shown = redacted_toml(key, &setting.value).map(|value| format!(" = {value}"));
        let shown = shown.unwrap_or_default();
        Self::new(setting.origin.clone(), format_args!("{key}{shown}: {reason}"))
    }
}

/// The redacted value as text, truncated; `None` if all of it may be secret.
pub fn redacted_toml(key: &str, value: &Value) -> Option<String> {
    Some(first_chars(&redacted(key, value)?.to_string(), MAX_VALUE_CHARS).into_owned())
}

/// The value without possible secrets; `None` if all of it may be secret.
pub fn redacted(key: &str, value: &Value) -> Option<Value> {
    match key.rsplit('.').next() {
        Some("otlp_endpoint" | "otlp_headers") if has_no_text(value) => Some(value.clone()),
        Some(
            "bearer" | "credential" | "client_secret" | "refresh_token" | "otlp_headers" | "password"
            | "secret" | "token",
        ) => redacted_reference(value),
        Some("credentials" | "secrets") => value.as_array()?.iter().map(redacted_reference).collect(),
        Some("base_url" | "token_url" | "otlp_endpoint" | "url") => {
            value.as_str().map(|url| redacted_url(url).into())
        }
        Some(_) | None => Some(value.clone()),
    }
}

/// True if a value can hold no secret.
fn has_no_text(value: &Value) -> bool {
    match value {
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.iter().all(Value::is_number),
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
        Value::Object(_) => false,
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
