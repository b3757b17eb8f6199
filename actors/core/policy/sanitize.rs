//! Sanitizes text of unknown origin for terminals and models: no hidden characters. Pure.

use std::{borrow::Cow, fmt::Write as _};

use super::hidden_chars::{belongs_to, has_hidden, is_hidden};

/// Bytes of unknown origin as text without hidden characters. Output of tools, files and vendors passes through it
/// before a terminal or a model receives it. A model's text does before a terminal shows it.
#[derive(Debug, Default)]
pub struct SanitizedText {
    /// The text. Controls other than newline and tab appear as symbols (`␛`), hidden characters as `<U+202E>`.
    pub text: String,
    /// How many controls and hidden characters were replaced.
    pub controls: usize,
    /// How many invalid sequences became `�`.
    pub invalid: usize,
    /// Whether no hidden character stays, so that texts that look alike are equal. Otherwise those stay that belong to
    /// the character before them: joiners in emoji and in scripts that need them.
    is_strict: bool,
    /// The last character that was appended.
    last: Option<char>,
}

impl SanitizedText {
    /// `bytes` as prose: keeps joiners and variation selectors after characters that need them.
    pub fn of(bytes: &[u8]) -> Self {
        let mut visible = Self::default();
        visible.push(bytes);
        visible
    }

    /// Prose without hidden characters; borrows `text` if it has none.
    pub fn sanitize(text: &str) -> Cow<'_, str> {
        if has_hidden(text) { Self::of(text.as_bytes()).text.into() } else { text.into() }
    }

    /// Text without any hidden character, for names, paths, commands and errors. Line breaks and tabs stay.
    pub fn strict(text: &str) -> Cow<'_, str> {
        if !has_hidden(text) {
            return text.into();
        }
        let mut visible = Self { is_strict: true, ..Self::default() };
        visible.push(text.as_bytes());
        visible.text.into()
    }

    /// A name or a path as one line without any hidden character.
    pub fn name(name: &[u8]) -> String {
        let mut visible = Self { is_strict: true, ..Self::default() };
        visible.push(name);
        visible.text.replace('\n', "␊").replace('\t', "␉")
    }

    /// Whether a terminal does not show the character as itself. False for newline and tab.
    pub const fn hides(c: char) -> bool {
        is_hidden(c)
    }

    /// Takes out the text so far. Later bytes are its continuation.
    pub fn take(&mut self) -> String {
        std::mem::take(&mut self.text)
    }

    /// Appends `bytes`.
    pub fn push(&mut self, bytes: &[u8]) {
        for chunk in bytes.utf8_chunks() {
            chunk.valid().chars().for_each(|c| self.push_char(c));
            if !chunk.invalid().is_empty() {
                self.invalid += 1;
                self.last = None;
                self.text.push(char::REPLACEMENT_CHARACTER);
            }
        }
    }

    /// A note on the replaced characters; `None` if there are none.
    pub fn remark(&self) -> Option<String> {
        let invalid =
            (self.invalid > 0).then(|| format!("{} invalid UTF-8 sequences shown as �", self.invalid));
        let controls = (self.controls > 0)
            .then(|| format!("{} hidden characters shown as symbols such as ␛ or <U+200B>", self.controls));
        let remarks: Vec<_> = invalid.into_iter().chain(controls).collect();
        (!remarks.is_empty()).then(|| remarks.join("; "))
    }

    fn push_char(&mut self, c: char) {
        let last = self.last.replace(c);
        match c {
            c if !is_hidden(c) => self.text.push(c),
            '\u{0}'..='\u{1f}' => self.push_symbol(char::from_u32(0x2400 + u32::from(c))),
            '\u{7f}' => self.push_symbol(Some('␡')),
            c if !self.is_strict && last.is_some_and(|last| belongs_to(c, last)) => {
                self.text.push(c);
            }
            c => {
                self.controls += 1;
                write!(self.text, "<U+{:04X}>", u32::from(c)).expect("writing to a string does not fail");
            }
        }
    }

    fn push_symbol(&mut self, symbol: Option<char>) {
        self.controls += 1;
        self.text.push(symbol.unwrap_or(char::REPLACEMENT_CHARACTER));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bytes: &[u8], text: &str, controls: usize, invalid: usize) {
        if let Ok(valid) = str::from_utf8(bytes) {
            assert_eq!(SanitizedText::sanitize(valid), text);
        }
        let visible = SanitizedText::of(bytes);
        assert_eq!((&*visible.text, visible.controls, visible.invalid), (text, controls, invalid));
    }

    #[test]
    fn plain_text_stays() {
        check("one\n\ttwo Größe 漢 🦀".as_bytes(), "one\n\ttwo Größe 漢 🦀", 0, 0);
    }

    #[test]
    fn controls_and_invalid_bytes_are_shown() {
        check(b"\x1b[31mred\x07\r\n\0\x7f", "␛[31mred␇␍\n␀␡", 5, 0);
        check("a\u{9b}b".as_bytes(), "a<U+009B>b", 1, 0);
        check(b"ok\xffok\xe2\x82", "ok�ok�", 0, 2);
    }

    /// One character of each class and range that a terminal does not show.
    const HIDDEN: [u32; 44] = [
        0xad, 0x34f, 0x61c, 0x115f, 0x1160, 0x17b4, 0x180b, 0x180e, 0x200b, 0x200c, 0x200d, 0x200e, 0x200f,
        0x2028, 0x2029, 0x202a, 0x202e, 0x2060, 0x2061, 0x2064, 0x2066, 0x2069, 0x206a, 0x206f, 0x3164,
        0xfe00, 0xfe0d, 0xfe0e, 0xfe0f, 0xfeff, 0xffa0, 0xfff0, 0xfff9, 0xfffa, 0xfffb, 0x13430, 0x1_bca0,
        0x1_d173, 0xe_0001, 0xe_0020, 0xe_0041, 0xe_007f, 0xe_0100, 0xe_0fff,
    ];

    #[test]
    fn every_class_of_hidden_characters_is_shown() {
        for code in HIDDEN {
            let hidden = char::from_u32(code).expect("a character");
            let shown = format!("<U+{code:04X}>");
            check(format!("a{hidden}b").as_bytes(), &format!("a{shown}b"), 1, 0);
            check(format!("{hidden}").as_bytes(), &shown, 1, 0);
            assert_eq!(SanitizedText::strict(&format!("👩{hidden}\n")), format!("👩{shown}\n"));
            assert_eq!(SanitizedText::name(format!("च{hidden}\n\t").as_bytes()), format!("च{shown}␊␉"));
        }
    }

    #[test]
    fn nothing_without_a_width_stays_by_itself() {
        for c in '\0'..=char::MAX {
            let is_shown =
                !SanitizedText::hides(c) || SanitizedText::of(c.to_string().as_bytes()).controls == 1;
            assert!(is_shown, "{c:?}");
        }
    }

    #[test]
    fn joiners_stay_where_a_text_needs_them() {
        for text in [
            "👩\u{200d}💻 👨\u{200d}👩\u{200d}👧 ❤\u{fe0f}\u{200d}🔥 👩🏽\u{200d}🚀",
            "1\u{fe0f}\u{20e3} ☎\u{fe0f} ✔\u{fe0e} ©\u{fe0f}",
            "می\u{200c}خواهم क्\u{200d}ष ශ්\u{200d}රී",
            "葛\u{e0100}城 ᠠ\u{180b}",
        ] {
            check(text.as_bytes(), text, 0, 0);
            assert!(SanitizedText::strict(text).contains("<U+"), "{text}");
        }
    }

    #[test]
    fn joiners_hide_nothing() {
        check("👩\u{200d}\u{200d}x".as_bytes(), "👩\u{200d}<U+200D>x", 1, 0);
        check("می\u{200c}\u{200c}".as_bytes(), "می\u{200c}<U+200C>", 1, 0);
        check("☎\u{fe0f}\u{fe0f}\u{fe01}".as_bytes(), "☎\u{fe0f}<U+FE0F><U+FE01>", 2, 0);
        check("😀\u{e0100}".as_bytes(), "😀<U+E0100>", 1, 0);
        check("a\u{200d}b".as_bytes(), "a<U+200D>b", 1, 0);
    }

    #[test]
    fn a_text_may_come_in_pieces() {
        let mut visible = SanitizedText::default();
        visible.push("👩".as_bytes());
        assert_eq!(visible.take(), "👩");
        visible.push("\u{200d}💻\u{200d}".as_bytes());
        assert_eq!(visible.take(), "\u{200d}💻\u{200d}");
        visible.push("\u{200d}\x1b".as_bytes());
        assert_eq!((&*visible.take(), visible.controls), ("<U+200D>␛", 2));
    }

    #[test]
    fn the_remark_counts() {
        assert_eq!(SanitizedText::of(b"fine").remark(), None);
        let remark = "1 invalid UTF-8 sequences shown as �; 2 hidden characters shown as symbols such as ␛ or <U+200B>";
        assert_eq!(
            SanitizedText::of("\x1b_\u{200b}".as_bytes()).remark(),
            Some(remark.replace("1 invalid UTF-8 sequences shown as �; ", ""))
        );
        assert_eq!(SanitizedText::of(b"\x1b\xff\x1b").remark().as_deref(), Some(remark));
    }
}
