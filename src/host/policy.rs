//! The policies of tool calls, as the configuration has them: one for each agent.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use hermod_actors::{
    CLARIFY, TODO,
    model::AgentName,
    port::{CallPolicy, CallVerdict, ProposedCall},
};

use crate::{
    config::Config,
    policy::{ApprovedRules, ApprovedRulesError, DamageObserver, Policy, PolicyMode, PolicySettings},
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

/// The policies of a process, by agent. Those of all agents have their approved rules in common.
#[derive(Debug)]
pub struct AgentPolicies {
    default: Policy,
    others: BTreeMap<AgentName, Policy>,
    /// For runs whose agent the configuration does not have any more.
    unknown: Policy,
}

impl AgentPolicies {
    /// The policies of a process with this configuration and this state directory. Reads nothing yet. A damage of the
    /// approved rules goes to `notes` when it is found.
    pub fn new(config: &Config, state_dir: &Path, notes: Option<Arc<dyn NoteSink>>) -> Self {
        let approved = ApprovedRules::new(state_dir);
        let approved = Arc::new(match notes {
            Some(notes) => approved.observed_by(Arc::new(DamageNotes(notes))),
            None => approved,
        });
        let policy = |config: &Config| Policy::with_approved(settings_of(config), Arc::clone(&approved));
        let others = config.agents().filter(|(name, _)| !name.is_default());
        Self {
            default: policy(config),
            others: others.map(|(name, config)| (name, policy(config))).collect(),
            unknown: Policy::with_approved(strict(config), Arc::clone(&approved)),
        }
    }

    /// The rules that a person has approved.
    pub fn approved(&self) -> &Arc<ApprovedRules> {
        self.default.approved()
    }

    /// The policy for runs of this agent.
    pub fn of_agent(&self, agent: &AgentName) -> &Policy {
        if agent.is_default() { &self.default } else { self.others.get(agent).unwrap_or(&self.unknown) }
    }
}

impl CallPolicy for AgentPolicies {
    fn judge(&self, call: &ProposedCall<'_>) -> CallVerdict {
        self.of_agent(call.agent).judge(call)
    }
}

/// The settings of the policy for one agent.
fn settings_of(config: &Config) -> PolicySettings {
    let section = &config.policy;
    PolicySettings {
        mode: section.mode.0,
        deny: section.deny.0.clone(),
        allow: section.allow.0.clone(),
        ask: section.ask.0.clone(),
        has_approver: config.approvals.approver.0,
        read_only_tools: READ_ONLY_TOOLS.iter().map(|tool| (*tool).to_owned()).collect(),
        ignores_approved: false,
    }
}

/// The settings for an agent that is not configured: which of the others' rules were its own is not known, so all that
/// deny count, none that allows does, and only tools that read may be used.
fn strict(config: &Config) -> PolicySettings {
    let mut deny = Vec::new();
    for rule in config.agents().flat_map(|(_, config)| &config.policy.deny.0) {
        if !deny.contains(rule) {
            deny.push(rule.clone());
        }
    }
    let (mode, has_approver, ignores_approved) = (PolicyMode::Deny, false, true);
    let (allow, ask) = (Vec::new(), Vec::new());
    PolicySettings { mode, deny, allow, ask, has_approver, ignores_approved, ..settings_of(config) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{config::ConfigFile, policy::JudgementAction};

    #[test]
    fn each_agent_has_its_rules_beside_those_of_all() {
        let text = "[policy]\ndeny = [\"shell(rm *)\"]\nallow = [\"shell(sudo *)\"]\n\
                    [agents.strict.policy]\nmode = \"deny\"\ndeny = [\"shell(ls *)\"]\nallow = [\"shell(cat *)\"]\n";
        let file = ConfigFile { path: "config.toml".into(), text: text.to_owned() };
        let config = Config::load(&[file], &BTreeMap::new()).unwrap();
        let state = tempfile::tempdir().unwrap();
        let policies = AgentPolicies::new(&config, state.path(), None);
        policies.approved().add(&["shell(touch *)".parse().unwrap()]).unwrap();
        let check = |agent: &str, command: &str, is_allowed: bool| {
            let judgement = policies.of_agent(&agent.parse().unwrap()).judge_command(command);
            assert_eq!(judgement.action == JudgementAction::Allow, is_allowed, "{agent}: {command}");
        };
        for (command, default, strict, gone) in [
            ("rm x", false, false, false),
            ("ls x", true, false, false),
            ("sudo id", true, true, false),
            ("cat x", true, true, false),
            ("touch x", true, true, false),
            ("wc x", true, false, false),
        ] {
            check("default", command, default);
            check("strict", command, strict);
            check("gone", command, gone);
        }
        // A hard rule is lifted by no agent.
        for agent in ["default", "strict", "gone"] {
            check(agent, "rm -rf /", false);
        }
    }
}
