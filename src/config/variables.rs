//! Settings from environment variables: `HERMOD_AGENT__MAX_TURNS=20` sets `agent.max_turns = 20`. `keys.rs` has the
//! variables that are no settings.

use std::collections::BTreeMap;

use serde_json::Value;
use toml::de::DeValue;

use super::{
    agents::{self, AGENTS},
    channels_section::{CHANNELS, channel},
    error::SettingError,
    hooks_section::{HOOKS, hook},
    inbound_section::{INBOUND, inbound},
    keys::{self, KeyKind, LEVEL_SEPARATOR, NOT_SETTINGS, PREFIX, PROVIDERS, TARGETS},
    layer::{Setting, SettingLayer, SettingOrigin, to_json},
    schedules_section::{SCHEDULES, schedule},
};

/// The settings among the variables. An unknown variable with the prefix is an error. `file_settings` are the settings
/// that they override.
pub(super) fn read_variables(
    variables: &BTreeMap<String, String>,
    defaults: &SettingLayer,
    file_settings: &SettingLayer,
    errors: &mut Vec<SettingError>,
) -> SettingLayer {
    let mut layer = SettingLayer::new();
    for (name, text) in variables {
        let Some(rest) = name.strip_prefix(PREFIX).filter(|_| !NOT_SETTINGS.contains(&name.as_str())) else {
            continue;
        };
        let key = key_of(rest, file_settings);
        let origin = SettingOrigin::Variable(name.as_str().into());
        if keys::model(&key).is_some() {
            // Names of variables cannot hold a model's name.
            let problem = "what is known of a model cannot be set in the environment; write a section \
                           [models.\"NAME\"] into the file";
            errors.push(SettingError::new(origin, problem));
            continue;
        }
        match keys::kind(defaults, &key) {
            KeyKind::Setting(default) if !text.trim().is_empty() => {
                layer.insert(key, Setting { value: parse_as_default(default, text.trim()), origin });
            }
            // An empty variable counts as unset.
            KeyKind::Setting(_) => {}
            KeyKind::Section | KeyKind::Named | KeyKind::Unknown => {
                let nearest = keys::nearest_variable(defaults, name, &key);
                errors.push(SettingError::unknown(origin, "such variable", nearest.as_deref()));
            }
        }
    }
    layer
}

/// Splits a key into the name of its section and the key within that.
type NamedKey = for<'a> fn(&'a str) -> Option<(&'a str, Option<&'a str>)>;

/// `PROVIDERS__MY_HOST__MODEL` is `providers.my-host.model` if that provider exists, else `providers.my_host.model`. The
/// same holds for agents, targets, hooks, incoming webhooks, schedules and channels.
fn key_of(rest: &str, file_settings: &SettingLayer) -> String {
    let key = rest.to_lowercase().replace(LEVEL_SEPARATOR, ".");
    let sections = [
        (PROVIDERS, keys::provider as NamedKey),
        (AGENTS, agents::agent),
        (TARGETS, keys::target),
        (HOOKS, hook),
        (INBOUND, inbound),
        (SCHEDULES, schedule),
        (CHANNELS, channel),
    ];
    for (section, named) in sections {
        if let Some((name, Some(field))) = named(&key) {
            let mut known = file_settings.keys().filter_map(|known| named(known)).map(|(known, _)| known);
            let known = known.find(|known| known.replace('-', "_") == name);
            return format!("{section}.{}.{field}", known.unwrap_or(name));
        }
    }
    key
}

/// Parses the text as the default's type. On failure it stays a text, which a later check rejects.
fn parse_as_default(default: &Value, text: &str) -> Value {
    match default {
        Value::Number(_) => text.parse::<i64>().map_or_else(|_| text.into(), Value::from),
        Value::Array(_) if text.starts_with('[') => {
            DeValue::parse(text).map_or_else(|_| text.into(), |list| to_json(list.get_ref()))
        }
        Value::Array(_) => text.split(',').map(|item| Value::from(item.trim())).collect(),
        Value::Bool(_) => text.parse::<bool>().map_or_else(|_| text.into(), Value::from),
        Value::Null | Value::String(_) | Value::Object(_) => text.into(),
    }
}
