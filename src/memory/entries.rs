//! The two memory files by name, the entries of a file and their text form, and the characters that an entry must not
//! have.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Separates two entries; alone on its line.
const MARK: &str = "§";
const SEPARATOR: &str = "\n§\n";

/// Which of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// What was learned about the work.
    Memory,
    /// What is known of the user.
    User,
}

impl Target {
    /// Both files.
    pub const ALL: [Self; 2] = [Self::Memory, Self::User];

    /// The file's name.
    pub const fn file(self) -> &'static str {
        match self {
            Self::Memory => "MEMORY.md",
            Self::User => "USER.md",
        }
    }
}

/// The entries of a file, in file order: none is empty or a duplicate, and none has a line with only the separator
/// mark.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MemoryEntries(Vec<String>);

impl MemoryEntries {
    /// Parses a file, which a person may have edited.
    pub fn parse(text: &str) -> Self {
        let mut entries = Self::default();
        let (mut lines, mut entry) = (text.lines(), Vec::new());
        loop {
            let line = lines.next();
            match line {
                Some(line) if line.trim() != MARK => entry.push(line),
                Some(_) | None => {
                    entries.push(entry.join("\n").trim());
                    entry.clear();
                }
            }
            if line.is_none() {
                return entries;
            }
        }
    }

    /// The file's text. Parsing it gives the same entries.
    pub fn text(&self) -> String {
        self.0.join(SEPARATOR)
    }

    /// Characters (not bytes) of the file's text, separators included.
    pub fn chars(&self) -> usize {
        let between = SEPARATOR.chars().count() * self.0.len().saturating_sub(1);
        self.0.iter().map(|entry| entry.chars().count()).sum::<usize>() + between
    }

    /// The entries.
    pub fn all(&self) -> &[String] {
        &self.0
    }

    /// Whether an entry equals this text.
    pub fn contains(&self, entry: &str) -> bool {
        self.0.iter().any(|known| known == entry)
    }

    /// Appends an entry, unless it is empty or present. The caller makes sure that it has no separator line.
    pub(super) fn push(&mut self, entry: &str) {
        if !entry.is_empty() && !self.contains(entry) {
            self.0.push(entry.to_owned());
        }
    }

    /// Replaces `old` by `new` in place; if `new` is present already, only removes `old`.
    pub(super) fn replace(&mut self, old: &str, new: &str) {
        if old != new && self.contains(new) {
            return self.remove(old);
        }
        for entry in self.0.iter_mut().filter(|entry| *entry == old) {
            new.clone_into(entry);
        }
    }

    pub(super) fn remove(&mut self, old: &str) {
        self.0.retain(|entry| entry != old);
    }
}

/// Whether a text has a line that would separate entries.
pub(super) fn has_mark(text: &str) -> bool {
    text.lines().any(|line| line.trim() == MARK)
}

/// The first invisible or direction-changing character of a text, and its position counted from 1. Newline and tab are
/// allowed.
pub(super) fn first_hidden(text: &str) -> Option<(usize, char)> {
    (1..).zip(text.chars()).find(|(_, c)| {
        let is_layout = matches!(c, '\n' | '\t');
        (c.is_control() && !is_layout)
            || matches!(c,
                '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
                | '\u{180b}'..='\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e0fff}')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: &[&str]) {
        let entries = MemoryEntries::parse(text);
        assert_eq!(entries.all(), expect);
        assert_eq!(MemoryEntries::parse(&entries.text()), entries);
        assert_eq!(entries.chars(), entries.text().chars().count());
    }

    #[test]
    fn a_file_is_entries_between_marks() {
        check("", &[]);
        check("one", &["one"]);
        check("one\n§\ntwo\nlines\n§\nthree", &["one", "two\nlines", "three"]);
        // A file that a person edited.
        check("\n§\r\n one \r\n §  \n\n§\ntwo\n§\none\n\n", &["one", "two"]);
        check("§ is a sign\n§§", &["§ is a sign\n§§"]);
    }

    #[test]
    fn what_hides_is_found() {
        for fine in ["", "Größe 漢 🦀 ❤\u{fe0f}\n\ttwo", "§ 5"] {
            assert_eq!(first_hidden(fine), None, "{fine}");
        }
        for c in [
            '\0', '\r', '\u{1b}', '\u{7f}', '\u{9b}', '\u{200b}', '\u{200d}', '\u{202e}', '\u{2066}',
            '\u{feff}',
        ] {
            assert_eq!(first_hidden(&format!("ab{c}")), Some((3, c)));
        }
        assert!(has_mark("a\n § \nb") && !has_mark("a § b\n§§"));
    }
}
