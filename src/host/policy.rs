//! The policy of tool calls, as the configuration has it.

use std::{path::Path, sync::Arc};

use hermod_actors::{CLARIFY, TODO};

use crate::{
    config::Config,
    policy::{ApprovedRules, ApprovedRulesError, DamageObserver, Policy, PolicySettings},
};

use super::notes::NoteSink;

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

/// Notes that the approved rules do not count.
#[derive(Debug)]
struct DamageNotes(Arc<dyn NoteSink>);

impl DamageObserver for DamageNotes {
    fn on_damaged(&self, error: &ApprovedRulesError) {
        self.0.note(&format!("policy    no approved rule counts: {error}"));
    }
}

/// The policy of a process with this configuration and this state directory. Reads nothing yet. A damage of the approved
/// rules goes to `notes` when it is found.
pub fn policy_of(config: &Config, state_dir: &Path, notes: Option<Arc<dyn NoteSink>>) -> Policy {
    let section = &config.policy;
    let settings = PolicySettings {
        mode: section.mode.0,
        deny: section.deny.0.clone(),
        allow: section.allow.0.clone(),
        ask: section.ask.0.clone(),
        has_approver: config.approvals.approver.0,
        read_only_tools: READ_ONLY_TOOLS.iter().map(|tool| (*tool).to_owned()).collect(),
    };
    let approved = ApprovedRules::new(state_dir);
    let approved = match notes {
        Some(notes) => approved.observed_by(Arc::new(DamageNotes(notes))),
        None => approved,
    };
    Policy::with_approved(settings, approved)
}
