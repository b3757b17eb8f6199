//! Captures the beginning and the end of an output stream in bounded memory. Also cuts bytes at whole UTF-8 characters.

use std::collections::VecDeque;

/// Bytes captured from the beginning of a stream.
pub const HEAD_BYTES: usize = 32 * 1024;
/// Bytes captured from the end of a stream.
pub const TAIL_BYTES: usize = 16 * 1024;

/// The captured part of a stream of any length: its first `HEAD_BYTES` bytes, its last `TAIL_BYTES` bytes and its
/// length.
#[derive(Debug, Default)]
pub struct Capture {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
}

/// A captured stream, truncated for display.
#[derive(Debug, PartialEq, Eq)]
pub struct TruncatedOutput<'a> {
    /// The beginning; the whole stream if nothing was left out.
    pub head: &'a [u8],
    /// Bytes left out between `head` and `tail`.
    pub left_out: u64,
    /// The end; empty if nothing was left out.
    pub tail: &'a [u8],
}

impl Capture {
    /// Adds the next bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let (head, rest) = bytes.split_at(bytes.len().min(HEAD_BYTES - self.head.len()));
        self.head.extend_from_slice(head);
        let rest = &rest[rest.len().saturating_sub(TAIL_BYTES)..];
        let surplus = (self.tail.len() + rest.len()).saturating_sub(TAIL_BYTES);
        self.tail.drain(..surplus);
        self.tail.extend(rest);
    }

    /// The captured bytes: the beginning, and the end in two slices.
    pub(super) fn parts(&self) -> (&[u8], [&[u8]; 2]) {
        let (first, second) = self.tail.as_slices();
        (&self.head, [first, second])
    }

    /// A capture restored from its parts; `None` if no stream of length `total` can have these parts.
    pub(super) fn of_parts(head: &[u8], tail: &[u8], total: u64) -> Option<Self> {
        let captured = (head.len() + tail.len()) as u64;
        let fits = head.len() <= HEAD_BYTES && tail.len() <= TAIL_BYTES && captured <= total;
        fits.then(|| Self { head: head.to_owned(), tail: tail.to_owned().into(), total })
    }

    /// Length of the stream so far, in bytes.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// At most `max_bytes` captured bytes, two thirds of them from the beginning. Where bytes are left out, no UTF-8
    /// character is split.
    pub fn truncated(&mut self, max_bytes: usize) -> TruncatedOutput<'_> {
        if self.total == (self.head.len() + self.tail.len()) as u64 {
            self.head.extend(self.tail.drain(..));
            if self.head.len() <= max_bytes {
                return TruncatedOutput { head: &self.head, left_out: 0, tail: &[] };
            }
        }
        let last = if self.tail.is_empty() { &self.head[..] } else { &*self.tail.make_contiguous() };
        let head = without_cut_end(&self.head[..self.head.len().min(max_bytes - max_bytes / 3)]);
        let tail = without_cut_start(&last[last.len().saturating_sub(max_bytes / 3)..]);
        TruncatedOutput { head, left_out: self.total - (head.len() + tail.len()) as u64, tail }
    }
}

/// `bytes` without a UTF-8 character at the end that was cut off.
pub fn without_cut_end(bytes: &[u8]) -> &[u8] {
    match bytes.utf8_chunks().last() {
        // An incomplete character at the very end is a prefix of a valid one; other invalid bytes are the stream's own.
        Some(chunk) if is_incomplete(chunk.invalid()) => &bytes[..bytes.len() - chunk.invalid().len()],
        Some(_) | None => bytes,
    }
}

fn is_incomplete(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

/// `bytes` without the remainder of a UTF-8 character at the start that was cut off.
pub fn without_cut_start(bytes: &[u8]) -> &[u8] {
    let cut = bytes.iter().take(3).take_while(|byte| **byte & 0b1100_0000 == 0b1000_0000).count();
    &bytes[cut..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(chunks: &[&[u8]], head: &[u8], left_out: u64, tail: &[u8]) {
        let mut capture = Capture::default();
        for chunk in chunks {
            capture.push(chunk);
        }
        assert_eq!(capture.total(), chunks.iter().map(|chunk| chunk.len() as u64).sum::<u64>());
        // A second call must give the same result.
        for _ in 0..2 {
            let shown = capture.truncated(HEAD_BYTES + TAIL_BYTES);
            assert!(shown == TruncatedOutput { head, left_out, tail }, "left out {}", shown.left_out);
        }
    }

    #[test]
    fn less_is_shown_when_there_is_less_room() {
        let long: Vec<u8> =
            (0..2 * (HEAD_BYTES + TAIL_BYTES)).map(|n| b'a' + u8::try_from(n % 23).unwrap()).collect();
        for length in [4_000, HEAD_BYTES, HEAD_BYTES + TAIL_BYTES, long.len()] {
            let mut capture = Capture::default();
            capture.push(&long[..length]);
            for max_bytes in [0, 1, 9, 3_000] {
                let shown = capture.truncated(max_bytes);
                assert_eq!(shown.head, &long[..max_bytes - max_bytes / 3]);
                assert_eq!(shown.tail, &long[length - max_bytes / 3..length]);
                assert_eq!(shown.left_out, (length - max_bytes) as u64);
            }
        }
    }

    #[test]
    fn what_fits_is_whole() {
        check(&[], b"", 0, b"");
        check(&[b"one ", b"two"], b"one two", 0, b"");
        let full = vec![b'a'; HEAD_BYTES + TAIL_BYTES];
        check(&[&full[..HEAD_BYTES + 5], &full[HEAD_BYTES + 5..]], &full, 0, b"");
    }

    #[test]
    fn the_middle_is_left_out() {
        let long: Vec<u8> =
            (0..(HEAD_BYTES + TAIL_BYTES + 1000)).map(|n| b'a' + u8::try_from(n % 23).unwrap()).collect();
        let (head, tail) = (&long[..HEAD_BYTES], &long[long.len() - TAIL_BYTES..]);
        check(&[&long], head, 1000, tail);
        for size in [1, 7, 4096, HEAD_BYTES + 1] {
            check(&long.chunks(size).collect::<Vec<_>>(), head, 1000, tail);
        }
    }

    #[test]
    fn no_character_is_cut_where_bytes_are_left_out() {
        let text = format!("a{}", "é".repeat(HEAD_BYTES));
        let bytes = text.as_bytes();
        check(
            &[bytes],
            &bytes[..HEAD_BYTES - 1],
            (bytes.len() - HEAD_BYTES + 1 - TAIL_BYTES) as u64,
            &bytes[bytes.len() - TAIL_BYTES..],
        );
        let text = format!("{}a", "é".repeat(HEAD_BYTES));
        let bytes = text.as_bytes();
        let tail = &bytes[bytes.len() - TAIL_BYTES + 1..];
        check(&[bytes], &bytes[..HEAD_BYTES], (bytes.len() - HEAD_BYTES - tail.len()) as u64, tail);
    }
}
