//! The sections `targets.NAME` and `delivery`: where messages and results are delivered, and how often that is tried.

use std::time::Duration;

use serde::Deserialize;

use super::{
    error::SettingError,
    inbound_section::TemplateText,
    keys::TARGETS,
    mail_keys::{self, MailAddress, MailAddresses, MailTls, MailTlsName, Port},
    sections::Config,
    values::{BaseUrl, NonEmptyText, OptionalFolder, PositiveCount, PositiveDuration, StaticSecretRef},
};
use crate::secret::Reference;

/// The section `delivery`: defaults for all targets.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeliverySection {
    /// Attempts after which a message is dead.
    pub attempts: PositiveCount,
    /// Age after which a message is dead at its next failure.
    pub max_age: PositiveDuration,
    /// Time limit of one attempt.
    pub timeout: PositiveDuration,
    /// The pause after the first failed attempt; each further one is twice as long.
    pub first_pause: PositiveDuration,
    /// The longest pause.
    pub longest_pause: PositiveDuration,
}

/// The kind of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum TargetKind {
    /// A URL that gets signed requests.
    Webhook,
    /// Addresses that get letters.
    Email,
    /// A folder that gets files.
    Folder,
    /// The standard output of the service.
    Stdout,
    /// A chat of a channel.
    Telegram,
}

impl TargetKind {
    const ALL: [Self; 5] = [Self::Webhook, Self::Email, Self::Folder, Self::Stdout, Self::Telegram];

    /// The name in the configuration.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The keys that such a target must have.
    const fn required(self) -> &'static [&'static str] {
        match self {
            Self::Webhook => &["url", "secret"],
            Self::Email => &["server", "from", "to"],
            Self::Folder => &["path"],
            Self::Stdout => &[],
            Self::Telegram => &["channel", "chat"],
        }
    }

    /// The keys that such a target may have besides.
    const fn optional(self) -> &'static [&'static str] {
        match self {
            Self::Email => &["port", "tls", "user", "password", "subject"],
            Self::Webhook | Self::Folder | Self::Stdout | Self::Telegram => &[],
        }
    }
}

/// The section `targets.NAME`. An absent limit is that of [`DeliverySection`].
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TargetSection {
    /// The kind.
    pub kind: Option<TargetKindName>,
    /// What it is for, for the models.
    pub description: Option<NonEmptyText>,
    /// The URL of a webhook.
    pub url: Option<BaseUrl>,
    /// Reference to the secret with which a webhook is signed.
    pub secret: Option<StaticSecretRef>,
    /// The folder.
    pub path: Option<OptionalFolder>,
    /// The host name or address of a mail server.
    pub server: Option<NonEmptyText>,
    /// Its port.
    pub port: Option<Port>,
    /// How the connection to it is encrypted.
    pub tls: Option<MailTlsName>,
    /// The user that it knows.
    pub user: Option<NonEmptyText>,
    /// Reference to the user's password.
    pub password: Option<StaticSecretRef>,
    /// The sender of letters.
    pub from: Option<MailAddress>,
    /// Their receivers.
    pub to: Option<MailAddresses>,
    /// The template of their subject.
    pub subject: Option<TemplateText>,
    /// The channel of a chat.
    pub channel: Option<NonEmptyText>,
    /// The chat: its id, and that of a thread in it if it has some, as `CHAT` or `CHAT:THREAD`.
    pub chat: Option<NonEmptyText>,
    /// Overrides [`DeliverySection::attempts`].
    pub attempts: Option<PositiveCount>,
    /// Overrides [`DeliverySection::max_age`].
    pub max_age: Option<PositiveDuration>,
    /// Overrides [`DeliverySection::timeout`].
    pub timeout: Option<PositiveDuration>,
    /// Overrides [`DeliverySection::first_pause`].
    pub first_pause: Option<PositiveDuration>,
    /// Overrides [`DeliverySection::longest_pause`].
    pub longest_pause: Option<PositiveDuration>,
}

/// The name of a kind, as it is configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "serde_json::Value")]
pub struct TargetKindName(pub TargetKind);

impl TryFrom<serde_json::Value> for TargetKindName {
    type Error = String;

    fn try_from(value: serde_json::Value) -> Result<Self, Self::Error> {
        let kind = TargetKind::ALL.into_iter().find(|kind| value.as_str() == Some(kind.name()));
        kind.map(Self).ok_or_else(|| {
            let names = TargetKind::ALL.map(|kind| format!("\"{}\"", kind.name()));
            format!("must be one of {}", names.join(", "))
        })
    }
}

impl TargetSection {
    /// The limits of the deliveries to this target.
    pub fn limits(&self, defaults: &DeliverySection) -> DeliverySection {
        DeliverySection {
            attempts: self.attempts.unwrap_or(defaults.attempts),
            max_age: self.max_age.unwrap_or(defaults.max_age),
            timeout: self.timeout.unwrap_or(defaults.timeout),
            first_pause: self.first_pause.unwrap_or(defaults.first_pause),
            longest_pause: self.longest_pause.unwrap_or(defaults.longest_pause),
        }
    }

    /// How the connection to the mail server is encrypted.
    pub fn mail_tls(&self) -> MailTls {
        self.tls.map_or_else(MailTls::default, |tls| tls.0)
    }

    /// The references to its secrets.
    pub fn references(&self) -> impl Iterator<Item = &Reference> {
        [&self.secret, &self.password].into_iter().flatten().map(|reference| &reference.0)
    }

    /// The keys of one kind only that are set.
    fn kind_keys(&self) -> impl Iterator<Item = &'static str> {
        let is_folder = self.path.as_ref().is_some_and(|path| path.0.is_some());
        let set = [
            ("url", self.url.is_some()),
            ("secret", self.secret.is_some()),
            ("path", is_folder),
            ("server", self.server.is_some()),
            ("port", self.port.is_some()),
            ("tls", self.tls.is_some()),
            ("user", self.user.is_some()),
            ("password", self.password.is_some()),
            ("from", self.from.is_some()),
            ("to", self.to.is_some()),
            ("subject", self.subject.is_some()),
            ("channel", self.channel.is_some()),
            ("chat", self.chat.is_some()),
        ];
        set.into_iter().filter(|(_, is_set)| *is_set).map(|(key, _)| key)
    }
}

/// Whether this is `CHAT` or `CHAT:THREAD`.
fn is_chat(text: &str) -> bool {
    let (chat, thread) = text.split_once(':').map_or((text, None), |(chat, thread)| (chat, Some(thread)));
    chat.parse::<i64>().is_ok() && thread.is_none_or(|thread| thread.parse::<i64>().is_ok())
}

/// The longest time limit of an attempt: the next message of the target waits for it.
const MAX_TIMEOUT: Duration = Duration::from_mins(5);

/// Reports targets without a kind, with keys of another kind, or without one of their own.
pub(super) fn check(config: &Config, errors: &mut Vec<SettingError>) {
    for (name, section) in &config.targets {
        let place = format!("{TARGETS}.{name}");
        let Some(TargetKindName(kind)) = section.kind else {
            let reason = "it is missing; say what the target is, like `kind = \"webhook\"`";
            errors.push(SettingError::missing(&place, "kind", &config.settings, reason));
            continue;
        };
        let mut reject = |field: &str, reason: String| {
            let key = format!("{place}.{field}");
            let error = config.settings.get(&key).map(|setting| SettingError::value(&key, setting, reason));
            errors.extend(error);
        };
        let is_of_kind = |field: &&str| kind.required().contains(field) || kind.optional().contains(field);
        for field in section.kind_keys().filter(|field| !is_of_kind(field)) {
            reject(field, format!("a target of kind {} has none; leave it out", kind.name()));
        }
        if let Some(channel) = section.channel.as_ref().filter(|name| !config.channels.contains_key(&name.0))
        {
            reject("channel", format!("there is no channel `{0}`; set it up as [channels.{0}]", channel.0));
        }
        if section.chat.as_ref().is_some_and(|chat| !is_chat(&chat.0)) {
            reject(
                "chat",
                "must be the id of a chat, like \"-100123\", or \"-100123:7\" for a thread in it".to_owned(),
            );
        }
        let limits = section.limits(&config.delivery);
        if kind == TargetKind::Email {
            mail_keys::check(section, &mut reject);
        }
        if limits.timeout.0 > MAX_TIMEOUT {
            reject("timeout", "must not be longer than 5m".to_owned());
        }
        for field in kind.required().iter().filter(|field| !section.kind_keys().any(|key| key == **field)) {
            let reason = format!("it is missing; a target of kind {} needs it", kind.name());
            errors.push(SettingError::missing(&place, field, &config.settings, reason));
        }
    }
}

impl Config {
    /// The error of a name that no target has.
    pub fn unknown_target(&self, name: &str) -> String {
        let names: Vec<&str> = self.targets.keys().map(String::as_str).collect();
        match names.as_slice() {
            [] => format!("there is no target `{name}`; set it up as [targets.{name}]"),
            names => format!("there is no target `{name}`; there are: {}", names.join(", ")),
        }
    }

    /// The first of these names that no target has, as an error.
    pub fn check_targets(&self, names: &[String]) -> Result<(), String> {
        let is_known = |name: &String| self.targets.contains_key(name) || self.is_channel_target(name);
        let unknown = names.iter().find(|name| !is_known(name));
        unknown.map_or(Ok(()), |name| Err(self.unknown_target(name)))
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, path::PathBuf};

    use crate::config::{Config, ConfigFile};

    #[track_caller]
    fn check(text: &str, expect: Result<(), &str>) {
        let file = ConfigFile { path: PathBuf::from("config.toml"), text: text.to_owned() };
        match (Config::load(&[file], &BTreeMap::new()), expect) {
            (Ok(_), Ok(())) => {}
            (Err(error), Err(part)) => {
                let error = error.to_string();
                assert!(error.contains(part), "{error}");
                assert!(!error.contains("hunter2"), "{error}");
            }
            (loaded, expect) => panic!("{text}: expected {expect:?}, got {loaded:?}"),
        }
    }

    #[test]
    fn targets_are_checked() {
        const CHAT: &str = "[targets.me]\nkind = \"telegram\"\nchannel = \"home\"\nchat = \"17\"\n";
        const BOT: &str = "[channels.home]\nkind = \"telegram\"\ntoken = \"env:BOT\"\n";
        const HOOK: &str =
            "[targets.ops]\nkind = \"webhook\"\nurl = \"https://host/x\"\nsecret = \"env:S\"\n";
        check(HOOK, Ok(()));
        check(&format!("{HOOK}attempts = 3\nmax_age = \"1h\"\ndescription = \"the team\""), Ok(()));
        check("[targets.out]\nkind = \"stdout\"", Ok(()));
        check("[targets.dir]\nkind = \"folder\"\npath = \"/var/spool\"", Ok(()));
        check("[targets.dir]\nkind = \"folder\"\npath = \"spool\"", Err("targets.dir.path"));
        check("[targets.ops]\nkind = \"webhook\"\nurl = \"https://host/x\"", Err("targets.ops.secret"));
        check(
            "[targets.ops]\nkind = \"pigeon\"",
            Err("must be one of \"webhook\", \"email\", \"folder\", \"stdout\""),
        );
        check(&format!("{CHAT}{BOT}"), Ok(()));
        check(CHAT, Err("there is no channel `home`"));
        check(&format!("{}{BOT}", CHAT.replace("17", "@me")), Err("must be the id of a chat"));
        check(
            &format!("[targets.me]\nkind = \"telegram\"\nchannel = \"home\"\n{BOT}"),
            Err("targets.me.chat"),
        );
        check("[targets.ops]\nurl = \"https://host/x\"", Err("targets.ops.kind"));
        check(&HOOK.replace("env:S", "hunter2"), Err("does not belong here"));
        check(&format!("{HOOK}path = \"/var/spool\""), Err("a target of kind webhook has none"));
        check(&format!("{HOOK}colour = \"red\""), Err("targets.ops.colour"));
        check(&format!("{HOOK}timeout = \"1h\""), Err("must not be longer than 5m"));
        check("[targets.a__b]\nkind = \"stdout\"", Err("no name for a target"));
        check(&format!("{HOOK}[agent]\ndeliver_to = [\"ops\"]"), Ok(()));
        check(
            &format!("{HOOK}[agent]\ndeliver_to = [\"dev\"]"),
            Err("there is no target `dev`; there are: ops"),
        );
        check(&format!("{HOOK}[agents.x]\ndeliver_to = [\"dev\"]"), Err("there is no target `dev`"));
    }

    #[test]
    fn targets_of_mail_are_checked() {
        const MAIL: &str = "[targets.mail]\nkind = \"email\"\nserver = \"mx.example.com\"\nfrom = \"Bot <bot@example.com>\"\n\
                            to = [\"ops@example.com\"]\n";
        check(MAIL, Ok(()));
        let more = "port = 2525\ntls = \"starttls\"\nuser = \"bot\"\npassword = \"env:P\"\nsubject = \"[bot] {{ first_line }}\"";
        check(&format!("{MAIL}{more}"), Ok(()));
        check(&MAIL.replace("server", "host"), Err("targets.mail.host"));
        check(&MAIL.replace("server = \"mx.example.com\"\n", ""), Err("targets.mail.server: it is missing"));
        check(&MAIL.replace("[\"ops@example.com\"]", "[]"), Err("must be a list of 1 to 50 addresses"));
        check(&MAIL.replace("ops@example.com", "ops"), Err("must be an address"));
        check(&MAIL.replace("Bot <bot@example.com>", "a@b.c\\nBcc: d@e.f"), Err("must be an address"));
        check(&format!("{MAIL}port = 0"), Err("from 1 to 65535"));
        check(&format!("{MAIL}tls = \"none\""), Err("is only for this machine"));
        check(&format!("{}tls = \"none\"", MAIL.replace("mx.example.com", "127.0.0.1")), Ok(()));
        check(&format!("{MAIL}user = \"bot\""), Err("stands without `password`"));
        check(&format!("{MAIL}password = \"env:P\""), Err("stands without `user`"));
        check(&format!("{MAIL}user = \"bot\"\npassword = \"hunter2\""), Err("does not belong here"));
        check(&format!("{MAIL}subject = \"{{{{ a\""), Err("is no template"));
        check(&format!("{MAIL}url = \"https://host/x\""), Err("a target of kind email has none"));
    }

    #[test]
    fn the_secrets_of_targets_are_among_the_secrets() {
        let variables = [
            ("HERMOD_TARGETS__OPS__KIND", "webhook"),
            ("HERMOD_TARGETS__OPS__URL", "http://127.0.0.1:1"),
            ("HERMOD_TARGETS__OPS__SECRET", "env:HOOK"),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let config = Config::load(&[], &BTreeMap::from(variables)).unwrap();
        let references: Vec<String> = config.secret_references().map(ToString::to_string).collect();
        assert_eq!(references, ["env:HOOK"]);
    }
}
