//! Bounded texts for results: a page of whole lines from a text file, and a list of lines with a limit.

use hermod_actors::SanitizedText;

use crate::process::without_cut_end;

/// Default limit of lines per page.
pub(super) const DEFAULT_LINES: u64 = 2000;
/// Limit of a page's text in bytes, with its remarks.
pub(super) const MAX_PAGE_BYTES: usize = 50_000;
/// Bytes reserved for remarks.
const REMARKS_BYTES: usize = 400;

/// Extracts one page of whole lines from a stream of bytes.
#[derive(Debug)]
pub(super) struct TextPage {
    offset: u64,
    limit: u64,
    /// The line of the next byte, counted from 1.
    line: u64,
    /// Bytes of that line so far.
    length: u64,
    /// The beginning of that line, if it is on the page.
    current: Vec<u8>,
    text: SanitizedText,
    /// Lines on the page.
    count: u64,
    is_full: bool,
    /// Full length of the page's last line in bytes, if it is truncated.
    cut_line_bytes: Option<u64>,
}

impl TextPage {
    /// A page of at most `limit` lines from line `offset` on, counted from 1.
    pub(super) fn new(offset: u64, limit: u64) -> Self {
        let (line, length, count) = (1, 0, 0);
        let (current, text) = (Vec::new(), SanitizedText::default());
        Self { offset, limit, line, length, current, text, count, is_full: false, cut_line_bytes: None }
    }

    /// Adds the next bytes of the stream.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.length += piece.len() as u64;
            if !self.is_full && self.line >= self.offset {
                // One byte more than fits shows that the line is too long.
                let bytes_left = (MAX_PAGE_BYTES - REMARKS_BYTES + 1).saturating_sub(self.current.len());
                self.current.extend_from_slice(&piece[..piece.len().min(bytes_left)]);
            }
            if piece.ends_with(b"\n") {
                self.end_line();
            }
        }
    }

    /// True if the page takes no further lines.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// The text, with remarks in brackets at its end. `is_whole` tells whether the whole stream was pushed. The error is
    /// the number of lines of a stream that ends before the offset.
    pub(super) fn finish(mut self, is_whole: bool) -> Result<String, u64> {
        if self.length > 0 {
            self.end_line();
        }
        let lines = self.line - 1;
        if lines == 0 {
            return Ok("[empty file]".into());
        }
        if self.offset > lines {
            return Err(lines);
        }
        let remarks = self.remarks(lines, is_whole);
        let mut text = self.text.text;
        if !remarks.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        Ok(text + &remarks.join("\n"))
    }

    fn end_line(&mut self) {
        if !self.is_full && self.line >= self.offset {
            self.show_line();
        }
        self.line += 1;
        self.length = 0;
        self.current.clear();
    }

    fn show_line(&mut self) {
        let is_whole = self.length == self.current.len() as u64;
        let mut line =
            SanitizedText::of(if is_whole { &self.current } else { without_cut_end(&self.current) });
        let bytes_left = MAX_PAGE_BYTES - REMARKS_BYTES - self.text.text.len();
        let fits = is_whole && line.text.len() <= bytes_left;
        if !fits && self.count > 0 {
            self.is_full = true;
            return;
        }
        if !fits {
            line.text.truncate(line.text.floor_char_boundary(bytes_left));
            self.cut_line_bytes = Some(self.length);
        }
        self.text.text.push_str(&line.text);
        self.text.controls += line.controls;
        self.text.invalid += line.invalid;
        self.count += 1;
        self.is_full = !fits || self.count == self.limit;
    }

    fn remarks(&self, lines: u64, is_whole: bool) -> Vec<String> {
        let last = self.offset + self.count - 1;
        let cut = self.cut_line_bytes.map(|length| {
            format!(
                "[line {last} has {length} bytes, only its beginning is shown; `shell` can cut out the rest]"
            )
        });
        let total = if is_whole { lines.to_string() } else { format!("more than {lines}") };
        let more = (last < lines || !is_whole).then(|| {
            let (first, next) = (self.offset, last + 1);
            format!("[truncated: lines {first}-{last} of {total}; call again with offset {next}]")
        });
        let replaced = self.text.remark().map(|remark| format!("[{remark}]"));
        [cut, replaced, more].into_iter().flatten().collect()
    }
}

/// The lines of a result, bounded in number and bytes.
#[derive(Debug)]
pub(super) struct BoundedLines {
    pub(super) text: String,
    /// Number of lines.
    pub(super) count: usize,
    limit: usize,
    max_bytes: usize,
    /// Whether a line did not fit.
    pub(super) is_truncated: bool,
}

impl BoundedLines {
    /// No lines yet, and room for `limit` lines and `max_bytes` bytes.
    pub(super) const fn new(limit: usize, max_bytes: usize) -> Self {
        Self { text: String::new(), count: 0, limit, max_bytes, is_truncated: false }
    }

    /// Adds a line if it fits.
    pub(super) fn push(&mut self, line: &str) {
        if self.count == self.limit || self.text.len() + line.len() >= self.max_bytes {
            self.is_truncated = true;
            return;
        }
        self.count += 1;
        self.text.push_str(line);
        self.text.push('\n');
    }

    /// The bound that ended the list, as text for the remark.
    pub(super) const fn bound(&self) -> &'static str {
        if self.count == self.limit { "`limit`" } else { "50 kB" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paged(stream: &[u8], chunk: usize, (offset, limit): (u64, u64)) -> Result<String, u64> {
        let mut page = TextPage::new(offset, limit);
        stream.chunks(chunk).for_each(|bytes| page.push(bytes));
        page.finish(true)
    }

    fn check(stream: &[u8], window: (u64, u64), expected: &str) {
        for chunk in [1, 3, 1 << 20] {
            assert_eq!(paged(stream, chunk, window), Ok(expected.into()), "in chunks of {chunk}");
        }
    }

    #[test]
    fn lines_are_counted_from_one() {
        check(b"", (1, 9), "[empty file]");
        check(b"a\nb\nc\n", (1, 9), "a\nb\nc\n");
        check(b"a\nb\nc", (2, 9), "b\nc");
        check(b"a\nb\nc\n", (1, 2), "a\nb\n[truncated: lines 1-2 of 3; call again with offset 3]");
        check(b"a\nb\nc\nd\n", (2, 1), "b\n[truncated: lines 2-2 of 4; call again with offset 3]");
        check(b"\n\n", (1, 9), "\n\n");
        assert_eq!(paged(b"a\nb", 1, (3, 1)), Err(2));
    }

    #[test]
    fn nothing_hides_on_a_page() {
        let remark = "[1 invalid UTF-8 sequences shown as �; 1 hidden characters shown as symbols such as ␛ or <U+200B>]";
        check(b"\x1b[1m\xff", (1, 9), &format!("␛[1m�\n{remark}"));
    }

    #[test]
    fn a_page_holds_whole_lines_within_its_room() {
        let line = [vec![b'x'; 999], vec![b'\n']].concat();
        let fits = (MAX_PAGE_BYTES - REMARKS_BYTES) / line.len();
        let remark = format!("[truncated: lines 1-{fits} of 80; call again with offset {}]", fits + 1);
        let text = String::from_utf8(line.repeat(fits)).unwrap();
        check(&line.repeat(80), (1, 2000), &(text + &remark));
    }

    #[test]
    fn a_line_that_is_longer_than_a_page_is_cut() {
        let stream = format!("{}\nb\n", "é".repeat(MAX_PAGE_BYTES));
        let Ok(text) = paged(stream.as_bytes(), 4096, (1, 9)) else { panic!("expected text") };
        assert!(text.len() <= MAX_PAGE_BYTES && text.starts_with("éé"), "{} bytes", text.len());
        let cut = "[line 1 has 100001 bytes, only its beginning is shown; `shell` can cut out the rest]";
        assert!(text.ends_with(&format!("é\n{cut}\n[truncated: lines 1-1 of 2; call again with offset 2]")));
    }

    #[test]
    fn paging_on_gives_every_line_once() {
        let stream: String = (1..=3000)
            .flat_map(|n| ["line ", "\u{1b}".repeat(n % 50).as_str(), "\n"].map(str::to_owned))
            .collect();
        let (mut offset, mut lines) = (1, Vec::new());
        while let Ok(text) = paged(stream.as_bytes(), 1000, (offset, 500)) {
            assert!(text.len() <= MAX_PAGE_BYTES);
            lines.extend(text.lines().filter(|line| !line.starts_with('[')).map(str::to_owned));
            offset = lines.len() as u64 + 1;
        }
        assert_eq!(lines.concat(), SanitizedText::of(stream.replace('\n', "").as_bytes()).text);
    }
}
