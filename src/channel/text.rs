//! Cuts texts into messages that a chat service takes. Pure.

use hermod_actors::shaping::{BlockChunker, BlockSizes, Cut};

/// Most UTF-16 units of a message.
pub(super) const MAX_UNITS: usize = 4_096;
/// Characters up to which a message is filled, unless many of them are two units. The rest is for the lines of a fence.
const MAX_CHARS: usize = 3_900;
const MAX_WIDE_CHARS: usize = 1_950;
/// Characters below which a text is not cut at a better place.
const MIN_CHARS: usize = 1_500;

/// A text as messages. None has more than [`MAX_UNITS`], and none ends inside of a code fence. None if the text is blank.
pub(super) fn messages(text: &str) -> Vec<String> {
    let cut = |max_chars| {
        let mut chunker = BlockChunker::new(BlockSizes { min_chars: MIN_CHARS, max_chars });
        chunker.push(text);
        std::iter::from_fn(|| chunker.next_block(Cut::End)).map(|block| block.text()).collect::<Vec<_>>()
    };
    let messages = cut(MAX_CHARS);
    let messages = if messages.iter().all(|text| fits(text)) { messages } else { cut(MAX_WIDE_CHARS) };
    messages.into_iter().map(|text| shortened(text.trim_end())).filter(|text| !text.is_empty()).collect()
}

/// The beginning of a text that is one message.
pub(super) fn shortened(text: &str) -> String {
    if fits(text) {
        return text.to_owned();
    }
    let mut units = 0;
    let fitting = text.chars().take_while(|letter| {
        units += letter.len_utf16();
        units < MAX_UNITS
    });
    fitting.chain(['…']).collect()
}

fn fits(text: &str) -> bool {
    text.len() <= MAX_UNITS || text.encode_utf16().count() <= MAX_UNITS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: usize) {
        let messages = messages(text);
        assert_eq!(messages.len(), expect, "{messages:#?}");
        for message in &messages {
            assert!(message.encode_utf16().count() <= MAX_UNITS);
            assert_eq!(message.matches("```").count() % 2, 0, "{message}");
        }
    }

    #[test]
    fn no_message_is_too_long_or_ends_inside_of_a_fence() {
        check("", 0);
        check(" \n", 0);
        check("hello", 1);
        check(&"word ".repeat(2_000), 3);
        check(&"😀".repeat(4_000), 3);
        let code = format!("Look:\n\n```rust\n{}```\n\nThat is all.", "let x = 1;\n".repeat(1_000));
        check(&code, 4);
        let together: String = messages(&code).concat();
        assert_eq!(together.matches("let x = 1;").count(), 1_000);
        assert_eq!(shortened(&"😀".repeat(4_000)).encode_utf16().count(), 4_095);
    }
}
