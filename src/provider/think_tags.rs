//! Separates inline `<think>` blocks from the text of an answer.

use hermod_actors::port::DeltaSink;
use memchr::{memchr, memchr_iter};

const OPEN_TAG: &str = "<think>";
const CLOSE_TAG: &str = "</think>";

/// A text, separated from its inline `<think>` blocks, also if a tag is cut between chunks.
///
/// A tag in quotes or in a code fence belongs to the answer's content, and stays text.
#[derive(Debug, Clone, Default)]
pub(super) struct SplitText {
    pub(super) text: String,
    /// The content of the blocks.
    pub(super) reasoning: String,
    /// Shown to watchers before the first reasoning in a block. It separates that from reasoning outside the text.
    pub(super) separator: &'static str,
    is_inside: bool,
    /// The start of a possible tag.
    held: String,
    /// A block has been seen.
    has_seen_block: bool,
    fences: FenceCounter,
}

impl SplitText {
    /// Adds the next piece of text.
    pub(super) fn push(&mut self, delta: &str, deltas: &dyn DeltaSink) {
        if self.held.is_empty() {
            self.split(delta, deltas);
            return;
        }
        let mut joined = std::mem::take(&mut self.held);
        joined.push_str(delta);
        self.split(&joined, deltas);
    }

    /// Adds reasoning, which vendors also send outside of blocks.
    pub(super) fn push_reasoning(&mut self, delta: &str, deltas: &dyn DeltaSink) {
        self.reasoning.push_str(delta);
        deltas.reasoning(delta);
    }

    /// Ends the text: the held characters are no tag.
    pub(super) fn finish(&mut self, deltas: &dyn DeltaSink) {
        let held = std::mem::take(&mut self.held);
        self.emit(&held, deltas);
    }

    fn split(&mut self, mut rest: &str, deltas: &dyn DeltaSink) {
        let mut from = 0;
        while let Some(at) = memchr(b'<', &rest.as_bytes()[from..]).map(|at| at + from) {
            let tail = &rest[at..];
            let Some(tag) = [OPEN_TAG, CLOSE_TAG].into_iter().find(|tag| tail.starts_with(tag)) else {
                if OPEN_TAG.starts_with(tail) || CLOSE_TAG.starts_with(tail) {
                    self.emit(&rest[..at], deltas);
                    tail.clone_into(&mut self.held);
                    return;
                }
                from = at + 1;
                continue;
            };
            self.emit(&rest[..at], deltas);
            if !self.take_tag(tag) {
                self.emit(tag, deltas);
            }
            rest = &tail[tag.len()..];
            from = 0;
        }
        self.emit(rest, deltas);
    }

    /// True if the tag, which directly follows the emitted text, starts or ends a block.
    fn take_tag(&mut self, tag: &str) -> bool {
        let closes = tag == CLOSE_TAG;
        if self.is_inside {
            self.is_inside = !closes;
            return closes;
        }
        let quoted = self.fences.is_fenced || self.text.ends_with(['`', '"', '\'']);
        if quoted || (closes && self.has_seen_block) {
            return false;
        }
        self.has_seen_block = true;
        if closes {
            // All text so far was reasoning: the start of the block is in the vendor's prompt template.
            self.reasoning.push_str(&std::mem::take(&mut self.text));
        } else {
            self.is_inside = true;
        }
        true
    }

    fn emit(&mut self, mut piece: &str, deltas: &dyn DeltaSink) {
        if !self.is_inside && self.has_seen_block && self.text.trim_start().is_empty() {
            // The white space between the block and the answer does not belong to the answer.
            piece = piece.trim_start();
        }
        if piece.is_empty() {
            return;
        }
        if self.is_inside {
            if self.reasoning.is_empty() && !self.separator.is_empty() {
                deltas.reasoning(self.separator);
            }
            self.push_reasoning(piece, deltas);
            return;
        }
        self.fences.push(piece.as_bytes());
        self.text.push_str(piece);
        deltas.text(piece);
    }
}

/// Tracks code fences: runs of three backticks.
#[derive(Debug, Clone, Default)]
struct FenceCounter {
    run: u8,
    is_fenced: bool,
}

impl FenceCounter {
    fn push(&mut self, text: &[u8]) {
        let mut next = 0;
        for at in memchr_iter(b'`', text) {
            self.run = if at == next { self.run.saturating_add(1) } else { 1 };
            self.is_fenced ^= self.run == 3;
            next = at + 1;
        }
        if next < text.len() {
            self.run = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::wire::DiscardDeltas;

    fn split<'a>(parts: impl IntoIterator<Item = &'a str>) -> (String, String) {
        let mut split = SplitText::default();
        parts.into_iter().for_each(|part| split.push(part, &DiscardDeltas));
        split.finish(&DiscardDeltas);
        (split.text, split.reasoning)
    }

    /// Checks the text and the reasoning of `input` for every cut into three parts.
    fn check(input: &str, text: &str, reasoning: &str) {
        let cuts: Vec<usize> = input.char_indices().map(|(at, _)| at).chain([input.len()]).collect();
        for (n, &first) in cuts.iter().enumerate() {
            for &second in &cuts[n..] {
                let found = split([&input[..first], &input[first..second], &input[second..]]);
                assert_eq!(found, (text.into(), reasoning.into()), "cut at {first} and {second}");
            }
        }
    }

    #[test]
    fn a_block_is_reasoning() {
        check("<think>hm</think>\n\nyes", "yes", "hm");
        check("<think>hm</think>", "", "hm");
        check("so <think>hm</think> yes <think>or</think>no", "so  yes no", "hmor");
        check("\n<think>\nhm", "\n", "\nhm");
    }

    #[test]
    fn text_without_a_block_is_untouched() {
        check("\n\n1 < 2, <thin> and </b>`<`", "\n\n1 < 2, <thin> and </b>`<`", "");
        check("ends with <thi", "ends with <thi", "");
        check("<<think>ü</think>€", "<€", "ü");
    }

    #[test]
    fn a_quoted_tag_is_text() {
        check("use `<think>` and `</think>` so", "use `<think>` and `</think>` so", "");
        check("```\n<think>\n```\n<think>x</think>", "```\n<think>\n```\n", "x");
    }

    #[test]
    fn a_block_may_have_begun_in_the_prompt() {
        check("hm\n</think>\nyes", "yes", "hm\n");
        check("<think>a</think>b</think>c", "b</think>c", "a");
    }
}
