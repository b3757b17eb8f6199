//! The policy of tool calls, as the configuration has it.

use std::{path::Path, sync::Arc};

use hermod_actors::{CLARIFY, TODO};

use crate::{
    config::Config,
    policy::{Policy, PolicySettings},
};

/// Tools without effects outside of their session, which the mode of the policy does not concern.
const READ_ONLY_TOOLS: &[&str] = &[
    CLARIFY,
    "current_time",
    "list_files",
    "read_artifact",
    "read_file",
    "search_files",
    "skill_view",
    TODO,
];

/// The policy of a process with this configuration and this state directory. Reads nothing yet.
pub fn policy_of(config: &Config, state_dir: &Path) -> Arc<Policy> {
    let section = &config.policy;
    let settings = PolicySettings {
        mode: section.mode.0,
        deny: section.deny.0.clone(),
        allow: section.allow.0.clone(),
        ask: section.ask.0.clone(),
        has_approver: config.approvals.approver.0,
        read_only_tools: READ_ONLY_TOOLS.iter().map(|tool| (*tool).to_owned()).collect(),
    };
    Arc::new(Policy::new(settings, state_dir))
}
