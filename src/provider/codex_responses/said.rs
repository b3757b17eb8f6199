use hermod_actors::port::Deltas;

use super::slot::PARAGRAPH;
use crate::provider::think::{Piece, Splitter};

/// What was shown of an answer while it came.
#[derive(Debug, Clone, Default)]
pub(super) struct Said {
    /// The text as it came, blocks of reasoning in it included.
    raw: String,
    /// The reasoning of items of its own.
    thought: String,
    split: Split,
    splitter: Splitter,
}

/// A text without the reasoning that stood in it.
#[derive(Debug, Clone, Default)]
struct Split {
    text: String,
    thought: String,
}

impl Said {
    /// Bytes that it holds.
    pub(super) const fn size(&self) -> usize {
        self.raw.len() + self.thought.len()
    }

    /// Takes the next piece of text.
    pub(super) fn text(&mut self, piece: &str, deltas: &dyn Deltas) {
        self.raw.push_str(piece);
        let (split, before) = (&mut self.split, &self.thought);
        self.splitter.push(piece, &mut |piece| split.take(piece, before, deltas));
    }

    /// Takes the next piece of reasoning.
    pub(super) fn thought(&mut self, piece: &str, begins: bool, deltas: &dyn Deltas) {
        if piece.is_empty() {
            return;
        }
        if begins && !self.thought.is_empty() {
            self.thought.push_str(PARAGRAPH);
            deltas.reasoning(PARAGRAPH);
        }
        self.thought.push_str(piece);
        deltas.reasoning(piece);
    }

    /// The text and the reasoning of the answer, whose items say `raw` and `thought`: what of these has not been shown
    /// is shown now, as far as it follows what has been.
    pub(super) fn conclude(mut self, raw: &str, thought: String, deltas: &dyn Deltas) -> (String, String) {
        if let Some(rest) = thought.strip_prefix(self.thought.as_str()) {
            self.thought(rest, false, deltas);
        }
        self.thought = thought;
        let rest = raw.strip_prefix(self.raw.as_str());
        let unshown = Unshown;
        let deltas: &dyn Deltas = if rest.is_some() { deltas } else { &unshown };
        if rest.is_none() {
            (self.split, self.splitter) = (Split::default(), Splitter::default());
        }
        self.text(rest.unwrap_or(raw), deltas);
        let (split, before) = (&mut self.split, &self.thought);
        self.splitter.finish(&mut |piece| split.take(piece, before, deltas));
        let Split { text, thought: inline } = self.split;
        let mut thought = self.thought;
        if !thought.is_empty() && !inline.is_empty() {
            thought.push_str(PARAGRAPH);
        }
        (text, thought + &inline)
    }
}

impl Split {
    fn take(&mut self, piece: Piece<'_>, before: &str, deltas: &dyn Deltas) {
        match piece {
            Piece::Text(piece) => {
                self.text.push_str(piece);
                deltas.text(piece);
            }
            Piece::Reasoning(piece) => {
                if self.thought.is_empty() && !before.is_empty() {
                    deltas.reasoning(PARAGRAPH);
                }
                self.thought.push_str(piece);
                deltas.reasoning(piece);
            }
            Piece::AllWasReasoning => self.thought.push_str(&std::mem::take(&mut self.text)),
        }
    }
}

/// Shows nothing: what was shown before cannot be taken back.
struct Unshown;

impl Deltas for Unshown {
    fn text(&self, _: &str) {}
    fn reasoning(&self, _: &str) {}
}
