//! Parser of server-sent events (`text/event-stream`): bytes in, the data of events out. The `data` lines of an event are
//! joined by `\n`. Data is bytes, because the sender's UTF-8 may be invalid. Names of events are passed over: the data
//! of every wire format has its type.

use memchr::{memchr, memchr2};

/// The maximum size in bytes of an event, and of a line.
pub const MAX_EVENT: usize = 16 * 1024 * 1024;

const BOM: &[u8] = b"\xef\xbb\xbf";

/// An event that is larger than [`MAX_EVENT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream is larger than {MAX_EVENT} bytes")]
pub struct EventTooLarge;

/// An incremental parser: the events do not depend on how the bytes are chunked.
#[derive(Debug, Clone, Default)]
pub struct SseParser {
    /// The unfinished line.
    line: Vec<u8>,
    /// The event's data so far; `None` before its first `data` line.
    data: Option<Vec<u8>>,
    /// The last byte was `\r`: a following `\n` belongs to it.
    after_cr: bool,
    /// The first line, which may start with a byte order mark, has ended.
    first_line_ended: bool,
    evidence: StreamEvidence,
}

/// Evidence from the non-blank lines so far that this is an event stream.
#[derive(Debug, Clone, Copy, Default)]
enum StreamEvidence {
    /// No non-blank line yet.
    #[default]
    None,
    /// There are lines, and none of them was a comment or a field that the format defines.
    Foreign,
    /// At least one line was a comment or a defined field.
    Stream,
}

/// The fields that the format defines.
const FIELDS: [&[u8]; 4] = [b"data", b"event", b"id", b"retry"];

/// True if the format defines this field name; a comment has an empty one.
fn is_known(field: &[u8]) -> bool {
    field.is_empty() || FIELDS.contains(&field)
}

impl SseParser {
    /// Parses the next bytes, and passes the data of each completed event to `each`.
    pub fn push(&mut self, mut bytes: &[u8], mut each: impl FnMut(&[u8])) -> Result<(), EventTooLarge> {
        if bytes.is_empty() {
            return Ok(());
        }
        if self.after_cr {
            self.after_cr = false;
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
        }
        while let Some(end) = memchr2(b'\n', b'\r', bytes) {
            self.end_line(&bytes[..end], &mut each)?;
            let cr = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            if cr && bytes.is_empty() {
                self.after_cr = true;
            } else if cr {
                bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
            }
        }
        if self.line.len() + bytes.len() > MAX_EVENT {
            return Err(EventTooLarge);
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    /// True if the bytes so far can be the start of an event stream, with or without a complete event. A comment, a
    /// field or the first letters of a field's name count.
    pub fn is_event_stream(&self) -> bool {
        let (name, has_colon) = match memchr(b':', &self.line) {
            Some(colon) => (&self.line[..colon], true),
            None => (&self.line[..], false),
        };
        match (self.evidence, has_colon) {
            (StreamEvidence::Stream, _) => true,
            (StreamEvidence::None | StreamEvidence::Foreign, true) => is_known(name),
            (StreamEvidence::None, false) => FIELDS.iter().any(|field| field.starts_with(name)),
            (StreamEvidence::Foreign, false) => false,
        }
    }

    /// Ends the stream. An event without its closing blank line counts, because many servers omit that line.
    pub fn finish(mut self, mut each: impl FnMut(&[u8])) -> Result<(), EventTooLarge> {
        self.end_line(b"", &mut each)?;
        self.dispatch(&mut each);
        Ok(())
    }

    /// Ends the line of which `rest` is the last part.
    fn end_line(&mut self, rest: &[u8], each: &mut impl FnMut(&[u8])) -> Result<(), EventTooLarge> {
        if self.line.is_empty() {
            return self.take_line(rest, each);
        }
        let mut line = std::mem::take(&mut self.line);
        line.extend_from_slice(rest);
        let result = self.take_line(&line, each);
        line.clear();
        self.line = line; // keeps its capacity
        result
    }

    fn take_line(&mut self, mut line: &[u8], each: &mut impl FnMut(&[u8])) -> Result<(), EventTooLarge> {
        if !self.first_line_ended {
            self.first_line_ended = true;
            line = line.strip_prefix(BOM).unwrap_or(line);
        }
        if line.is_empty() {
            self.dispatch(each);
            return Ok(());
        }
        let (field, value) = match line.iter().position(|byte| *byte == b':') {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &b""[..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        if is_known(field) {
            self.evidence = StreamEvidence::Stream;
        } else if matches!(self.evidence, StreamEvidence::None) {
            self.evidence = StreamEvidence::Foreign;
        }
        // Comments, the other fields and undefined ones are passed over.
        if field == b"data" { self.take_data(value) } else { Ok(()) }
    }

    fn take_data(&mut self, value: &[u8]) -> Result<(), EventTooLarge> {
        let length = self.data.as_ref().map_or(0, |data| data.len() + 1);
        if length + value.len() > MAX_EVENT {
            return Err(EventTooLarge);
        }
        let data = self.data.get_or_insert_default();
        if length > 0 {
            data.push(b'\n');
        }
        data.extend_from_slice(value);
        Ok(())
    }

    fn dispatch(&mut self, each: &mut impl FnMut(&[u8])) {
        if let Some(data) = self.data.take() {
            each(&data);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
        let mut events = Vec::new();
        let mut parser = SseParser::default();
        let mut each = |data: &[u8]| events.push(String::from_utf8_lossy(data).into_owned());
        for part in parts {
            parser.push(part, &mut each).unwrap();
        }
        parser.finish(&mut each).unwrap();
        events
    }

    /// Checks that the stream gives these events, also for every cut of the bytes into three parts.
    fn check(stream: &str, expected: &[&str]) {
        let stream = stream.as_bytes();
        assert_eq!(parse([stream]), expected);
        for first in 0..=stream.len() {
            for second in first..=stream.len() {
                let parts = [&stream[..first], &stream[first..second], &stream[second..]];
                assert_eq!(parse(parts), expected, "cut at {first} and {second}");
            }
        }
    }

    #[test]
    fn events_end_with_a_blank_line() {
        check("data: a\n\ndata:b\n\n", &["a", "b"]);
        check("event: x\ndata: a\n\ndata: b\n\n", &["a", "b"]);
    }

    #[test]
    fn all_line_ends_are_known() {
        check("data: a\r\n\r\ndata: b\r\n\r\n", &["a", "b"]);
        check("data: a\r\rdata: b\r\r", &["a", "b"]);
        check("data: a\r\ndata: c\n\r\ndata: b\n\r", &["a\nc", "b"]);
    }

    #[test]
    fn data_lines_are_joined() {
        check("data: a\ndata:\ndata:  b\n\n", &["a\n\n b"]);
        check("data\n\n", &[""]);
    }

    #[test]
    fn what_is_no_data_is_passed_over() {
        check(": keep-alive\n\n:\n\nid: 1\nretry: 5\nwhat: ever\nevent: x\n\ndata: a\n\n", &["a"]);
    }

    #[test]
    fn a_byte_order_mark_counts_only_at_the_begin() {
        check("\u{feff}data: ü\n\ndata: \u{feff}€\n\n", &["ü", "\u{feff}€"]);
    }

    #[test]
    fn the_last_blank_line_may_be_missing() {
        check("data: a\n\ndata: b\n", &["a", "b"]);
        check("data: a\n\ndata: b", &["a", "b"]);
        check("", &[]);
    }

    #[test]
    fn every_begin_of_a_stream_can_be_one_and_other_texts_cannot() {
        let is_stream = |text: &[u8]| {
            let mut parser = SseParser::default();
            parser.push(text, |_| ()).unwrap();
            parser.is_event_stream()
        };
        for stream in
            ["event: x\ndata: a\n\n", ": hi\n\n", "data:a\r\n\r\n", "id\nretry: 1\n\n", "odd: 1\ndata: a\n\n"]
        {
            let first = if stream.starts_with("odd") { 12 } else { 0 };
            for end in first..=stream.len() {
                assert!(is_stream(&stream.as_bytes()[..end]), "{:?}", &stream[..end]);
            }
        }
        for other in
            ["upstream is down", "error: x", "eventual", "evil: x", "no\nd", "dat\n", "data is missing"]
        {
            assert!(!is_stream(other.as_bytes()), "{other:?}");
        }
    }

    #[test]
    fn an_event_has_a_limit() {
        let mut parser = SseParser::default();
        let part = vec![b'x'; MAX_EVENT / 4];
        parser.push(b"data: ", |_| ()).unwrap();
        let results: Vec<_> = (0..5).map(|_| parser.push(&part, |_| ())).collect();
        assert_eq!(results.first(), Some(&Ok(())));
        assert_eq!(results.last(), Some(&Err(EventTooLarge)));
        let mut parser = SseParser::default();
        let line = [b"data: ", &part[..], b"\n"].concat();
        let results: Vec<_> = (0..5).map(|_| parser.push(&line, |_| ())).collect();
        assert_eq!(results.last(), Some(&Err(EventTooLarge)));
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_events(
            pieces in prop::collection::vec("(data: ?[aü€]{0,3}|event:x|:c|id: 1|)(\n|\r|\r\n|\n\n)|\u{feff}", 0..12),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let stream = pieces.concat().into_bytes();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
            cuts.extend([0, stream.len()]);
            cuts.sort_unstable();
            let parts = cuts.windows(2).map(|pair| &stream[pair[0]..pair[1]]);
            prop_assert_eq!(parse(parts), parse([&stream[..]]));
        }
    }
}
