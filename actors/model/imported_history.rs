use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{AssistantMessage, ToolCall};

/// A conversation from outside that a session begins with. A call and its result are one thing in it, and every round
/// has its answer, so whatever it was made of, what a model sees of it is well formed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ImportedHistory {
    /// What was asked and answered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rounds: Vec<ImportedRound>,
    /// What the user said last without an answer: it stands before the run's input, in the same message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unanswered: Option<Arc<str>>,
}

/// What a user said, what was done about it, and the answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportedRound {
    /// What the user said.
    pub user: Arc<str>,
    /// The answers that asked for calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<ImportedStep>,
    /// The last word. Calls in it are not shown.
    pub answer: Arc<AssistantMessage>,
}

/// An answer that asked for calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportedStep {
    /// What was said with the calls.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// What was thought.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reasoning: String,
    /// The calls, not empty.
    pub calls: Vec<ImportedCall>,
}

/// A call and what it returned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportedCall {
    /// The call; its id is unique in the whole past.
    #[serde(flatten)]
    pub call: ToolCall,
    /// The result's content.
    pub result: String,
}

impl ImportedHistory {
    /// Whether nothing was said.
    pub const fn is_empty(&self) -> bool {
        self.rounds.is_empty() && self.unanswered.is_none()
    }

    /// The bytes of what was said.
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
