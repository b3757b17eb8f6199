//! Lines of a given width: clean text, its width, its wrapping. Every text of a model or a tool passes [`clean`].

use std::{borrow::Cow, fmt::Display};

use hermod_core::policy::SanitizedText;
use ratatui_core::{
    style::Style,
    text::{Line, Span},
};
use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::UnicodeWidthStr as _;

/// The text without control characters, escape sequences and tabs.
pub(crate) fn clean(text: &str) -> String {
    let lines: Cow<'_, str> =
        if text.contains('\r') { text.replace("\r\n", "\n").into() } else { text.into() };
    let clean = SanitizedText::sanitize(&lines);
    if clean.contains('\t') { clean.replace('\t', "    ") } else { clean.into_owned() }
}

/// The first line of a text, cleaned, of at most so many columns.
pub(crate) fn clean_line(text: &str, columns: usize) -> String {
    let line: String = text.trim().lines().next().unwrap_or_default().chars().take(columns + 1).collect();
    cut(&clean(&line), columns)
}

/// The columns of a text.
pub(crate) fn columns(text: &str) -> usize {
    text.width()
}

/// The text, cut to so many columns; an ellipsis stands for the rest.
pub(crate) fn cut(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let (mut kept, mut used) = (String::new(), 1);
    for grapheme in text.graphemes(true) {
        used += grapheme.width();
        if used > columns {
            break;
        }
        kept.push_str(grapheme);
    }
    if columns > 0 {
        kept.push('…');
    }
    kept
}

/// A count and its noun, in the plural unless it is one.
pub fn counted<N: Display + From<u8> + PartialEq>(count: N, noun: &str) -> String {
    let plural = if count == N::from(1) { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// A length as cells of the screen.
pub(crate) fn cells(length: usize) -> u16 {
    u16::try_from(length).unwrap_or(u16::MAX)
}

/// What stands before the lines of a text.
#[derive(Debug, Clone, Default)]
pub(crate) struct Margin {
    /// Before its first line.
    pub(crate) first: Vec<Span<'static>>,
    /// Before the others.
    pub(crate) rest: Vec<Span<'static>>,
}

impl Margin {
    /// A symbol before the first line, and as many spaces before the others.
    pub(crate) fn symbol(symbol: impl Into<String>, style: Style) -> Self {
        let symbol = symbol.into();
        let rest = " ".repeat(symbol.width());
        Self { first: vec![Span::styled(symbol, style)], rest: vec![Span::raw(rest)] }
    }

    /// The same text before every line.
    pub(crate) fn every(text: &'static str, style: Style) -> Self {
        let span = Span::styled(text, style);
        Self { first: vec![span.clone()], rest: vec![span] }
    }
}

/// Where a line may be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Breaks {
    /// Between words; a longer word anywhere.
    Words,
    /// Anywhere: code keeps its spaces.
    Anywhere,
}

#[derive(Debug, Clone, Copy)]
struct Cell<'a> {
    text: &'a str,
    style: Style,
    columns: usize,
}

/// Appends the lines that a text takes in `width` columns.
pub(crate) fn wrap(
    spans: &[Span<'_>],
    (width, breaks): (usize, Breaks),
    margin: &Margin,
    to: &mut Vec<Line<'static>>,
) {
    let cells: Vec<Cell<'_>> = spans
        .iter()
        .flat_map(|span| {
            let style = span.style;
            let cell = move |text| Cell { text, style, columns: str::width(text) };
            span.content.graphemes(true).map(cell)
        })
        .collect();
    let (mut start, mut is_first) = (0, true);
    loop {
        let before = if is_first { &margin.first } else { &margin.rest };
        let taken: usize = before.iter().map(|span| span.content.width()).sum();
        let end = line_end(&cells, start, (width.saturating_sub(taken).max(1), breaks));
        let mut line = before.clone();
        push_cells(&cells[start..end], &mut line);
        to.push(Line::from(line));
        start = end;
        if breaks == Breaks::Words {
            start += cells[start..].iter().take_while(|cell| cell.text == " ").count();
        }
        if start >= cells.len() {
            return;
        }
        is_first = false;
    }
}

/// The end of the line that begins at `start`: at least one cell of those that are left.
fn line_end(cells: &[Cell<'_>], start: usize, (width, breaks): (usize, Breaks)) -> usize {
    let (mut used, mut end, mut word) = (0, start, None);
    while let Some(cell) = cells.get(end) {
        if used + cell.columns > width && end > start {
            break;
        }
        if cell.text == " " {
            word = Some(end + 1);
        }
        used += cell.columns;
        end += 1;
    }
    let is_cut = cells.get(end).is_some_and(|next| next.text != " ");
    match word {
        Some(word) if is_cut && breaks == Breaks::Words && word > start => word,
        _ => end,
    }
}

/// Appends cells as spans of one style each.
fn push_cells(cells: &[Cell<'_>], to: &mut Vec<Span<'static>>) {
    let mut rest = cells;
    while let Some(first) = rest.first() {
        let length = rest.iter().take_while(|cell| cell.style == first.style).count();
        let text: String = rest[..length].iter().map(|cell| cell.text).collect();
        to.push(Span::styled(text, first.style));
        rest = &rest[length..];
    }
}

/// Appends the lines of a plain text in one style.
pub(crate) fn wrap_text(
    text: &str,
    (width, breaks): (usize, Breaks),
    (margin, style): (&Margin, Style),
    to: &mut Vec<Line<'static>>,
) {
    let mut margin = margin.clone();
    for line in text.split('\n') {
        wrap(&[Span::styled(line, style)], (width, breaks), &margin, to);
        margin.first.clone_from(&margin.rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, (width, breaks): (usize, Breaks), expect: &[&str]) {
        let mut lines = Vec::new();
        wrap_text(text, (width, breaks), (&Margin::symbol("> ", Style::new()), Style::new()), &mut lines);
        let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
        assert_eq!(lines, expect);
        assert!(lines.iter().all(|line| columns(line.trim_end()) <= width.max(4)), "{lines:?}");
    }

    #[test]
    fn lines_are_broken_between_words_and_within_long_ones() {
        check("one two three", (9, Breaks::Words), &["> one two", "  three"]);
        check("one two three", (10, Breaks::Words), &["> one two ", "  three"]);
        check("abcdefgh", (5, Breaks::Words), &["> abc", "  def", "  gh"]);
        check("a\n\nb", (9, Breaks::Words), &["> a", "  ", "  b"]);
        check("", (9, Breaks::Words), &["> "]);
        check("漢字漢字", (6, Breaks::Words), &["> 漢字", "  漢字"]);
        check("漢", (3, Breaks::Words), &["> 漢"]);
        check("a  b c", (4, Breaks::Anywhere), &["> a ", "   b", "   c"]);
        check("e\u{301}e\u{301}e\u{301}", (4, Breaks::Anywhere), &["> e\u{301}e\u{301}", "  e\u{301}"]);
        check("x y", (0, Breaks::Words), &["> x", "  y"]);
    }

    #[test]
    fn no_control_character_is_left() {
        assert_eq!(clean("a\x1b[31mb\r\nc\td\u{202e}"), "a␛[31mb\nc    d<U+202E>");
        assert_eq!(clean_line("  first\nsecond", 3), "fi…");
        assert_eq!(cut("漢字漢字", 6), "漢字…");
        assert_eq!(cut("x", 0), "");
    }
}
