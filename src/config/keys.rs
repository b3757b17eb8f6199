//! Which keys there are: those of the embedded file, and those of a provider's and of a model's section.

use std::sync::LazyLock;

use serde_json::Value;

use super::layer::{SettingLayer, first_name};

/// Like any text.
static TEXT: Value = Value::String(String::new());
/// Below it stand the providers, by name.
pub(super) const PROVIDERS: &str = "providers";
/// What a provider has that does not say otherwise.
const PROVIDER_DEFAULTS: &str = "provider_defaults";
/// What only a provider's own section can say, as texts.
const PROVIDER_TEXTS: [&str; 11] = [
    "api_mode",
    "base_url",
    "credential",
    "model",
    "oauth.client_id",
    "oauth.client_secret",
    "oauth.refresh_token",
    "oauth.scope",
    "oauth.token_url",
    "pool",
    "wire",
];
/// Likewise, as lists.
const PROVIDER_LISTS: [&str; 1] = ["credentials"];
/// Likewise, as numbers.
const PROVIDER_NUMBERS: [&str; 2] = ["requests_per_minute", "tokens_per_minute"];
/// The section inside a provider's own.
const OAUTH: &str = "oauth";
/// Below it stands what is known of models, by name.
pub(super) const MODELS: &str = "models";
/// What can be said of a model.
pub(super) const MODEL_OWN: [&str; 15] = [
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
/// Names that people give to what is called `credential` here.
const SECRETS: [&str; 7] = ["api_key", "apikey", "key", "password", "secret", "token", "auth"];

/// Variables that begin like settings and are none; those about recordings are for the tests.
pub(super) const NOT_SETTINGS: [&str; 5] =
    ["HERMOD_CONFIG", "HERMOD_HOME", "HERMOD_LOG", "HERMOD_RECORDINGS", "HERMOD_REQUIRE_RECORDINGS"];
/// What settings in the environment begin with.
pub(super) const PREFIX: &str = "HERMOD_";
/// What stands between levels there.
pub(super) const LEVEL_SEPARATOR: &str = "__";

/// Below this likeness (0 to 1) a known name is no suggestion.
const MIN_SIMILARITY: f64 = 0.55;
/// The likeness of a key that only stands in another section.
const OTHER_SECTION_SIMILARITY: f64 = 0.75;

/// What a key is.
#[derive(Debug, PartialEq)]
pub(super) enum KeyKind<'a> {
    /// A setting, with its default or, for a provider's own, a value of its type.
    Setting(&'a Value),
    /// A section that is always there.
    Section,
    /// The section of a provider.
    Provider,
    /// The section of a model.
    Model,
    /// None that there is.
    Unknown,
}

/// What `key` is, by the defaults.
pub(super) fn kind<'a>(defaults: &'a SettingLayer, key: &str) -> KeyKind<'a> {
    if let Some(default) = defaults.get(key) {
        return KeyKind::Setting(&default.value);
    }
    match model(key) {
        Some((_, None)) => return KeyKind::Model,
        Some((_, Some("price"))) => return KeyKind::Section,
        // Of what type it is says its value: no variable can set it.
        Some((_, Some(field))) if MODEL_OWN.contains(&field) => return KeyKind::Setting(&TEXT),
        Some((_, Some(_))) => return KeyKind::Unknown,
        None => {}
    }
    match provider(key) {
        Some((_, None)) => KeyKind::Provider,
        Some((_, Some(OAUTH))) => KeyKind::Section,
        Some((_, Some(field))) if let Some(like) = provider_value(field) => KeyKind::Setting(like),
        Some((_, Some(field))) => match defaults.get(&format!("{PROVIDER_DEFAULTS}.{field}")) {
            Some(default) => KeyKind::Setting(&default.value),
            None => KeyKind::Unknown,
        },
        None if key == PROVIDERS || key == MODELS => KeyKind::Section,
        None if defaults.keys().any(|known| below(key, known).is_some()) => KeyKind::Section,
        None => KeyKind::Unknown,
    }
}

/// A value of the type that a key has which only a provider's own section can say.
fn provider_value(field: &str) -> Option<&'static Value> {
    static LIST: Value = Value::Array(Vec::new());
    static NUMBER: LazyLock<Value> = LazyLock::new(|| 0.into());
    if PROVIDER_TEXTS.contains(&field) {
        return Some(&TEXT);
    }
    if PROVIDER_LISTS.contains(&field) {
        return Some(&LIST);
    }
    PROVIDER_NUMBERS.contains(&field).then(|| &*NUMBER)
}

/// The provider's name, and the key in its section.
pub(super) fn provider(key: &str) -> Option<(&str, Option<&str>)> {
    let rest = below(PROVIDERS, key)?;
    Some(rest.split_once('.').map_or((rest, None), |(name, field)| (name, Some(field))))
}

/// The model's name, with its quotes if it has some, and the key in its section.
pub(super) fn model(key: &str) -> Option<(&str, Option<&str>)> {
    Some(first_name(below(MODELS, key)?))
}

fn below<'a>(section: &str, key: &'a str) -> Option<&'a str> {
    key.strip_prefix(section)?.strip_prefix('.')
}

/// Bytes of a key up to which a known one is sought for it.
const MAX_COMPARED_BYTES: usize = 200;

/// The known key that an unknown one is most like.
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
        let own = PROVIDER_TEXTS.into_iter().chain(PROVIDER_LISTS).chain(PROVIDER_NUMBERS);
        let fields = own.chain(shared);
        candidates.extend(fields.map(|field| format!("{PROVIDERS}.{provider}.{field}")));
    }
    if let Some((model, Some(_))) = model(key) {
        candidates.extend(MODEL_OWN.into_iter().map(|field| format!("{MODELS}.{model}.{field}")));
    }
    let likeness = |known: &str| {
        let whole = similarity(key, known);
        let same_name = known.rsplit('.').next() == Some(name);
        if same_name { whole.max(OTHER_SECTION_SIMILARITY) } else { whole }
    };
    let best = candidates.into_iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    (likeness(&best) >= MIN_SIMILARITY).then_some(best)
}

/// The variable that an unknown one is most like.
pub(super) fn nearest_variable(defaults: &SettingLayer, name: &str, key: &str) -> Option<String> {
    let other = NOT_SETTINGS.iter().max_by(|a, b| similarity(name, a).total_cmp(&similarity(name, b)))?;
    match nearest(defaults, key) {
        Some(setting) if similarity(name, &variable(&setting)) >= similarity(name, other) => {
            Some(variable(&setting))
        }
        found => {
            let like = similarity(name, other) >= OTHER_SECTION_SIMILARITY;
            if like { Some((*other).to_owned()) } else { found.map(|key| variable(&key)) }
        }
    }
}

/// The variable of a key.
fn variable(key: &str) -> String {
    format!("{PREFIX}{}", key.replace('.', LEVEL_SEPARATOR).replace('-', "_").to_uppercase())
}

fn similarity(a: &str, b: &str) -> f64 {
    strsim::normalized_damerau_levenshtein(a, b)
}

/// Whether a provider may have this name: it stands before the first slash of `provider/model`, and in variables.
pub(super) fn is_provider_name(name: &str) -> bool {
    let letters = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-".contains(&byte);
    name.bytes().all(letters)
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && !name.contains(LEVEL_SEPARATOR)
}

/// Whether a model may have this name in the configuration: the name itself, or how names begin and `*`.
pub(super) fn is_model_name(name: &str) -> bool {
    let start = name.strip_suffix('*').unwrap_or(name);
    !start.is_empty() && start.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"\\*".contains(&byte))
}
