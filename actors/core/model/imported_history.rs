//! A conversation from outside, with which a session starts: rounds and steps as data. `turn/history_repair.rs` makes
//! it from a list of messages.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{AssistantMessage, ToolCall};

/// A conversation from outside with which a session starts. Calls are paired with their results and rounds with their
/// answers, so that the view built from it is always well formed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ImportedHistory {
    /// The answered rounds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rounds: Vec<ImportedRound>,
    /// The user's last message if it has no answer; it precedes the run's input in the same message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unanswered: Option<Arc<str>>,
}

/// A user message, the steps that followed, and the answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportedRound {
    /// The user's message.
    pub user: Arc<str>,
    /// The answers with tool calls, with their results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<ImportedStep>,
    /// The final answer; its tool calls, if any, are left out of the view.
    pub answer: Arc<AssistantMessage>,
}

/// An answer with tool calls, and their results.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportedStep {
    /// The text of the answer.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// The reasoning of the answer.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reasoning: String,
    /// The calls with their results; not empty.
    pub calls: Vec<ImportedCall>,
}

/// A tool call with its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportedCall {
    /// The call; its id is unique in the whole history.
    #[serde(flatten)]
    pub call: ToolCall,
    /// The result's content.
    pub result: String,
}

impl ImportedHistory {
    /// True if there is neither a round nor an unanswered message.
    pub const fn is_empty(&self) -> bool {
        self.rounds.is_empty() && self.unanswered.is_none()
    }

    /// Bytes of messages, answers, arguments and results, for limits of size.
    pub fn bytes(&self) -> usize {
        let call = |call: &ImportedCall| call.call.arguments.len() + call.result.len();
        let step = |step: &ImportedStep| {
            step.text.len() + step.reasoning.len() + step.calls.iter().map(call).sum::<usize>()
        };
        let round = |round: &ImportedRound| {
            round.user.len() + round.answer.text.len() + round.steps.iter().map(step).sum::<usize>()
        };
        self.unanswered.as_ref().map_or(0, |text| text.len()) + self.rounds.iter().map(round).sum::<usize>()
    }
}
