//! Reads lines of bounded length from a socket.

use std::io;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

/// Reads lines of at most `max` bytes.
#[derive(Debug)]
pub(super) struct LineReader<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
    max: usize,
}

/// Why there is no line.
#[derive(Debug, thiserror::Error)]
pub(super) enum LineError {
    /// The line is too long, and the start of the next one is unknown.
    #[error("a line has more than {0} bytes")]
    TooLong(usize),
    /// The stream cannot be read; usually the other side is gone.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    pub(super) fn new(reader: R, max: usize) -> Self {
        Self { reader: BufReader::new(reader), line: Vec::new(), max }
    }

    /// The next line without its newline; `None` at the end of the stream, also within a line. Cancel-safe: dropping
    /// the future loses nothing.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<u8>>, LineError> {
        loop {
            let read = self.reader.fill_buf().await?;
            if read.is_empty() {
                return Ok(None);
            }
            let end = memchr::memchr(b'\n', read);
            let part = &read[..end.unwrap_or(read.len())];
            if self.line.len() + part.len() > self.max {
                return Err(LineError::TooLong(self.max));
            }
            self.line.extend_from_slice(part);
            let used = part.len() + usize::from(end.is_some());
            self.reader.consume(used);
            if end.is_some() {
                return Ok(Some(std::mem::take(&mut self.line)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_have_an_end_and_a_limit() {
        let mut lines = LineReader::new(&b"one\n\nthree\nfo"[..], 5);
        for expect in [Some("one"), Some(""), Some("three"), None] {
            let line = lines.next().await.unwrap();
            assert_eq!(line.as_deref(), expect.map(str::as_bytes));
        }
        let mut lines = LineReader::new(&b"123456"[..], 5);
        assert!(matches!(lines.next().await, Err(LineError::TooLong(5))));
    }
}
