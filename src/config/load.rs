//! Merges defaults, files and variables into a checked [`Config`]; pure. The checks of keys, values and their
//! combinations are here; `accounts.rs` and `auxiliary.rs` check their own sections.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use serde_path_to_error::{Path, Segment};

use super::{
    accounts, auxiliary,
    error::{ConfigErrors, SettingError},
    keys::{self, KeyKind, MODELS, PROVIDERS},
    layer::{self, Setting, SettingLayer, SettingOrigin, quoted, to_object},
    model_section::{self, PriceSection},
    sections::Config,
    variables::read_variables,
    vendors,
};

/// Maximum number of settings in one file. Each error may search all of them.
const MAX_SETTINGS: usize = 10_000;
/// After this many errors, no further keys and values of files are checked.
const MAX_ERRORS: usize = 100;

/// The embedded defaults: every key with its default value.
pub const EMBEDDED: &str = include_str!("../../config/hermod.toml");

/// A configuration file that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFile {
    /// Path of the file.
    pub path: PathBuf,
    /// Content of the file.
    pub text: String,
}

impl Config {
    /// Merges the defaults, then the files in order, then the variables; later ones override. Reports the errors of
    /// keys and values together, up to a limit; combinations of values are checked only if there are none.
    pub fn load(files: &[ConfigFile], variables: &BTreeMap<String, String>) -> Result<Self, ConfigErrors> {
        let mut errors = Vec::new();
        let defaults = layer::parse(EMBEDDED, |_| SettingOrigin::Default).map_err(|error| {
            let path = std::path::Path::new("config/hermod.toml").into();
            ConfigErrors::from(not_toml(&path, EMBEDDED, &error))
        })?;
        let mut settings = defaults.clone();
        for file in files {
            let path: Arc<std::path::Path> = file.path.as_path().into();
            let origin = |line| SettingOrigin::File { path: Arc::clone(&path), line };
            match layer::parse(&file.text, origin) {
                Ok(layer) if layer.len() > MAX_SETTINGS => {
                    let reason =
                        format!("it has {} settings, and at most {MAX_SETTINGS} are read", layer.len());
                    errors.push(SettingError::Unreadable { path: file.path.clone(), reason });
                }
                Ok(layer) => settings.extend(check_keys(layer, &defaults, &mut errors)),
                Err(error) => errors.push(not_toml(&path, &file.text, &error)),
            }
        }
        let from_variables = read_variables(variables, &defaults, &settings, &mut errors);
        settings.extend(check_keys(from_variables, &defaults, &mut errors));
        let config = deserialize_layer(settings, &defaults, &mut errors);
        if let (Some(config), true) = (&config, errors.is_empty()) {
            check_combinations(config, &mut errors);
            accounts::check(config, &mut errors);
            auxiliary::check(config, &mut errors);
        }
        match config {
            Some(config) if errors.is_empty() => {
                let files = files.iter().map(|file| file.path.clone()).collect();
                Ok(Self { files, known_models: model_section::embedded()?, ..config })
            }
            Some(_) | None => {
                errors.sort_by_key(SettingError::origin);
                Err(ConfigErrors(errors))
            }
        }
    }
}

/// The parser's message contains none of the text, which may contain a secret.
fn not_toml(path: &Arc<std::path::Path>, text: &str, error: &toml::de::Error) -> SettingError {
    let (line, column) = line_and_column(text, error.span().map_or(text.len(), |span| span.start));
    SettingError::NotToml { path: Arc::clone(path), line, column, reason: error.message().to_owned() }
}

/// Line and column of a byte offset, both counted from 1.
fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[start..].chars().count() + 1)
}

/// The settings with known keys; every other key is an error.
fn check_keys(layer: SettingLayer, defaults: &SettingLayer, errors: &mut Vec<SettingError>) -> SettingLayer {
    let mut valid = SettingLayer::new();
    for (key, setting) in layer {
        if errors.len() >= MAX_ERRORS {
            break;
        }
        let is_empty = setting.value.as_object().is_some_and(serde_json::Map::is_empty);
        let origin = setting.origin.clone();
        match keys::kind(defaults, &key) {
            KeyKind::Section if is_empty => {}
            KeyKind::Setting(_) | KeyKind::Provider | KeyKind::Model if !has_name(&key, &origin, errors) => {}
            KeyKind::Setting(_) => drop(valid.insert(key, setting)),
            KeyKind::Provider | KeyKind::Model if is_empty => drop(valid.insert(key, setting)),
            KeyKind::Section | KeyKind::Provider | KeyKind::Model => {
                errors.push(SettingError::Section { key, origin });
            }
            KeyKind::Unknown => {
                let nearest = keys::nearest(defaults, &key);
                errors.push(SettingError::UnknownKey { key, origin, nearest });
            }
        }
    }
    valid
}

/// True unless the key names a provider or model by an invalid name. Each invalid name is reported once.
fn has_name(key: &str, origin: &SettingOrigin, errors: &mut Vec<SettingError>) -> bool {
    let provider = keys::provider(key).map(|(name, _)| name).filter(|name| !keys::is_provider_name(name));
    let model = keys::model(key).map(|(name, _)| name);
    let model = model.filter(|name| !keys::is_model_name(name.trim_matches('"')));
    let Some(name) = provider.or(model) else { return true };
    let is_reported = errors.iter().any(|error| {
        matches!(
            error,
            SettingError::ProviderName { name: reported, .. } | SettingError::ModelName { name: reported, .. }
            if reported == name
        )
    });
    if !is_reported {
        let (name, origin) = (name.to_owned(), origin.clone());
        errors.push(match provider {
            Some(_) => SettingError::ProviderName { name, origin },
            None => SettingError::ModelName { name, origin },
        });
    }
    false
}

/// The typed settings. The default replaces an invalid value, so that further errors are found too.
fn deserialize_layer(
    mut settings: SettingLayer,
    defaults: &SettingLayer,
    errors: &mut Vec<SettingError>,
) -> Option<Config> {
    loop {
        let error = match serde_path_to_error::deserialize::<_, Config>(to_object(&settings)) {
            Ok(config) => return Some(Config { settings, ..config }),
            Err(error) => error,
        };
        let key = key_at(error.path());
        let reason = error.inner().to_string();
        let invalid = settings.remove(&key);
        let is_set = invalid.as_ref().is_some_and(|setting| setting.origin != SettingOrigin::Default);
        let setting =
            invalid.unwrap_or(Setting { value: serde_json::Value::Null, origin: SettingOrigin::Default });
        errors.push(SettingError::value(&key, &setting, reason));
        if !is_set || errors.len() >= MAX_ERRORS {
            return None;
        }
        settings.extend(defaults.get_key_value(&key).map(|(key, default)| (key.clone(), default.clone())));
    }
}

/// The key of a path. An item of a list belongs to the list's key.
fn key_at(path: &Path) -> String {
    let names = path.iter().map_while(|segment| match segment {
        Segment::Map { key } => Some(quoted(key)),
        Segment::Seq { .. } | Segment::Enum { .. } | Segment::Unknown => None,
    });
    names.collect::<Vec<_>>().join(".")
}

/// Checks that depend on several values, or on limits of other modules.
fn check_combinations(config: &Config, errors: &mut Vec<SettingError>) {
    let mut reject = |key: &str, reason: &str| {
        if let Some(setting) = config.settings.get(key) {
            errors.push(SettingError::value(key, setting, reason));
        }
    };
    if config.retry.longest_pause.0 < config.retry.first_pause.0 {
        reject("retry.longest_pause", "must not be shorter than retry.first_pause");
    }
    if config.tools.shell.timeout.0 > MAX_COMMAND_TIMEOUT {
        reject("tools.shell.timeout", "must not be longer than 1h");
    }
    for (key, limit) in config.prompt.limits() {
        if limit > MAX_PROMPT_LIMIT {
            reject(key, &format!("must not be larger than {MAX_PROMPT_LIMIT}"));
        }
    }
    for (name, section) in &config.providers {
        if let (Some(wire), Some(api_mode)) = (section.wire, section.api_mode)
            && wire != api_mode
        {
            let reason =
                format!("{PROVIDERS}.{name}.wire says {}, and both mean the same; leave one out", wire.0);
            reject(&format!("{PROVIDERS}.{name}.api_mode"), &reason);
        }
    }
    for (name, section) in &config.models {
        let Some(PriceSection { input, output, .. }) = section.price else { continue };
        for (field, _) in [("input", input), ("output", output)].iter().filter(|(_, price)| price.is_none()) {
            let price = format!("{MODELS}.{}.price", quoted(name));
            let reason = "it is missing; a price needs both, in dollars per million tokens, like `price = { input = 3, output = 15 }`";
            errors.push(SettingError::missing(&price, field, &config.settings, reason));
        }
    }
    for (name, section) in &config.providers {
        if section.base_url.is_none() && !vendors::is_known(name) {
            let section = format!("{PROVIDERS}.{name}");
            let reason = format!(
                "it is missing; give the URL of the endpoint, like `base_url = \"https://host/v1\"`, or use the name of \
                 a vendor that Hermod knows: {}",
                vendors::names().join(", ")
            );
            errors.push(SettingError::missing(&section, "base_url", &config.settings, reason));
        }
    }
}

/// Upper limit of the prompt's byte limits: a larger prompt helps no model.
const MAX_PROMPT_LIMIT: u32 = 1_000_000;
/// The limit in the schema of the tool `shell`.
const MAX_COMMAND_TIMEOUT: std::time::Duration = std::time::Duration::from_hours(1);
