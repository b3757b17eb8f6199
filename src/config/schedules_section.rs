//! The sections `schedules.NAME`: tasks that begin at a time.

use std::sync::LazyLock;

use hermod_actors::model::{ScheduleDefinition, ScheduleName};
use serde_json::Value;

use super::{error::SettingError, keys::below, sections::Config};
use crate::schedule::{ScheduleWords, WrongPart};

/// The section of the schedules, by name.
pub(super) const SCHEDULES: &str = "schedules";
/// Most schedules of a configuration.
const MAX_SCHEDULES: usize = 500;

/// The schedule's name and the key within its section.
pub(super) fn schedule(key: &str) -> Option<(&str, Option<&str>)> {
    let rest = below(SCHEDULES, key)?;
    Some(rest.split_once('.').map_or((rest, None), |(name, field)| (name, Some(field))))
}

/// A sample of a key's value, for its type; `None` for an unknown key.
pub(super) fn sample(field: &str) -> Option<&'static Value> {
    static TEXT: Value = Value::String(String::new());
    static LIST: Value = Value::Array(Vec::new());
    static FLAG: Value = Value::Bool(false);
    static NUMBER: LazyLock<Value> = LazyLock::new(|| 0.into());
    match field {
        "deliver_to" => Some(&LIST),
        "heartbeat" => Some(&FLAG),
        "pause_after" => Some(&NUMBER),
        field if ScheduleWords::NAMES.contains(&field) => Some(&TEXT),
        _ => None,
    }
}

impl Config {
    /// The configured schedules. The check of the configuration has found those that have none.
    pub fn schedule_definitions(&self) -> impl Iterator<Item = (ScheduleName, ScheduleDefinition)> {
        self.schedules.iter().filter_map(|(name, words)| {
            let name: ScheduleName = name.parse().ok()?;
            let definition = words.definition(&name).ok()?;
            Some((name, definition))
        })
    }

    /// Checks that the agent and the targets of a schedule are configured.
    pub fn check_schedule(&self, definition: &ScheduleDefinition) -> Result<(), WrongPart> {
        let task = &definition.task;
        let agent = task.agent.clone().unwrap_or_default();
        if self.for_agent(&agent).is_none() {
            return Err(("agent", format!("there is no agent `{agent}`; there are: {}", self.agent_names())));
        }
        let targets: Vec<String> =
            task.deliver_to.iter().flat_map(|it| it.iter()).map(ToString::to_string).collect();
        self.check_targets(&targets).map_err(|reason| ("deliver_to", reason))
    }
}

/// Reports what is missing or does not fit together in the sections. `config` has its agents.
pub(super) fn check(config: &Config, errors: &mut Vec<SettingError>) {
    if config.schedules.len() > MAX_SCHEDULES {
        let reason = format!("there are {}, and at most {MAX_SCHEDULES} are read", config.schedules.len());
        let first = config.settings.iter().find(|(key, _)| schedule(key).is_some());
        errors.extend(first.map(|(_, setting)| {
            SettingError::new(setting.origin.clone(), format_args!("{SCHEDULES}: {reason}"))
        }));
        return;
    }
    for (name, words) in &config.schedules {
        // A wrong name has been reported.
        let Ok(schedule) = name.parse::<ScheduleName>() else { continue };
        let checked = words.definition(&schedule).and_then(|definition| config.check_schedule(&definition));
        let Err((field, reason)) = checked else { continue };
        let (section, key) = (format!("{SCHEDULES}.{name}"), format!("{SCHEDULES}.{name}.{field}"));
        errors.push(match config.settings.get(&key) {
            Some(setting) => SettingError::value(&key, setting, reason),
            None => SettingError::missing(&section, field, &config.settings, reason),
        });
    }
}

/// True for a valid name of a schedule; it must fit into variables, as the names of providers.
pub(super) fn is_schedule_name(name: &str) -> bool {
    super::keys::is_provider_name(name) && name.parse::<ScheduleName>().is_ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use hermod_actors::model::AgentName;

    use crate::config::{Config, ConfigFile};

    fn load(lines: &str) -> Result<Config, String> {
        let text = format!("[targets.out]\nkind = \"stdout\"\n[agents.ops]\n[schedules.night]\n{lines}\n");
        let file = ConfigFile { path: "config.toml".into(), text };
        Config::load(&[file], &BTreeMap::new()).map_err(|error| error.to_string())
    }

    #[test]
    fn sections_are_checked() {
        let check = |lines: &str, expect: Result<(), &str>| match (load(lines), expect) {
            (Ok(_), Ok(())) => {}
            (Err(error), Err(part)) => {
                assert!(error.contains("schedules.night"), "{lines}: {error}");
                assert!(error.contains(part), "{lines}: {error}");
            }
            (loaded, expect) => panic!("{lines}: expected {expect:?}, got {loaded:?}"),
        };
        check("every = \"15m\"\ntext = \"Look\"", Ok(()));
        check(
            "cron = \"0 6 * * *\"\ntz = \"Europe/Berlin\"\ntext = \"Look\"\nagent = \"ops\"\ndeliver_to = [\"out\"]",
            Ok(()),
        );
        check("every = \"15m\"\ntext = \"Look\"\nheartbeat = true\npause_after = 3", Ok(()));
        check("text = \"Look\"", Err("schedules.night.every: is missing"));
        check("every = \"15m\"", Err("schedules.night.text: is missing"));
        check("every = \"soon\"\ntext = \"Look\"", Err("schedules.night.every = \"soon\""));
        check("every = 15\ntext = \"Look\"", Err("schedules.night.every = 15"));
        check("cron = \"0 0 30 2 *\"\ntext = \"Look\"", Err("is never due"));
        check("cron = \"@daily\"\ntz = \"Mars\"\ntext = \"Look\"", Err("there is no time zone `Mars`"));
        check("every = \"1h\"\ntext = \"Look\"\nagent = \"nobody\"", Err("there is no agent `nobody`"));
        check("every = \"1h\"\ntext = \"Look\"\ndeliver_to = [\"dev\"]", Err("there is no target `dev`"));
        check("every = \"1h\"\ntext = \"Look\"\ntxt = \"x\"", Err("did you mean `schedules.night.text`?"));
    }

    #[test]
    fn a_schedule_needs_a_name() {
        let text = "[schedules.\"A b\"]\nevery = \"1h\"\ntext = \"x\"".to_owned();
        let error =
            Config::load(&[ConfigFile { path: "c".into(), text }], &BTreeMap::new()).unwrap_err().to_string();
        assert!(error.contains("is no name for a schedule"), "{error}");
    }

    #[test]
    fn definitions_have_the_agent_of_their_section() {
        let config = load("every = \"1h\"\ntext = \"x\"\nagent = \"ops\"").unwrap();
        let found: Vec<_> = config.schedule_definitions().collect();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].0.as_str(), "night");
        assert_eq!(found[0].1.task.agent.as_ref().map(AgentName::as_str), Some("ops"));
    }
}
