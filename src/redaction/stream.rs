//! Redaction of a stream whose pieces end anywhere, also within a secret.

use std::borrow::Cow;

use bytes::Bytes;
use hermod_actors::port::RedactedStream;

use super::Redactor;

/// Holds back the end of a stream as long as it may be the beginning of a secret: always less than the longest form of
/// a known secret.
#[derive(Debug)]
pub(super) struct RedactionStream {
    redactor: Redactor,
    held: Vec<u8>,
}

impl RedactionStream {
    pub(super) fn new(redactor: Redactor) -> Self {
        Self { redactor, held: Vec::new() }
    }
}

impl RedactedStream for RedactionStream {
    fn push(&mut self, bytes: Bytes) -> Bytes {
        let matcher = self.redactor.matcher();
        let bytes = if self.held.is_empty() {
            bytes
        } else {
            self.held.extend_from_slice(&bytes);
            Bytes::from(std::mem::take(&mut self.held))
        };
        let (redacted, settled) = matcher.redact_settled(&bytes, false);
        self.held.extend_from_slice(&bytes[settled..]);
        match redacted {
            Cow::Borrowed(_) => bytes.slice(..settled),
            Cow::Owned(redacted) => redacted.into(),
        }
    }

    fn finish(&mut self) -> Bytes {
        let held = std::mem::take(&mut self.held);
        match self.redactor.redact_bytes(&held) {
            Cow::Borrowed(_) => held.into(),
            Cow::Owned(redacted) => redacted.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::secret::Secret;

    /// The redactor of secrets that share beginnings and ends, and overlap.
    fn redactor() -> Redactor {
        let redactor = Redactor::default();
        for (label, secret) in
            [("A", "a1cda1cd"), ("B", "a1cda1cdx"), ("C", "cda1cda1cy"), ("D", "da1cdx-ü-da1c")]
        {
            redactor.learn(label, &Secret::new(secret));
        }
        redactor
    }

    fn redact_pieces(redactor: &Redactor, pieces: &[&[u8]]) -> Vec<u8> {
        let mut stream = RedactionStream::new(redactor.clone());
        let mut redacted = Vec::new();
        for piece in pieces {
            redacted.extend_from_slice(&stream.push(Bytes::copy_from_slice(piece)));
            assert!(stream.held.len() < 40, "{} bytes are held back", stream.held.len());
        }
        redacted.extend_from_slice(&stream.finish());
        redacted
    }

    #[test]
    fn a_secret_is_found_wherever_a_piece_ends() {
        let redactor = redactor();
        let text = "a1cda1cda1cy, a1cda1cd a1cda1cdx, da1cdx-ü-da1cda1cd; a1cda1c".as_bytes();
        let expect = redactor.redact_bytes(text).into_owned();
        let whole = "[redacted:A]a1cy, [redacted:A] [redacted:B], [redacted:D]da1cd; a1cda1c";
        assert_eq!(String::from_utf8_lossy(&expect), whole);
        for first in 0..=text.len() {
            for second in first..=text.len() {
                let pieces = [&text[..first], &text[first..second], &text[second..]];
                assert_eq!(redact_pieces(&redactor, &pieces), expect, "{first} {second}");
            }
        }
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(redact_pieces(&redactor, &bytes), expect);
    }

    #[test]
    fn text_that_begins_no_secret_is_not_held_back() {
        let mut stream = RedactionStream::new(redactor());
        assert_eq!(stream.push(Bytes::from_static(b"plain text ")), "plain text ");
        assert_eq!(stream.push(Bytes::from_static(b"a1cd")), "");
        assert_eq!(stream.push(Bytes::from_static(b"e")), "a1cde");
        assert_eq!(stream.finish(), "");
    }

    #[test]
    fn a_value_learned_meanwhile_is_redacted_too() {
        let redactor = redactor();
        let mut stream = RedactionStream::new(redactor.clone());
        assert_eq!(stream.push(Bytes::from_static(b"token-123 ")), "token-123 ");
        redactor.learn("LATE", &Secret::new("token-123"));
        assert_eq!(stream.push(Bytes::from_static(b"token-123 ")), "[redacted:LATE] ");
    }

    proptest! {
        #[test]
        fn any_pieces_are_redacted_as_the_whole(
            text in "[a1cdxy]{0,40}",
            cuts in prop::collection::vec(0_usize..40, 0..6),
        ) {
            let redactor = redactor();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &text.as_bytes()[cut[0]..cut[1]]).collect();
            let expect = redactor.redact_bytes(text.as_bytes()).into_owned();
            prop_assert_eq!(redact_pieces(&redactor, &pieces), expect);
        }
    }
}
