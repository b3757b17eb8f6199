use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use serde_path_to_error::{Path, Segment};

use super::{
    accounts, auxiliary,
    error::{ConfigError, ConfigErrors},
    keys::{self, Kind, MODELS, PROVIDERS},
    layer::{self, Layer, NotToml, Origin, Setting, quoted, tree},
    model::Config,
    models::{self, PriceSection},
    variables::of_variables,
    vendors,
};

/// Settings of a file: what is said of a wrong one is sought among all of them.
const MAX_SETTINGS: usize = 10_000;
/// Mistakes that are told at once.
const MAX_MISTAKES: usize = 100;

/// Every key with its default.
pub const EMBEDDED: &str = include_str!("../../config/hermod.toml");

/// A file that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Where it is.
    pub path: PathBuf,
    /// What it says.
    pub text: String,
}

impl Config {
    /// The defaults, the files over them, each over those before it, and the variables over all. Every mistake is told.
    pub fn load(files: &[File], variables: &BTreeMap<String, String>) -> Result<Self, ConfigErrors> {
        let mut errors = Vec::new();
        let defaults = layer::of_text(EMBEDDED, |_| Origin::Default).map_err(|error| {
            ConfigErrors::from(broken(std::path::Path::new("config/hermod.toml").into(), error))
        })?;
        let mut settings = defaults.clone();
        for file in files {
            let path: Arc<std::path::Path> = file.path.as_path().into();
            let origin = |line| Origin::File { path: Arc::clone(&path), line };
            match layer::of_text(&file.text, origin) {
                Ok(layer) if layer.len() > MAX_SETTINGS => {
                    let reason =
                        format!("it has {} settings, and at most {MAX_SETTINGS} are read", layer.len());
                    errors.push(ConfigError::Unreadable { path: file.path.clone(), reason });
                }
                Ok(layer) => settings.extend(known(layer, &defaults, &mut errors)),
                Err(error) => errors.push(broken(Arc::clone(&path), error)),
            }
        }
        let above = of_variables(variables, (&defaults, &settings), &mut errors);
        settings.extend(known(above, &defaults, &mut errors));
        let config = typed(settings, &defaults, &mut errors);
        if let (Some(config), true) = (&config, errors.is_empty()) {
            together(config, &mut errors);
            accounts::check(config, &mut errors);
            auxiliary::check(config, &mut errors);
        }
        match config {
            Some(config) if errors.is_empty() => {
                let files = files.iter().map(|file| file.path.clone()).collect();
                Ok(Self { files, known_models: models::embedded()?, ..config })
            }
            Some(_) | None => {
                errors.sort_by_key(ConfigError::origin);
                Err(ConfigErrors(errors))
            }
        }
    }
}

fn broken(path: Arc<std::path::Path>, NotToml { line, column, reason }: NotToml) -> ConfigError {
    ConfigError::NotToml { path, line, column, reason }
}

/// The settings of a layer whose keys there are; the others are errors.
fn known(layer: Layer, defaults: &Layer, errors: &mut Vec<ConfigError>) -> Layer {
    let mut kept = Layer::new();
    for (key, setting) in layer {
        if errors.len() >= MAX_MISTAKES {
            break;
        }
        let empty = setting.value.as_object().is_some_and(serde_json::Map::is_empty);
        let origin = setting.origin.clone();
        match keys::kind(defaults, &key) {
            Kind::Section if empty => {}
            Kind::Setting(_) | Kind::Provider | Kind::Model if !has_name(&key, &origin, errors) => {}
            Kind::Setting(_) => drop(kept.insert(key, setting)),
            Kind::Provider | Kind::Model if empty => drop(kept.insert(key, setting)),
            Kind::Section | Kind::Provider | Kind::Model => errors.push(ConfigError::Section { key, origin }),
            Kind::Unknown => {
                let nearest = keys::nearest(defaults, &key);
                errors.push(ConfigError::UnknownKey { key, origin, nearest });
            }
        }
    }
    kept
}

/// Whether the provider or model that the key is about, if it is about one, has a name; each that has none is told once.
fn has_name(key: &str, origin: &Origin, errors: &mut Vec<ConfigError>) -> bool {
    let provider = keys::provider(key).map(|(name, _)| name).filter(|name| !keys::is_provider_name(name));
    let model = keys::model(key).map(|(name, _)| name);
    let model = model.filter(|name| !keys::is_model_name(name.trim_matches('"')));
    let error = match (provider, model) {
        (Some(name), _) => ConfigError::ProviderName { name: name.to_owned(), origin: origin.clone() },
        (None, Some(name)) => ConfigError::ModelName { name: name.to_owned(), origin: origin.clone() },
        (None, None) => return true,
    };
    let name = error.name();
    if !errors.iter().any(|told| told.name().is_some() && told.name() == name) {
        errors.push(error);
    }
    false
}

/// The typed settings. A value that does not do is told and the default takes its place, so that all are told at once.
fn typed(mut settings: Layer, defaults: &Layer, errors: &mut Vec<ConfigError>) -> Option<Config> {
    loop {
        let error = match serde_path_to_error::deserialize::<_, Config>(tree(&settings)) {
            Ok(config) => return Some(Config { settings, ..config }),
            Err(error) => error,
        };
        let key = key_at(error.path());
        let reason = error.inner().to_string();
        let wrong = settings.remove(&key);
        let user = wrong.as_ref().is_some_and(|setting| setting.origin != Origin::Default);
        let setting = wrong.unwrap_or(Setting { value: serde_json::Value::Null, origin: Origin::Default });
        errors.push(ConfigError::value(&key, &setting, reason));
        if !user || errors.len() >= MAX_MISTAKES {
            return None;
        }
        settings.extend(defaults.get_key_value(&key).map(|(key, default)| (key.clone(), default.clone())));
    }
}

/// The key of a place: an item of a list belongs to the list's key.
fn key_at(path: &Path) -> String {
    let names = path.iter().map_while(|segment| match segment {
        Segment::Map { key } => Some(quoted(key)),
        Segment::Seq { .. } | Segment::Enum { .. } | Segment::Unknown => None,
    });
    names.collect::<Vec<_>>().join(".")
}

/// What no value can be blamed for alone.
fn together(config: &Config, errors: &mut Vec<ConfigError>) {
    let mut wrong = |key: &str, reason: &str| {
        if let Some(setting) = config.settings.get(key) {
            errors.push(ConfigError::value(key, setting, reason));
        }
    };
    if config.retry.longest_pause.0 < config.retry.first_pause.0 {
        wrong("retry.longest_pause", "must not be shorter than retry.first_pause");
    }
    if config.tools.shell.timeout.0 > LONGEST_COMMAND {
        wrong("tools.shell.timeout", "must not be longer than 1h");
    }
    for (key, most) in config.prompt.caps() {
        if most > LONGEST_LAYER {
            wrong(key, &format!("must not be larger than {LONGEST_LAYER}"));
        }
    }
    for (name, section) in &config.providers {
        if let (Some(wire), Some(api_mode)) = (section.wire, section.api_mode)
            && wire != api_mode
        {
            let reason =
                format!("{PROVIDERS}.{name}.wire says {}, and both mean the same; leave one out", wire.0);
            wrong(&format!("{PROVIDERS}.{name}.api_mode"), &reason);
        }
    }
    for (name, section) in &config.models {
        let price = section.price.as_ref();
        for (field, _) in price.map(PriceSection::needed).into_iter().flatten().filter(|(_, said)| !said) {
            let price = format!("{MODELS}.{}.price.", quoted(name));
            let said = config.settings.iter().find(|(key, _)| key.starts_with(&price));
            let origin = said.map_or(Origin::Default, |(_, setting)| setting.origin.clone());
            let reason = "it is missing; a price needs both, in dollars per million tokens, like `price = { input = 3, output = 15 }`";
            errors.push(ConfigError::Value {
                key: format!("{price}{field}"),
                shown: None,
                origin,
                reason: reason.to_owned(),
            });
        }
    }
    for (name, section) in &config.providers {
        if section.base_url.is_none() && !vendors::is_known(name) {
            let section = format!("{PROVIDERS}.{name}");
            let is_of = |key: &str| keys::provider(key).is_some_and(|(of, _)| of == name);
            let any = config.settings.iter().find(|(key, _)| is_of(key));
            let origin = any.map_or(Origin::Default, |(_, setting)| setting.origin.clone());
            let reason = format!(
                "it is missing; give the URL of the endpoint, like `base_url = \"https://host/v1\"`, or use the name of \
                 a vendor that Hermod knows: {}",
                vendors::names().join(", ")
            );
            let key = format!("{section}.base_url");
            errors.push(ConfigError::Value { key, shown: None, origin, reason });
        }
    }
}

/// More of a prompt does no model good.
const LONGEST_LAYER: u32 = 1_000_000;
/// What the tool's own schema allows.
const LONGEST_COMMAND: std::time::Duration = std::time::Duration::from_hours(1);
