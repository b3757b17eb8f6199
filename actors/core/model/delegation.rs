//! Delegation of tasks to subagents: the rights of a run, the references between parent and child, and the record of a
//! subagent's end. Also the additions to a run's limits.

use std::{fmt, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use super::{Amounts, CallId, Dimension, OutcomeDetail, RunId, SessionId, Usage};

/// A run's rights to delegate, resolved when it was accepted. A spec without them may not delegate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delegation {
    /// The depth of the run; 0 for a root.
    pub depth: u32,
    /// The maximum depth of a subagent.
    pub max_depth: u32,
    /// Maximum of concurrent subagents of one run. The limit `children` of the root's account bounds the whole tree.
    pub max_children: u32,
    /// Iterations of a subagent unless its task sets fewer.
    pub iterations: u64,
    /// True if the iterations of subagents also count on the ancestor accounts.
    #[serde(rename = "shared", default, skip_serializing_if = "super::is_default")]
    pub shares_iterations: bool,
    /// Active time in milliseconds within which a subagent must get an answer of its model, or the result of a call.
    /// Otherwise its run is stopped as timed out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress_ms: Option<u64>,
}

/// The call that delegated a run, to which its end is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParentRef {
    /// The session of the delegating run.
    pub session: SessionId,
    /// The delegating call.
    pub call: CallId,
    /// Index of the task within the call, from 0.
    pub n: u32,
}

/// A subagent's session and run, as its parent records them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubagentRef {
    /// The subagent's session.
    pub session: SessionId,
    /// The subagent's run.
    pub run: RunId,
}

/// Record of the parent: a subagent has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildEnded {
    /// The call that delegated the task.
    pub call: CallId,
    /// The subagent that ended.
    pub child: SubagentRef,
    /// The outcome of the subagent.
    #[serde(flatten)]
    pub ended: OutcomeDetail,
    /// The result for the parent's model, as JSON.
    #[serde(rename = "told")]
    pub result: Arc<str>,
    /// The iterations of the subagent.
    pub iterations: u32,
    /// The token usage of its model calls.
    pub usage: Usage,
}

/// Additions to the limits of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LimitIncrease {
    /// Additions to the limits of its account. A dimension without a limit stays unlimited.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub budget: Amounts,
    /// Addition to the allowed active time, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wall_ms: Option<u64>,
}

impl fmt::Display for LimitIncrease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let amount = |dimension: Dimension| {
            let amount = dimension.display(self.budget.get(dimension)?);
            Some(match dimension {
                Dimension::Usd => amount.to_string(),
                Dimension::Iterations | Dimension::Tokens | Dimension::Children => {
                    format!("{amount} {}", dimension.name())
                }
                Dimension::ToolCalls => format!("{amount} tool calls"),
            })
        };
        let wall = self
            .wall_ms
            .map(|ms| format!("{} of active time", humantime::format_duration(Duration::from_millis(ms))));
        let parts: Vec<_> = Dimension::ALL.into_iter().filter_map(amount).chain(wall).collect();
        f.write_str(&parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_is_told_in_words() {
        let budget = Amounts {
            iterations: Some(10),
            usd: Some(500_000_000),
            tool_calls: Some(5),
            ..Amounts::default()
        };
        let raised = LimitIncrease { budget, wall_ms: Some(600_000) };
        assert_eq!(raised.to_string(), "10 iterations, $0.5, 5 tool calls, 10m of active time");
    }
}
