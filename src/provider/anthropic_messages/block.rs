use hermod_actors::port::DeltaSink;
use serde_json::{Map, Value, json};

use super::opaque::OpaqueParts;
use crate::provider::{
    loose::{LooseValue, is_object},
    think_tags::{SplitPiece, ThinkTagSplitter},
};

/// A block of an answer, as far as it has come.
#[derive(Debug, Clone)]
pub(super) enum AnswerBlock {
    /// A text.
    Text(TextBlock),
    /// What was thought, and by what its maker knows it again.
    Thinking { thinking: String, signature: String },
    /// A call.
    Call(CallBlock),
    /// Something that only its maker can read; if it is a call of a server's own tool, then `json` is what has come of its
    /// input.
    Opaque { block: Map<String, Value>, json: String },
    /// What is not known, and takes what belongs to it.
    Ignored,
}

/// A text, with what was thought in it.
#[derive(Debug, Clone, Default)]
pub(super) struct TextBlock {
    pub(super) text: String,
    pub(super) reasoning: String,
    splitter: ThinkTagSplitter,
}

/// A call, whose input has come as JSON text, or at once.
#[derive(Debug, Clone, Default)]
pub(super) struct CallBlock {
    pub(super) id: String,
    pub(super) name: String,
    /// What came at once.
    pub(super) input: String,
    /// What came in pieces, which counts if there is any.
    pub(super) json: String,
    /// The vendor has said that nothing follows.
    pub(super) is_stopped: bool,
}

impl TextBlock {
    /// Takes the next piece.
    pub(super) fn push(&mut self, delta: &str, deltas: &dyn DeltaSink) {
        let Self { text, reasoning, splitter } = self;
        splitter.push(delta, &mut |piece| push_piece(piece, (text, reasoning), deltas));
    }

    /// Takes out what is held back.
    pub(super) fn flush(&mut self, deltas: &dyn DeltaSink) {
        let Self { text, reasoning, splitter } = self;
        splitter.finish(&mut |piece| push_piece(piece, (text, reasoning), deltas));
    }
}

fn push_piece(piece: SplitPiece<'_>, (text, reasoning): (&mut String, &mut String), deltas: &dyn DeltaSink) {
    match piece {
        SplitPiece::Text(delta) => {
            text.push_str(delta);
            deltas.text(delta);
        }
        SplitPiece::Reasoning(delta) => {
            reasoning.push_str(delta);
            deltas.reasoning(delta);
        }
        SplitPiece::AllWasReasoning => reasoning.push_str(&std::mem::take(text)),
    }
}

impl CallBlock {
    /// A call as its block begins.
    pub(super) fn of(block: &mut Map<String, Value>) -> Self {
        let mut text = |name: &str| match block.get_mut(name).map(Value::take) {
            Some(Value::String(text)) => text,
            Some(_) | None => String::new(),
        };
        let (id, name) = (text("id"), text("name"));
        match block.remove("input") {
            // A text is the begin of what comes in pieces.
            Some(Value::String(json)) => Self { id, name, json, ..Self::default() },
            Some(Value::Null) | None => Self { id, name, ..Self::default() },
            Some(input) => Self { id, name, input: input.to_string(), ..Self::default() },
        }
    }

    /// The arguments, as far as they have come.
    pub(super) fn arguments(&self) -> &str {
        if self.json.trim().is_empty() { &self.input } else { &self.json }
    }

    /// Whether the arguments are whole, as far as one can see.
    pub(super) fn looks_whole(&self) -> bool {
        // Every input begins as an empty object, whether or not something follows.
        let has_come = !self.json.trim().is_empty() || !matches!(self.input.trim(), "" | "{}");
        if has_come { is_object(self.arguments()) } else { self.is_stopped }
    }
}

impl AnswerBlock {
    /// Whether a piece that would begin `fresh` by itself belongs to this block.
    pub(super) const fn accepts(&self, fresh: &Self) -> bool {
        match self {
            Self::Ignored => true,
            Self::Text(_) => matches!(fresh, Self::Text(_)),
            Self::Thinking { .. } => matches!(fresh, Self::Thinking { .. }),
            Self::Call(_) | Self::Opaque { .. } => matches!(fresh, Self::Call(_)),
        }
    }

    /// Takes a piece of an input; tells how many bytes it added.
    pub(super) fn push_json(&mut self, delta: LooseValue<'_>) -> usize {
        let json = match self {
            Self::Call(CallBlock { json, .. }) | Self::Opaque { json, .. } => json,
            Self::Text(_) | Self::Thinking { .. } | Self::Ignored => return 0,
        };
        let before = json.len();
        json.push_str(&delta.into_text());
        json.len() - before
    }

    /// What was thought in it.
    pub(super) fn reasoning(&self) -> &str {
        match self {
            Self::Text(TextBlock { reasoning, .. }) => reasoning,
            Self::Thinking { thinking, .. } => thinking,
            Self::Call(_) | Self::Opaque { .. } | Self::Ignored => "",
        }
    }

    /// Puts it in order, or what is kept of it.
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

/// Whether a block is to be sent back as it came: hidden thoughts, and what tools of the server were asked and said.
pub(super) fn is_opaque(kind: &str) -> bool {
    kind == "redacted_thinking" || kind.ends_with("_tool_use") || kind.ends_with("_tool_result")
}
