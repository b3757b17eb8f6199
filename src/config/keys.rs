//! The known keys: those of the embedded file, and those of a provider's and a model's section. Also the valid names of
//! providers and models, and the variables that are no settings. For an unknown name it finds the most similar known
//! one.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::{
    agents::{self, AGENTS},
    channels_section::{self, CHANNEL_FIELDS, CHANNELS},
    hooks_section::{self, HOOK_FIELDS, HOOKS},
    inbound_section::{self, INBOUND, INBOUND_FIELDS},
    layer::{SettingLayer, first_name},
    schedules_section::{self, SCHEDULES},
};
use crate::schedule::ScheduleWords;

/// A sample value, for the type of keys that take text.
static TEXT: Value = Value::String(String::new());
/// The section of the providers, by name.
pub(super) const PROVIDERS: &str = "providers";
/// The section of the defaults for all providers.
const PROVIDER_DEFAULTS: &str = "provider_defaults";
/// The keys of a provider's section without a default, each with a sample value for its type.
static PROVIDER_FIELDS: LazyLock<Map<String, Value>> = LazyLock::new(|| {
    let texts = ["api_mode", "base_url", "credential", "model", "pool", "wire"];
    let oauth = ["client_id", "client_secret", "refresh_token", "scope", "token_url"];
    let texts = texts.map(str::to_owned).into_iter().chain(oauth.map(|field| format!("{OAUTH}.{field}")));
    let others = [
        ("credentials", Value::Array(Vec::new())),
        ("requests_per_minute", 0.into()),
        ("tokens_per_minute", 0.into()),
    ];
    let others = others.map(|(field, sample)| (field.to_owned(), sample));
    texts.map(|field| (field, TEXT.clone())).chain(others).collect()
});
/// The subsection of a provider's section.
const OAUTH: &str = "oauth";
/// The section of the targets, by name.
pub(super) const TARGETS: &str = "targets";
/// The section of the defaults for all targets.
const TARGET_DEFAULTS: &str = "delivery";
/// The keys of a target's section without a default.
const TARGET_FIELDS: [&str; 15] = [
    "channel",
    "chat",
    "description",
    "from",
    "kind",
    "password",
    "path",
    "port",
    "secret",
    "server",
    "subject",
    "tls",
    "to",
    "url",
    "user",
];
/// The section of the models, by name.
pub(super) const MODELS: &str = "models";
/// The keys of a model's section.
pub(super) const MODEL_FIELDS: [&str; 15] = [
    "window",
    "max_output",
    "thinking",
    "thinking_levels",
    "thinking_level",
    "images",
    "first_event",
    "gap",
    "call",
    "price.input",
    "price.output",
    "price.cache_read",
    "price.cache_write",
    "price.cache_write_1h",
    "price.up_to",
];
/// Common names for what is `credential` here.
const SECRETS: [&str; 7] = ["api_key", "apikey", "key", "password", "secret", "token", "auth"];

/// Variables with the prefix that are not settings. Those about recordings are for the tests.
pub(super) const NOT_SETTINGS: [&str; 5] =
    ["HERMOD_CONFIG", "HERMOD_HOME", "HERMOD_LOG", "HERMOD_RECORDINGS", "HERMOD_REQUIRE_RECORDINGS"];
/// Prefix of settings in the environment.
pub(super) const PREFIX: &str = "HERMOD_";
/// Separator of levels in variables.
pub(super) const LEVEL_SEPARATOR: &str = "__";

/// Similarity (0 to 1) below which a known name is not suggested.
const MIN_SIMILARITY: f64 = 0.55;
/// Minimum similarity of a key with the same name in another section.
const OTHER_SECTION_SIMILARITY: f64 = 0.75;

/// The kind of a key.
#[derive(Debug, PartialEq)]
pub(super) enum KeyKind<'a> {
    /// A setting with a value of its type: its default, if it has one.
    Setting(&'a Value),
    /// A section that always exists.
    Section,
    /// The section of a provider, a model, an agent, a target, a hook, a schedule or a channel.
    Named,
    /// An unknown key.
    Unknown,
}

/// The name in the key of a named section, and the key within that section.
type NamedKey<'a> = Option<(&'a str, Option<&'a str>)>;
/// Gives a sample value of a key within such a section, for its type.
type Sample = fn(&str) -> Option<&'static Value>;

/// Classifies `key` by the defaults.
pub(super) fn kind<'a>(defaults: &'a SettingLayer, key: &str) -> KeyKind<'a> {
    if let Some(default) = defaults.get(key) {
        return KeyKind::Setting(&default.value);
    }
    match model(key) {
        Some((_, None)) => return KeyKind::Named,
        Some((_, Some("price"))) => return KeyKind::Section,
        // The type is checked with the value: no variable can set such a key.
        Some((_, Some(field))) if MODEL_FIELDS.contains(&field) => return KeyKind::Setting(&TEXT),
        Some((_, Some(_))) => return KeyKind::Unknown,
        None => {}
    }
    match agents::agent(key) {
        Some((_, None)) => return KeyKind::Named,
        Some((_, Some(field))) => {
            let base = agents::base_key(field).and_then(|base| defaults.get(base));
            return match base {
                Some(default) => KeyKind::Setting(&default.value),
                None if agents::is_subsection(field) => KeyKind::Section,
                None => KeyKind::Unknown,
            };
        }
        None => {}
    }
    match target(key) {
        Some((_, None)) => return KeyKind::Named,
        Some((_, Some(field))) if TARGET_FIELDS.contains(&field) => {
            return KeyKind::Setting(target_sample(field));
        }
        Some((_, Some(field))) => {
            let default = defaults.get(&format!("{TARGET_DEFAULTS}.{field}"));
            return default.map_or(KeyKind::Unknown, |default| KeyKind::Setting(&default.value));
        }
        None => {}
    }
    let named: [(NamedKey<'_>, Sample); 4] = [
        (hooks_section::hook(key), hooks_section::sample),
        (inbound_section::inbound(key), inbound_section::sample),
        (channels_section::channel(key), channels_section::sample),
        (schedules_section::schedule(key), schedules_section::sample),
    ];
    if let Some((field, sample)) = named.into_iter().find_map(|(named, sample)| Some((named?.1, sample))) {
        let of_field = |field| sample(field).map_or(KeyKind::Unknown, KeyKind::Setting);
        return field.map_or(KeyKind::Named, of_field);
    }
    match provider(key) {
        Some((_, None)) => KeyKind::Named,
        Some((_, Some(OAUTH))) => KeyKind::Section,
        Some((_, Some(field))) if let Some(value) = PROVIDER_FIELDS.get(field) => KeyKind::Setting(value),
        Some((_, Some(field))) => match defaults.get(&format!("{PROVIDER_DEFAULTS}.{field}")) {
            Some(default) => KeyKind::Setting(&default.value),
            None => KeyKind::Unknown,
        },
        None if [PROVIDERS, MODELS, TARGETS, HOOKS, INBOUND, CHANNELS, SCHEDULES].contains(&key) => {
            KeyKind::Section
        }
        None if defaults.keys().any(|known| below(key, known).is_some()) => KeyKind::Section,
        None => KeyKind::Unknown,
    }
}

/// The provider's name and the key within its section.
pub(super) fn provider(key: &str) -> Option<(&str, Option<&str>)> {
    let rest = below(PROVIDERS, key)?;
    Some(rest.split_once('.').map_or((rest, None), |(name, field)| (name, Some(field))))
}

/// The model's name, with its quotes if there are some, and the key within its section.
pub(super) fn model(key: &str) -> Option<(&str, Option<&str>)> {
    Some(first_name(below(MODELS, key)?))
}

/// The target's name and the key within its section.
pub(super) fn target(key: &str) -> Option<(&str, Option<&str>)> {
    let rest = below(TARGETS, key)?;
    Some(rest.split_once('.').map_or((rest, None), |(name, field)| (name, Some(field))))
}

/// A sample value of a key of a target's section, for its type.
fn target_sample(field: &str) -> &'static Value {
    static LIST: Value = Value::Array(Vec::new());
    static NUMBER: LazyLock<Value> = LazyLock::new(|| 0.into());
    match field {
        "to" => &LIST,
        "port" => &NUMBER,
        _ => &TEXT,
    }
}

/// The part of a key below a section.
pub(super) fn below<'a>(section: &str, key: &'a str) -> Option<&'a str> {
    key.strip_prefix(section)?.strip_prefix('.')
}

/// Longer keys, in bytes, get no suggestion.
const MAX_COMPARED_BYTES: usize = 200;

/// The known key that is most similar to an unknown one.
pub(super) fn nearest(defaults: &SettingLayer, key: &str) -> Option<String> {
    if key.len() > MAX_COMPARED_BYTES {
        return None;
    }
    let (section, name) = key.rsplit_once('.').unwrap_or(("", key));
    let mut candidates: Vec<String> = defaults.keys().cloned().collect();
    if let Some(("providers" | "provider", rest)) = section.split_once('.') {
        let provider = rest.strip_suffix(".oauth").unwrap_or(rest);
        if provider == rest && SECRETS.contains(&name) {
            return Some(format!("{PROVIDERS}.{provider}.credential"));
        }
        let shared = defaults.keys().filter_map(|known| below(PROVIDER_DEFAULTS, known));
        let fields = PROVIDER_FIELDS.keys().map(String::as_str).chain(shared);
        candidates.extend(fields.map(|field| format!("{PROVIDERS}.{provider}.{field}")));
    }
    if let Some((target, Some(_))) = target(key) {
        let shared = defaults.keys().filter_map(|known| below(TARGET_DEFAULTS, known));
        candidates.extend(
            TARGET_FIELDS.into_iter().chain(shared).map(|field| format!("{TARGETS}.{target}.{field}")),
        );
    }
    if let Some((agent, Some(_))) = agents::agent(key) {
        candidates.extend(agents::fields().map(|field| format!("{AGENTS}.{agent}.{field}")));
    }
    if let Some((hook, Some(_))) = hooks_section::hook(key) {
        candidates.extend(HOOK_FIELDS.into_iter().map(|field| format!("{HOOKS}.{hook}.{field}")));
    }
    if let Some((name, Some(_))) = inbound_section::inbound(key) {
        candidates.extend(INBOUND_FIELDS.into_iter().map(|field| format!("{INBOUND}.{name}.{field}")));
    }
    if let Some((name, Some(_))) = schedules_section::schedule(key) {
        let fields = ScheduleWords::NAMES.into_iter();
        candidates.extend(fields.map(|field| format!("{SCHEDULES}.{name}.{field}")));
    }
    if let Some((channel, Some(_))) = channels_section::channel(key) {
        candidates.extend(CHANNEL_FIELDS.into_iter().map(|field| format!("{CHANNELS}.{channel}.{field}")));
    }
    if let Some((model, Some(_))) = model(key) {
        candidates.extend(MODEL_FIELDS.into_iter().map(|field| format!("{MODELS}.{model}.{field}")));
    }
    let score = |known: &str| {
        let similarity_to_key = similarity(key, known);
        let same_name = known.rsplit('.').next() == Some(name);
        if same_name { similarity_to_key.max(OTHER_SECTION_SIMILARITY) } else { similarity_to_key }
    };
    let best = candidates.into_iter().max_by(|a, b| score(a).total_cmp(&score(b)))?;
    (score(&best) >= MIN_SIMILARITY).then_some(best)
}

/// The known variable that is most similar to an unknown one.
pub(super) fn nearest_variable(defaults: &SettingLayer, name: &str, key: &str) -> Option<String> {
    let non_setting =
        NOT_SETTINGS.iter().max_by(|a, b| similarity(name, a).total_cmp(&similarity(name, b)))?;
    match nearest(defaults, key) {
        Some(setting) if similarity(name, &variable(&setting)) >= similarity(name, non_setting) => {
            Some(variable(&setting))
        }
        found => {
            let is_similar = similarity(name, non_setting) >= OTHER_SECTION_SIMILARITY;
            if is_similar { Some((*non_setting).to_owned()) } else { found.map(|key| variable(&key)) }
        }
    }
}

/// The variable that sets a key.
fn variable(key: &str) -> String {
    format!("{PREFIX}{}", key.replace('.', LEVEL_SEPARATOR).replace('-', "_").to_uppercase())
}

fn similarity(a: &str, b: &str) -> f64 {
    strsim::normalized_damerau_levenshtein(a, b)
}

/// True for a valid provider name, which must fit before the slash of `provider/model` and into variables.
pub(super) fn is_provider_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-".contains(&byte);
    name.bytes().all(is_allowed)
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && !name.contains(LEVEL_SEPARATOR)
}

/// True for a valid model name in the configuration: a name, or a prefix of names followed by `*`.
pub(super) fn is_model_name(name: &str) -> bool {
    let start = name.strip_suffix('*').unwrap_or(name);
    !start.is_empty() && start.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"\\*".contains(&byte))
}
