//! Texts of any origin and size as parts of a prompt: nothing hides in them, and what is cut says so.

use hermod_actors::Visible;

use crate::{process::without_cut_end, tool::skills::Source};

/// What stands where a text was cut in its middle.
const GAP: &str = "\n[…]\n";

/// A text that may be cut.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Cut {
    /// What is left of it, behind that a note of what is not.
    pub(super) text: String,
    /// The bytes that there were, if something was cut.
    pub(super) of: Option<u64>,
}

/// How long a text may be, notes aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Most {
    Bytes(usize),
    Characters(usize),
}

/// A character of the source as it is shown, and the bytes that it takes there.
struct Piece {
    shown: String,
    bytes: u64,
}

impl From<String> for Cut {
    fn from(text: String) -> Self {
        Self { text, of: None }
    }
}

/// The beginning of a text.
pub(super) fn head(source: &Source, most: Most) -> Cut {
    whole(source, most).unwrap_or_else(|| {
        let (text, bytes) = taken(pieces(whole_chars(source)).into_iter(), most);
        noted(text.concat(), bytes, source.total)
    })
}

/// The beginning and the end of a text: two thirds and one.
pub(super) fn ends(source: &Source, most: Most) -> Cut {
    whole(source, most).unwrap_or_else(|| {
        let (first, last) = most.parted();
        let (text, before) = taken(pieces(whole_chars(source)).into_iter(), first);
        let end = match source.tail.is_empty() {
            true => &source.head[usize::try_from(before).unwrap_or(source.head.len())..],
            false => without_cut_start(&source.tail),
        };
        let (mut tail, behind) = taken(pieces(end).into_iter().rev(), last);
        tail.reverse();
        noted(text.concat() + GAP + &tail.concat(), before + behind, source.total)
    })
}

/// All of it, if it fits.
fn whole(source: &Source, most: Most) -> Option<Cut> {
    let (text, bytes) = taken(pieces(&source.head).into_iter(), most);
    (bytes == source.total).then(|| text.concat().trim_end().to_owned().into())
}

fn noted(text: String, shown: u64, total: u64) -> Cut {
    let text = format!("{}\n[cut: {shown} of {total} bytes shown]", text.trim_matches('\n'));
    Cut { text, of: Some(total) }
}

impl Most {
    fn parted(self) -> (Self, Self) {
        match self {
            Self::Bytes(most) => (Self::Bytes(most - most / 3), Self::Bytes(most / 3)),
            Self::Characters(most) => (Self::Characters(most - most / 3), Self::Characters(most / 3)),
        }
    }
}

/// As many pieces as fit, and the bytes of the source that they stand for.
fn taken(pieces: impl Iterator<Item = Piece>, most: Most) -> (Vec<String>, u64) {
    let (mut texts, mut length, mut bytes) = (Vec::new(), 0, 0);
    for piece in pieces {
        let (own, limit) = match most {
            Most::Bytes(limit) => (piece.shown.len(), limit),
            Most::Characters(limit) => (piece.shown.chars().count(), limit),
        };
        length += own;
        if length > limit {
            break;
        }
        bytes += piece.bytes;
        texts.push(piece.shown);
    }
    (texts, bytes)
}

fn pieces(bytes: &[u8]) -> Vec<Piece> {
    let (mut pieces, mut visible) = (Vec::new(), Visible::default());
    for chunk in bytes.utf8_chunks() {
        let mut chars = chunk.valid().chars().peekable();
        while let Some(c) = chars.next() {
            // Line ends of another system are line ends.
            let shown = if c == '\r' && chars.peek() == Some(&'\n') {
                String::new()
            } else {
                visible.push(c.encode_utf8(&mut [0; 4]).as_bytes());
                visible.take()
            };
            pieces.push(Piece { shown, bytes: c.len_utf8() as u64 });
        }
        if !chunk.invalid().is_empty() {
            let shown = char::REPLACEMENT_CHARACTER.to_string();
            pieces.push(Piece { shown, bytes: chunk.invalid().len() as u64 });
        }
    }
    pieces
}

/// The beginning, without the beginning of a character whose rest was cut off.
fn whole_chars(source: &Source) -> &[u8] {
    if source.tail.is_empty() { &source.head } else { without_cut_end(&source.head) }
}

/// `bytes` without the rest of a UTF-8 character whose beginning was cut off.
fn without_cut_start(bytes: &[u8]) -> &[u8] {
    let cut = bytes.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count();
    &bytes[cut..]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(cut: fn(&Source, Most) -> Cut, (text, most): (&str, Most), expect: &str) {
        let found = cut(&Source::of(text), most);
        assert_eq!(found.text, expect);
        assert_eq!(found.of, expect.contains("[cut: ").then_some(text.len() as u64));
    }

    #[test]
    fn what_fits_stays() {
        check(head, ("", Most::Bytes(1)), "");
        check(head, ("Größe\n", Most::Bytes(8)), "Größe");
        check(ends, ("Größe", Most::Characters(5)), "Größe");
        check(ends, ("a\r\nb\r\n", Most::Bytes(4)), "a\nb");
        check(head, ("a\u{1b}\u{202e}", Most::Bytes(20)), "a␛<U+202E>");
    }

    #[test]
    fn what_does_not_fit_says_so() {
        check(head, ("Größe", Most::Bytes(3)), "Gr\n[cut: 2 of 7 bytes shown]");
        check(head, ("Größe", Most::Characters(3)), "Grö\n[cut: 4 of 7 bytes shown]");
        check(head, ("\u{1b}\u{1b}", Most::Bytes(5)), "␛\n[cut: 1 of 2 bytes shown]");
        check(ends, ("abcdefghi", Most::Bytes(6)), "abcd\n[…]\nhi\n[cut: 6 of 9 bytes shown]");
        check(ends, ("ab漢cd漢", Most::Bytes(6)), "ab\n[…]\n[cut: 2 of 10 bytes shown]");
        check(ends, ("x", Most::Bytes(0)), "[…]\n[cut: 0 of 1 bytes shown]");
    }

    proptest! {
        #[test]
        fn no_text_is_longer_than_it_may_be(bytes in any::<Vec<u8>>(), most in 0_usize..60, cut_at in 0_usize..40) {
            // As a long file is read: its beginning and its end.
            let total = bytes.len() as u64;
            let source = match bytes.len() > cut_at * 2 {
                true => Source { head: bytes[..cut_at].to_vec(), tail: bytes[bytes.len() - cut_at..].to_vec(), total },
                false => Source { head: bytes, tail: Vec::new(), total },
            };
            for cut in [head(&source, Most::Bytes(most)), ends(&source, Most::Bytes(most))] {
                let note = cut.of.map_or(0, |of| GAP.len() + format!("\n[cut: {of} of {of} bytes shown]").len());
                prop_assert!(cut.text.len() <= most + note, "{cut:?}");
                prop_assert!(cut.of.is_none_or(|of| of == total));
            }
        }
    }
}
