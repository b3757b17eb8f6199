//! Merges defaults, files and variables into a checked [`Config`]; pure. The checks of keys, values and their
//! combinations are here; `auxiliary.rs` checks its own section.

use std::{
    collections::BTreeMap,
    path::{self, PathBuf},
    sync::Arc,
};

use serde_path_to_error::{Path, Segment};

use super::{
    agents, auxiliary, channels_section,
    error::{ConfigErrors, SettingError},
    hooks_section, inbound_section,
    keys::{self, KeyKind, MODELS, PROVIDERS},
    layer::{self, Setting, SettingLayer, SettingOrigin, quoted, to_object},
    model_section::{self, PriceSection},
    schedules_section,
    sections::Config,
    targets_section,
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
            let path = path::Path::new("config/hermod.toml").into();
            SettingError::not_toml(path, EMBEDDED, &error)
        })?;
        let mut settings = defaults.clone();
        for file in files {
            let path: Arc<path::Path> = file.path.as_path().into();
            let origin = |line| SettingOrigin::File { path: Arc::clone(&path), line };
            match layer::parse(&file.text, origin) {
                Ok(layer) if layer.len() > MAX_SETTINGS => {
                    let reason =
                        format!("it has {} settings, and at most {MAX_SETTINGS} are read", layer.len());
                    errors.push(SettingError::unreadable(&path, reason));
                }
                Ok(layer) => settings.extend(check_keys(layer, &defaults, &mut errors)),
                Err(error) => errors.push(SettingError::not_toml(path, &file.text, &error)),
            }
        }
        let from_variables = read_variables(variables, &defaults, &settings, &mut errors);
        settings.extend(check_keys(from_variables, &defaults, &mut errors));
        let shared = agents::without_agents(&settings);
        let shown = |key: &str| Some((key.to_owned(), shared.get(key)?.clone()));
        let config = deserialize_layer(shared.clone(), &defaults, &shown, &mut errors);
        if let (Some(config), true) = (&config, errors.is_empty()) {
            check_combinations(config, &mut errors);
            check_accounts(config, &mut errors);
            auxiliary::check(config, &mut errors);
            targets_section::check(config, &mut errors);
            channels_section::check(config, &mut errors);
            hooks_section::check(config, &mut errors);
            let mut problems = Vec::new();
            agents::check(config, &mut problems);
            for (key, reason) in problems {
                errors.extend(shown(key).map(|(key, setting)| SettingError::value(&key, &setting, reason)));
            }
        }
        let known_models = model_section::embedded()?;
        let config = config.map(|config| Self { known_models, ..config });
        let config = config.and_then(|config| agents::with_agents(config, settings, &mut errors));
        if let Some(config) = &config {
            channels_section::check_agents(config, &mut errors);
        }
        if let (Some(config), true) = (&config, errors.is_empty()) {
            inbound_section::check(config, &mut errors);
            schedules_section::check(config, &mut errors);
        }
        match config {
            Some(config) if errors.is_empty() => {
                let files = files.iter().map(|file| file.path.clone()).collect();
                Ok(Self { files, ..config })
            }
            Some(_) | None => {
                errors.sort_by(|a, b| a.origin.cmp(&b.origin));
                Err(ConfigErrors(errors))
            }
        }
    }
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
            KeyKind::Setting(_) | KeyKind::Named if !has_name(&key, &origin, errors) => {}
            KeyKind::Setting(_) => drop(valid.insert(key, setting)),
            KeyKind::Named if is_empty => drop(valid.insert(key, setting)),
            // A key of agents that stands in no agent's section.
            KeyKind::Named if agents::is_misplaced(&key) => {
                let nearest = keys::nearest(defaults, &key);
                errors.push(SettingError::unknown(origin, format_args!("key `{key}`"), nearest.as_deref()));
            }
            KeyKind::Section | KeyKind::Named => {
                let problem = format!("`{key}` is a section; write `[{key}]` and its keys below it");
                errors.push(SettingError::new(origin, problem));
            }
            KeyKind::Unknown => {
                let nearest = keys::nearest(defaults, &key);
                errors.push(SettingError::unknown(origin, format_args!("key `{key}`"), nearest.as_deref()));
            }
        }
    }
    valid
}

/// True unless the key names a provider, a model, an agent, a target, a hook, an incoming webhook, a channel or a schedule
/// by an invalid name. Each invalid name is reported once.
fn has_name(key: &str, origin: &SettingOrigin, errors: &mut Vec<SettingError>) -> bool {
    let provider = keys::provider(key).map(|(name, _)| name).filter(|name| !keys::is_provider_name(name));
    let model = keys::model(key).map(|(name, _)| name);
    let model = model.filter(|name| !keys::is_model_name(name.trim_matches('"')));
    let agent = agents::agent(key).map(|(name, _)| name).filter(|name| !agents::is_agent_name(name));
    let target = keys::target(key).map(|(name, _)| name).filter(|name| !keys::is_provider_name(name));
    let hook = hooks_section::hook(key).map(|(name, _)| name).filter(|name| !keys::is_provider_name(name));
    let inbound = inbound_section::inbound(key).map(|(name, _)| name);
    let inbound = inbound.filter(|name| !keys::is_provider_name(name));
    let channel = channels_section::channel(key).map(|(name, _)| name);
    let channel = channel.filter(|name| !keys::is_provider_name(name));
    let schedule = schedules_section::schedule(key).map(|(name, _)| name);
    let schedule = schedule.filter(|name| !schedules_section::is_schedule_name(name));
    let of_outside = target.or(hook).or(inbound).or(channel).or(schedule);
    let Some(name) = provider.or(model).or(agent).or(of_outside) else { return true };
    let what = target.and(Some("a target")).or(hook.and(Some("a hook")));
    let what = what.or(inbound.and(Some("an inbound webhook"))).or(channel.and(Some("a channel")));
    let what = what.or(schedule.and(Some("a schedule")));
    let problem = match (provider, what) {
        (None, Some(what)) => {
            format!("`{name}` is no name for {what}; use lower-case letters, digits, `-` and single `_`")
        }
        (None, None) if agent.is_some() => {
            format!(
                "`{name}` is no name for an agent; use at most 64 lower-case letters, digits, `-` and single `_`"
            )
        }
        (Some(_), _) => {
            format!("`{name}` is no name for a provider; use lower-case letters, digits, `-` and single `_`")
        }
        (None, None) => {
            format!("`{name}` is no name of a model; write the name itself, or how names begin and `*`")
        }
    };
    if !errors.iter().any(|error| error.message.ends_with(&problem)) {
        errors.push(SettingError::new(origin.clone(), problem));
    }
    false
}

/// The typed settings. The default replaces an invalid value, so that further errors are found too. `shown` gives the key
/// and the value of a setting as the user wrote them.
pub(super) fn deserialize_layer(
    mut settings: SettingLayer,
    defaults: &SettingLayer,
    shown: &dyn Fn(&str) -> Option<(String, Setting)>,
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
        let (name, written) = shown(&key).unwrap_or_else(|| (key.clone(), setting));
        errors.push(SettingError::value(&name, &written, reason));
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
    if let Some((key, reason)) = config.service.incomplete_tls() {
        reject(key, reason);
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

/// The limit in the schema of the tool `shell`.
const MAX_COMMAND_TIMEOUT: std::time::Duration = std::time::Duration::from_hours(1);

/// Reports conflicting credentials and incomplete `oauth` sections.
fn check_accounts(config: &Config, errors: &mut Vec<SettingError>) {
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
