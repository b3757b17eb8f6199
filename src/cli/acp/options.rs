//! The options of a session that its user chooses: agent, model, thinking. Pure.

use agent_client_protocol::v1::schema::{
    SessionConfigOption, SessionConfigOptionCategory, SessionConfigSelectOption,
};
use hermod_actors::model::ThinkingLevel;

use crate::{config::Config, view::AgentView};

/// The ids of the options.
const AGENT: &str = "agent";
const MODEL: &str = "model";
const THINKING: &str = "thinking";
/// The value of an option that is not chosen.
const AS_CONFIGURED: &str = "default";

/// What can be chosen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct OptionCatalog {
    /// The agents but the default one, with what they are for.
    agents: Vec<(String, Option<String>)>,
    models: Vec<String>,
}

/// The choices of a session; what is absent is as configured, or as in the conversation so far.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct SessionOptions {
    /// The agent.
    pub(super) agent: Option<String>,
    /// The model.
    pub(super) model: Option<String>,
    /// How much the models think.
    pub(super) thinking: Option<ThinkingLevel>,
}

impl OptionCatalog {
    /// The agents of a configuration, and the models that they name.
    pub(super) fn new(config: &Config) -> Self {
        let views: Vec<AgentView> = config.agents().map(|(_, config)| AgentView::new(config)).collect();
        let mut models: Vec<String> = views
            .iter()
            .flat_map(|view| view.model.iter().chain(&view.fallback_providers))
            .cloned()
            .collect();
        models.sort_unstable();
        models.dedup();
        let agents = views.into_iter().map(|view| (view.name.to_string(), view.description));
        Self { agents: agents.filter(|(name, _)| name != AS_CONFIGURED).collect(), models }
    }
}

impl SessionOptions {
    /// The options as a client shows them. The agent of a conversation that has begun cannot be changed.
    pub(super) fn shown(&self, catalog: &OptionCatalog, has_begun: bool) -> Vec<SessionConfigOption> {
        let named = |name: &String| SessionConfigSelectOption::new(name.clone(), name.clone());
        let agents =
            catalog.agents.iter().map(|(name, about)| named(&name.clone()).description(about.clone()));
        let models = catalog.models.iter().map(named);
        let levels = ThinkingLevel::ALL.map(|level| named(&level.name().to_owned()));
        let agent = (AGENT, "Agent", SessionConfigOptionCategory::Mode);
        let model = (MODEL, "Model", SessionConfigOptionCategory::Model);
        let thinking = (THINKING, "Thinking", SessionConfigOptionCategory::ThoughtLevel);
        let agents = if has_begun { Vec::new() } else { agents.collect() };
        [
            option(agent, self.agent.as_deref(), agents),
            option(model, self.model.as_deref(), models.collect()),
            option(thinking, self.thinking.map(ThinkingLevel::name), levels.to_vec()),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// Chooses a value that was shown; the error says what can be chosen.
    pub(super) fn choose(
        &mut self,
        (id, value): (&str, &str),
        (catalog, has_begun): (&OptionCatalog, bool),
    ) -> Result<(), String> {
        let shown = self.shown(catalog, has_begun);
        let Some(option) = shown.iter().find(|option| &*option.id.0 == id) else {
            let ids: Vec<&str> = shown.iter().map(|option| &*option.id.0).collect();
            return Err(format!("there is no option `{id}` now; there are: {}", ids.join(", ")));
        };
        let chosen = (value != AS_CONFIGURED).then(|| value.to_owned());
        let is_offered = match id {
            AGENT => catalog.agents.iter().any(|(name, _)| name == value),
            MODEL => catalog.models.iter().any(|name| name == value),
            _ => value.parse::<ThinkingLevel>().is_ok(),
        };
        if chosen.is_some() && !is_offered {
            return Err(format!("`{value}` is no value of the option `{}`", option.name));
        }
        match id {
            AGENT => self.agent = chosen,
            MODEL => self.model = chosen,
            _ => self.thinking = value.parse().ok(),
        }
        Ok(())
    }
}

/// An option with the configured value first; `None` if there is nothing to choose.
fn option(
    (id, name, category): (&str, &str, SessionConfigOptionCategory),
    chosen: Option<&str>,
    mut values: Vec<SessionConfigSelectOption>,
) -> Option<SessionConfigOption> {
    if values.is_empty() {
        return None;
    }
    values.insert(0, SessionConfigSelectOption::new(AS_CONFIGURED.to_owned(), "As configured"));
    let current = chosen.unwrap_or(AS_CONFIGURED).to_owned();
    Some(SessionConfigOption::select(id.to_owned(), name, current, values).category(category))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalog() -> OptionCatalog {
        OptionCatalog {
            agents: vec![("reviewer".into(), Some("Reads".into()))],
            models: vec!["a/one".into(), "b/two".into()],
        }
    }

    /// The ids of the options with the current values.
    fn current(options: &SessionOptions, has_begun: bool) -> Vec<(String, String)> {
        let shown = serde_json::to_value(options.shown(&catalog(), has_begun)).unwrap();
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        shown.as_array().unwrap().iter().map(|o| (text(&o["id"]), text(&o["currentValue"]))).collect()
    }

    #[track_caller]
    fn check(id: &str, value: &str, has_begun: bool, expect: Result<&[&str], &str>) {
        let mut options = SessionOptions::default();
        match (options.choose((id, value), (&catalog(), has_begun)), expect) {
            (Ok(()), Ok(expect)) => {
                let values: Vec<String> =
                    current(&options, has_begun).into_iter().map(|(_, value)| value).collect();
                assert_eq!(values, expect);
            }
            (Err(error), Err(part)) => assert!(error.contains(part), "{error}"),
            (got, expect) => panic!("{id}={value}: expected {expect:?}, got {got:?}"),
        }
    }

    #[test]
    fn options_are_chosen_from_what_is_configured() {
        check("agent", "reviewer", false, Ok(&["reviewer", "default", "default"]));
        check("agent", "reviewer", true, Err("no option `agent` now; there are: model, thinking"));
        check("agent", "stranger", false, Err("`stranger` is no value"));
        check("model", "b/two", true, Ok(&["b/two", "default"]));
        check("model", "default", true, Ok(&["default", "default"]));
        check("thinking", "high", false, Ok(&["default", "default", "high"]));
        check("thinking", "extreme", false, Err("`extreme` is no value"));
        check("mode", "x", false, Err("no option `mode`"));
    }

    #[test]
    fn what_cannot_be_chosen_is_not_shown() {
        let shown = SessionOptions::default().shown(&OptionCatalog::default(), false);
        let ids: Vec<&str> = shown.iter().map(|option| &*option.id.0).collect();
        assert_eq!(ids, [THINKING]);
    }
}
