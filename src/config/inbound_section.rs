//! The sections `inbound.NAME`: webhooks of other services, and the messages that they become.

use hermod_actors::model::AgentName;
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::Value;

use super::{
    error::SettingError,
    keys::below,
    sections::Config,
    values::{NonEmptyText, QueueModeName, SecretRefs, StaticSecretRef, TargetNames},
};
use crate::{
    inbound::{EventFilter, SignatureScheme},
    secret::Reference,
    text_template,
};

/// The section of the endpoints, by name.
pub(super) const INBOUND: &str = "inbound";
/// Most secrets of one endpoint: the present one, and those that are being replaced.
const MAX_SECRETS: usize = 4;

/// A section `inbound.NAME`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct InboundSection {
    /// How its requests are signed.
    pub signature: Option<SignatureName>,
    /// Reference to the secret with which they are signed.
    pub secret: Option<StaticSecretRef>,
    /// References to several, of which each may sign, in place of `secret`.
    pub secrets: Option<SecretRefs>,
    /// The key of the session that gets the message, as a template.
    pub session: Option<TemplateText>,
    /// The text of the message, as a template.
    pub text: Option<TemplateText>,
    /// What the model is to do with it; it stands before the text, and is no template.
    pub instructions: Option<NonEmptyText>,
    /// What happens while a run of the session is under way.
    pub mode: Option<QueueModeName>,
    /// The agent of the session.
    pub agent: Option<NonEmptyText>,
    /// The requests that become messages; all without this.
    pub events: Option<EventItems>,
    /// The targets that get the results of runs.
    pub deliver_to: Option<TargetNames>,
}

/// The name of a scheme of signatures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignatureName(pub SignatureScheme);

/// A template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateText(pub String);

/// Conditions on headers and places of the body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventItems(pub EventFilter);

impl<'de> Deserialize<'de> for SignatureName {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(from)?;
        let scheme = SignatureScheme::ALL.into_iter().find(|scheme| value.as_str() == Some(scheme.name()));
        scheme.map(Self).ok_or_else(|| {
            let names = SignatureScheme::ALL.map(|scheme| format!("\"{}\"", scheme.name()));
            D::Error::custom(format!("must be one of {}", names.join(", ")))
        })
    }
}

impl<'de> Deserialize<'de> for TemplateText {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(from)?;
        let text = value.as_str().filter(|text| !text.trim().is_empty());
        let text = text.ok_or_else(|| D::Error::custom("must be a text in quotes, and not empty"))?;
        text_template::check(text).map_err(|error| D::Error::custom(format!("is no template: {error}")))?;
        Ok(Self(text.to_owned()))
    }
}

impl<'de> Deserialize<'de> for EventItems {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        const RULE: &str = "must be a list, like [\"X-GitHub-Event=issues\", \"/action=opened\"]";
        let value = Value::deserialize(from)?;
        let items = value.as_array().ok_or_else(|| D::Error::custom(RULE))?;
        let items: Option<Vec<&str>> = items.iter().map(Value::as_str).collect();
        let filter = EventFilter::new(items.ok_or_else(|| D::Error::custom(RULE))?);
        filter.map(Self).map_err(D::Error::custom)
    }
}

impl InboundSection {
    /// The references to its secrets.
    pub fn references(&self) -> impl Iterator<Item = &Reference> {
        let several = self.secrets.iter().flat_map(|secrets| &secrets.0);
        self.secret.iter().map(|secret| &secret.0).chain(several)
    }

    /// The name of its agent.
    pub fn agent_name(&self) -> String {
        self.agent.as_ref().map_or_else(|| AgentName::default().to_string(), |agent| agent.0.clone())
    }
}

/// The endpoint's name and the key within its section.
pub(super) fn inbound(key: &str) -> Option<(&str, Option<&str>)> {
    let rest = below(INBOUND, key)?;
    Some(rest.split_once('.').map_or((rest, None), |(name, field)| (name, Some(field))))
}

/// A sample of a key's value, for its type; `None` for an unknown key.
pub(super) fn sample(field: &str) -> Option<&'static Value> {
    static TEXT: Value = Value::String(String::new());
    static LIST: Value = Value::Array(Vec::new());
    match field {
        "secrets" | "events" | "deliver_to" => Some(&LIST),
        field if INBOUND_FIELDS.contains(&field) => Some(&TEXT),
        _ => None,
    }
}

/// The keys of an endpoint's section.
pub(super) const INBOUND_FIELDS: [&str; 10] = [
    "signature",
    "secret",
    "secrets",
    "session",
    "text",
    "instructions",
    "mode",
    "agent",
    "events",
    "deliver_to",
];

/// Reports what is missing or does not fit together in the sections. `config` has its agents.
pub(super) fn check(config: &Config, errors: &mut Vec<SettingError>) {
    for (name, section) in &config.inbound {
        let mut add = |field: &str, reason: &str| {
            let (key, settings) = (format!("{INBOUND}.{name}"), &config.settings);
            errors.push(match settings.get(&format!("{key}.{field}")) {
                Some(setting) => SettingError::value(&format!("{key}.{field}"), setting, reason),
                None => SettingError::missing(&key, field, settings, reason),
            });
        };
        if section.signature.is_none() {
            add("signature", "is missing; say how the sender signs, like signature = \"github\"");
        }
        match (&section.secret, &section.secrets) {
            (None, None) => add("secret", "is missing; give it as \"env:NAME\" or \"file:PATH\""),
            (Some(_), Some(_)) => add("secrets", "stands beside `secret`; put all into one of them"),
            (Some(_), None) | (None, Some(_)) => {}
        }
        if section.references().count() > MAX_SECRETS {
            add("secrets", &format!("are too many; at most {MAX_SECRETS} are possible"));
        }
        if section.references().any(|reference| matches!(reference, Reference::Command(_))) {
            add("secrets", "must be env:NAME or file:PATH; a command is not run for this");
        }
        match &section.session {
            None => add(
                "session",
                "is missing; name the session, like session = \"github-{{ repository.full_name }}\"",
            ),
            // Otherwise a sender chooses among all sessions.
            Some(session) if session.0.starts_with(['{', ' ']) => {
                add(
                    "session",
                    "must begin with a text of its own, like \"github-\", and not with what a sender chooses",
                );
            }
            Some(_) => {}
        }
        if section.text.is_none() {
            add("text", "is missing; give the message, like text = \"{{ issue.title }}\"");
        }
        if let Err(reason) =
            config.check_targets(section.deliver_to.as_ref().map_or(&[][..], |names| &names.0))
        {
            add("deliver_to", &reason);
        }
        let agent = section.agent_name();
        if agent.parse::<AgentName>().ok().and_then(|agent| config.for_agent(&agent)).is_none() {
            add("agent", &format!("there is no agent `{agent}`; there are: {}", config.agent_names()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use crate::config::{Config, ConfigFile};

    const WHOLE: &str =
        "signature = \"github\"\nsecret = \"env:S\"\nsession = \"hub-{{ repo }}\"\ntext = \"{{ title }}\"\n";

    #[track_caller]
    fn check(lines: &str, expect: Result<(), &str>) {
        let text = format!("[targets.out]\nkind = \"stdout\"\n[agents.bot]\n[inbound.hub]\n{lines}\n");
        let file = ConfigFile { path: "config.toml".into(), text };
        match (Config::load(&[file], &BTreeMap::new()), expect) {
            (Ok(_), Ok(())) => {}
            (Err(error), Err(part)) => {
                assert!(error.to_string().contains("inbound.hub"), "{lines}: {error}");
                assert!(error.to_string().contains(part), "{lines}: {error}");
                assert!(!error.to_string().contains("hunter2"), "{error}");
            }
            (loaded, expect) => panic!("{lines}: expected {expect:?}, got {loaded:?}"),
        }
    }

    #[test]
    fn sections_are_checked() {
        let without =
            |key: &str| WHOLE.lines().filter(|line| !line.starts_with(key)).collect::<Vec<_>>().join("\n");
        check(WHOLE, Ok(()));
        let more = "instructions = \"Sort it.\"\nmode = \"collect\"\nagent = \"bot\"\nevents = [\"X-GitHub-Event=issues\"]\n\
                    deliver_to = [\"out\"]";
        check(&format!("{WHOLE}{more}"), Ok(()));
        check(&WHOLE.replace("secret = \"env:S\"", "secrets = [\"env:S\", \"env:OLD\"]"), Ok(()));
        check(&without("signature"), Err("say how the sender signs"));
        check(&WHOLE.replace("github", "gitlab"), Err("must be one of \"github\", \"stripe\""));
        check(&without("secret"), Err("inbound.hub.secret: is missing"));
        check(&WHOLE.replace("env:S", "hunter2"), Err("does not belong here"));
        check(&format!("{WHOLE}secrets = [\"env:OLD\"]"), Err("put all into one of them"));
        check(&WHOLE.replace("secret = \"env:S\"", "secrets = [\"hunter2\"]"), Err("does not belong here"));
        check(
            &WHOLE.replace("secret = \"env:S\"", "secrets = [\"command:pass\"]"),
            Err("a command is not run"),
        );
        let five = "secrets = [\"env:A\", \"env:B\", \"env:C\", \"env:D\", \"env:E\"]";
        check(&WHOLE.replace("secret = \"env:S\"", five), Err("at most 4"));
        check(&without("session"), Err("name the session"));
        check(&WHOLE.replace("hub-{{ repo }}", "{{ repo }}"), Err("must begin with a text of its own"));
        check(&without("text"), Err("inbound.hub.text: is missing"));
        check(&WHOLE.replace("{{ title }}", "{{ title"), Err("is no template"));
        check(&format!("{WHOLE}events = [\"issues\"]"), Err("must be a header or a JSON pointer"));
        check(&format!("{WHOLE}agent = \"nobody\""), Err("there is no agent `nobody`"));
        check(&format!("{WHOLE}deliver_to = [\"dev\"]"), Err("there is no target `dev`"));
        check(&format!("{WHOLE}mode = \"later\""), Err("inbound.hub.mode"));
        check(&format!("{WHOLE}sesion = \"x\""), Err("did you mean `inbound.hub.session`?"));
    }

    #[test]
    fn an_endpoint_needs_a_name_and_its_secrets_are_among_the_secrets() {
        let load = |text: &str| {
            Config::load(&[ConfigFile { path: "c".into(), text: text.to_owned() }], &BTreeMap::new())
        };
        let error = load(&format!("[inbound.\"A b\"]\n{WHOLE}")).unwrap_err().to_string();
        assert!(error.contains("is no name for an inbound webhook"), "{error}");
        let config = load(&format!("[inbound.hub]\n{WHOLE}")).unwrap();
        let references: Vec<String> = config.secret_references().map(ToString::to_string).collect();
        assert_eq!(references, ["env:S"]);
    }
}
