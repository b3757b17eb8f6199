//! The sections `channels.NAME`: chats whose messages become messages to sessions.

use std::collections::BTreeSet;

use hermod_actors::model::AgentName;
use serde::Deserialize;
use serde_json::Value;

use super::{
    error::SettingError,
    keys::below,
    sections::Config,
    values::{BaseUrl, NonEmptyText, PositiveDuration, QueueModeName, StaticSecretRef},
};

/// The section of the channels, by name.
pub(super) const CHANNELS: &str = "channels";
/// How the target of a channel's own chats begins; its name follows. No configured target can be called so.
pub const CHANNEL_TARGET: &str = "channel:";
/// Most channels of a configuration: each has a connection of its own.
const MAX_CHANNELS: usize = 32;
/// Most ids of `allow`.
const MAX_ALLOWED: usize = 1_000;

/// A section `channels.NAME`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChannelSection {
    /// The kind.
    pub kind: Option<ChannelKind>,
    /// Reference to the token of the bot.
    pub token: Option<StaticSecretRef>,
    /// The agent of new conversations.
    pub agent: Option<NonEmptyText>,
    /// The users and chats that may talk to it.
    #[serde(default)]
    pub allow: AllowedIds,
    /// The base URL of the bot API.
    pub url: Option<BaseUrl>,
    /// What happens to a message while a run is under way.
    pub mode: Option<QueueModeName>,
    /// How a reply is shown while it is made.
    #[serde(default)]
    pub stream: StreamMode,
    /// The least time between two edits of a reply.
    pub edit_interval: Option<PositiveDuration>,
}

/// The kind of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, strum::IntoStaticStr)]
#[serde(try_from = "Value")]
#[strum(serialize_all = "lowercase")]
pub enum ChannelKind {
    /// A bot of Telegram.
    Telegram,
}

/// How a reply is shown while it is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(try_from = "Value")]
pub enum StreamMode {
    /// One message that is edited.
    #[default]
    Edits,
    /// Not at all: the reply comes when it is whole.
    Off,
}

/// Ids of users and chats.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(try_from = "Value")]
pub struct AllowedIds(pub BTreeSet<String>);

impl TryFrom<Value> for ChannelKind {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, Self::Error> {
        match value.as_str() {
            Some("telegram") => Ok(Self::Telegram),
            Some(_) | None => Err("must be \"telegram\"".to_owned()),
        }
    }
}

impl TryFrom<Value> for StreamMode {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, Self::Error> {
        match value.as_str() {
            Some("edits") => Ok(Self::Edits),
            Some("off") => Ok(Self::Off),
            Some(_) | None => Err("must be \"edits\" or \"off\"".to_owned()),
        }
    }
}

impl TryFrom<Value> for AllowedIds {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, Self::Error> {
        const RULE: &str = "must be a list of at most 1000 ids of users and chats, which are numbers, like [123456, -100987]";
        let items = value.as_array().filter(|items| items.len() <= MAX_ALLOWED).ok_or(RULE)?;
        // A variable has its items as texts.
        let id = |item: &Value| {
            item.as_i64().or_else(|| item.as_str()?.trim().parse().ok()).filter(|id: &i64| *id != 0)
        };
        let ids: Option<BTreeSet<String>> = items.iter().map(|item| Some(id(item)?.to_string())).collect();
        Ok(Self(ids.ok_or(RULE)?))
    }
}

/// The channel's name and the key within its section.
pub(super) fn channel(key: &str) -> Option<(&str, Option<&str>)> {
    let rest = below(CHANNELS, key)?;
    Some(rest.split_once('.').map_or((rest, None), |(name, field)| (name, Some(field))))
}

/// The keys of a channel's section.
pub(super) const CHANNEL_FIELDS: [&str; 8] =
    ["kind", "token", "agent", "allow", "url", "mode", "stream", "edit_interval"];

/// A sample of a key's value, for its type; `None` for an unknown key.
pub(super) fn sample(field: &str) -> Option<&'static Value> {
    static TEXT: Value = Value::String(String::new());
    static LIST: Value = Value::Array(Vec::new());
    match field {
        "allow" => Some(&LIST),
        field if CHANNEL_FIELDS.contains(&field) => Some(&TEXT),
        _ => None,
    }
}

/// Reports what is missing or does not fit together in the sections.
pub(super) fn check(config: &Config, errors: &mut Vec<SettingError>) {
    for (n, (name, section)) in config.channels.iter().enumerate() {
        let mut add = |field: &str, reason: &str| {
            let (key, settings) = (format!("{CHANNELS}.{name}"), &config.settings);
            errors.push(match settings.get(&format!("{key}.{field}")) {
                Some(setting) => SettingError::value(&format!("{key}.{field}"), setting, reason),
                None => SettingError::missing(&key, field, settings, reason),
            });
        };
        if n >= MAX_CHANNELS {
            add("kind", &format!("is of one channel too many; at most {MAX_CHANNELS} are possible"));
        }
        if section.kind.is_none() {
            add("kind", "it is missing; say what the channel is, like kind = \"telegram\"");
        }
        if section.token.is_none() {
            add("token", "it is missing; refer to the token of the bot, like \"env:TELEGRAM_TOKEN\"");
        }
    }
}

/// Reports channels whose agent does not exist.
pub(super) fn check_agents(config: &Config, errors: &mut Vec<SettingError>) {
    for (name, section) in &config.channels {
        let Some(NonEmptyText(agent)) = &section.agent else { continue };
        let key = format!("{CHANNELS}.{name}.agent");
        let is_known = agent.parse().is_ok_and(|agent: AgentName| config.for_agent(&agent).is_some());
        if let (false, Some(setting)) = (is_known, config.settings.get(&key)) {
            let reason = format!("there is no agent `{agent}`; there are: {}", config.agent_names());
            errors.push(SettingError::value(&key, setting, reason));
        }
    }
}

impl Config {
    /// Whether this is the name of the target of a configured channel's own chats.
    pub(super) fn is_channel_target(&self, target: &str) -> bool {
        target.strip_prefix(CHANNEL_TARGET).is_some_and(|name| self.channels.contains_key(name))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use crate::config::{Config, ConfigFile};

    #[track_caller]
    fn check(lines: &str, expect: Result<(), &str>) {
        let text = format!("[channels.home]\n{lines}\n");
        let file = ConfigFile { path: "config.toml".into(), text };
        match (Config::load(&[file], &BTreeMap::new()), expect) {
            (Ok(_), Ok(())) => {}
            (Err(error), Err(part)) => {
                let error = error.to_string();
                assert!(error.contains("channels.home"), "{lines}: {error}");
                assert!(error.contains(part), "{lines}: {error}");
                assert!(!error.contains("hunter2"), "{error}");
            }
            (loaded, expect) => panic!("{lines}: expected {expect:?}, got {loaded:?}"),
        }
    }

    #[test]
    fn sections_are_checked() {
        const BOT: &str = "kind = \"telegram\"\ntoken = \"env:BOT\"\n";
        check(BOT, Ok(()));
        let all = "allow = [17, -10042]\nurl = \"http://127.0.0.1:1\"\nmode = \"collect\"\nstream = \"off\"\n\
                   edit_interval = \"2s\"\nagent = \"default\"";
        check(&format!("{BOT}{all}"), Ok(()));
        check("token = \"env:BOT\"", Err("say what the channel is"));
        check("kind = \"telegram\"", Err("refer to the token"));
        check("kind = \"pigeon\"\ntoken = \"env:BOT\"", Err("must be \"telegram\""));
        check("kind = \"telegram\"\ntoken = \"hunter2\"", Err("token"));
        check(&format!("{BOT}allow = [\"@me\"]"), Err("must be a list"));
        check(&format!("{BOT}allow = 17"), Err("must be a list"));
        check(&format!("{BOT}stream = \"maybe\""), Err("must be \"edits\" or \"off\""));
        check(&format!("{BOT}mode = \"shout\""), Err("mode"));
        check(&format!("{BOT}url = \"ftp://x\""), Err("url"));
        check(&format!("{BOT}agent = \"nobody\""), Err("there is no agent `nobody`"));
        check(&format!("{BOT}colour = \"red\""), Err("channels.home.colour"));
        check(&format!("{BOT}\n[agent]\ndeliver_to = [\"channel:home\"]"), Ok(()));
    }

    #[test]
    fn a_channel_is_set_by_variables_and_has_a_name() {
        let variables = [
            ("HERMOD_CHANNELS__HOME__KIND", "telegram"),
            ("HERMOD_CHANNELS__HOME__TOKEN", "env:BOT"),
            ("HERMOD_CHANNELS__HOME__ALLOW", "17,18"),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let config = Config::load(&[], &BTreeMap::from(variables)).unwrap();
        assert_eq!(config.channels["home"].allow.0.len(), 2);
        let references: Vec<String> = config.secret_references().map(ToString::to_string).collect();
        assert_eq!(references, ["env:BOT"]);
        let file =
            ConfigFile { path: "c".into(), text: "[channels.\"A b\"]\nkind = \"telegram\"\n".to_owned() };
        let error = Config::load(&[file], &BTreeMap::new()).unwrap_err().to_string();
        assert!(error.contains("is no name for a channel"), "{error}");
    }
}
