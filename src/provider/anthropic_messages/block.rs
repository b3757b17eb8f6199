//! The content blocks of an `anthropic_messages` answer, as received so far.

use serde_json::{Map, Value, json};

use super::opaque::OpaqueParts;
use crate::provider::{
    loose::{LooseValue, is_object},
    think_tags::SplitText,
};

/// A block of an answer, as received so far.
#[derive(Debug, Clone)]
pub(super) enum AnswerBlock {
    Text(SplitText),
    /// Reasoning, and the signature by which its vendor verifies it.
    Thinking {
        thinking: String,
        signature: String,
    },
    Call(CallBlock),
    /// A block that only its vendor can read. For a call of a server's own tool, `json` is the input as received so
    /// far.
    Opaque {
        block: Map<String, Value>,
        json: String,
    },
    /// A block of an unknown type; its deltas are ignored.
    Ignored,
}

/// A call, whose input arrives as streamed JSON text or in the block's start.
#[derive(Debug, Clone, Default)]
pub(super) struct CallBlock {
    pub(super) id: String,
    pub(super) name: String,
    /// The input in the block's start.
    pub(super) input: String,
    /// The streamed input, which takes precedence unless it is blank.
    pub(super) json: String,
    /// The vendor has ended the block.
    pub(super) is_stopped: bool,
}

impl CallBlock {
    /// A call from the start of its block.
    pub(super) fn of(block: &mut Map<String, Value>) -> Self {
        let (id, name) = (take_text(block, "id"), take_text(block, "name"));
        match block.remove("input") {
            // A string is the start of the streamed input.
            Some(Value::String(json)) => Self { id, name, json, ..Self::default() },
            Some(Value::Null) | None => Self { id, name, ..Self::default() },
            Some(input) => Self { id, name, input: input.to_string(), ..Self::default() },
        }
    }

    /// The arguments as received so far.
    pub(super) fn arguments(&self) -> &str {
        if self.json.trim().is_empty() { &self.input } else { &self.json }
    }

    /// True if the arguments are complete, as far as their text shows.
    pub(super) fn looks_whole(&self) -> bool {
        // Every input starts as an empty object, whether or not pieces follow.
        let has_input = !self.json.trim().is_empty() || !matches!(self.input.trim(), "" | "{}");
        if has_input { is_object(self.arguments()) } else { self.is_stopped }
    }
}

/// Takes the text out of a field; empty for any other type.
pub(super) fn take_text(block: &mut Map<String, Value>, name: &str) -> String {
    match block.get_mut(name).map(Value::take) {
        Some(Value::String(text)) => text,
        Some(_) | None => String::new(),
    }
}

impl AnswerBlock {
    /// The call, if the block is one.
    pub(super) fn call(&self) -> Option<&CallBlock> {
        let Self::Call(call) = self else { return None };
        Some(call)
    }

    /// True if a delta belongs to this block. `fresh` is the block that the delta would start.
    pub(super) const fn accepts(&self, fresh: &Self) -> bool {
        match self {
            Self::Ignored => true,
            Self::Text(_) => matches!(fresh, Self::Text(_)),
            Self::Thinking { .. } => matches!(fresh, Self::Thinking { .. }),
            Self::Call(_) | Self::Opaque { .. } => matches!(fresh, Self::Call(_)),
        }
    }

    /// Adds a piece of an input; returns the number of added bytes.
    pub(super) fn push_json(&mut self, delta: LooseValue<'_>) -> usize {
        let json = match self {
            Self::Call(CallBlock { json, .. }) | Self::Opaque { json, .. } => json,
            Self::Text(_) | Self::Thinking { .. } | Self::Ignored => return 0,
        };
        let before = json.len();
        json.push_str(&delta.into_text());
        json.len() - before
    }

    /// The reasoning in the block.
    pub(super) fn reasoning(&self) -> &str {
        match self {
            Self::Text(SplitText { reasoning, .. }) => reasoning,
            Self::Thinking { thinking, .. } => thinking,
            Self::Call(_) | Self::Opaque { .. } | Self::Ignored => "",
        }
    }

    /// Adds the block's position, or its retained content.
    pub(super) fn add_to(&self, to: &mut OpaqueParts) {
        match self {
            Self::Text(text) => to.push_text(text.text.len()),
            Self::Thinking { thinking, signature } => {
                to.push_opaque(json!({"type": "thinking", "thinking": thinking, "signature": signature}));
            }
            Self::Call(_) => to.push_call(),
            Self::Opaque { block, json } => {
                let mut block = block.clone();
                if let Ok(input) = serde_json::from_str::<Map<String, Value>>(json) {
                    block.insert("input".into(), Value::Object(input));
                }
                to.push_opaque(Value::Object(block));
            }
            Self::Ignored => {}
        }
    }
}

/// True if a block is sent back unchanged: redacted reasoning, and calls and results of the server's own tools.
pub(super) fn is_opaque(kind: &str) -> bool {
    kind == "redacted_thinking" || kind.ends_with("_tool_use") || kind.ends_with("_tool_result")
}
