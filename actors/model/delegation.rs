use std::{fmt, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use super::{Amounts, CallId, Dimension, OutcomeDetail, RunId, SessionId, Usage, budget::AmountDisplay};

/// What a run may delegate, resolved when it was accepted. Absent from a spec means nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delegation {
    /// How deep the run itself is: a root is 0.
    pub depth: u32,
    /// The deepest that a subagent may be.
    pub max_depth: u32,
    /// Subagents of one run that may live at once. How many of a whole tree may is the limit `children` of its root.
    pub max_children: u32,
    /// Iterations of a subagent, if its task says nothing less.
    pub iterations: u64,
    /// Whether the iterations of subagents count on the accounts above too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[serde(rename = "shared")]
    pub shares_iterations: bool,
    /// Active time in which a subagent must come to a result of a call, in milliseconds, or it is ended with what it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress_ms: Option<u64>,
}

/// Whose task a run is, and where its end is heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParentRef {
    /// The session of the run that delegated it.
    pub session: SessionId,
    /// The call that did.
    pub call: CallId,
    /// Its place among the tasks of that call, from 0.
    pub n: u32,
}

/// A subagent, as its parent knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubagentRef {
    /// Its session.
    pub session: SessionId,
    /// Its run.
    pub run: RunId,
}

/// A subagent has ended: the record with which its parent takes that in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildEnded {
    /// The call that delegated the task.
    pub call: CallId,
    /// The subagent.
    pub child: SubagentRef,
    /// How it ended.
    #[serde(flatten)]
    pub ended: OutcomeDetail,
    /// What the parent's model reads of it: JSON.
    #[serde(rename = "told")]
    pub result: Arc<str>,
    /// The iterations it took.
    pub iterations: u32,
    /// What its model calls used.
    pub usage: Usage,
}

/// By how much the limits of a run are raised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LimitIncrease {
    /// The limits of its account. A dimension without a limit keeps none.
    #[serde(default, skip_serializing_if = "Amounts::is_empty")]
    pub budget: Amounts,
    /// The active time allowed, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall_ms: Option<u64>,
}

impl fmt::Display for LimitIncrease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let amount = |dimension: Dimension| {
            let shown = AmountDisplay(dimension, self.budget.get(dimension)?);
            Some(match dimension {
                Dimension::Usd => shown.to_string(),
                Dimension::Iterations | Dimension::Tokens | Dimension::Children => {
                    format!("{shown} {}", dimension.name())
                }
                Dimension::ToolCalls => format!("{shown} tool calls"),
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
