//! The policy of tool calls: what may run, what needs a person's approval, and what is denied.
//!
//! A call is judged in this order: the hard rules of shell commands deny; the operator's `deny` rules; the operator's
//! `allow` rules and the approved ones; the `ask` rules; the dangers of shell commands ask; then the mode decides.

mod approved;
mod argument;
pub mod command;
mod judge;
mod rule;

use std::{path::Path, sync::Arc};

pub use approved::{ApprovedRules, ApprovedRulesError, DamageObserver};
pub use judge::{Judgement, JudgementAction};
pub use rule::{Rule, RuleError};

/// Name of the tool whose commands are judged one by one.
pub const SHELL_TOOL: &str = "shell";

/// What happens to a call that no rule names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicyMode {
    /// It runs.
    #[default]
    Allow,
    /// It needs an approval, unless its tool only reads.
    Ask,
    /// It is denied, unless its tool only reads.
    Deny,
}

/// The operator's settings.
#[derive(Debug, Clone, Default)]
pub struct PolicySettings {
    /// What happens to calls that no rule names.
    pub mode: PolicyMode,
    /// Calls that never run.
    pub deny: Vec<Rule>,
    /// Calls that run without an approval.
    pub allow: Vec<Rule>,
    /// Calls that need an approval.
    pub ask: Vec<Rule>,
    /// True if a person answers requests for approvals. Otherwise they are denied at once.
    pub has_approver: bool,
    /// Tools without effects, which the mode does not concern.
    pub read_only_tools: Vec<String>,
    /// True if the rules that a person has approved do not count.
    pub ignores_approved: bool,
}

/// The policy of a process for one agent.
#[derive(Debug)]
pub struct Policy {
    settings: PolicySettings,
    approved: Arc<ApprovedRules>,
}

impl Policy {
    /// A policy with these settings and the approved rules of this state directory.
    pub fn new(settings: PolicySettings, state_dir: &Path) -> Self {
        Self::with_approved(settings, ApprovedRules::new(state_dir))
    }

    /// A policy with these settings and these approved rules.
    pub fn with_approved(settings: PolicySettings, approved: impl Into<Arc<ApprovedRules>>) -> Self {
        Self { settings, approved: approved.into() }
    }

    /// The approved rules that count; none if they cannot be read.
    fn approved_rules(&self) -> Arc<[Rule]> {
        if self.settings.ignores_approved { Arc::default() } else { self.approved.list().unwrap_or_default() }
    }

    /// The rules that a person has approved.
    pub fn approved(&self) -> &Arc<ApprovedRules> {
        &self.approved
    }

    /// The operator's settings.
    pub fn settings(&self) -> &PolicySettings {
        &self.settings
    }
}
