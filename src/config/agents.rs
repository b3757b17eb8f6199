//! Agents: each section `agents.NAME` is an overlay. Its keys stand for keys of the rest of the configuration, and the
//! configuration of an agent is the rest with these values put over it. What uses a configuration knows no agents.
//! A new key of agents is a line in `AGENT_KEYS`.

use std::{collections::BTreeMap, sync::Arc};

use hermod_actors::{CLARIFY, DELEGATE_TASK, MESSAGE, TODO, model::AgentName};
use serde_json::Value;

use super::{
    error::SettingError,
    keys::{self, below},
    layer::{Setting, SettingLayer, SettingOrigin},
    load::deserialize_layer,
    sections::Config,
    values::ToolPatterns,
};
use crate::tool;

/// The section of the agents, by name.
pub(super) const AGENTS: &str = "agents";
/// The section beside them that is no agent.
const DEFAULTS: &str = "defaults";
/// Most agents of a configuration, each of which is one more configuration in memory.
const MAX_AGENTS: usize = 200;

/// The two keys of an identity.
const IDENTITY: &str = "prompt.identity";
const IDENTITY_FILE: &str = "prompt.identity_file";

/// How a value of an agent's section changes that of the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Merge {
    /// It replaces the value.
    Replace,
    /// Its items follow those of the value.
    Append,
}

/// The keys of an agent's section, each with the key that it stands for.
const AGENT_KEYS: &[(&str, &str, Merge)] = {
    use Merge::{Append, Replace};
    &[
        ("approvals.approver", "approvals.approver", Replace),
        ("approvals.expiry", "approvals.expiry", Replace),
        ("budget.tokens", "agent.budget.tokens", Replace),
        ("budget.tool_calls", "agent.budget.tool_calls", Replace),
        ("budget.usd", "agent.budget.usd", Replace),
        ("budget.wall", "agent.budget.wall", Replace),
        ("compression.enabled", "compression.enabled", Replace),
        ("compression.trigger", "compression.trigger", Replace),
        ("delegation.enabled", "delegation.enabled", Replace),
        ("delegation.max_children", "delegation.max_children", Replace),
        ("delegation.max_depth", "delegation.max_depth", Replace),
        ("delegation.max_iterations", "delegation.max_iterations", Replace),
        ("deliver_to", "agent.deliver_to", Replace),
        ("description", "agent.description", Replace),
        ("fallback_providers", "fallback_providers", Replace),
        ("loop_guard", "agent.loop_guard", Replace),
        ("max_tokens", "agent.max_tokens", Replace),
        ("max_turns", "agent.max_turns", Replace),
        ("memory.enabled", "memory.enabled", Replace),
        ("memory.memory_chars", "memory.memory_chars", Replace),
        ("memory.user_chars", "memory.user_chars", Replace),
        ("model", "model", Replace),
        ("policy.allow", "policy.allow", Append),
        ("policy.ask", "policy.ask", Append),
        ("policy.deny", "policy.deny", Append),
        ("policy.mode", "policy.mode", Replace),
        (IDENTITY, IDENTITY, Replace),
        (IDENTITY_FILE, IDENTITY_FILE, Replace),
        ("queue.cap", "queue.cap", Replace),
        ("queue.collect_window", "queue.collect_window", Replace),
        ("queue.drop", "queue.drop", Replace),
        ("queue.mode", "queue.mode", Replace),
        ("replies.block_break", "replies.block_break", Replace),
        ("replies.block_idle", "replies.block_idle", Replace),
        ("replies.block_max_chars", "replies.block_max_chars", Replace),
        ("replies.block_min_chars", "replies.block_min_chars", Replace),
        ("replies.reasoning", "replies.reasoning", Replace),
        ("replies.required", "replies.required", Replace),
        ("replies.verbose", "replies.verbose", Replace),
        ("sandbox.hide", "sandbox.hide", Append),
        ("sandbox.mode", "sandbox.mode", Replace),
        ("sandbox.network", "sandbox.network", Replace),
        ("sandbox.read", "sandbox.read", Replace),
        ("sandbox.unix_sockets", "sandbox.unix_sockets", Replace),
        ("sandbox.workspace", "sandbox.workspace", Replace),
        ("sandbox.write", "sandbox.write", Replace),
        ("skills.enabled", "skills.enabled", Replace),
        ("skills.paths", "skills.paths", Replace),
        ("thinking", "agent.thinking", Replace),
        ("timeout", "agents.defaults.timeout", Replace),
        ("tools.exclude", "tools.exclude", Append),
        ("tools.in_doubt", "tools.in_doubt", Replace),
        ("tools.include", "tools.include", Replace),
        ("workspace", "agent.workspace", Replace),
    ]
};

/// The agent's name and the key within its section.
pub(super) fn agent(key: &str) -> Option<(&str, Option<&str>)> {
    let rest = below(AGENTS, key)?;
    let (name, field) = rest.split_once('.').map_or((rest, None), |(name, field)| (name, Some(field)));
    (name != DEFAULTS).then_some((name, field))
}

/// The key that a key of an agent's section stands for.
pub(super) fn base_key(field: &str) -> Option<&'static str> {
    find(field).map(|(_, base, _)| *base)
}

fn find(field: &str) -> Option<&'static (&'static str, &'static str, Merge)> {
    AGENT_KEYS.iter().find(|(known, ..)| *known == field)
}

/// True for a section of an agent's section, such as `policy`.
pub(super) fn is_subsection(field: &str) -> bool {
    AGENT_KEYS.iter().any(|(known, ..)| below(field, known).is_some())
}

/// The keys of an agent's section.
pub(super) fn fields() -> impl Iterator<Item = &'static str> {
    AGENT_KEYS.iter().map(|(field, ..)| *field)
}

/// True if this is no section of an agent, but one of its keys in the section `agents`.
pub(super) fn is_misplaced(key: &str) -> bool {
    matches!(agent(key), Some((name, None)) if base_key(name).is_some())
}

/// True for a valid name of an agent; it must fit into variables, as the names of providers.
pub(super) fn is_agent_name(name: &str) -> bool {
    keys::is_provider_name(name) && name.parse::<AgentName>().is_ok()
}

/// The settings without those of agents.
pub(super) fn without_agents(settings: &SettingLayer) -> SettingLayer {
    let is_shared = |key: &str| agent(key).is_none();
    settings.iter().filter(|(key, _)| is_shared(key)).map(|(key, set)| (key.clone(), set.clone())).collect()
}

impl Config {
    /// The configuration for runs of this agent; `None` if there is no such agent.
    pub fn for_agent(&self, name: &AgentName) -> Option<&Self> {
        if name.is_default() { Some(self) } else { self.others.get(name).map(|config| &**config) }
    }

    /// The agents: `default` first, then the others by name.
    pub fn agents(&self) -> impl Iterator<Item = (AgentName, &Self)> {
        let others = self.others.iter().map(|(name, config)| (name.clone(), &**config));
        [(AgentName::default(), self)].into_iter().chain(others)
    }

    /// The keys of the agent's section, each with the setting that holds.
    pub fn agent_settings(&self) -> impl Iterator<Item = (&'static str, &Setting)> {
        AGENT_KEYS.iter().filter_map(|(field, base, _)| {
            Some((*field, self.overlay.get(*base).or_else(|| self.settings.get(*base))?))
        })
    }

    /// The names of the agents, for an error.
    pub fn agent_names(&self) -> String {
        self.agents().map(|(name, _)| name.to_string()).collect::<Vec<_>>().join(", ")
    }

    /// The origin of the value of a key of this agent's configuration.
    pub fn origin_of(&self, key: &str) -> Option<&SettingOrigin> {
        self.overlay.get(key).or_else(|| self.settings.get(key)).map(|setting| &setting.origin)
    }
}

/// Puts the sections of agents over the rest of the configuration, whose `settings` are valid. What is returned is the
/// configuration of the agent `default`; it has those of the others.
pub(super) fn with_agents(
    rest: Config,
    settings: SettingLayer,
    errors: &mut Vec<SettingError>,
) -> Option<Config> {
    let mut sections: BTreeMap<AgentName, SettingLayer> = BTreeMap::new();
    for (key, setting) in &settings {
        let Some((name, field)) = agent(key) else { continue };
        let Ok(name) = name.parse::<AgentName>() else { continue };
        let section = sections.entry(name).or_default();
        section.extend(field.map(|field| (field.to_owned(), setting.clone())));
    }
    if sections.len() > MAX_AGENTS {
        let origin = first_origin(&settings);
        let problem = format!("there are {} agents, and at most {MAX_AGENTS} are read", sections.len());
        errors.push(SettingError::new(origin, problem));
        return None;
    }
    let default = sections.remove(&AgentName::default());
    let mut others = BTreeMap::new();
    for (name, section) in sections {
        others.extend(overlaid(&rest, &name, &section, errors).map(|config| (name, Arc::new(config))));
    }
    let config = match default {
        Some(section) => overlaid(&rest, &AgentName::default(), &section, errors)?,
        None => rest,
    };
    Some(Config { settings, others, ..config })
}

fn first_origin(settings: &SettingLayer) -> SettingOrigin {
    let first = settings.iter().find(|(key, _)| agent(key).is_some());
    first.map_or(SettingOrigin::Default, |(_, setting)| setting.origin.clone())
}

/// The rest of the configuration with the values of an agent's section put over it.
fn overlaid(
    rest: &Config,
    name: &AgentName,
    section: &SettingLayer,
    errors: &mut Vec<SettingError>,
) -> Option<Config> {
    let mut overlay = SettingLayer::new();
    for (field, setting) in section {
        let Some((_, base, merge)) = find(field) else { continue };
        let value = match (rest.settings.get(*base), merge) {
            (Some(Setting { value: Value::Array(items), .. }), Merge::Append)
                if let Value::Array(more) = &setting.value =>
            {
                items.iter().chain(more).cloned().collect()
            }
            (_, Merge::Append | Merge::Replace) => setting.value.clone(),
        };
        overlay.insert((*base).to_owned(), Setting { value, origin: setting.origin.clone() });
    }
    // One of the two identities replaces the other.
    for (one, other) in [(IDENTITY, IDENTITY_FILE), (IDENTITY_FILE, IDENTITY)] {
        if let (Some(setting), false) = (overlay.get(one), overlay.contains_key(other)) {
            let none = Setting { value: "".into(), origin: setting.origin.clone() };
            overlay.insert(other.to_owned(), none);
            break;
        }
    }
    let mut settings = rest.settings.clone();
    settings.extend(overlay.clone());
    // An error names the key that stands in the file, with its value there.
    let shown = |base: &str| {
        let (field, ..) = AGENT_KEYS.iter().find(|(_, known, _)| *known == base)?;
        Some((format!("{AGENTS}.{name}.{field}"), section.get(*field)?.clone()))
    };
    let config = deserialize_layer(settings, &rest.settings, &shown, errors)?;
    let known_models = rest.known_models.clone();
    let config = Config { overlay, known_models, agent_name: name.clone(), ..config };
    let mut found = Vec::new();
    check(&config, &mut found);
    errors.extend(found.into_iter().filter_map(|(key, reason)| {
        let (key, setting) = shown(key)?;
        Some(SettingError::value(&key, &setting, reason))
    }));
    Some(config)
}

/// Checks what depends on several values of an agent, and on the tools; each problem with its key.
pub(super) fn check(config: &Config, problems: &mut Vec<(&'static str, String)>) {
    if config.prompt.identity.0.is_some() && config.prompt.identity_file.0.is_some() {
        let reason = "there is an identity_file too; leave one of them out".to_owned();
        problems.push((IDENTITY, reason));
    }
    if let Err(reason) = config.check_targets(&config.agent.deliver_to.0) {
        problems.push(("agent.deliver_to", reason));
    }
    for (key, ToolPatterns(patterns)) in
        [("tools.include", &config.tools.include), ("tools.exclude", &config.tools.exclude)]
    {
        let tools: Vec<&str> = tool::TOOLS
            .iter()
            .map(|(name, _)| *name)
            .chain([CLARIFY, DELEGATE_TASK, MESSAGE, TODO])
            .collect();
        let unknown = patterns.iter().find(|pattern| !tools.iter().any(|tool| pattern.matches(tool)));
        problems.extend(
            unknown.map(|pattern| {
                (key, format!("no tool is called `{pattern}`; there are: {}", tools.join(", ")))
            }),
        );
    }
}
