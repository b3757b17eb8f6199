use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// One message of the model's view, as every wire format understands it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// What the operator and the runtime tell the model about itself.
    System(Arc<str>),
    /// What a person (or a parent, or a schedule) says.
    User(Arc<str>),
    /// What the model answered.
    Assistant(Arc<AssistantMessage>),
    /// What one of the calls of the directly preceding assistant message returned.
    Tool {
        /// The vendor's id of the call.
        call: Arc<str>,
        /// The tool's name.
        name: Arc<str>,
        /// Text, or JSON as text.
        content: Arc<str>,
    },
}

/// The model's answer: text, what it thought, and the calls it asks for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AssistantMessage {
    /// What is said; empty if it only calls tools.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// What was thought on the way, if the provider shows it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reasoning: String,
    /// The calls, in the model's order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<ToolCall>,
}

/// A call that the model asks for, as it came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The vendor's id.
    pub id: String,
    /// The name as the model wrote it.
    pub name: String,
    /// The arguments as the model wrote them: JSON text, perhaps malformed.
    pub arguments: String,
}

/// Why the model stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// It had said all.
    Stop,
    /// It waits for the results of its calls.
    ToolCalls,
    /// It ran into the limit of its output.
    Length,
    /// The vendor or the model refused.
    Refused,
}

/// What is wrong with an answer as a whole. How often it happens in a row is counted, and after too often there is none:
/// the answer is taken as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Flaw {
    /// Each call names a tool that does not exist.
    UnknownTools,
    /// The arguments of a call are no JSON: the answer is discarded, and the model is asked again.
    Malformed,
    /// It ran into the limit of its output within a call: discarded likewise.
    Truncated,
    /// It ran into the limit of its output within its text: a part, which the next answer continues.
    Partial,
    /// It says nothing about the result of a tool: discarded, and the model is told to go on.
    EmptyAfterTool,
    /// It has nothing but reasoning: discarded, and the model is asked to go on from there.
    OnlyThought,
    /// It says nothing: discarded, and asked for again.
    Empty,
    /// It is a refusal: discarded, and another model is asked.
    Refused,
}

impl Flaw {
    /// Whether the answer is not part of the conversation.
    pub const fn discards(self) -> bool {
        match self {
            Self::UnknownTools | Self::Partial => false,
            Self::Malformed
            | Self::Truncated
            | Self::EmptyAfterTool
            | Self::OnlyThought
            | Self::Empty
            | Self::Refused => true,
        }
    }

    /// Whether the model is asked again, by the next iteration, with nothing new in the conversation.
    pub const fn asks_again(self) -> bool {
        self.discards() || matches!(self, Self::Partial)
    }
}

/// Tokens of one call. `input` counts everything read, cached or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens read.
    pub input_tokens: u64,
    /// Tokens written, reasoning included.
    pub output_tokens: u64,
    /// Of the tokens read, those from the vendor's cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cached_tokens: u64,
    /// Tokens written to the vendor's cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_write_tokens: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // the signature is serde's
fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl Usage {
    /// Tokens read and written together.
    pub const fn total(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }

    /// Adds `other` to this.
    pub fn add(&mut self, other: &Self) {
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.cached_tokens = self.cached_tokens.saturating_add(other.cached_tokens);
        self.cache_write_tokens = self.cache_write_tokens.saturating_add(other.cache_write_tokens);
    }
}

/// A whole answer: what the provider adapter returns when the stream ended as it should.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// What was said.
    pub message: AssistantMessage,
    /// Why it ended.
    pub finish: Finish,
    /// What it cost, if the provider said.
    pub usage: Option<Usage>,
}
