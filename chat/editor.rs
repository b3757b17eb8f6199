//! The input: a text of several lines with a cursor, a cut text, and the history of what was sent.

use unicode_segmentation::UnicodeSegmentation as _;

/// Earlier inputs that are kept.
const MAX_HISTORY: usize = 500;
/// Bytes of the input; more of a paste is cut.
pub(crate) const MAX_INPUT_BYTES: usize = 1 << 20;

/// The text that is being written.
#[derive(Debug, Default)]
pub(crate) struct Editor {
    text: String,
    /// The byte before which the cursor stands, between two graphemes.
    cursor: usize,
    /// What was cut last.
    cut: String,
    history: Vec<String>,
    /// The place in the history that is shown, and the text before it was.
    recalled: Option<(usize, String)>,
}

/// A movement of the cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Motion {
    /// By a character.
    Left,
    /// By a character.
    Right,
    /// By a word.
    WordLeft,
    /// By a word.
    WordRight,
    /// To the begin of the line.
    Home,
    /// To the end of the line.
    End,
}

impl Editor {
    /// The text.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The byte before which the cursor stands.
    pub(crate) const fn cursor(&self) -> usize {
        self.cursor
    }

    /// True without a text.
    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Replaces the text; the cursor stands behind it.
    pub(crate) fn set(&mut self, text: String) {
        self.text = text;
        self.cursor = self.text.len();
    }

    /// Takes the text out, and remembers it.
    pub(crate) fn take(&mut self) -> String {
        let text = std::mem::take(&mut self.text);
        self.cursor = 0;
        self.remember(&text);
        text
    }

    /// Adds an earlier input to the history.
    pub(crate) fn remember(&mut self, text: &str) {
        self.recalled = None;
        if !text.trim().is_empty() && self.history.last().is_none_or(|last| last != text) {
            self.history.push(text.to_owned());
            if self.history.len() > MAX_HISTORY {
                self.history.remove(0);
            }
        }
    }

    /// Inserts a text at the cursor.
    pub(crate) fn insert(&mut self, text: &str) {
        let mut space = MAX_INPUT_BYTES.saturating_sub(self.text.len()).min(text.len());
        while !text.is_char_boundary(space) {
            space -= 1;
        }
        self.text.insert_str(self.cursor, &text[..space]);
        self.cursor += space;
    }

    /// Replaces what stands between `start` and the cursor.
    pub(crate) fn complete(&mut self, start: usize, text: &str) {
        if start <= self.cursor && self.text.is_char_boundary(start) {
            self.text.replace_range(start..self.cursor, text);
            self.cursor = start + text.len();
        }
    }

    /// Moves the cursor.
    pub(crate) fn go(&mut self, motion: Motion) {
        self.cursor = self.target(motion);
    }

    fn target(&self, motion: Motion) -> usize {
        let (before, after) = self.text.split_at(self.cursor);
        match motion {
            Motion::Left => self.cursor - before.graphemes(true).next_back().map_or(0, str::len),
            Motion::Right => self.cursor + after.graphemes(true).next().map_or(0, str::len),
            Motion::WordLeft => {
                let word = before.trim_end();
                word.rfind(char::is_whitespace)
                    .map_or(0, |at| at + word[at..].chars().next().map_or(0, char::len_utf8))
            }
            Motion::WordRight => {
                let space = after.len() - after.trim_start().len();
                let word = after[space..].find(char::is_whitespace).unwrap_or(after.len() - space);
                self.cursor + space + word
            }
            Motion::Home => before.rfind('\n').map_or(0, |at| at + 1),
            Motion::End => self.cursor + after.find('\n').unwrap_or(after.len()),
        }
    }

    /// Removes up to where the motion leads.
    pub(crate) fn remove(&mut self, motion: Motion) -> String {
        let target = self.target(motion);
        let range = self.cursor.min(target)..self.cursor.max(target);
        self.cursor = range.start;
        let removed = self.text[range.clone()].to_owned();
        self.text.replace_range(range, "");
        removed
    }

    /// Cuts up to where the motion leads; at the end of a line, the line's end.
    pub(crate) fn cut(&mut self, motion: Motion) {
        let cut = self.remove(motion);
        let cut = if cut.is_empty() && motion == Motion::End { self.remove(Motion::Right) } else { cut };
        if !cut.is_empty() {
            self.cut = cut;
        }
    }

    /// Inserts what was cut last.
    pub(crate) fn put(&mut self) {
        let cut = self.cut.clone();
        self.insert(&cut);
    }

    /// Moves the cursor a line up; false in the first line.
    pub(crate) fn up(&mut self) -> bool {
        let start = self.target(Motion::Home);
        if start == 0 {
            return false;
        }
        let column = self.text[start..self.cursor].graphemes(true).count();
        self.cursor = start - 1;
        self.cursor = self.target(Motion::Home);
        self.go_to_column(column);
        true
    }

    /// Moves the cursor a line down; false in the last line.
    pub(crate) fn down(&mut self) -> bool {
        let end = self.target(Motion::End);
        if end == self.text.len() {
            return false;
        }
        let column = self.text[self.target(Motion::Home)..self.cursor].graphemes(true).count();
        self.cursor = end + 1;
        self.go_to_column(column);
        true
    }

    fn go_to_column(&mut self, column: usize) {
        let end = self.target(Motion::End);
        let line = &self.text[self.cursor..end];
        self.cursor += line.graphemes(true).take(column).map(str::len).sum::<usize>();
    }

    /// Shows the input before the one that is shown.
    pub(crate) fn recall_earlier(&mut self) {
        let at = self.recalled.as_ref().map_or(self.history.len(), |(at, _)| *at);
        let Some(earlier) = at.checked_sub(1).and_then(|at| self.history.get(at)) else { return };
        let earlier = earlier.clone();
        let written = self.recalled.take().map_or_else(|| self.text.clone(), |(_, written)| written);
        self.recalled = Some((at - 1, written));
        self.set(earlier);
    }

    /// Shows the input after the one that is shown, at last what was being written.
    pub(crate) fn recall_later(&mut self) {
        let Some((at, written)) = self.recalled.take() else { return };
        match self.history.get(at + 1).cloned() {
            Some(later) => {
                self.recalled = Some((at + 1, written));
                self.set(later);
            }
            None => self.set(written),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An editor with this text; `|` is the cursor.
    fn editor(text: &str) -> Editor {
        let cursor = text.find('|').unwrap();
        Editor { text: text.replace('|', ""), cursor, ..Editor::default() }
    }

    fn shown(editor: &Editor) -> String {
        let (before, after) = editor.text.split_at(editor.cursor);
        format!("{before}|{after}")
    }

    #[test]
    fn the_cursor_moves_by_characters_words_and_lines() {
        let check = |text: &str, motion, expect: &str| {
            let mut editor = editor(text);
            editor.go(motion);
            assert_eq!(shown(&editor), expect);
        };
        check("ae\u{301}|", Motion::Left, "a|e\u{301}");
        check("|👨‍👩‍👧b", Motion::Right, "👨‍👩‍👧|b");
        check("|", Motion::Left, "|");
        check("one two |", Motion::WordLeft, "one |two ");
        check("one| two three", Motion::WordRight, "one two| three");
        check("a\nbc|d\ne", Motion::Home, "a\n|bcd\ne");
        check("a\nb|cd\ne", Motion::End, "a\nbcd|\ne");
    }

    #[test]
    fn text_is_cut_and_put_back() {
        let mut editor = editor("one two| three\nfour");
        editor.cut(Motion::WordLeft);
        assert_eq!(shown(&editor), "one | three\nfour");
        editor.put();
        editor.cut(Motion::End);
        assert_eq!(shown(&editor), "one two|\nfour");
        editor.cut(Motion::End);
        assert_eq!(shown(&editor), "one two|four", "the end of the line");
        editor.cut(Motion::Home);
        assert_eq!(shown(&editor), "|four");
        editor.remove(Motion::Right);
        assert_eq!(shown(&editor), "|our");
    }

    #[test]
    fn lines_up_and_down_keep_the_column() {
        let mut editor = editor("long line\nab\nthi|rd");
        assert!(editor.up());
        assert_eq!(shown(&editor), "long line\nab|\nthird");
        assert!(editor.up());
        assert_eq!(shown(&editor), "lo|ng line\nab\nthird");
        assert!(!editor.up());
        assert!(editor.down() && editor.down() && !editor.down());
        assert_eq!(shown(&editor), "long line\nab\nth|ird");
    }

    #[test]
    fn earlier_inputs_come_back_and_what_was_being_written_too() {
        let mut editor = Editor::default();
        for text in ["first", "second", "second", " "] {
            editor.set(text.to_owned());
            editor.take();
        }
        editor.set("new".to_owned());
        let mut check = |earlier: bool, expect: &str| {
            if earlier {
                editor.recall_earlier();
            } else {
                editor.recall_later();
            }
            assert_eq!(editor.text(), expect);
        };
        check(true, "second");
        check(true, "first");
        check(true, "first");
        check(false, "second");
        check(false, "new");
        check(false, "new");
    }

    #[test]
    fn the_input_is_bounded() {
        let mut editor = Editor::default();
        editor.insert(&"é".repeat(MAX_INPUT_BYTES));
        assert!(editor.text().len() <= MAX_INPUT_BYTES);
        editor.insert("x");
        assert!(editor.text().len() <= MAX_INPUT_BYTES);
    }
}
