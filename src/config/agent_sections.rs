//! The sections `agent` and `agents.defaults`: what holds for runs of all agents. `agents.rs` has the sections of agents.

use serde::Deserialize;

use super::values::{
    Flag, OptionalCount, OptionalDollars, OptionalDuration, OptionalFolder, OptionalText, PositiveCount,
    TargetNames, ThinkingLevelName,
};

/// The section `agent`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentSection {
    /// What the agent is for, for people.
    pub description: OptionalText,
    /// Limit of iterations of one run.
    pub max_turns: PositiveCount,
    /// Limit of output tokens of one call.
    pub max_tokens: PositiveCount,
    /// Thinking level of the run's models.
    pub thinking: ThinkingLevelName,
    /// Whether a run that repeats its tool calls without progress is warned, and ended.
    pub loop_guard: Flag,
    /// The folder of conversations that name none; it is created.
    pub workspace: OptionalFolder,
    /// The targets that get the results of runs that name none.
    pub deliver_to: TargetNames,
    /// The section `agent.budget`.
    pub budget: BudgetSection,
}

/// The section `agent.budget`: limits of a run that names none itself.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BudgetSection {
    /// Limit of tokens.
    pub tokens: OptionalCount,
    /// Limit of cost.
    pub usd: OptionalDollars,
    /// Limit of tool calls.
    pub tool_calls: OptionalCount,
    /// Limit of active time, after which the run is `budget_exhausted`.
    pub wall: OptionalDuration,
}

/// The section `agents`, without the sections of agents.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentsSection {
    /// The section `agents.defaults`.
    pub defaults: AgentDefaultsSection,
}

/// The section `agents.defaults`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentDefaultsSection {
    /// Limit of a run's active time.
    pub timeout: OptionalDuration,
}
