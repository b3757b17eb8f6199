use hermod_actors::port::Deltas;
use serde_json::{Map, Value, json};

use super::parts::Parts;
use crate::provider::{
    loose::{Loose, is_object},
    think::{Piece, Splitter},
};

/// A block of an answer, as far as it has come.
#[derive(Debug, Clone)]
pub(super) enum Block {
    /// A text.
    Text(Text),
    /// What was thought, and by what its maker knows it again.
    Thinking { thinking: String, signature: String },
    /// A call.
    Call(Call),
    /// Something that only its maker can read; if it is a call of a server's own tool, then `json` is what has come of its
    /// input.
    Kept { block: Map<String, Value>, json: String },
    /// What is not known, and takes what belongs to it.
    Ignored,
}

/// A text, with what was thought in it.
#[derive(Debug, Clone, Default)]
pub(super) struct Text {
    pub(super) text: String,
    pub(super) reasoning: String,
    splitter: Splitter,
}

/// A call, whose input has come as JSON text, or at once.
#[derive(Debug, Clone, Default)]
pub(super) struct Call {
    pub(super) id: String,
    pub(super) name: String,
    /// What came at once.
    pub(super) input: String,
    /// What came in pieces, which counts if there is any.
    pub(super) json: String,
    /// The vendor has said that nothing follows.
    pub(super) stopped: bool,
}

impl Text {
    /// Takes the next piece.
    pub(super) fn push(&mut self, delta: &str, deltas: &dyn Deltas) {
        let Self { text, reasoning, splitter } = self;
        splitter.push(delta, &mut |piece| take(piece, (text, reasoning), deltas));
    }

    /// Takes out what is held back.
    pub(super) fn flush(&mut self, deltas: &dyn Deltas) {
        let Self { text, reasoning, splitter } = self;
        splitter.finish(&mut |piece| take(piece, (text, reasoning), deltas));
    }
}

fn take(piece: Piece<'_>, (text, reasoning): (&mut String, &mut String), deltas: &dyn Deltas) {
    match piece {
        Piece::Text(delta) => {
            text.push_str(delta);
            deltas.text(delta);
        }
        Piece::Reasoning(delta) => {
            reasoning.push_str(delta);
            deltas.reasoning(delta);
        }
        Piece::AllWasReasoning => reasoning.push_str(&std::mem::take(text)),
    }
}

impl Call {
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
        if has_come { is_object(self.arguments()) } else { self.stopped }
    }
}

impl Block {
    /// Whether a piece that would begin `fresh` by itself belongs to this block.
    pub(super) const fn takes(&self, fresh: &Self) -> bool {
        match self {
            Self::Ignored => true,
            Self::Text(_) => matches!(fresh, Self::Text(_)),
            Self::Thinking { .. } => matches!(fresh, Self::Thinking { .. }),
            Self::Call(_) | Self::Kept { .. } => matches!(fresh, Self::Call(_)),
        }
    }

    /// Takes a piece of an input; tells how many bytes it added.
    pub(super) fn push_json(&mut self, delta: Loose<'_>) -> usize {
        let json = match self {
            Self::Call(Call { json, .. }) | Self::Kept { json, .. } => json,
            Self::Text(_) | Self::Thinking { .. } | Self::Ignored => return 0,
        };
        let before = json.len();
        json.push_str(&delta.into_text());
        json.len() - before
    }

    /// What was thought in it.
    pub(super) fn reasoning(&self) -> &str {
        match self {
            Self::Text(Text { reasoning, .. }) => reasoning,
            Self::Thinking { thinking, .. } => thinking,
            Self::Call(_) | Self::Kept { .. } | Self::Ignored => "",
        }
    }

    /// Puts it in order, or what is kept of it.
    pub(super) fn put(&self, to: &mut Parts) {
        match self {
            Self::Text(text) => to.text(text.text.len()),
            Self::Thinking { thinking, signature } => {
                to.keep(json!({"type": "thinking", "thinking": thinking, "signature": signature}));
            }
            Self::Call(_) => to.call(),
            Self::Kept { block, json } => {
                let mut block = block.clone();
                if let Ok(input) = serde_json::from_str::<Map<String, Value>>(json) {
                    block.insert("input".into(), Value::Object(input));
                }
                to.keep(Value::Object(block));
            }
            Self::Ignored => {}
        }
    }
}

/// Whether a block is to be sent back as it came: hidden thoughts, and what tools of the server were asked and said.
pub(super) fn is_kept(kind: &str) -> bool {
    kind == "redacted_thinking" || kind.ends_with("_tool_use") || kind.ends_with("_tool_result")
}
