//! What differs between agents in the parts of a runtime: the settings of its tools. Also the settings for runs whose agent
//! the configuration does not have any more; `policy.rs` has the policies of agents.

use std::{path::Path, sync::Arc};

use hermod_actors::model::{RunId, RunSpec};

use super::sandbox_rules::sandbox_rules;
use crate::{
    config::Config,
    memory::MemoryFiles,
    process::{
        runner::{OWN_PROGRAM, Runner},
        sandbox::{NetworkAccess, SandboxMode, SandboxRules},
    },
    prompt::skill_folders,
    tool::{self, skills::SkillFolders},
};

/// The settings of the tools for all agents.
pub(super) fn tool_settings(config: &Config, state: &Path, runner: &Runner) -> tool::Settings {
    let others = config.agents().map(|(name, config)| (name, settings_of(config, state, runner)));
    let by_name = others.filter(|(name, _)| !name.is_default()).collect();
    let default = settings_of(config, state, runner);
    let unknown = strict(&default);
    tool::Settings { agents: Some(Arc::new(tool::AgentSettings { by_name, unknown })), ..default }
}

/// The settings of the tools for runs of one agent.
fn settings_of(config: &Config, state: &Path, runner: &Runner) -> tool::Settings {
    let [memory_chars, user_chars] = [config.memory.memory_chars.0, config.memory.user_chars.0]
        .map(|chars| usize::try_from(chars).unwrap_or(usize::MAX));
    let memory = || MemoryFiles::of_agent(state, &config.agent_name, memory_chars, user_chars);
    tool::Settings {
        state: Some(state.to_owned()),
        memory: config.memory.enabled.0.then(memory),
        shell_timeout: config.tools.shell.timeout.0,
        runner: Some(runner.clone()).filter(|_| Path::new(OWN_PROGRAM).exists()),
        sandbox: sandbox_rules(config, state),
        skills: skill_folders(config, state),
        agents: None,
    }
}

/// The settings for runs of an agent that is not configured: its commands write nothing and reach no network, and the
/// memory and the skills of other agents are not its own.
fn strict(default: &tool::Settings) -> tool::Settings {
    let sandbox = default.sandbox.clone().map(|rules| SandboxRules {
        mode: SandboxMode::ReadOnly,
        network: NetworkAccess::Off,
        unix_sockets: false,
        read: Vec::new(),
        write: Vec::new(),
        ..rules
    });
    let skills = SkillFolders { is_off: true, ..SkillFolders::default() };
    tool::Settings { sandbox, memory: None, skills, ..default.clone() }
}

/// The note about a run whose agent the configuration does not have; `None` if it has it.
pub fn missing_agent_note(config: &Config, run: RunId, spec: &RunSpec) -> Option<String> {
    if config.for_agent(&spec.agent).is_some() {
        return None;
    }
    Some(format!(
        "agent     run {run} belongs to the agent `{}`, which is not configured: it may only read; there are: {}",
        spec.agent,
        config.agent_names()
    ))
}
