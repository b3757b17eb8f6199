//! A buffer of rendered events, and the splitting of a text into deltas.

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;

/// Rendered events, one after the other in one buffer.
#[derive(Debug, Clone, Default)]
pub struct EventBuffer {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl EventBuffer {
    /// Adds an event without a name: `data: <json>`.
    pub(super) fn data(&mut self, body: &impl Serialize) {
        self.bytes.extend(b"data: ");
        self.json(body);
        self.close();
    }

    /// Adds an event whose name equals its type.
    pub(super) fn typed(&mut self, kind: &str, mut body: Value) {
        if let Value::Object(fields) = &mut body {
            fields.shift_insert(0, "type".into(), kind.into());
        }
        self.bytes.extend(b"event: ");
        self.bytes.extend(kind.as_bytes());
        self.bytes.push(b'\n');
        self.data(&body);
    }

    /// Adds an event whose data is no JSON.
    pub(super) fn text(&mut self, text: &str) {
        self.bytes.extend(b"data: ");
        self.bytes.extend(text.as_bytes());
        self.close();
    }

    /// A single event that is a whole JSON body.
    pub(super) fn whole(body: &impl Serialize) -> Self {
        let mut events = Self::default();
        events.json(body);
        events.ends.push(events.bytes.len());
        events
    }

    fn json(&mut self, body: &impl Serialize) {
        // Infallible: the values have string keys and are written to memory.
        serde_json::to_writer(&mut self.bytes, body).unwrap_or_else(|error| unreachable!("event: {error}"));
    }

    fn close(&mut self) {
        self.bytes.extend(b"\n\n");
        self.ends.push(self.bytes.len());
    }

    /// All events as one piece.
    pub fn joined(self) -> Bytes {
        self.bytes.into()
    }

    /// Each event as one piece; the pieces share the buffer.
    pub fn split(self) -> Vec<Bytes> {
        let mut rest = Bytes::from(self.bytes);
        let mut start = 0;
        let mut pieces = Vec::with_capacity(self.ends.len());
        for end in self.ends {
            pieces.push(rest.split_to(end - start));
            start = end;
        }
        pieces
    }
}

/// `text` in pieces of at most `chunk` bytes (a longer character stays whole); in one piece without `chunk`.
pub(super) fn pieces(text: &str, chunk: Option<usize>) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?.len_utf8();
        let cut = chunk.map_or(rest.len(), |chunk| rest.floor_char_boundary(chunk).max(first));
        let (piece, after) = rest.split_at(cut);
        rest = after;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_end_between_characters() {
        let check = |text, chunk, expected: &[&str]| {
            assert_eq!(pieces(text, chunk).collect::<Vec<_>>(), expected);
        };
        check("", Some(3), &[]);
        check("abcdefg", None, &["abcdefg"]);
        check("abcdefg", Some(3), &["abc", "def", "g"]);
        check("aéß€x", Some(2), &["a", "é", "ß", "€", "x"]);
        check("aéß€x", Some(4), &["aé", "ß", "€x"]);
    }

    #[test]
    fn split_and_joined_are_the_same_bytes() {
        let mut events = EventBuffer::default();
        events.data(&1);
        events.data(&"two");
        events.typed("three", serde_json::json!({ "n": 3 }));
        events.text("[DONE]");
        let pieces = events.clone().split();
        let expected = [
            "data: 1\n\n",
            "data: \"two\"\n\n",
            "event: three\ndata: {\"type\":\"three\",\"n\":3}\n\n",
            "data: [DONE]\n\n",
        ];
        assert_eq!(pieces, expected);
        assert_eq!(events.joined(), pieces.concat());
    }
}
