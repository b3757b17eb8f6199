//! The sections `hooks.NAME`: what is asked, or told, at points of a run.

use serde::Deserialize;
use serde_json::Value;

use super::{
    error::SettingError,
    keys::below,
    sections::Config,
    values::{BaseUrl, NonEmptyText, PositiveDuration, StaticSecretRef, ToolPatterns},
};
use crate::hooks::{HookName, NAMES};

/// The section of the hooks, by name.
pub(super) const HOOKS: &str = "hooks";
/// Most hooks of a configuration: each that observes is a reader of the feed.
const MAX_HOOKS: usize = 64;
/// Most seconds of `deadline`.
const MAX_DEADLINE_S: u64 = 600;

/// A section `hooks.NAME`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HookSection {
    /// The points and events.
    #[serde(default)]
    pub on: HookNames,
    /// The command that is run, by a shell.
    pub command: Option<NonEmptyText>,
    /// The endpoint that is called.
    pub url: Option<BaseUrl>,
    /// Reference to the token that the endpoint gets.
    pub bearer: Option<StaticSecretRef>,
    /// How long it may take.
    pub deadline: Option<PositiveDuration>,
    /// The hook with the highest priority is asked first.
    #[serde(default)]
    pub priority: Priority,
    /// The tools about whose calls it is asked; all without this.
    pub tools: Option<ToolPatterns>,
}

/// Names of hooks.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(try_from = "Value")]
pub struct HookNames(pub Vec<&'static HookName>);

/// A priority from -1,000 to 1,000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(try_from = "Value")]
pub struct Priority(pub i32);

impl TryFrom<Value> for HookNames {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, Self::Error> {
        const RULE: &str = "must be a list like [\"pre_tool_call\", \"run_end\"]";
        let items = value.as_array().filter(|items| !items.is_empty()).ok_or(RULE)?;
        let mut names = Vec::new();
        for item in items {
            let text = item.as_str().ok_or(RULE)?;
            let known = || NAMES.iter().map(|name| name.name).collect::<Vec<_>>().join(", ");
            let name = HookName::find(text)
                .ok_or_else(|| format!("there is no hook `{text}`; the names are {}", known()))?;
            if !names.contains(&name) {
                names.push(name);
            }
        }
        Ok(Self(names))
    }
}

impl TryFrom<Value> for Priority {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, Self::Error> {
        let number = value.as_i64().filter(|number| (-1_000..=1_000).contains(number));
        let number = number.and_then(|number| i32::try_from(number).ok());
        number.map(Self).ok_or_else(|| "must be a whole number from -1000 to 1000".to_owned())
    }
}

/// The hook's name and the key within its section.
pub(super) fn hook(key: &str) -> Option<(&str, Option<&str>)> {
    let rest = below(HOOKS, key)?;
    Some(rest.split_once('.').map_or((rest, None), |(name, field)| (name, Some(field))))
}

/// A sample of a key's value, for its type; `None` for an unknown key.
pub(super) fn sample(field: &str) -> Option<&'static Value> {
    static TEXT: Value = Value::String(String::new());
    static LIST: Value = Value::Array(Vec::new());
    // Of the type that a text of a variable is parsed as.
    static NUMBER: std::sync::LazyLock<Value> = std::sync::LazyLock::new(|| 0.into());
    match field {
        "command" | "url" | "bearer" | "deadline" => Some(&TEXT),
        "on" | "tools" => Some(&LIST),
        "priority" => Some(&NUMBER),
        _ => None,
    }
}

/// The keys of a hook's section.
pub(super) const HOOK_FIELDS: [&str; 7] = ["on", "command", "url", "bearer", "deadline", "priority", "tools"];

/// Reports what is missing or does not fit together in the sections.
pub(super) fn check(config: &Config, errors: &mut Vec<SettingError>) {
    for (n, (name, section)) in config.hooks.iter().enumerate() {
        let mut add = |field: &str, reason: &str| {
            let (key, settings) = (format!("{HOOKS}.{name}"), &config.settings);
            errors.push(match settings.get(&format!("{key}.{field}")) {
                Some(setting) => SettingError::value(&format!("{key}.{field}"), setting, reason),
                None => SettingError::missing(&key, field, settings, reason),
            });
        };
        if n >= MAX_HOOKS {
            add("on", &format!("is of one hook too many; at most {MAX_HOOKS} are possible"));
        }
        if section.on.0.is_empty() {
            add("on", "is missing; give the points or events, like on = [\"pre_tool_call\"]");
        }
        match (&section.command, &section.url) {
            (None, None) => {
                add("command", "is missing; give a command, or a url that is called in its place");
            }
            (Some(_), Some(_)) => {
                add("url", "stands beside `command`; a hook has one of both, so leave one out");
            }
            (Some(_), None) | (None, Some(_)) => {}
        }
        if section.bearer.is_some() && section.url.is_none() {
            add("bearer", "is for a url, and this hook has none; leave it out");
        }
        if section.deadline.is_some_and(|deadline| deadline.0.as_secs() > MAX_DEADLINE_S) {
            add("deadline", "must not be longer than 10m");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use crate::config::{Config, ConfigFile};

    #[test]
    fn sections_are_checked() {
        let check = |lines: &str, expect: Result<(), &str>| {
            let file = ConfigFile { path: "config.toml".into(), text: format!("[hooks.guard]\n{lines}\n") };
            match (Config::load(&[file], &BTreeMap::new()), expect) {
                (Ok(_), Ok(())) => {}
                (Err(error), Err(part)) => {
                    assert!(error.to_string().contains("hooks.guard"), "{lines}: {error}");
                    assert!(error.to_string().contains(part), "{lines}: {error}");
                }
                (loaded, expect) => panic!("{lines}: expected {expect:?}, got {loaded:?}"),
            }
        };
        check("on = [\"pre_tool_call\"]\ncommand = \"guard\"", Ok(()));
        check("on = [\"before_tool_call\", \"gateway_start\"]\ncommand = \"guard\"", Ok(()));
        let all = "on = [\"run_end\"]\nurl = \"https://host/hook\"\nbearer = \"env:TOKEN\"\ndeadline = \"2s\"\n\
                   priority = -5\ntools = [\"shell\", \"mcp_*\"]";
        check(all, Ok(()));
        check("command = \"guard\"", Err("is missing; give the points or events"));
        check("on = []\ncommand = \"guard\"", Err("must be a list like"));
        check(
            "on = [\"before_lunch\"]\ncommand = \"x\"",
            Err("there is no hook `before_lunch`; the names are before_run, pre_"),
        );
        check("on = [\"run_end\"]", Err("is missing; give a command, or a url"));
        check("on = [\"run_end\"]\ncommand = \"x\"\nurl = \"http://h\"", Err("one of both"));
        check("on = [\"run_end\"]\ncommand = \"x\"\nbearer = \"env:T\"", Err("is for a url"));
        check("on = [\"run_end\"]\nurl = \"ftp://h\"", Err("url"));
        check("on = [\"run_end\"]\nurl = \"http://h\"\nbearer = \"hunter2\"", Err("bearer"));
        check("on = [\"run_end\"]\ncommand = \"x\"\ndeadline = \"11m\"", Err("longer than 10m"));
        check("on = [\"run_end\"]\ncommand = \"x\"\npriority = 2000", Err("from -1000 to 1000"));
        check("on = [\"run_end\"]\ncommand = \"x\"\ntool = [\"a\"]", Err("hooks.guard.tool"));
    }

    #[test]
    fn a_hook_needs_a_name() {
        let file = ConfigFile { path: "c".into(), text: "[hooks.\"A b\"]\non = [\"run_end\"]\n".to_owned() };
        let error = Config::load(&[file], &BTreeMap::new()).unwrap_err().to_string();
        assert!(error.contains("is no name for a hook"), "{error}");
    }
}
