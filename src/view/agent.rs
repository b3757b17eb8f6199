//! What `hermod agents` shows of the configured agents.

use hermod_actors::model::{AgentName, ModelRef};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::{Config, Setting, redacted};

/// An agent in a list: `{name, description, model, fallback_providers, thinking}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentView {
    /// Its name.
    pub name: AgentName,
    /// What it is for; `None` if that is not configured.
    pub description: Option<String>,
    /// The model that its runs begin with; `None` is the default of the first provider.
    pub model: Option<String>,
    /// The models that follow, as `provider/model`.
    pub fallback_providers: Vec<String>,
    /// How much its models think; `None` is the models' own level.
    pub thinking: Option<String>,
}

impl AgentView {
    /// The agent with this configuration.
    pub fn new(config: &Config) -> Self {
        Self {
            name: config.agent_name.clone(),
            description: config.agent.description.0.as_deref().map(str::to_owned),
            model: config.model.0.as_deref().map(str::to_owned),
            fallback_providers: config.fallback_providers.0.iter().map(ModelRef::to_string).collect(),
            thinking: config.agent.thinking.0.map(|level| level.name().to_owned()),
        }
    }
}

/// An agent with what holds for its runs: `{…of the list, tools, settings}`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AgentDetailView {
    /// What the list shows.
    #[serde(flatten)]
    pub agent: AgentView,
    /// The tools of its runs, sorted; where there are skills, `skill_view` may come to them.
    pub tools: Vec<String>,
    /// The keys of its section with the values that hold, set or not.
    pub settings: Vec<AgentSettingView>,
}

/// A setting of an agent: `{key, value, origin}`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AgentSettingView {
    /// The key in the agent's section.
    pub key: &'static str,
    /// The value that holds.
    pub value: Value,
    /// Where it is set: in the agent's section, for all agents, or nowhere.
    pub origin: String,
}

impl AgentSettingView {
    /// The value of a key of an agent's section.
    pub fn new(key: &'static str, setting: &Setting) -> Self {
        let value = redacted(key, &setting.value).unwrap_or_default();
        Self { key, value, origin: setting.origin.to_string() }
    }
}
