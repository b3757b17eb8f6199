use std::{borrow::Cow, fmt::Write as _};

/// Bytes of unknown origin as text in which nothing hides.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Visible {
    /// The text. Controls other than newline and tab stand as symbols (`␛`), invisible formatting as `<U+202E>`.
    pub text: String,
    /// How many controls and invisible characters were replaced.
    pub controls: usize,
    /// How many invalid sequences became `�`.
    pub invalid: usize,
}

impl Visible {
    /// `bytes` as text.
    pub fn of(bytes: &[u8]) -> Self {
        let mut visible = Self::default();
        visible.push(bytes);
        visible
    }

    /// A text in which nothing hides; itself, if nothing did.
    pub fn text(text: &str) -> Cow<'_, str> {
        let hides = |c: char| (c < ' ' && c != '\n' && c != '\t') || c == '\u{7f}' || is_invisible(c);
        if text.contains(hides) { Self::of(text.as_bytes()).text.into() } else { text.into() }
    }

    /// Appends `bytes`.
    pub fn push(&mut self, bytes: &[u8]) {
        for chunk in bytes.utf8_chunks() {
            chunk.valid().chars().for_each(|c| self.push_char(c));
            if !chunk.invalid().is_empty() {
                self.invalid += 1;
                self.text.push(char::REPLACEMENT_CHARACTER);
            }
        }
    }

    /// A remark on what was replaced, or `None`.
    pub fn remark(&self) -> Option<String> {
        let invalid =
            (self.invalid > 0).then(|| format!("{} invalid UTF-8 sequences shown as �", self.invalid));
        let controls = (self.controls > 0)
            .then(|| format!("{} control characters shown as symbols such as ␛ or ␍", self.controls));
        let remarks: Vec<_> = invalid.into_iter().chain(controls).collect();
        (!remarks.is_empty()).then(|| remarks.join("; "))
    }

    fn push_char(&mut self, c: char) {
        match c {
            '\n' | '\t' => self.text.push(c),
            '\u{0}'..='\u{1f}' => self.push_symbol(char::from_u32(0x2400 + u32::from(c))),
            '\u{7f}' => self.push_symbol(Some('␡')),
            c if is_invisible(c) => {
                self.controls += 1;
                write!(self.text, "<U+{:04X}>", u32::from(c)).expect("writing to a string does not fail");
            }
            c => self.text.push(c),
        }
    }

    fn push_symbol(&mut self, symbol: Option<char>) {
        self.controls += 1;
        self.text.push(symbol.unwrap_or(char::REPLACEMENT_CHARACTER));
    }
}

/// C1 controls, text direction overrides and tags: they change what a reader sees, or are seen by a model alone.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{80}'..='\u{9f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], text: &str, controls: usize, invalid: usize) {
        if let Ok(valid) = str::from_utf8(bytes) {
            assert_eq!(Visible::text(valid), text);
        }
        assert_eq!(Visible::of(bytes), Visible { text: text.into(), controls, invalid });
    }

    #[test]
    fn plain_text_stays() {
        check("one\n\ttwo Größe 漢 🦀".as_bytes(), "one\n\ttwo Größe 漢 🦀", 0, 0);
    }

    #[test]
    fn nothing_hides() {
        check(b"\x1b[31mred\x07\r\n\0\x7f", "␛[31mred␇␍\n␀␡", 5, 0);
        check("a\u{202e}b\u{9b}c\u{e0041}".as_bytes(), "a<U+202E>b<U+009B>c<U+E0041>", 3, 0);
        check(b"ok\xffok\xe2\x82", "ok�ok�", 0, 2);
    }

    #[test]
    fn the_remark_counts() {
        assert_eq!(Visible::of(b"fine").remark(), None);
        let remark =
            "1 invalid UTF-8 sequences shown as �; 2 control characters shown as symbols such as ␛ or ␍";
        assert_eq!(Visible::of(b"\x1b\xff\x1b").remark().as_deref(), Some(remark));
    }
}
