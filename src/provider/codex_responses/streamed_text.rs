//! The text and reasoning of a `codex_responses` answer: shown to watchers while they stream in, and completed at its
//! end.

use hermod_actors::port::DeltaSink;

use super::slot::PARAGRAPH_BREAK;
use crate::provider::{think_tags::SplitText, wire::DiscardDeltas};

/// The streamed text and reasoning of an answer.
#[derive(Debug, Clone, Default)]
pub(super) struct StreamedText {
    /// The received text, including inline blocks of reasoning.
    raw: String,
    /// The reasoning of reasoning items.
    thought: String,
    split: SplitText,
}

impl StreamedText {
    /// The size of the received text and reasoning in bytes.
    pub(super) const fn size(&self) -> usize {
        self.raw.len() + self.thought.len()
    }

    /// Adds the next piece of text.
    pub(super) fn push_text(&mut self, piece: &str, deltas: &dyn DeltaSink) {
        self.raw.push_str(piece);
        self.split.separator = if self.thought.is_empty() { "" } else { PARAGRAPH_BREAK };
        self.split.push(piece, deltas);
    }

    /// Adds the next piece of reasoning. `is_new_part` starts a new paragraph.
    pub(super) fn push_reasoning(&mut self, piece: &str, is_new_part: bool, deltas: &dyn DeltaSink) {
        if piece.is_empty() {
            return;
        }
        if is_new_part && !self.thought.is_empty() {
            self.thought.push_str(PARAGRAPH_BREAK);
            deltas.reasoning(PARAGRAPH_BREAK);
        }
        self.thought.push_str(piece);
        deltas.reasoning(piece);
    }

    /// The text and reasoning of the finished answer, from the text `raw` and the reasoning `thought` of its items. The
    /// rest is shown as far as it continues the shown text.
    pub(super) fn finish(mut self, raw: &str, thought: String, deltas: &dyn DeltaSink) -> (String, String) {
        if let Some(rest) = thought.strip_prefix(self.thought.as_str()) {
            self.push_reasoning(rest, false, deltas);
        }
        self.thought = thought;
        let rest = raw.strip_prefix(self.raw.as_str());
        let deltas = if rest.is_some() { deltas } else { &DiscardDeltas };
        if rest.is_none() {
            // The finished text does not continue the shown text, which cannot be withdrawn. It is split anew, and nothing
            // more is shown.
            self.split = SplitText::default();
        }
        self.push_text(rest.unwrap_or(raw), deltas);
        self.split.finish(deltas);
        let SplitText { text, reasoning: inline, .. } = self.split;
        let mut thought = self.thought;
        if !thought.is_empty() && !inline.is_empty() {
            thought.push_str(PARAGRAPH_BREAK);
        }
        (text, thought + &inline)
    }
}
