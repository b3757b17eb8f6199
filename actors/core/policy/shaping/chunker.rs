//! Cuts a growing text into blocks, at the bounds of paragraphs, lines, sentences and words, within limits of size. No
//! block ends inside of a fenced code block: a fence that is too long is closed at the cut and opened again.

use super::fence::{Fence, FenceScan};

/// Limits of a block, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockSizes {
    /// Below this a block is not sent, except at the end of a text or after a pause.
    pub min_chars: usize,
    /// Above this a text is cut.
    pub max_chars: usize,
}

/// A block of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextBlock {
    /// Where `body` begins in the text, in bytes.
    pub at: u64,
    /// The fence that is opened again before the body, as a line; empty if none is.
    pub opening: String,
    /// The part of the text, unchanged. The bodies of all blocks together are the text.
    pub body: String,
    /// The fence that is closed after the body; empty if none is open there.
    pub closing: String,
}

impl TextBlock {
    /// The block as it is sent.
    pub fn text(&self) -> String {
        [self.opening.as_str(), &self.body, &self.closing].concat()
    }
}

/// The text that is not yet cut.
#[derive(Debug, Clone)]
pub struct BlockChunker {
    sizes: BlockSizes,
    buffer: String,
    /// Bytes of the buffer that were cut. They are removed now and then, so that a long text is moved few times.
    cut: usize,
    /// Bytes of the text that were cut.
    at: u64,
    /// The fence that is open where the rest begins.
    open: Option<Fence>,
}

/// Why a text is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// There is enough of it.
    Full,
    /// No more of it came for a while.
    Idle,
    /// It has ended.
    End,
}

impl BlockChunker {
    /// An empty text.
    pub const fn new(sizes: BlockSizes) -> Self {
        Self { sizes, buffer: String::new(), cut: 0, at: 0, open: None }
    }

    /// Whether all of the text was cut.
    pub const fn is_empty(&self) -> bool {
        self.buffer.len() == self.cut
    }

    /// The text that waits.
    fn rest(&self) -> &str {
        &self.buffer[self.cut..]
    }

    /// Drops the text.
    pub fn clear(&mut self) {
        *self = Self::new(self.sizes);
    }

    /// Bytes of the text that wait.
    #[cfg(test)]
    pub(super) const fn waiting_bytes(&self) -> usize {
        self.buffer.len() - self.cut
    }

    /// Adds a piece of the text.
    pub fn push(&mut self, piece: &str) {
        self.buffer.push_str(piece);
    }

    /// The next block; `None` if there is none for now.
    pub fn next_block(&mut self, cut: Cut) -> Option<TextBlock> {
        let rest = self.rest();
        let max_bytes = byte_of_char(rest, self.sizes.max_chars.max(1));
        if is_blank(&rest[..max_bytes.unwrap_or(rest.len())]) {
            self.skip_blank(cut, max_bytes.is_some());
            return if is_blank(self.rest()) { None } else { self.next_block(cut) };
        }
        match (max_bytes, cut) {
            (Some(max), _) => {
                let end = self.cut_before(max);
                Some(self.take(end))
            }
            (None, Cut::End) => Some(self.take(self.rest().len())),
            (None, Cut::Idle) => self.bound_of_pause().map(|end| self.take(end)),
            (None, Cut::Full) => self.paragraph().map(|end| self.take(end)),
        }
    }

    /// White space alone is no block: it waits for a text, and is dropped at the end, or if there is too much.
    fn skip_blank(&mut self, cut: Cut, is_too_much: bool) {
        if cut == Cut::End || is_too_much {
            let rest = self.rest();
            self.remove(rest.len() - rest.trim_start().len());
        }
    }

    /// Takes the beginning off the text.
    fn remove(&mut self, bytes: usize) {
        self.cut += bytes;
        self.at += bytes as u64;
        if self.cut > self.buffer.len() / 2 {
            self.buffer.drain(..self.cut);
            self.cut = 0;
        }
    }

    /// The end of the last whole paragraph behind the smallest size.
    fn paragraph(&self) -> Option<usize> {
        let rest = self.rest();
        self.last_bound(byte_of_char(rest, self.sizes.min_chars)?, rest.len(), Bound::Paragraph)
    }

    /// Where a text that has paused is cut.
    fn bound_of_pause(&self) -> Option<usize> {
        let end = self.rest().len();
        let kinds = [Bound::Line, Bound::Sentence, Bound::Word];
        kinds.into_iter().find_map(|bound| self.last_bound(1, end, bound))
    }

    /// Where a text is cut that is longer than `max` bytes.
    fn cut_before(&self, max: usize) -> usize {
        let min = byte_of_char(self.rest(), self.sizes.min_chars).unwrap_or(max).min(max);
        let kinds = [Bound::Paragraph, Bound::Line, Bound::Sentence, Bound::Word];
        let large = kinds.into_iter().find_map(|bound| self.last_bound(min, max, bound));
        let small = || [Bound::Paragraph, Bound::Line].into_iter().find_map(|b| self.last_bound(1, max, b));
        large.or_else(small).unwrap_or_else(|| self.cut_anywhere(max))
    }

    /// A cut inside of a fence, at the end of a line if there is one, or inside of a long word.
    fn cut_anywhere(&self, max: usize) -> usize {
        let rest = self.rest();
        let scan = FenceScan::new(rest, max, self.open.as_ref());
        let line_end = rest[..max].rfind('\n').map(|at| at + 1);
        // A block of the opening line alone would have no code.
        let has_code = |end: &usize| scan.fence_at(*end).is_none_or(|open| open.code_from < *end);
        line_end.filter(|end| has_code(end) && !is_blank(&rest[..*end])).unwrap_or(max)
    }

    /// The last bound of this kind from `min` to `max` at which no fence is open.
    fn last_bound(&self, min: usize, max: usize, bound: Bound) -> Option<usize> {
        let text = self.rest();
        let scan = FenceScan::new(text, max, self.open.as_ref());
        let ends = text[..max].char_indices().map(|(at, letter)| at + letter.len_utf8());
        let is_end = |end: &usize| {
            let is_bound = *end >= min && bound.is_at(text, *end);
            is_bound && scan.may_cut(text, *end) && !is_blank(&text[..*end])
        };
        ends.rev().find(is_end)
    }

    /// Takes the text up to `end` as a block.
    fn take(&mut self, end: usize) -> TextBlock {
        let rest = self.rest();
        let next = FenceScan::new(rest, end, self.open.as_ref()).fence_at(end).map(|open| open.fence);
        let body = rest[..end].to_owned();
        let opening = self.open.as_ref().map(Fence::opening_line).unwrap_or_default();
        let line_end = if body.ends_with('\n') { "" } else { "\n" };
        // A cut within a line may make a fence of what is none in the whole text.
        let unclosed = FenceScan::new(&body, end, self.open.as_ref()).fence_at(end);
        let closing = unclosed.map(|open| format!("{line_end}{}", open.fence.marker)).unwrap_or_default();
        let block = TextBlock { at: self.at, opening, body, closing };
        self.remove(end);
        self.open = next;
        block
    }
}

/// A bound of a text, from the best to cut at to the worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bound {
    Paragraph,
    Line,
    Sentence,
    Word,
}

impl Bound {
    /// Whether the text before `end` ends with this bound. The white space of a bound belongs to the text before it.
    fn is_at(self, text: &str, end: usize) -> bool {
        let (before, after) = text.split_at(end);
        match self {
            Self::Line => before.ends_with('\n'),
            Self::Paragraph => {
                let line = before.strip_suffix('\n').map(|line| line.trim_end_matches([' ', '\t', '\r']));
                line.is_some_and(|line| line.ends_with('\n'))
            }
            Self::Sentence | Self::Word => {
                let is_space_end = before.ends_with([' ', '\t']) && !after.starts_with([' ', '\t']);
                let word = || before.trim_end_matches([' ', '\t']);
                is_space_end
                    && (self == Self::Word || word().ends_with(['.', '!', '?', '…', '。', '！', '？']))
            }
        }
    }
}

fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

/// The byte at which the character `n` of a text begins; `None` if the text has no more than `n` characters.
fn byte_of_char(text: &str, n: usize) -> Option<usize> {
    text.char_indices().nth(n).map(|(at, _)| at)
}
