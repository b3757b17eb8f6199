//! The encoded messages of a request: shared between requests, joined into few pieces, with gaps for images. Also
//! remembers where a cache marker may go, and what the wire format has to know of the turn.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use serde::Serialize;

use crate::model::Image;

/// Pieces are joined up to this size, so that a request has few of them: an HTTP client writes a limited number of
/// slices at once.
const MAX_PIECE_BYTES: usize = 64 << 10;
/// Positions of cache markers that are remembered, counted from the end.
const MAX_CACHE_MARKS: usize = 4;

/// Encoded messages in order, in few pieces. Images are gaps: their bytes are not part of a view.
#[derive(Debug, Clone, Default)]
pub struct MessageBuffer {
    pieces: Vec<BufferPiece>,
    /// Bytes after the pieces that no copy shares yet.
    tail: Vec<u8>,
    /// Length in bytes, without images.
    len: usize,
    /// Byte positions where a cache marker may be inserted; the last `MAX_CACHE_MARKS`.
    marks: Vec<usize>,
    /// See [`MessageBuffer::has_foreign_reasoning`]; `None` while the turn (all that follows a user message) has no
    /// tool calls.
    foreign_reasoning: Option<bool>,
}

#[derive(Debug, Clone)]
enum BufferPiece {
    Bytes(Bytes),
    Image(Image),
}

impl MessageBuffer {
    /// Appends bytes.
    pub fn push(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        if self.tail.len() + bytes.len() > MAX_PIECE_BYTES {
            self.close();
        }
        self.len += bytes.len();
        self.tail.extend_from_slice(bytes);
    }

    /// Appends a value as JSON.
    pub fn push_json<T: Serialize + ?Sized>(&mut self, value: &T) {
        let before = self.tail.len();
        // Infallible: strings, lists and objects with string keys, written to memory.
        serde_json::to_writer(&mut self.tail, value).expect("plain values are always JSON");
        self.len += self.tail.len() - before;
        if self.tail.len() > MAX_PIECE_BYTES {
            self.close();
        }
    }

    /// Turns the bytes added last into a piece that copies share, and joins it with the pieces before it, up to
    /// `MAX_PIECE_BYTES`.
    ///
    /// A piece that no copy shares is extended in place. A shared one is copied if it is shorter than twice the new
    /// bytes. The lengths of incomplete pieces therefore at least halve from one to the next: few pieces, and few
    /// copies of a byte.
    pub fn close(&mut self) {
        let mut open = std::mem::take(&mut self.tail);
        // Limits the spare capacity: a piece is never extended beyond `MAX_PIECE_BYTES`.
        if open.capacity() > 2 * open.len().min(MAX_PIECE_BYTES / 2) {
            open.shrink_to_fit();
        }
        let mut bytes = Bytes::from(open);
        while let Some(BufferPiece::Bytes(last)) = self.pieces.last_mut()
            && last.len() + bytes.len() <= MAX_PIECE_BYTES
            && (last.is_unique() || last.len() < 2 * bytes.len())
        {
            bytes = join(std::mem::take(last), &bytes);
            self.pieces.pop();
        }
        if !bytes.is_empty() {
            self.pieces.push(BufferPiece::Bytes(bytes));
        }
    }

    /// Leaves a gap for the image's bytes in Base64.
    pub fn push_image(&mut self, image: Image) {
        self.close();
        self.pieces.push(BufferPiece::Image(image));
    }

    /// Marks the present position as a place for a cache marker.
    pub fn mark_cacheable(&mut self) {
        if self.marks.len() == MAX_CACHE_MARKS {
            self.marks.remove(0);
        }
        self.marks.push(self.len);
    }

    /// Byte positions where a cache marker may be inserted, ascending; at most the last four.
    pub fn marks(&self) -> &[usize] {
        &self.marks
    }

    /// Length in bytes, without images.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True if the buffer has neither bytes nor images.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.tail.is_empty()
    }

    /// Starts a turn at a user message: the turn has no tool calls yet.
    pub fn start_turn(&mut self) {
        self.foreign_reasoning = None;
    }

    /// Sets whether the turn's first answer with tool calls begins without reasoning that the called model can read.
    pub fn set_foreign_reasoning(&mut self, foreign: bool) {
        self.foreign_reasoning = Some(foreign);
    }

    /// True if [`MessageBuffer::set_foreign_reasoning`] was called since the turn started.
    pub const fn has_calls_in_turn(&self) -> bool {
        self.foreign_reasoning.is_some()
    }

    /// True if the turn's first answer with tool calls begins without reasoning that the called model can read.
    pub const fn has_foreign_reasoning(&self) -> bool {
        matches!(self.foreign_reasoning, Some(true))
    }

    /// The images of the messages, in order.
    pub fn images(&self) -> impl Iterator<Item = &Image> {
        let pieces = self.pieces.iter();
        pieces.filter_map(|piece| if let BufferPiece::Image(image) = piece { Some(image) } else { None })
    }

    /// The complete bytes: `inserts` at their byte positions, which ascend, and `images` (Base64 by handle) in the
    /// gaps. The gap of a missing image stays empty.
    pub fn assemble(mut self, inserts: &[(usize, Bytes)], images: &BTreeMap<String, Bytes>) -> Vec<Bytes> {
        self.close();
        let mut whole = Vec::with_capacity(self.pieces.len() + 2 * inserts.len());
        let mut inserts = inserts.iter().peekable();
        let mut at = 0;
        for piece in self.pieces {
            match piece {
                BufferPiece::Image(image) => whole.extend(images.get(&image.artifact.handle).cloned()),
                BufferPiece::Bytes(mut bytes) => {
                    while let Some((position, insert)) =
                        inserts.next_if(|(position, _)| *position <= at + bytes.len())
                    {
                        let before = bytes.split_to(position - at);
                        at += before.len();
                        whole.extend([before, insert.clone()]);
                    }
                    at += bytes.len();
                    whole.push(bytes);
                }
            }
        }
        whole.retain(|bytes| !bytes.is_empty());
        whole
    }
}

/// Joins both. If the bytes must be copied, the capacity is twice their length, at most that of a full piece.
fn join(before: Bytes, appended: &[u8]) -> Bytes {
    let len = before.len() + appended.len();
    let capacity = (2 * len).min(MAX_PIECE_BYTES);
    let copied = |before: Bytes| {
        let mut copied = BytesMut::with_capacity(capacity);
        copied.extend_from_slice(&before);
        copied
    };
    let mut whole = match before.try_into_mut() {
        Ok(before) if before.capacity() >= len => before,
        Ok(before) => copied(before.freeze()),
        Err(before) => copied(before),
    };
    whole.extend_from_slice(appended);
    whole.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Artifact, ImageFormat};

    fn whole(segments: &MessageBuffer, inserts: &[(usize, &'static str)]) -> String {
        let inserts: Vec<_> =
            inserts.iter().map(|(at, text)| (*at, Bytes::from_static(text.as_bytes()))).collect();
        let images = BTreeMap::from([("p".to_owned(), Bytes::from_static(b"<picture>"))]);
        String::from_utf8(segments.clone().assemble(&inserts, &images).concat()).unwrap()
    }

    fn picture() -> Image {
        Image::new(ImageFormat::Png, Artifact { handle: "p".into(), bytes: 9, sha256: None })
    }

    #[test]
    fn pieces_are_few_and_in_order() {
        let mut segments = MessageBuffer::default();
        let mut all = String::new();
        for n in 0..5_000_u32 {
            let message = format!(",{}", n.to_string().repeat(1 + n as usize % 50));
            all.push_str(&message);
            segments.push(message);
            segments.close();
            let small = |piece: &&BufferPiece| matches!(piece, BufferPiece::Bytes(bytes) if bytes.len() < MAX_PIECE_BYTES / 2);
            let small = segments.pieces.iter().filter(small).count();
            assert!(small <= 20, "{small} small pieces after {n} messages");
        }
        assert_eq!((whole(&segments, &[]), segments.len()), (all, segments.len));
        let long = Bytes::from(vec![b'x'; MAX_PIECE_BYTES + 1]);
        segments.push(&long);
        segments.close();
        assert!(matches!(segments.pieces.last(), Some(BufferPiece::Bytes(last)) if *last == long));
    }

    #[test]
    fn what_a_request_in_flight_has_stays_as_it_is() {
        let (mut segments, mut all) = (MessageBuffer::default(), String::new());
        let mut flying: Option<(MessageBuffer, String)> = None;
        for n in 0..2_000_u32 {
            let message = format!(",{}", n.to_string().repeat(1 + n as usize % 50));
            all.push_str(&message);
            segments.push(message);
            if n.is_multiple_of(2) {
                segments.close();
            }
            if let Some((request, said)) = &flying {
                assert_eq!(whole(request, &[]), *said);
            }
            if n.is_multiple_of(3) {
                flying = (!n.is_multiple_of(9)).then(|| (segments.clone(), all.clone()));
            }
        }
        assert_eq!(whole(&segments, &[]), all);
        let most = all.len() / MAX_PIECE_BYTES * 2 + 20;
        assert!(segments.pieces.len() <= most, "{} pieces", segments.pieces.len());
    }

    #[test]
    fn inserts_and_pictures_stand_at_their_places() {
        let mut segments = MessageBuffer::default();
        segments.push("ab");
        segments.mark_cacheable();
        segments.push_image(picture());
        segments.push("cd");
        segments.mark_cacheable();
        segments.push("e");
        assert_eq!(segments.marks(), [2, 4]);
        assert_eq!(whole(&segments, &[]), "ab<picture>cde");
        assert_eq!(whole(&segments, &[(2, "!"), (4, "?")]), "ab!<picture>cd?e");
        assert_eq!(whole(&segments, &[(0, "!"), (5, "?")]), "!ab<picture>cde?");
        assert_eq!(segments.images().count(), 1);
    }

    #[test]
    fn only_the_last_marks_are_kept() {
        let mut segments = MessageBuffer::default();
        for _ in 0..9 {
            segments.push("x");
            segments.mark_cacheable();
        }
        assert_eq!(segments.marks(), [6, 7, 8, 9]);
    }
}
