//! Where the body of a forwarded request ends; pure. What follows it is not sent: it would be a request that was not
//! judged.

/// Bytes of a line in a chunked body, and of all its trailers.
const MAX_LINE_BYTES: usize = 4 << 10;

/// The length of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyLength {
    Exactly(u64),
    /// It ends with an empty chunk (RFC 9112, section 7.1).
    Chunked,
}

/// Finds the end of a body in its bytes, piece by piece.
#[derive(Debug)]
pub(super) struct BodyScanner {
    state: State,
    /// Bytes of the current line, or of all trailers.
    line: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Bytes that are left, of the body or of a chunk.
    Data {
        left: u64,
        is_chunk: bool,
    },
    /// The digits of a chunk's size so far, at least one if this is `Some`.
    Size(Option<u64>),
    /// The remainder of the line with the size.
    Extension(u64),
    /// A line feed ends the line with the size.
    SizeEnd(u64),
    /// CR behind a chunk, then LF.
    DataEnd,
    DataEndLf,
    /// The beginning of a line behind the last chunk, its remainder, and its LF.
    Trailer,
    TrailerLine,
    TrailerLineLf,
    /// The LF of the last, empty line.
    EndLf,
    End,
}

/// A body that breaks its format.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BrokenBody;

impl BodyScanner {
    pub(super) fn new(length: BodyLength) -> Self {
        let state = match length {
            BodyLength::Exactly(0) => State::End,
            BodyLength::Exactly(left) => State::Data { left, is_chunk: false },
            BodyLength::Chunked => State::Size(None),
        };
        Self { state, line: 0 }
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.state == State::End
    }

    /// The number of these bytes that belong to the body.
    pub(super) fn scan(&mut self, bytes: &[u8]) -> Result<usize, BrokenBody> {
        let mut position = 0;
        while position < bytes.len() && self.state != State::End {
            let count = if let State::Data { left, is_chunk } = self.state {
                let rest = bytes.len() - position;
                let count = usize::try_from(left).map_or(rest, |left| left.min(rest));
                self.state = match (left - count as u64, is_chunk) {
                    (0, true) => State::DataEnd,
                    (0, false) => State::End,
                    (left, is_chunk) => State::Data { left, is_chunk },
                };
                count
            } else {
                self.state = self.after(bytes[position])?;
                1
            };
            position += count;
        }
        Ok(position)
    }

    /// The state after a byte that is no data.
    fn after(&mut self, byte: u8) -> Result<State, BrokenBody> {
        self.line += 1;
        if self.line > MAX_LINE_BYTES {
            return Err(BrokenBody);
        }
        Ok(match (self.state, byte) {
            (State::Size(size), byte) if byte.is_ascii_hexdigit() => {
                let digit = char::from(byte).to_digit(16).ok_or(BrokenBody)?;
                let size = size.unwrap_or(0).checked_mul(16).ok_or(BrokenBody)?;
                State::Size(Some(size + u64::from(digit)))
            }
            (State::Size(Some(size)) | State::Extension(size), b'\r') => State::SizeEnd(size),
            (State::Size(Some(size)), b';' | b' ' | b'\t') => State::Extension(size),
            (State::Extension(size), byte) if byte != b'\n' => State::Extension(size),
            (State::SizeEnd(size), b'\n') => {
                self.line = 0;
                if size == 0 { State::Trailer } else { State::Data { left: size, is_chunk: true } }
            }
            (State::DataEnd, b'\r') => State::DataEndLf,
            (State::DataEndLf, b'\n') => {
                self.line = 0;
                State::Size(None)
            }
            (State::Trailer, b'\r') => State::EndLf,
            (State::TrailerLine, b'\r') => State::TrailerLineLf,
            (State::Trailer | State::TrailerLine, byte) if byte != b'\n' => State::TrailerLine,
            (State::TrailerLineLf, b'\n') => State::Trailer,
            (State::EndLf, b'\n') => State::End,
            (_, _) => return Err(BrokenBody),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scans a text in pieces of this size: how much belongs to the body, if it ends.
    fn scan(length: BodyLength, text: &[u8], piece: usize) -> Result<Option<usize>, BrokenBody> {
        let mut scanner = BodyScanner::new(length);
        let mut total = 0;
        for bytes in text.chunks(piece) {
            total += scanner.scan(bytes)?;
        }
        Ok(scanner.is_at_end().then_some(total))
    }

    #[test]
    fn a_body_ends_where_its_length_says() {
        let check = |length, body: &str, is_whole: bool| {
            let text = format!("{body}{}", if is_whole { "GET http://evil.org/" } else { "" });
            for piece in 1..=text.len() {
                let end = scan(length, text.as_bytes(), piece);
                assert_eq!(end, Ok(is_whole.then_some(body.len())), "{body:?} in pieces of {piece}");
            }
        };
        check(BodyLength::Exactly(0), "", true);
        check(BodyLength::Exactly(5), "12345", true);
        check(BodyLength::Exactly(6), "12345", false);
        check(BodyLength::Chunked, "0\r\n\r\n", true);
        check(BodyLength::Chunked, "5\r\nab\r\nc\r\nA;x=\"y\"\r\n0123456789\r\n00\r\n\r\n", true);
        check(BodyLength::Chunked, "1 \r\na\r\n0\r\nA: b\r\nC: d\r\n\r\n", true);
        check(BodyLength::Chunked, "5\r\nabcde\r\n0\r\n", false);
    }

    #[test]
    fn a_chunk_that_two_parsers_could_read_differently_breaks_the_body() {
        let long = format!("1;{}\r\na\r\n0\r\n\r\n", "x".repeat(MAX_LINE_BYTES));
        let trailers = format!("0\r\n{}\r\n", "A: b\r\n".repeat(MAX_LINE_BYTES / 5));
        for text in [
            "\r\n",
            "x",
            "5\nabcde\r\n",
            "5\r\nabcdef\r\n",
            "5\r\nabcde\n",
            "-1\r\n",
            "0x5\r\n",
            "+5\r\n",
            ";a\r\n",
            "11111111111111111\r\n",
            "0\r\n\n",
            "0\r\nA: b\n\r\n",
            "0\r\n\rX",
            "5\rX",
            "5;a\nb",
            &long,
            &trailers,
        ] {
            for piece in [1, 7, text.len()] {
                assert_eq!(scan(BodyLength::Chunked, text.as_bytes(), piece), Err(BrokenBody), "{text:?}");
            }
        }
    }
}
